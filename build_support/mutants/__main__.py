"""Plant mistakes in a copy of the checkout, one at a time, and run the tests nearest to each.

    python -m build_support.mutants [--seed N] [--python COUNT] [--under FOLDER] [--compiled]

The seed draws mistakes in Python. Mistakes in compiled sources stand in a table; all are built once
and switched on one at a time. Survivors are printed, and killers that
`make test CHANGED=1` would have left out. The copy is `build/flavours/mutants`.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from build_support.changed import reached
from build_support.flavoured import mirror
from build_support.imports import PRODUCT, ROOT
from build_support.mutants import compiled, python
from build_support.native import Flavour

FILES = 6
"""So many files of tests are asked about a mistake in Python."""
SECONDS = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdict on each mistake; 1 where one survived or its killer was left out."""
    options = _options(arguments)
    print(f"mutants: seed {options.seed} (--seed {options.seed} repeats it)")
    bench = Bench(_built(compiled.with_switches(ROOT)), options.seed)
    verdicts = []
    rng = random.Random(options.seed)
    for mutant in python.draw(ROOT, _folders(options.under), options.python, rng):
        bench.plant(mutant.path, mutant.source)
        killer = bench.failing(nearest(mutant.path, ROOT))
        bench.restore(mutant.path)
        what = f"{mutant.path}:{mutant.line}: {mutant.before} → {mutant.after}"
        verdicts.append(_verdict(bench, what, mutant.path, killer))
    for number, one in enumerate(compiled.MISTAKES, 1):
        if options.compiled and one.path.startswith(options.under):
            killer = bench.failing(one.tests, number)
            what = f"{one.path}: {one.text} → {one.replacement}"
            verdicts.append(_verdict(bench, what, one.path, killer))
    counts = Counter(verdicts)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts.keys() != {KILLED})


KILLED = "killed"
LEFT_OUT = "killed by a test that CHANGED leaves out"
SURVIVED = "survived"
UNKNOWN = "not judged, the test fails without a mistake"


def _verdict(bench: Bench, what: str, path: str, killer: str | None) -> str:
    verdict = SURVIVED
    if killer is not None:
        found = KILLED if killer in reached([path]) else LEFT_OUT
        verdict = found if bench.is_sound(killer) else UNKNOWN
    print(f"{verdict}: {what}{f' ({killer})' if killer else ''}", flush=True)
    return verdict


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m build_support.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--python", type=int, default=40, help="how many mistakes in Python")
    parser.add_argument("--compiled", action="store_true", help="all mistakes of the table, too")
    parser.add_argument("--under", default="", help="only in files whose path begins with this")
    return parser.parse_args(arguments)


def _built(sources: Mapping[str, str]) -> Path:
    """Return a copy of the checkout with every switch built in."""
    copy = mirror(Flavour("mutants"))
    for path, text in sources.items():
        (copy / path).write_text(text, encoding="utf-8")
    # most parts are the checkout's own
    (copy / "build" / "cache").mkdir(parents=True, exist_ok=True)
    for kept in (ROOT / "build" / "cache").iterdir():
        if not (copy / "build" / "cache" / kept.name).exists():
            os.link(kept, copy / "build" / "cache" / kept.name)
    for command in (
        ("setup.py", "-q", "build_ext", "--inplace"),
        ("-m", "simulators.build"),
    ):
        subprocess.run([sys.executable, *command], cwd=copy, check=True)
    return copy


def _folders(under: str) -> list[str]:
    """Return the folders of the product that hold Python."""
    packages = (*PRODUCT, "simulators/ptx", "simulators/topsfb")
    files = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    folders = sorted({path.parent.relative_to(ROOT).as_posix() for path in files})
    chosen = [folder for folder in folders if f"{folder}/".startswith(under)]
    if not chosen:
        raise SystemExit(f"--under: expected a folder of the product, got {under!r}")
    return chosen


def nearest(path: str, root: Path) -> list[str]:
    """Return the files of tests with most names of a module, nearest first.

    A name weighs less the more files of tests have it. The imports of a test play no part, so that
    a killer can be one that `CHANGED` does not find.
    """
    own = Path(path)
    defined = {
        node.name
        for node in ast.walk(ast.parse((root / path).read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("__")
    } | {own.stem.strip("_"), ".".join(own.with_suffix("").parts)}
    named = {
        test: {*re.findall(r"\w+", text), *re.findall(r"[\w.]+", text)}
        for test, text in _texts(root).items()
    }
    rarity = Counter(name for names in named.values() for name in names & defined)
    weights = {
        test: sum(1 / rarity[name] for name in names & defined) for test, names in named.items()
    }
    ranked = sorted((test for test in weights if weights[test]), key=lambda test: -weights[test])
    return ranked[:FILES]


@cache
def _texts(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted((root / "tests").rglob("test_*.py"))
    }


class Bench:
    """The copy that mistakes are planted in, and which of its tests pass without one."""

    def __init__(self, copy: Path, seed: int) -> None:
        self._copy = copy
        self._seed = seed
        self._sound: dict[str, bool] = {}

    def plant(self, path: str, source: str) -> None:
        """Write a source with a mistake."""
        (self._copy / path).write_text(source, encoding="utf-8")

    def restore(self, path: str) -> None:
        """Bring back a source as the checkout has it."""
        shutil.copy2(ROOT / path, self._copy / path)

    def failing(self, tests: Sequence[str], switched_on: int = 0) -> str | None:
        """Return the first file of tests that fails, with a compiled mistake switched on."""
        return next((test for test in tests if not self._passes(test, switched_on)), None)

    def is_sound(self, test: str) -> bool:
        """Return whether a file of tests passes without a mistake; ask while none is planted."""
        if test not in self._sound:
            self._sound[test] = self._passes(test, 0)
        return self._sound[test]

    def _passes(self, test: str, switched_on: int) -> bool:
        command = [sys.executable, "-m", "pytest", "-x", "-q", f"--seed={self._seed}", test]
        try:
            done = subprocess.run(
                command,
                cwd=self._copy,
                env={**os.environ, compiled.VARIABLE: str(switched_on)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


if __name__ == "__main__":
    raise SystemExit(main())
