"""Names the files of tests that a change can reach: `make test CHANGED=1` runs only those.

`python -m build_support.changed [REVISION]` prints them, one a line. Changed is what differs from
the revision, `HEAD` unless told, or is new in the working tree.

A test is reached through Python imports, its own and those of the helpers and fixtures that it
uses, and through words: a program it starts, a backend or a document it names. What no rule
explains reaches every test: too many cost time, one too few would cost trust.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

from build_support.imports import PRODUCT, ROOT, graph_of, product_files

PACKAGES = (
    *PRODUCT,
    *("simulators", "benchmarks", "examples", "build_support", "tests"),
)
NAMED = {
    "cuda_backend": ("cuda",),
    "rocm_backend": ("rocm",),
    "opencl_backend": ("opencl",),
    "tops_backend": ("tops",),
    "simulators/cuda": ("cuda",),
    "simulators/ptx": ("cuda",),
    "simulators/compilers": ("compilers", "sim run"),
    "simulators/hsa": ("rocm",),
    "simulators/tops": ("tops",),
    "simulators/topsfb": ("tops",),
    "simulators/null": ("null", "counting", "benchmarks"),
}
"""Folders that tests reach by words: no import names a backend, or leads into a driver."""

EVERYTHING = ("tests/unit/test_imports.py", "tests/unit/test_guide.py")
"""Tests that read the whole of the sources, or run what pages say."""

_STARTED = re.compile(
    r"""(?:-m["', ]+|import |from )((?:uhal|ubridge|simulators|benchmarks)[\w.]*)"""
)


def main(arguments: list[str]) -> int:
    """Print the files; nothing where nothing changed."""
    changed = changed_files(*arguments[:1])
    found = reached(changed)
    print(f"{len(changed)} files changed: {len(found)} files of tests", file=sys.stderr)
    print("\n".join(found))
    return 0


def changed_files(revision: str = "HEAD") -> list[str]:
    """Return what differs from the revision, and what git does not know and does not ignore."""
    said = [
        subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)
        for command in (
            ("diff", "--name-only", revision),
            ("ls-files", "--others", "--exclude-standard"),
        )
    ]
    return sorted({line for done in said for line in done.stdout.splitlines()})


def reached(changed: Sequence[str]) -> list[str]:
    """Return the files of tests that these files can reach, all paths relative to the root."""
    found = {test for path in changed for test in _reached_by(path)}
    return sorted(found | set(EVERYTHING if changed else ()))


@cache
def _modules() -> dict[str, str]:
    """Modules of the checkout and their files."""
    files = product_files(PACKAGES)
    return {name: path.relative_to(ROOT).as_posix() for name, path in files.items()}


@cache
def _uses() -> dict[str, set[str]]:
    """Files of tests, and the modules that each can reach."""
    arrows = graph_of({name: ROOT / path for name, path in _modules().items()})
    return {path: _used(name, arrows) for name, path in _modules().items() if _is_test(path)}


def _reached_by(path: str) -> set[str]:
    module = next((name for name, found in _modules().items() if found == path), None)
    by_import = {test for test, used in _uses().items() if module in used}
    words = next((NAMED[one] for one in NAMED if path.startswith(f"{one}/")), ())
    if not path.endswith("conftest.py") and module is not None and module.startswith("tests."):
        return by_import
    named = not words and path.startswith(("docs/", "tests/", "examples/"))
    if named or path.endswith(".md"):
        # A page, a program, data: by its name, or that of its folder.
        words = (PurePosixPath(path).name, PurePosixPath(path).parent.name or path)
    if not words and module is None:
        return set(_uses())  # sources that are compiled, headers, tables, settings
    texts = {name: _text(found) for name, found in _modules().items() if name.startswith("tests.")}
    naming = {name for name, text in texts.items() if any(word in text for word in words)}
    return by_import | {test for test, used in _uses().items() if used & naming}


def _used(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """The modules that a test's file can reach: itself, what it imports, programs it starts."""
    pending = [name, *_conftests(name)]
    used = set(pending)
    while pending:
        one = pending.pop()
        started = _started(_text(_modules()[one])) if one.startswith("tests.") else frozenset()
        for other in arrows[one] | started:
            if other not in used:
                used.add(other)
                pending.append(other)
    return used


@cache
def _started(text: str) -> frozenset[str]:
    """The modules that a program in a text imports, or that a command in it runs."""
    found: set[str] = set()
    for name in _STARTED.findall(text):
        while name and name not in _modules():
            name = name.rpartition(".")[0]
        found |= {name, f"{name}.__main__"} & _modules().keys()
    return frozenset(found)


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def _conftests(name: str) -> list[str]:
    parts = name.split(".")[:-1]
    above = (".".join([*parts[:count], "conftest"]) for count in range(1, len(parts) + 1))
    return [one for one in above if one in _modules()]


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
