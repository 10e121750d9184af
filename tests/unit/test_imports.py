"""Imports point one way: ubridge → uhal → backends, which uhal loads lazily and by name.

Every import statement, and every `import_module` of a literal name, is read from the source; any
arrow that docs/design.md does not draw is a failure. Circular imports, too, are errors.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_support.c_calls import calls_of, runtimes
from build_support.house import private_uses
from build_support.imports import (
    PRODUCT,
    circles,
    graph_of,
    is_upward,
    product_files,
    room_of,
    way_around,
)

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = {
    *("cuda_backend", "rocm_backend", "tops_backend", "opencl_backend", "webgpu_backend"),
    "host_backend",
}
OURS = {"uhal", "uhal_conformance", "ubridge", "examples", "simulators"} | BACKENDS
MAY_LOAD_BY_NAME = {"uhal/__main__.py", "uhal/doctor.py"}
FOR_BACKENDS = {
    "uhal.abi",
    "uhal.adapters",
    "uhal.collectives",
    "uhal.emulation",
    "uhal.python_slots",
    "uhal.library_graphs",
    "uhal.environment",
    "uhal.errors",
    "uhal.contract",
    "uhal.images",
    "uhal.signature",
    "uhal.fixed",
    "uhal._lane",
}


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[str, int, bool]]:
    """Yield (dotted name, line, whether it is loaded by name) of every import in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, False
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = package.split(".")[: 1 - node.level or None]
                module = ".".join([*parents, module] if module else parents)
            if module in OURS | {"uhal.images"}:
                # `from uhal import x` imports a module or a name of the package.
                for alias in node.names:
                    yield f"{module}.{alias.name}", node.lineno, False
            else:
                yield module, node.lineno, False
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            literals = [value for value in node.args[:1] if isinstance(value, ast.Constant)]
            yield from ((str(literal.value), node.lineno, True) for literal in literals)


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def verdict(path: str, name: str, by_name: bool) -> str | None:
    """Return why the file may not import the name, or `None` if it may."""
    importer = path.partition("/")[0]
    target = name.partition(".")[0]
    if target not in OURS or target == importer:
        return None
    if importer == "ubridge":
        return None if target == "uhal" else "ubridge reaches the devices through uhal only"
    if importer == "uhal_conformance":
        return None if target == "uhal" else "the suite opens a backend by the name its user gives"
    if importer == "uhal":
        if by_name and path in MAY_LOAD_BY_NAME:
            return None
        return "uhal loads this lazily, from the registry, the doctor or __main__"
    if importer in BACKENDS:
        allowed = any(name == module or name.startswith(module + ".") for module in FOR_BACKENDS)
        return None if allowed else f"a backend may import only {', '.join(sorted(FOR_BACKENDS))}"
    return None


def sources() -> list[Path]:
    folders = [ROOT / name for name in sorted(OURS - {"examples"})]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    relative = path.relative_to(ROOT).as_posix()
    package = ".".join(path.relative_to(ROOT).parent.parts)
    wrong = []
    for name, line, by_name in imported_names(ast.parse(path.read_text("utf-8")), package):
        reason = verdict(relative, name, by_name)
        if reason is not None:
            wrong.append(f"{relative}:{line} imports {name}: {reason}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("ubridge/a.py", "from uhal import Device", True),
        ("ubridge/a.py", "import host_backend", False),
        ("uhal/a.py", "import ubridge", False),
        ("uhal/a.py", "import uhal_conformance", False),
        ("ubridge/a.py", "import uhal_conformance", False),
        ("uhal_conformance/a.py", "from uhal.errors import DeviceError", True),
        ("uhal_conformance/a.py", "import host_backend", False),
        ("uhal/a.py", "def f():\n    from host_backend import x", False),
        ("uhal/doctor.py", "import importlib\nimportlib.import_module('ubridge')", True),
        ("uhal/doctor.py", "import ubridge", False),
        ("uhal/a.py", "from importlib import import_module\nimport_module('ubridge')", False),
        ("host_backend/a.py", "from uhal.errors import DeviceError", True),
        ("host_backend/a.py", "from uhal import errors, _lane", True),
        ("host_backend/a.py", "from uhal.images.elf import read", True),
        ("host_backend/a.py", "from uhal import Device", False),
        ("host_backend/a.py", "import uhal.registry", False),
        ("host_backend/a.py", "import ubridge", False),
        ("host_backend/a.py", "from . import runtime\nfrom .runtime import x", True),
    ],
)
def test_the_rule_sees_every_kind_of_import(path: str, source: str, allowed: bool) -> None:
    package = path.partition("/")[0]
    reasons = [
        verdict(path, name, by_name)
        for name, _, by_name in imported_names(ast.parse(source), package)
    ]
    assert any(reasons) is not allowed


