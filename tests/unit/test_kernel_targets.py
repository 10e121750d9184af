"""Compiled scopes and tables of the kernel language, which runs on a CPU cannot distinguish."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from build_support import hip_compiler
from opencl_backend import compile as opencl_compile
from tests.host_kernels import INCLUDE
from tests.requirements import missing

SOURCE = """\
#include <uhal/atomics.h>
#include <uhal/table.h>
#define KERNELS(name, scope)                                                                    \\
    KERNEL(name##_changes, (u32 *x, f32 *y)) {                                                  \\
        THREADS(t) { atomic_add<scope>(x, 1); atomic_add<scope>(y, 1); }                        \\
    }                                                                                           \\
    KERNEL(name##_exchanges, (u32 *x)) {                                                        \\
        THREADS(t) { atomic_exchange<scope>(x, 3); atomic_compare_exchange<scope>(x, 1, 2); }   \\
    }                                                                                           \\
    KERNEL(name##_fences, (u32 *x)) { THREADS(t) { x[0] = 1; fence<scope>(); x[1] = 1; } }
KERNELS(block, SCOPE_BLOCK)
KERNELS(device, SCOPE_DEVICE)
KERNELS(system, SCOPE_SYSTEM)
CONSTANT_TABLE(f32, factors, 4) = {1, 2, 3, 4};
KERNEL(scaled, (u64 n, f32 *x)) { GRID_STRIDE(i, n) { x[i] *= factors[i % 4]; } }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "k.cu"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def bodies(text: str, head: str) -> dict[str, str]:
    """Return the text after each kernel's head, up to the next head."""
    parts = re.split(head, text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_ptx_of_nvcc(source: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc: the text is NVIDIA's compiler's")
    made = source.with_suffix(".ptx")
    options = ["-ptx", "-arch=compute_75", "-std=c++17", f"-I{INCLUDE}"]
    subprocess.run(["nvcc", *options, str(source), "-o", str(made)], check=True)
    text = made.read_text(encoding="utf-8")
    kernels = bodies(text, r"\.entry (\w+)\(")
    for name, scope, fence in (
        ("block", ".cta", "membar.cta"),
        ("device", "", "membar.gl"),
        ("system", ".sys", "membar.sys"),
    ):
        atomics = re.findall(r"atom\.global(\.cta|\.sys)?\.(\w+)", kernels[f"{name}_changes"])
        assert atomics == [(scope, "add"), (scope, "add")]
        atomics = re.findall(r"atom\.global(\.cta|\.sys)?\.(\w+)", kernels[f"{name}_exchanges"])
        assert atomics == [(scope, "exch"), (scope, "cas")]
        assert re.findall(r"membar\.\w+", kernels[f"{name}_fences"]) == [fence]
    assert re.search(r"\.const \.align 4 \.b8 \w*factors\[16\]", text)
    assert "ld.const.f32" in kernels["scaled"]


def test_amds_devices(source: Path) -> None:
    if hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    text = hip_compiler.representation(source, "gfx90a")
    kernels = bodies(text, r"define [^\n]*amdgpu_kernel void @(\w+)\(")
    for name, scope in (("block", "workgroup"), ("device", "agent"), ("system", None)):
        told = f'syncscope("{scope}") ' if scope else ""
        changes, exchanges = kernels[f"{name}_changes"], kernels[f"{name}_exchanges"]
        for kernel, kinds in (
            (changes, ("atomicrmw add", "atomicrmw fadd")),
            (exchanges, ("atomicrmw xchg", "cmpxchg")),
        ):
            for kind in kinds:
                (line,) = re.findall(rf"= {kind} ([^\n]*)", kernel)
                assert re.search(rf"i32 \d+ {re.escape(told)}monotonic", line) or (
                    kind == "atomicrmw fadd" and f"e+00 {told}monotonic" in line
                ), line
        assert f"fence {told}seq_cst" in kernels[f"{name}_fences"]
    assert re.search(r"@\w*factors = [^\n]*addrspace\(4\) constant", text)


def instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Return (opcode, operands) of each instruction of a SPIR-V module."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    at = 5
    while at < len(words):
        count, code = words[at] >> 16, words[at] & 0xFFFF
        yield code, words[at + 1 : at + count]
        at += count


OP_ENTRY, OP_CONSTANT, OP_FUNCTION = 15, 43, 54
OP_BARRIER, OP_EXCHANGE, OP_ADD = 225, 229, 234


@pytest.mark.parametrize(("name", "scope"), [("block", 2), ("device", 1), ("system", 0)])
def test_opencls_devices(name: str, scope: int) -> None:
    """The scopes are numbers of SPIR-V: Workgroup, Device and CrossDevice."""
    if hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    constants: dict[int, int] = {}
    entries: dict[int, str] = {}
    found: dict[str, set[tuple[int, int]]] = {}
    inside = ""
    for code, operands in instructions(opencl_compile.kernels(SOURCE)):
        if code == OP_CONSTANT:
            constants[operands[1]] = operands[2]
        elif code == OP_ENTRY:
            text = struct.pack(f"<{len(operands) - 2}I", *operands[2:])
            entries[operands[1]] = text.partition(b"\0")[0].decode()
        elif code == OP_FUNCTION:
            inside = entries.get(operands[1], "")
        elif code in (OP_EXCHANGE, OP_ADD):
            found.setdefault(inside, set()).add((code, constants.get(operands[3], 0)))
        elif code == OP_BARRIER:
            found.setdefault(inside, set()).add((code, constants.get(operands[0], 0)))
    assert found[f"{name}_changes"] == {(OP_ADD, scope)}
    assert found[f"{name}_exchanges"] == {(OP_EXCHANGE, scope)}
    assert found[f"{name}_fences"] == {(OP_BARRIER, scope)}
