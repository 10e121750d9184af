"""Requirements of a build, read from `pyproject.toml`.

As a program it prints the requirements, one a line, for pip.
"""

from __future__ import annotations

import ast
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIST = re.compile(r"^requires = (\[.*?\])", re.DOTALL | re.MULTILINE)


def build_requirements(root: Path) -> list[str]:
    """Return the requirements, as in `Cython>=3.1`."""
    found = _LIST.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None, "pyproject.toml has no build requirements"
    # Python reads TOML only since 3.11, but a list of strings is the same in TOML and Python.
    return [str(requirement) for requirement in ast.literal_eval(found[1])]


def unmet(requirements: list[str]) -> list[str]:
    """Return the requirements that are missing or too old here."""
    return [requirement for requirement in requirements if not _is_met(requirement)]


def _is_met(requirement: str) -> bool:
    name, _, least = requirement.partition(">=")
    try:
        return _numbers(version(name)) >= _numbers(least)
    except PackageNotFoundError:
        return False


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)[:2]]


if __name__ == "__main__":
    print("\n".join(build_requirements(Path(__file__).resolve().parents[1])))
