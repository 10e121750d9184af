"""Compiles kernel sources of this repository to SPIR-V for OpenCL, as `opencl_backend.compile`
does.

`hip_compiler.py` pins the compiler, which comes from the same wheel.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from build_support.hip_compiler import (
    INCLUDE,
    PINNED,
    ROOT,
    CompilerError,
    run_compiler,
    toolchain,
)
from opencl_backend.compile import front_end, odd_integer
from uhal.images.kernel_source import PACKAGE


def compile_spirv(source: Path, output: Path, *, root: Path = ROOT) -> None:
    """Compile a source to a module. `source` is relative to `root`, laid out as this repository.

    Raises `CompilerError`, also if the module has an integer type that OpenCL lacks, or if an
    installed `spirv-val` refuses the module.
    """
    run_compiler([*_clang(), "-emit-obj", str(source), "-o", str(output)], root)
    fault = odd_integer(output.read_bytes())
    if fault:
        raise CompilerError(f"{source}: {fault}")
    validator = shutil.which("spirv-val")
    if validator is not None:
        command = [validator, "--target-env", "spv1.2", str(output)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            raise CompilerError(f"{source}: spirv-val: {done.stdout}{done.stderr}")


def preprocess(source: Path, *, root: Path = ROOT) -> str:
    """Return the preprocessor's output for a source. Raises `CompilerError`."""
    return run_compiler([*_clang(), "-E", str(source)], root)


def _clang() -> list[str]:
    if toolchain() is None:
        raise CompilerError(f"needs pip install {PACKAGE}=={PINNED}")
    # Files beside the images hold the signatures.
    return [*front_end(str(INCLUDE)), "-DUHAL_SIGNATURES=0"]
