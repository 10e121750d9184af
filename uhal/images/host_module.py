"""Reads host kernel libraries: checks the file and returns the kernels' signatures.

An image is a shared library built with `<uhal/kernel.h>`. The system's loader trusts every byte, so
images are checked here first.
"""

from __future__ import annotations

import platform
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from uhal.errors import InvalidImageError
from uhal.images import elf
from uhal.images.kernel_table import require_kernel_table
from uhal.images.loadable import require_loadable
from uhal.signature import Signature

ADVICE = (
    "build the kernel's source for the host: "
    "c++ $(python -m uhal cflags) -x c++ kernel.cu -o kernel.so"
)

_TABLE = "uhal_host_module"
_TABLE_HEAD = struct.Struct("<QII")  # magic, version, instruction level
_TABLE_MAGIC = int.from_bytes(b"UHModule", "little")
_TABLE_VERSION = 1
"""UHAL_HOST_MODULE_VERSION: the runtime refuses every other version."""
_MACHINES = {"x86_64": elf.EM_X86_64, "amd64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}
_FOREIGN_MACHINES = {
    elf.EM_CUDA: "a CUDA binary (cubin)",
    elf.EM_AMDGPU: "an AMD GPU binary (HSACO)",
    elf.EM_X86_64: "a library for x86-64",
    elf.EM_AARCH64: "a library for aarch64",
}
_FOREIGN_STARTS = {
    b"\x50\xed\x55\xba": "a CUDA fat binary",
    b"__CLANG_OFFLOAD_BUNDLE__": "an AMD offload bundle",
    b"BC\xc0\xde": "LLVM bitcode",
    b"!<arch>": "a static library",
    b"\xcf\xfa\xed\xfe": "a macOS library",
    b"MZ": "a Windows library",
}
_PTX = re.compile(rb"\A(?:\s|//[^\n]*\n)*\.version\s")

_DTYPE_NAMES = {
    "?": "bool",
    "b": "i8",
    "B": "u8",
    "h": "i16",
    "H": "u16",
    "i": "i32",
    "I": "u32",
    "q": "i64",
    "Q": "u64",
    "8": "f8e4m3",
    "e": "f16",
    "g": "bf16",
    "f": "f32",
    "d": "f64",
}
POINTER = 1
CONST = 2
_TYPE_WORDS = frozenset(
    "const volatile void bool char short int long float double signed unsigned size_t restrict "
    "__restrict __restrict__ f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64".split()
)


@dataclass(frozen=True)
class ParameterFacts:
    """A parameter as the compiler recorded it."""

    size: int
    alignment: int
    flags: int
    dtype: int
    """Character code of the scalar or the pointer's target; 0 for other types."""


def require_host_module(image: bytes, what: str, cpu_level: int) -> None:
    """Check that `image` is a kernel library for this machine. Messages call it `what`.

    `cpu_level` is the x86-64 level of the CPU, 0 on other machines. `InvalidImageError` names the
    actual format of the image, and the next step.
    """
    if sys.platform == "darwin" and image.startswith(b"\xcf\xfa\xed\xfe"):
        return  # macOS checks the file itself; the runtime checks the table
    if not image.startswith(elf.MAGIC):
        _refuse(what, _kind_of(image))
    library = elf.Elf(image, what)
    if library.machine != _MACHINES.get(platform.machine().lower()):
        machine = _FOREIGN_MACHINES.get(library.machine, f"for machine {library.machine}")
        _refuse(what, machine)
    if library.type != elf.ET_DYN:
        _refuse(what, "an object file" if library.type == elf.ET_REL else "a program")
    if not any(segment.type == elf.PT_LOAD for segment in library.segments):
        _refuse(what, "a library that loads nothing")
    table = next(
        (
            symbol
            for symbol in library.dynamic_symbols
            if symbol.name == _TABLE and symbol.section != elf.SHN_UNDEF
        ),
        None,
    )
    if table is None:
        _refuse(what, "a library without kernels")
    require_loadable(library, what)
    magic, version, level = _TABLE_HEAD.unpack(library.read(table.value, _TABLE_HEAD.size))
    if magic != _TABLE_MAGIC:
        _refuse(what, "a library with a damaged kernel table")
    if version == _TABLE_VERSION:
        require_kernel_table(library, table.value, what)
    if level > cpu_level:
        raise InvalidImageError(
            f"{what} was built for x86-64-v{level} and this CPU is x86-64-v{cpu_level}: "
            "build it on this machine, or without -march"
        )


def signature_of(entry: str, parameter_text: str, facts: Sequence[ParameterFacts]) -> Signature:
    """Build a kernel's signature from the compiler's types and the source's names."""
    names = _parameter_names(parameter_text)
    if len(names) != len(facts):
        names = [None] * len(facts)
    declared = ", ".join(
        " ".join(word for word in (_type_text(fact), name) if word)
        for fact, name in zip(facts, names, strict=True)
    )
    parsed = Signature.parse(declared, entry=entry, source="image")
    end = 0
    with_offsets: list[Any] = []
    for parameter, fact in zip(parsed, facts, strict=True):
        if parameter.size != fact.size:
            raise InvalidImageError(
                f"parameter {parameter.index} of {entry} is {fact.size} bytes in the image and "
                f"'{parameter}' has {parameter.size}: the image is damaged"
            )
        offset = -(-end // fact.alignment) * fact.alignment
        with_offsets.append(replace(parameter, offset=offset))
        end = offset + fact.size
    return Signature(with_offsets, entry)


def _type_text(fact: ParameterFacts) -> str:
    name = _DTYPE_NAMES.get(chr(fact.dtype)) if fact.dtype else None
    if fact.flags & POINTER:
        const = "const " if fact.flags & CONST else ""
        return f"{const}{name}*" if name else f"{const}ptr"
    return name or f"bytes[{fact.size}]"


def _parameter_names(text: str) -> list[str | None]:
    """Return the names in a C parameter list, `None` for parameters without a name."""
    inside = text.strip().removeprefix("(").removesuffix(")").strip()
    if inside in ("", "void"):
        return []
    names: list[str | None] = []
    for parameter in _split_at_top(inside):
        words = re.findall(r"[A-Za-z_]\w*", parameter)
        last = words[-1] if len(words) > 1 and parameter.rstrip().endswith(words[-1]) else None
        names.append(None if last in _TYPE_WORDS else last)
    return names


def _split_at_top(text: str) -> list[str]:
    """Split at commas that no bracket encloses: `pair<a, b> p` is one parameter."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _kind_of(image: bytes) -> str:
    for start, kind in _FOREIGN_STARTS.items():
        if image.startswith(start):
            return kind
    if _PTX.match(image[:65536]):
        return "PTX, for NVIDIA GPUs"
    return "no kernel library" if image else "empty"


def _refuse(what: str, kind: str) -> NoReturn:
    raise InvalidImageError(f"{what} is {kind}: {ADVICE}")
