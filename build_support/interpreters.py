"""Runs tests on the oldest and the newest other interpreters of this machine: `make interpreters`.

Each interpreter has an environment in `build/interpreters`. The lane is compiled for each, into the
checkout, where libraries of several interpreters live side by side. All other parts are already
compiled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from build_support.requirements import build_requirements

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "interpreters"
_CLASSIFIER = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
_ASK = """
import ensurepip, os, sys, sysconfig
os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(sys.implementation.name, *sys.version_info[:2])
"""
"""Fails if parts for an environment or the lane are missing: some systems package them apart."""


def main(arguments: list[str]) -> int:
    """Run pytest with the arguments under each interpreter; report a machine without others."""
    others = extremes(found(promised()))
    for minor, python in others.items():
        print(f"interpreters: 3.{minor}, {python}", flush=True)
        own = environment(minor, python)
        done = subprocess.run([str(own), "-m", "pytest", *arguments], cwd=ROOT)
        if done.returncode != 0:
            return done.returncode
    if not others:
        print("interpreters: this machine has no other that uhal runs on")
    return 0


def promised() -> list[int]:
    """Return the minor versions that pyproject.toml's classifiers name."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [int(minor) for minor in _CLASSIFIER.findall(text)]


def found(minors: list[int], own: int = sys.version_info.minor) -> dict[int, Path]:
    """Return this machine's other interpreters by minor version."""
    wanted = set(minors) - {own}
    have: dict[int, Path] = {}
    for candidate in _candidates(minors):
        minor = _minor_of(candidate)
        if minor in wanted:
            have.setdefault(minor, candidate)
    return have


def extremes(have: dict[int, Path]) -> dict[int, Path]:
    """Return the oldest and the newest."""
    return {minor: have[minor] for minor in (min(have), max(have))} if have else {}


def environment(minor: int, python: Path) -> Path:
    """Bring an interpreter's environment up to date; return the interpreter in this environment."""
    own = ENVIRONMENTS / f"3.{minor}" / "bin" / "python"
    if not own.exists():
        subprocess.run([str(python), "-m", "venv", str(own.parents[1])], check=True)
    pip = [str(own), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, *build_requirements(ROOT)], check=True)
    # This also builds the lane; without isolation it is compiled once.
    subprocess.run([*pip, "--no-build-isolation", "-e", ".[test]"], cwd=ROOT, check=True)
    return own


def _candidates(minors: list[int]) -> Iterator[Path]:
    for minor in minors:
        on_path = shutil.which(f"python3.{minor}")
        if on_path:
            yield Path(on_path)
    # pyenv's interpreters need not be on the path.
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(versions.glob("3.*/bin/python"))


def _minor_of(python: Path) -> int | None:
    """The minor version of a CPython 3; `None` for other or broken interpreters."""
    try:
        said = subprocess.run([str(python), "-c", _ASK], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = re.fullmatch(r"cpython 3 (\d+)\n", said.stdout)
    return int(answer[1]) if answer and said.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
