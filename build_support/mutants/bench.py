"""The copy with planted mistakes: runs tests there and names the failing test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from build_support.imports import ROOT
from build_support.mutants.compiled import VARIABLE

SECONDS = 300
_EVERY_CASE = ("-p", "build_support.mutants.every_case")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py\S*(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Killer:
    """A failing test, or a test file that hangs or crashes without naming a test."""

    file: str
    test: str


class Bench:
    """Runs tests in a copy of the checkout, alternately with and without a mistake."""

    def __init__(self, copy: Path, seed: int) -> None:
        self._copy = copy
        self._seed = seed
        self._switch = 0

    @contextmanager
    def planted(self, path: str, source: str, switch: int) -> Iterator[None]:
        """Put a mistake into the copy: in a source, or by the switch of a compiled mistake."""
        if source:
            (self._copy / path).write_text(source, encoding="utf-8")
        self._switch = switch
        try:
            yield
        finally:
            self._switch = 0
            if source:
                shutil.copy2(ROOT / path, self._copy / path)

    def killer(self, files: Sequence[str], every_case: bool = False) -> Killer | None:
        """Return the first failing test; with every case, also cases that a seed omits."""
        options = _EVERY_CASE if every_case else ()
        said = self._run(*files, *options)
        named = _FAILED.search(said) if said else None
        if named is not None:
            return Killer(named[1].partition("::")[0], named[1])
        # a test that hangs or crashes is not named, so each file runs alone
        for file in files if said is not None else ():
            alone = self._run(file, *options)
            if alone is not None:
                named = _FAILED.search(alone)
                return Killer(file, named[1] if named else file)
        return None

    def failing(self, tests: Collection[str]) -> set[str]:
        """Return the tests that fail without a planted mistake."""
        every = (*_EVERY_CASE, "--maxfail=0", *sorted(tests))
        said = self._run(*every, seconds=None) if tests else None
        return set(_FAILED.findall(said or ""))

    def _run(self, *arguments: str, seconds: float | None = SECONDS) -> str | None:
        """Return pytest's output, or None if every test passed."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", f"--seed={self._seed}"]
        try:
            done = subprocess.run(
                [*command, *arguments],
                cwd=self._copy,
                # a test's programs may start elsewhere; they must not import the checkout
                env={
                    **os.environ,
                    VARIABLE: str(self._switch),
                    "PYTHONPATH": str(self._copy),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return ""
        passed = done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        return None if passed else done.stdout
