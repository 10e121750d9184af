"""Compiles kernels written with `<uhal/kernel.h>` to AMD code objects, without ROCm.

    image = rocm_backend.compile.kernels(Path("kernels.cu").read_text(), "gfx942")
    module = uhal.Module.from_bytes(image)

The compiler is clang of the wheel `ziglang`, which `pip install "uhal-py[kernels]"` brings; nothing
else in uhal calls it. The compiler reads only the source and uhal's own headers.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from uhal.errors import ArgumentValueError
from uhal.images.kernel_source import (
    INCLUDE,
    PACKAGE,
    builtin_headers,
    require_text,
    run_clang,
)

__all__ = ["kernels"]

FREESTANDING = Path("uhal", "hip")
"""Folder, among the headers, of our replacements for a C library's headers."""
LANGUAGE = ("-x", "hip", "-std=c++17", "--cuda-device-only", "-nogpuinc", "-nogpulib")
"""Options that choose the language; without the last two, clang requires a ROCm installation."""
OBJECT = (
    *("-O3", "--no-gpu-bundle-output"),
    # The default compilation identifier contains the path.
    "-fuse-cuid=none",
    # The runtime finds kernels in `.symtab`, so this section stays. The compiler's notes in it
    # about each kernel's registers repeat the metadata.
    *("-Xoffload-linker", "--discard-all"),
)
"""Options for a code object; the build of uhal's images uses the same."""

_TARGET = re.compile(r"gfx[0-9a-f]+(?:-generic)?(?::(?:xnack|sramecc)[+-])*")


def kernels(source: str, target: str, options: Sequence[str] = ()) -> bytes:
    """Compile the text of a kernel source to a code object for `Module.from_bytes`.

    `target` is the device's target, such as `"gfx942"` or `"gfx90a:xnack-"`. `options` are options
    of clang, such as `["-DTILE=32", "-I/my/headers"]`. The image has names and types of all
    parameters.

    Raises `LibraryNotFoundError` when the wheel is missing, `ArgumentValueError` for a text that
    is no target, `DeviceError` with the compiler's words when the source does not compile. Any
    thread may call it.
    """
    require_text(source, options)
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise ArgumentValueError(f"target: expected a target such as 'gfx942', got {target!r}")
    with tempfile.TemporaryDirectory() as folder:
        linker = write_linker(Path(folder))
        command = [*front_end(str(INCLUDE)), f"-B{linker}", f"--offload-arch={target}"]
        command += [*LANGUAGE, *OBJECT, *options]
        return run_clang(command, source, Path(folder, "kernels.hsaco"), "rocm")


def front_end(include: str) -> list[str]:
    """Return the compiler's command with its headers; uhal's are in `include`.

    Raises `LibraryNotFoundError` when it is not installed.
    """
    builtin = builtin_headers("rocm", "AMD devices")
    headers = (f"-I{include}", "-isystem", str(Path(include, FREESTANDING)))
    return [
        *(sys.executable, "-m", PACKAGE, "clang", "-nostdinc"),
        *headers,
        *("-isystem", str(builtin)),
    ]


def write_linker(folder: Path) -> Path:
    """Write the `lld` that clang's driver calls; it has another name in the wheel."""
    linker = folder / "lld"
    python = shlex.quote(sys.executable)
    # The driver passes `-flavor gnu` first.
    text = f'#!/bin/sh\nshift 2\nexec {python} -m {PACKAGE} ld.lld "$@"\n'
    linker.write_text(text, encoding="utf-8")
    linker.chmod(0o755)
    return folder
