"""Compiles kernel sources with clang of the wheel `ziglang`; advice about refused sources.

`pip install "uhal-py[kernels]"` brings the wheel. Backends call this module for their own targets.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from uhal.errors import ArgumentTypeError, DeviceError, LibraryNotFoundError
from uhal.habits import OF_SOURCE

PACKAGE = "ziglang"
INCLUDE = Path(__file__).resolve().parents[1] / "include"
"""The folder of `<uhal/kernel.h>`."""
INFLUENCES = frozenset(("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH"))
"""Environment variables that would change clang's output."""
_PATH = re.compile(r"[^\s{}();]+\.(cu|cuh|cc|cpp|cxx|c|hip|cl)")
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*>\s*KERNEL(?:_BOUNDED)?\s*\(")
_NO_LIST = re.compile(r"\bKERNEL\s*\(\s*\w+\s*,\s*[^\s(]")
_REFUSED = re.compile(r"error: [^\n]*?[‘'](\w+)[’']")
"""A name in a compiler's error. g++ and clang quote it by different characters."""


def source_advice(source: str, refusal: str) -> str:
    """Return advice about a refused source, or an empty text.

    It knows a path instead of a text, names of CUDA, and common mistakes in a KERNEL. `refusal` is
    the compiler's message.
    """
    if _PATH.fullmatch(source.strip()):
        return f"\nThe source is a text: write Path({source.strip()!r}).read_text()."
    if _TEMPLATE.search(source):
        return (
            "\nA KERNEL cannot be a template: its entry has one name and one list of types. Write "
            "the body as a template DEVICE_FUNCTION, and one KERNEL for each type that calls it."
        )
    if _NO_LIST.search(source):
        return (
            "\nParameters stand in parentheses of their own: KERNEL(name, (f32 *x, u32 n)) { … }."
        )
    names = dict.fromkeys(_REFUSED.findall(refusal))
    return "".join(f"\n{OF_SOURCE[name]}" for name in names if name in OF_SOURCE)


def require_text(source: str, options: Sequence[str]) -> None:
    """Raise `ArgumentTypeError` for sources and options that are not text."""
    if not isinstance(source, str):
        raise ArgumentTypeError(f"source: expected a str, got {type(source).__name__}")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise ArgumentTypeError(f"options: expected a sequence of str, got {options!r}")


def builtin_headers(backend: str, devices: str) -> Path:
    """Return the folder of clang's own headers.

    Raises `LibraryNotFoundError`, which names the `devices`, when the wheel is not installed.
    """
    try:
        version(PACKAGE)
        found = importlib.util.find_spec(PACKAGE)
    except (PackageNotFoundError, ImportError):
        found = None
    if found is None or found.origin is None:
        raise LibraryNotFoundError(
            f"compiling for {devices} needs clang of the wheel {PACKAGE}: "
            'pip install "uhal-py[kernels]"',
            backend=backend,
        )
    return Path(found.origin).resolve().parent / "lib" / "include"


def run_clang(command: Sequence[str], source: str, output: Path, backend: str) -> bytes:
    """Compile a source that clang reads from its input; return the bytes of `output`.

    Raises `DeviceError` with the compiler's message when the source does not compile.
    """
    done = subprocess.run(
        [*command, "-", "-o", str(output)],
        input=source,
        capture_output=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if name not in INFLUENCES},
    )
    if done.returncode != 0:
        raise DeviceError(
            f"{backend}_backend.compile: {(done.stdout + done.stderr).strip()}"
            f"{source_advice(source, done.stderr)}",
            backend=backend,
            call="clang",
        )
    return output.read_bytes()
