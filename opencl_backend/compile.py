"""Compiles kernels written with `<uhal/kernel.h>` to SPIR-V, where the compiler is installed.

    image = opencl_backend.compile.kernels(Path("kernels.cu").read_text())
    module = uhal.Module.from_bytes(image)

The compiler is clang of the wheel `ziglang`, which `pip install "uhal-py[kernels]"` brings; nothing
else in uhal calls it. It runs HIP's front end for the target SPIR-V 1.2 with 64-bit addresses. The
compiler reads only the source and uhal's own headers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opencl_backend import _source
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from uhal.images.kernel_source import (
    INCLUDE,
    PACKAGE,
    builtin_headers,
    require_text,
    run_clang,
)
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import OP_TYPE_INT

__all__ = ["kernels", "opencl_c"]

LANGUAGE = (
    *("-triple", "spirv64v1.2-unknown-unknown", "-aux-triple", "x86_64-unknown-linux-gnu"),
    *("-x", "hip", "-fcuda-is-device", "-std=c++17", "-O2", "-nostdsysteminc", "-nobuiltininc"),
    # Loop strength reduction makes integers of odd width, which LLVM 22 miscompiles to SPIR-V.
    *("-mllvm", "-disable-lsr"),
)
"""Options of clang's own front end (`-cc1`); the build of uhal's images uses the same."""
FREESTANDING = Path("uhal", "opencl")
"""Folder, among the headers, of our replacements for a C library's headers."""
_WIDTHS = frozenset((8, 16, 32, 64))


def kernels(source: str, options: Sequence[str] = ()) -> bytes:
    """Compile the text of a kernel source to a SPIR-V module for `Module.from_bytes`.

    `options` are clang's, such as `["-DTILE=32", "-I/my/headers"]`. The module has sizes and names
    of parameters; their types come with `get_function(name, signature)`.

    Raises `LibraryNotFoundError` when the wheel is missing, `DeviceError` with the compiler's
    words when the source does not compile. Any thread may call it.
    """
    require_text(source, options)
    command = [*front_end(str(INCLUDE)), *options, "-emit-obj"]
    with tempfile.TemporaryDirectory() as folder:
        image = run_clang(command, source, Path(folder, "module.spv"), "opencl")
    fault = odd_integer(image)
    if fault:
        raise DeviceError(f"opencl_backend.compile: {fault}", backend="opencl", call="clang")
    return image


def opencl_c(text: str, options: str = "") -> bytes:
    """Return the image of a text in OpenCL C, which the device's driver compiles at loading.

    `options` are for clBuildProgram, such as `"-cl-std=CL3.0 -DTILE=32"`. The driver describes
    types and names of parameters, except structures by value. A kernel may have one pointer to
    local memory; it gets the launch's shared bytes.

    `Module.from_bytes` reports errors of the text: `InvalidImageError` in the driver's words.
    """
    for name, given in (("text", text), ("options", options)):
        if not isinstance(given, str):
            raise ArgumentTypeError(f"{name}: expected a str, got {type(given).__name__}")
    if "\n" in options:
        raise ArgumentValueError("options: expected one line")
    return _source.wrap(text, options)


def front_end(include: str) -> list[str]:
    """Return the compiler's command with its headers; uhal's are in `include`.

    Raises `LibraryNotFoundError` when it is not installed.
    """
    builtin = builtin_headers("opencl", "OpenCL")
    system = ("-internal-isystem", str(Path(include, FREESTANDING)))
    headers = (f"-I{include}", *system, "-internal-isystem", str(builtin))
    return [sys.executable, "-m", PACKAGE, "clang", "-cc1", *LANGUAGE, *headers]


def odd_integer(image: bytes) -> str:
    """Name an integer type of a module that OpenCL lacks; "" if there is none."""
    module = SpirvModule(image)
    for one in module.globals.values():
        width = module.words[one.start + 2] if one.opcode == OP_TYPE_INT else 8
        if width not in _WIDTHS:
            return (
                f"the compiler made an integer of {width} bits, which no device has and LLVM's "
                "SPIR-V target miscompiles"
            )
    return ""