@pytest.mark.parametrize("packages", [PRODUCT, ("simulators",)], ids=lambda names: names[0])
def test_no_import_circle(packages: tuple[str, ...]) -> None:
    assert_no_circle(graph_of(product_files(packages)))


@pytest.mark.parametrize("folder", list(runtimes()), ids=lambda one: str(one.relative_to(ROOT)))
def test_c_files_of_a_runtime_do_not_call_in_a_circle(folder: Path) -> None:
    assert_no_circle(calls_of(folder))


def test_a_circle_of_calls_is_seen(tmp_path: Path) -> None:
    (tmp_path / "low.c").write_text(
        "int low(int (*up)(void)) {\n    return up(); /* high() */\n}\n"
    )
    (tmp_path / "high.c").write_text(
        "static int own(void) {\n    return 1;\n}\nint high(void) {\n    return low(own);\n}\n"
    )
    assert circles(calls_of(tmp_path)) == []
    (tmp_path / "low.c").write_text("int low(void) {\n    return high();\n}\n")
    assert circles(calls_of(tmp_path)) == [["high.c", "low.c"]]


@pytest.mark.parametrize("page", ["docs/design.md", "docs/guide/writing-a-backend.md"])
def test_pages_list_what_a_backend_may_import(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    listed = re.search(r"\bimports? ((?:`uhal\.\w+`(?:,|\s|and)*)+)", text)
    assert listed is not None
    assert set(re.findall(r"uhal\.\w+", listed[1])) == FOR_BACKENDS


def assert_no_circle(arrows: dict[str, set[str]]) -> None:
    found = circles(arrows)
    assert not found, "\n".join(" → ".join(way_around(arrows, group)) for group in found)


def test_the_rooms_of_ubridge_have_an_order() -> None:
    files = product_files(["ubridge"])
    wrong = [
        f"{name} imports {target}, which is above {room_of(name)}"
        for name, targets in graph_of(files).items()
        for target in sorted(targets)
        if is_upward(name, target)
    ]
    assert not wrong, "\n".join(wrong)


def test_ubridge_uses_public_names_of_uhal_only() -> None:
    used = [f"{where}:{line} {name}" for where, line, name in private_uses("ubridge", "uhal")]
    assert not used, "\n".join(used)


def test_a_private_use_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p").mkdir()
    source = """
from q import _hidden, shown
from q._inside import name
class Own:
    _declared: int
    def method(self, other):
        self._given = other._declared + other._theirs
        return other._given, other.shown
"""
    (tmp_path / "p" / "module.py").write_text(source)
    monkeypatch.setattr("build_support.house.ROOT", tmp_path)
    found = [name for _, _, name in private_uses("p", "q")]
    assert found == ["q._hidden", "q._inside.name", "_theirs"]


def test_the_product_uses_its_private_functions() -> None:
    """A function that only tests call counts as unused."""
    definition = re.compile(r"^ *(?:async )?(?:def|class) (_[A-Za-z]\w*)", re.MULTILINE)
    compiled = sorted((ROOT / "cython_src").rglob("*.p[yx][xi]"))
    texts = [path.read_text("utf-8") for path in (*product_files().values(), *compiled)]
    defined = Counter(name for text in texts for name in definition.findall(text))
    used = Counter(name for text in texts for name in re.findall(r"\b_[A-Za-z]\w*", text))
    unused = {name for name, count in defined.items() if used[name] <= count}
    assert not unused


def test_a_circle_is_seen_and_printed(tmp_path: Path) -> None:
    sources = {
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B",
        "b": "def f():\n    import p.c",
        "c": "from p import a",
        "d": "from p.a import x\nimport p.b",
    }
    files = {}
    for name, source in sources.items():
        files[f"p.{name}"] = tmp_path / f"{name}.py"
        files[f"p.{name}"].write_text(source)
    arrows = graph_of(files)
    assert circles(arrows) == [["p.a", "p.b", "p.c"]]
    assert way_around(arrows, ["p.a", "p.b", "p.c"]) == ["p.a", "p.b", "p.c", "p.a"]
    assert is_upward("ubridge.device.executor", "ubridge.ops.nn")
    assert is_upward("ubridge.core.layout", "ubridge.tensor")
    assert is_upward("ubridge.tensor", "ubridge.graph.plan")
    assert not is_upward("ubridge.ops.nn", "ubridge.device.executor")
    assert not is_upward("ubridge", "ubridge.graph.graph")


def run_python(program: str, folder: Path = ROOT, **environment: str) -> str:
    """Run a program in a fresh interpreter that imports from `folder`; return its output."""
    result = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        # `-c` puts the working directory before PYTHONPATH.
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
    )
    return result.stdout.strip()


