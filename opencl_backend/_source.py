"""Modules of OpenCL C text, which the driver compiles: an alternative to SPIR-V.

The image is the text behind a comment that marks it and holds the options; the driver describes the
parameters of its kernels.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

from opencl_backend._library import header
from uhal.abi import Library
from uhal.contract import Chosen, ImageCandidate
from uhal.errors import InvalidImageError
from uhal.signature import Signature

MAGIC = "//uhal: OpenCL C"
OPTIONS = "-cl-kernel-arg-info"
"""Build options in addition to the user's."""

_TYPES = {
    **{"char": "i8", "uchar": "u8", "short": "i16", "ushort": "u16", "int": "i32", "uint": "u32"},
    **{"long": "i64", "ulong": "u64", "half": "f16", "float": "f32", "double": "f64"},
    **{"size_t": "u64", "bool": "bool"},
}
"""Maps OpenCL C's names of scalars to uhal's names."""
_VECTOR = re.compile(r"([a-z]+)(2|3|4|8|16)")
_MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class SourceKernel:
    """The driver's description of a kernel."""

    signature: Signature
    local: tuple[bool, ...]
    """Whether each native argument is a pointer into a block's memory."""


def wrap(text: str, options: str) -> bytes:
    """Return the image of a text."""
    return f"{MAGIC} {options}\n{text}".encode()


def is_source(image: bytes) -> bool:
    """Say whether the bytes are an image that `wrap` made."""
    return image.startswith(MAGIC.encode())


def unwrap(image: bytes, what: str) -> tuple[str, str]:
    """Return text and options. `InvalidImageError` if the image is no text."""
    if len(image) > _MAX_BYTES:
        raise InvalidImageError(f"{what} is a text of {len(image)} bytes")
    try:
        first, _, text = image.decode().partition("\n")
    except UnicodeDecodeError as error:
        raise InvalidImageError(f"{what} is no text: {error}") from error
    return text, f"{first.removeprefix(MAGIC)} {OPTIONS}".strip()


def chosen(device: str) -> Chosen:
    """Return the record of the only choice."""
    reason = f"the driver of {device} compiles it"
    return Chosen("OpenCL C", reason, (ImageCandidate("OpenCL C", True, reason),))


def describe(library: Library, kernel: int, name: str) -> SourceKernel:
    """Ask the driver for a kernel's parameters."""
    constants = header().constants
    count = ctypes.c_uint32()
    library.clGetKernelInfo(kernel, constants["CL_KERNEL_NUM_ARGS"], 4, ctypes.byref(count), None)
    local: list[bool] = []
    words: list[str] = []
    for index in range(count.value):
        qualifier = _number(library, kernel, index, "ADDRESS_QUALIFIER", ctypes.c_uint32)
        local.append(qualifier == constants["CL_KERNEL_ARG_ADDRESS_LOCAL"])
        if not local[-1]:
            words.append(_word(library, kernel, index))
    signature = Signature.parse(", ".join(words), entry=name, source="OpenCL C")
    return SourceKernel(signature, tuple(local))


def _word(library: Library, kernel: int, index: int) -> str:
    """A parameter in the grammar of signatures."""
    reported = _text(library, kernel, index, "TYPE_NAME")
    name = _text(library, kernel, index, "NAME")
    name = f" {name}" if name.isidentifier() else ""
    if reported.endswith("*"):
        qualifier = _number(library, kernel, index, "TYPE_QUALIFIER", ctypes.c_uint64)
        const = "const " if qualifier & header().constants["CL_KERNEL_ARG_TYPE_CONST"] else ""
        element = _TYPES.get(reported.removesuffix("*").strip())
        return f"{const}{element}*{name}" if element else f"{const}ptr{name}"
    if reported in _TYPES:
        return f"{_TYPES[reported]}{name}"
    vector = _VECTOR.fullmatch(reported)
    if vector is not None and vector[1] in _TYPES:
        width = Signature.parse(_TYPES[vector[1]])[0].size or 0
        count = 4 if vector[2] == "3" else int(vector[2])
        return f"bytes[{width * count}]{name}"
    return f"unknown{name}"


def _number(library: Library, kernel: int, index: int, fact: str, of: type) -> int:
    value = of()
    key = header().constants[f"CL_KERNEL_ARG_{fact}"]
    size = ctypes.sizeof(value)
    library.clGetKernelArgInfo(kernel, index, key, size, ctypes.byref(value), None)
    return int(value.value)


def _text(library: Library, kernel: int, index: int, fact: str) -> str:
    key = header().constants[f"CL_KERNEL_ARG_{fact}"]
    needed = ctypes.c_size_t()
    library.clGetKernelArgInfo(kernel, index, key, 0, None, ctypes.byref(needed))
    buffer = ctypes.create_string_buffer(needed.value + 1)
    library.clGetKernelArgInfo(kernel, index, key, needed.value, buffer, None)
    return buffer.value.decode("utf-8", "replace")
