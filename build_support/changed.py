"""Names the files of tests that a change can reach: `make test CHANGED=1` runs only those.

`python -m build_support.changed [REVISION]` prints them, one a line. It compares the working tree,
new files included, with the revision, by default `HEAD`.

A change reaches a test through imports: the test's own, its helpers' and fixtures', imports in
compiled code, and modules named in tables. It also reaches tests that name a program to start, a
document, or a backend that imports the changed module. A file that no rule explains reaches every
test: extra tests cost time, a missing test hides a fault.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

from build_support.imports import PRODUCT, ROOT, graph_of, imported, product_files

PACKAGES = (
    *PRODUCT,
    *("simulators", "benchmarks", "examples", "build_support", "tests"),
)
NAMED = {
    "cuda_backend": ("cuda",),
    "rocm_backend": ("rocm",),
    "opencl_backend": ("opencl",),
    "webgpu_backend": ("webgpu",),
    "tops_backend": ("tops",),
    "tests/skeleton_backend": ("skeleton",),
    "simulators/cuda": ("cuda",),
    "simulators/ptx": ("cuda", "simulators.ptx", "simulators/ptx"),
    "simulators/compilers": ("compilers", "sim run"),
    "simulators/hsa": ("rocm",),
    "simulators/tops": ("tops",),
    "simulators/topsfb": ("tops",),
    "simulators/null": ("null", "counting", "benchmarks"),
    "ubridge/array_api": ("array_api", "__array_namespace__"),
    "uhal/project": ('"new"',),
    "uhal/debugger": ("uhal_gdb", '"new"'),
    "uhal_conformance": ('"conformance"',),
    "build_support/site": ("build_support.site",),
}
"""Folders that tests reach by words: no import names a backend or leads into a driver."""
UNDER_ALL = ("cython_src/", "host_backend/")
"""Folders of the code that every launch on this computer runs."""
LANE = "uhal._lane"

EVERYTHING = ("tests/unit/test_imports.py", "tests/unit/test_guide.py")
"""Tests that read the whole of the sources, or run what pages say."""

_STARTED = re.compile(
    r"""(?:-m["', ]+|run_module\(["']|import |from )"""
    r"""((?:uhal|ubridge|simulators|benchmarks|build_support|tests)[\w.]*)"""
)
_QUOTED_NAME = re.compile(r"""["']([a-z_]\w*(?:\.\w+)*)["']""")
_QUOTED_FILE = re.compile(r"""(\w+\.py)["'`]""")
_IMPORT = re.compile(r"^ *((?:from [\w.]+ )?import .+)$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Print the files; print nothing without a change."""
    changed = changed_files(*arguments[:1])
    found = reached(changed)
    print(f"{len(changed)} files changed: {len(found)} files of tests", file=sys.stderr)
    print("\n".join(found))
    return 0


def changed_files(revision: str = "HEAD") -> list[str]:
    """Return files that differ from the revision, and untracked files that are not ignored."""
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


def importing(path: str) -> list[str]:
    """Return the files of the product whose modules import this file's module themselves."""
    own = {name for name, found in _modules().items() if found == path}
    return [
        _modules()[name]
        for name, found in _graph().items()
        if own & found and not name.startswith("tests.")
    ]


@cache
def _modules() -> dict[str, str]:
    """Modules of the checkout and their files."""
    files = product_files(PACKAGES)
    return {name: path.relative_to(ROOT).as_posix() for name, path in files.items()}


@cache
def _graph() -> dict[str, set[str]]:
    """Modules of the checkout, and the modules that each imports."""
    return graph_of({name: ROOT / path for name, path in _modules().items()})


@cache
def _uses() -> dict[str, set[str]]:
    """Files of tests, and the modules that each can reach."""
    arrows = {name: set(found) for name, found in _graph().items()}
    arrows[LANE] |= _imports_of_the_lane()
    # uhal loads backends and commands by name, and they import uhal: words find their tests.
    for name in [name for name in arrows if not name.startswith("uhal.")]:
        arrows[name] |= _loaded(_text(_modules()[name]))
    programs = {
        PurePosixPath(path).name: name
        for name, path in _modules().items()
        if path.startswith("tests/") and not _is_test(path)
    }
    for name in [name for name in arrows if name.startswith("tests.")]:
        text = _text(_modules()[name])
        arrows[name] |= _started(text)
        arrows[name] |= {programs[file] for file in _QUOTED_FILE.findall(text) if file in programs}
    return {path: _used(name, arrows) for name, path in _modules().items() if _is_test(path)}


@cache
def _used_by_backends() -> dict[str, set[str]]:
    """Return the folders of backends that no import names, and the modules that each uses."""
    found: dict[str, set[str]] = {}
    for folder in (one for one in NAMED if one.endswith("_backend")):
        own = {name for name, path in _modules().items() if path.startswith(f"{folder}/")}
        found[folder] = {one for name in own for one in _used(name, _graph())}
    return found


def _imports_of_the_lane() -> set[str]:
    """Return the modules that compiled code imports when it needs them."""
    found: set[str] = set()
    for path in sorted((ROOT / "cython_src").rglob("*.p[yx][xi]")):
        for line in _IMPORT.findall(path.read_text("utf-8")):
            found |= {name for name, _ in imported(ast.parse(line), "uhal")}
    return {name for one in found if (name := _module(one))}


@cache
def _loaded(text: str) -> frozenset[str]:
    """Return the modules that a text with `import_module` names, in the call or in a table."""
    if "import_module(" not in text:
        return frozenset()
    return frozenset(name for name in _QUOTED_NAME.findall(text) if name in _modules())


def _reached_by(path: str) -> set[str]:
    if path.startswith(UNDER_ALL):
        return set(_uses())
    module = next((name for name, found in _modules().items() if found == path), None)
    by_import = {test for test, used in _uses().items() if module in used}
    for folder, used in _used_by_backends().items():
        if module in used:
            by_import |= _naming(NAMED[folder])
    words = next((NAMED[one] for one in NAMED if path.startswith(f"{one}/")), ())
    is_page = path.startswith(("docs/", "examples/")) or path.endswith(".md")
    is_data = path.startswith("tests/") and (module is None or path.endswith("conftest.py"))
    if is_page or is_data or (module is not None and not by_import and not words):
        # Pages, data and programs that nothing imports are matched by their names or their
        # folders'.
        words = (PurePosixPath(path).name, PurePosixPath(path).parent.name or path)
    if not words and module is None:
        return set(_uses())  # sources that are compiled, headers, tables, settings
    return by_import | _naming(words)


@cache
def _naming(words: tuple[str, ...]) -> frozenset[str]:
    """Return the files of tests that use a module of the tests with one of the words."""
    texts = {name: _text(found) for name, found in _modules().items() if name.startswith("tests.")}
    naming = {name for name, text in texts.items() if any(word in text for word in words)}
    return frozenset(test for test, used in _uses().items() if used & naming)


def _used(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that a test file imports, directly or not, and their packages."""
    pending = [name, *_conftests(name)]
    used = set(pending)
    while pending:
        for other in arrows[pending.pop()]:
            if other not in used:
                used.add(other)
                pending.append(other)
    return used | {package for one in used for package in _packages(one)}


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


@cache
def _started(text: str) -> frozenset[str]:
    """Return the modules that a program in a text imports, or that a command in it runs."""
    found: set[str] = set()
    for name in _STARTED.findall(text):
        module = _module(name)
        found |= {module, f"{module}.__main__"} & _modules().keys()
    return frozenset(found)


def _module(name: str) -> str:
    """Return the module that contains a dotted name; empty for other packages."""
    while name and name not in _modules():
        name = name.rpartition(".")[0]
    return name


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