def test_importing_uhal_starts_no_thread_and_loads_no_backend() -> None:
    program = """
import os, sys, uhal
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
import numpy
loaded = [name for name in sys.modules if name.endswith("_backend") or name == "ubridge"]
print(threads, loaded)
"""
    # numpy's BLAS would start its own threads.
    assert run_python(program, OPENBLAS_NUM_THREADS="1") == "1 []"


def test_importing_uhal_maps_no_driver_library() -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("needs /proc")
    program = """
import numpy, uhal
maps = open("/proc/self/maps").read()
drivers = ("libcuda.so", "libhsa-runtime", "libtopsrt", "libuhal_host")
print([name for name in drivers if name in maps])
"""
    assert run_python(program) == "[]"


def test_every_exported_name_exists() -> None:
    import uhal

    assert len(set(uhal.__all__)) == len(uhal.__all__)
    assert [name for name in uhal.__all__ if not hasattr(uhal, name)] == []
    assert uhal.__version__.count(".") == 2


@pytest.mark.parametrize(
    ("stray", "missing", "words"),
    [
        ("_core.cpython-311-x86_64-linux-gnu.so", False, "CERN's IPbus library"),
        (None, True, "python setup.py build_ext --inplace"),
    ],
)
def test_a_broken_installation_says_so_in_one_sentence(
    tmp_path: Path, stray: str | None, missing: bool, words: str
) -> None:
    package = tmp_path / "uhal"
    package.mkdir()
    for source in (ROOT / "uhal").glob("*.py"):
        (package / source.name).write_bytes(source.read_bytes())
    if stray is not None:
        (package / stray).touch()
    if not missing:
        (package / "_lane.abi3.so").touch()
    program = """
try:
    import uhal
except ImportError as error:
    print(error)
"""
    said = run_python(program, tmp_path)
    assert words in said
    assert "\n" not in said


def test_a_python_whose_lock_is_forced_off_is_refused() -> None:
    """Output of a free-threaded Python that was started with -X gil=0."""
    said = run_python(
        """
import sys
sys._is_gil_enabled = lambda: False
try:
    import uhal
except ImportError as error:
    print(error)
""",
        ROOT,
    )
    assert "uhal needs the GIL" in said
    assert said.endswith("Leave out PYTHON_GIL=0 and -X gil=0.")
