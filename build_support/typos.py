"""Checks that type checkers find a user's typos in an installed uhal: part of `make types`.

    python -m build_support.typos [INTERPRETER]

mypy checks the program `tests/data/typos.py` in an empty folder; so does pyright, if it is
installed. So they find `uhal` and `ubridge` as a user's project does: by INTERPRETER, which is this
one by default. Exit status 1: a typo was not reported, or a right line was.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "data" / "typos.py"


def marked(program: str) -> set[int]:
    """Numbers of the lines that have a typo."""
    return {number for number, line in enumerate(program.splitlines(), 1) if "# typo" in line}


def by_mypy(mypy: str, program: Path, interpreter: str, folder: Path) -> set[int]:
    """Numbers of the lines that mypy reports. The interpreter `mypy` runs it."""
    command = [mypy, "-m", "mypy", "--python-executable", interpreter]
    said = _run(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache" / "typos"), str(program)], folder
    )
    return {int(line) for line in re.findall(rf"^{program.name}:(\d+): error:", said, re.MULTILINE)}


def by_pyright(program: Path, interpreter: str, folder: Path) -> set[int]:
    """Numbers of the lines that pyright reports."""
    said = _run(["pyright", "--outputjson", "--pythonpath", interpreter, str(program)], folder)
    return {
        one["range"]["start"]["line"] + 1
        for one in json.loads(said)["generalDiagnostics"]
        if one["severity"] == "error"
    }


def _run(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8").stdout


def main(interpreter: str = sys.executable, mypy: str = sys.executable) -> int:
    """Print what each checker missed; return the exit status. `mypy` is a Python with mypy."""
    expected = marked(PROGRAM.read_text(encoding="utf-8"))
    checkers: dict[str, Callable[[Path, str, Path], set[int]]]
    checkers = {"mypy": partial(by_mypy, mypy)}
    if shutil.which("pyright"):
        checkers["pyright"] = by_pyright
    status = 0
    with tempfile.TemporaryDirectory() as name:
        program = Path(name, PROGRAM.name)
        shutil.copy(PROGRAM, program)
        for checker, check in checkers.items():
            found = check(program, interpreter, Path(name))
            print(f"{checker}: {len(found & expected)} of {len(expected)} typos found")
            for word, lines in (("not found", expected - found), ("wrong", found - expected)):
                if lines:
                    print(f"{checker}: {word}: lines {', '.join(map(str, sorted(lines)))}")
                    status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
