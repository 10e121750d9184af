"""Debuggers as docs/guide/debugging.md describes them: gdb stops inside a host kernel."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.host_kernels import INCLUDE, build, compiler, has_compiler
from tests.requirements import missing, needed

ROOT = Path(__file__).resolve().parents[2]
TAUGHT = ROOT / "uhal" / "debugger" / "uhal_gdb.py"
SOURCE = """\
#include <uhal/kernel.h>
KERNEL(triple, (u64 n, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) {
        const f32 tripled = 3 * x[i];
        y[i] = tripled;
    }
}
"""
PROGRAM = """\
import sys
import numpy as np
from uhal import Device, DeviceBuffer, Module
with Device(0, "host"):
    triple = Module.from_file(sys.argv[1]).get_function("triple")
    x = DeviceBuffer.from_numpy(np.array([0.5, 1.5], "f4"))
    y = DeviceBuffer.zeros(2, "f32")
    triple[1, 2](2, x, y)
    print("computed", y.to_numpy().tolist())
"""


@needed(has_compiler(), "kernels are compiled here")
def test_gdb_stops_inside_a_kernel(tmp_path: Path) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt install gdb")
    (tmp_path / "triple.so").write_bytes(build(SOURCE, "-O0", "-g3"))
    (tmp_path / "program.py").write_text(PROGRAM)
    commands = [
        "set breakpoint pending on",
        "break k.cpp:5 if i == 1",
        "run",
        "print x[i]",
        "print tripled",
        "uhal-where",
        "backtrace 1",
        "continue",
    ]
    options = [part for command in commands for part in ("-ex", command)]
    program = ["--args", sys.executable, "program.py", "triple.so"]
    run = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(TAUGHT), *options, *program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DEBUGINFOD_URLS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = run.stdout
    assert "$1 = 1.5" in said, said + run.stderr
    assert "$2 = 4.5" in said
    where = "kernel triple, block (0, 0, 0) of (1, 1, 1), block shape (2, 1, 1), i = 1"
    assert where in said.splitlines(), said + run.stderr
    assert "computed [1.5, 4.5]" in said


LANE_OBJECTS = """\
#include <stddef.h>
#include <stdint.h>
typedef ptrdiff_t Py_ssize_t;
typedef struct {{ Py_ssize_t count; void *type; }} PyObject;
#define PyObject_HEAD PyObject base;
{structs}
int main(void) {{
    struct __pyx_obj_4uhal_5_lane_DeviceBuffer buffer = {{
        .address = 0x7000, .size = 10, .nbytes = 40}};
    struct __pyx_obj_4uhal_5_lane_StreamCore core = {{
        .id = 3, .ticket = 7, .completed = 5, .closed = 1}};
    struct __pyx_obj_4uhal_5_lane_Stream stream = {{.core = &core}};
    return buffer.is_closed + (stream.core == 0);
}}
"""


def test_gdb_prints_the_lanes_objects(tmp_path: Path) -> None:
    """Use only the fields of the current classes, because a debug build of the lane takes
    minutes."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt install gdb")
    generated = sorted((ROOT / "build" / "lane").glob("cpython-*.c"))
    if not generated or not has_compiler():
        missing("the lane is not built: make build")
    text = max(generated, key=lambda path: path.stat().st_mtime).read_text("utf-8")
    bodies = []
    for name in ("StreamCore", "Stream", "DeviceBuffer"):
        head = f"struct __pyx_obj_4uhal_5_lane_{name} {{"
        bodies.append(text[text.index(head) : text.index("};", text.index(head)) + 2])
    types = sorted(set(re.findall(r"^\s+(uhal_\w+) ", "\n".join(bodies), re.MULTILINE)))
    structs = "\n".join([*(f"typedef int {name};" for name in types), *bodies])
    source = tmp_path / "objects.c"
    source.write_text(LANE_OBJECTS.format(structs=structs), encoding="utf-8")
    program = source.with_suffix("")
    subprocess.run(["cc", "-g", "-O0", "-w", source, "-o", program], check=True)
    line = next(n for n, part in enumerate(source.read_text().splitlines(), 1) if "return" in part)
    commands = (f"break objects.c:{line}", "run", "print buffer", "print stream")
    options = [part for command in commands for part in ("-ex", command)]
    run = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(TAUGHT), *options, str(program)],
        env={**os.environ, "DEBUGINFOD_URLS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "$1 = DeviceBuffer of 10 elements, 40 bytes at 0x7000" in run.stdout, run.stdout
    assert "$2 = Stream 3: 7 tickets given out, 5 known to be complete closed" in run.stdout


class GdbArray(list[int]):
    """An array, as gdb passes it to a printer."""

    type = property(lambda self: SimpleNamespace(range=lambda: (0, len(self) - 1)))


def test_gdb_shortens_long_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gdb", MagicMock(name="gdb"))
    taught = runpy.run_path(str(TAUGHT))
    most = taught["MOST"]
    for length in (1, most - 1, most, most + 1, 4 * most):
        shown = ", ".join(str(number) for number in range(min(length, most)))
        more = ", …" if length > most else ""
        assert taught["_several"](GdbArray(range(length))) == f"{{{shown}{more}}}"


VALUES = """\
#include <uhal/vector.h>
int main() {
    f16 half(1.5f);
    bf16 brain(-2.5f);
    f32x4 four = {{1, 2, 3, 4}};
    const f16 &same = half;
    f16 &&moved = static_cast<f16 &&>(half);
    bool plain = true;
    return !plain ? int(f32(moved)) : f32(same) + f32(brain) + four[0] == 0 ? 0 : 1;
}
"""


@needed(has_compiler(), "kernels are compiled here")
def test_gdb_prints_the_values_of_kernels(tmp_path: Path) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt install gdb")
    source, program = tmp_path / "values.cpp", tmp_path / "values"
    source.write_text(VALUES, encoding="utf-8")
    flags = ["-std=c++17", "-g", "-O0", f"-I{INCLUDE}"]
    subprocess.run([*compiler(), *flags, str(source), "-o", str(program)], check=True)
    names = ("half", "brain", "four", "same", "moved", "plain")
    commands = ("break values.cpp:9", "run", *(f"print {name}" for name in names))
    options = [part for command in commands for part in ("-ex", command)]
    run = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(TAUGHT), *options, str(program)],
        env={**os.environ, "DEBUGINFOD_URLS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "$1 = 1.5" in run.stdout and "$2 = -2.5" in run.stdout, run.stdout + run.stderr
    assert "$3 = {1, 2, 3, 4}" in run.stdout
    for number, text in ((4, "1.5"), (5, "1.5"), (6, "true")):
        assert re.search(rf"^\${number} = (?:@0x\w+: |\(.*\) @0x\w+: )?{text}$", run.stdout, re.M)
    assert "Python Exception" not in run.stderr, run.stderr
