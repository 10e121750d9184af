"""What docs/guide/debugging.md says of debuggers: gdb stops inside a kernel of the host."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_kernels import build, has_compiler
from tests.requirements import needed

ROOT = Path(__file__).resolve().parents[2]
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
        "backtrace 1",
        "continue",
    ]
    options = [part for command in commands for part in ("-ex", command)]
    run = subprocess.run(
        ["gdb", "-nx", "-batch", *options, "--args", sys.executable, "program.py", "triple.so"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DEBUGINFOD_URLS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = run.stdout
    assert "$1 = 1.5" in said, said + run.stderr
    assert "$2 = 4.5" in said
    assert "computed [1.5, 4.5]" in said
