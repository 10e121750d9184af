"""Compiles kernel sources to SPIR-V for OpenCL, with the compiler of the ziglang wheel.

Its front end is that of HIP, as for AMD's devices (`hip_compiler.py`, which pins the version), the target
SPIR-V 1.2 with addresses of 64 bits. Nothing of this machine is read but the sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from build_support.hip_compiler import (
    INCLUDE,
    PACKAGE,
    PINNED,
    ROOT,
    CompilerError,
    builtin_headers,
    run_compiler,
    toolchain,
)
from opencl_backend.spirv import OP_TYPE_INT, SpirvModule

FREESTANDING = INCLUDE / "uhal" / "opencl"
"""Our stand-ins for the headers of a C library that device code uses."""

TRIPLE = "spirv64v1.2-unknown-unknown"
_LANGUAGE = (
    *("-triple", TRIPLE, "-aux-triple", "x86_64-unknown-linux-gnu"),
    *("-x", "hip", "-fcuda-is-device", "-std=c++17", "-O2", "-nostdsysteminc", "-nobuiltininc"),
    # LLVM 22's SPIR-V target miscompiles the integers of odd width that loop strength reduction makes.
    *("-mllvm", "-disable-lsr"),
)
_WIDTHS = frozenset((8, 16, 32, 64))


def compile_spirv(source: Path, output: Path, *, root: Path = ROOT) -> None:
    """Compile a source to a module. `source` is relative to `root`, laid out as this repository.

    Raises `CompilerError`, also when the module has an integer that OpenCL has not, and where
    `spirv-val` is installed and refuses the module.
    """
    run_compiler([*_clang(), "-emit-obj", str(source), "-o", str(output)], root)
    module = SpirvModule(output.read_bytes(), str(source))
    for one in module.globals.values():
        if one.opcode == OP_TYPE_INT and module.words[one.start + 2] not in _WIDTHS:
            raise CompilerError(
                f"{source}: the compiler made an integer of {module.words[one.start + 2]} bits, "
                "which no device has and LLVM's SPIR-V target miscompiles"
            )
    validator = shutil.which("spirv-val")
    if validator is not None:
        command = [validator, "--target-env", "spv1.2", str(output)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            raise CompilerError(f"{source}: spirv-val: {done.stdout}{done.stderr}")


def preprocess(source: Path, *, root: Path = ROOT) -> str:
    """Return what the preprocessor makes of a source. Raises `CompilerError`."""
    return run_compiler([*_clang(), "-E", str(source)], root)


def _clang() -> list[str]:
    if toolchain() is None:
        raise CompilerError(f"needs pip install {PACKAGE}=={PINNED}")
    headers = (f"-I{INCLUDE}", "-internal-isystem", str(FREESTANDING))
    builtin = ("-internal-isystem", str(builtin_headers()))
    return [sys.executable, "-m", PACKAGE, "clang", "-cc1", *_LANGUAGE, *headers, *builtin]
