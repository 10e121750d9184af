"""Makes a `.topsfb` for simulated devices from a host kernel library.

    python -m simulators.topsfb.of_host kernels.so kernels.topsfb

The library is loaded and its table is read. A `.sig` file beside the image has
the parameters' names, which images leave out.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .writer import Aggregate, CType, Gcu, topsfb

_SPELLINGS = {
    "?": "bool",
    "b": "int8_t",
    "B": "uint8_t",
    "h": "int16_t",
    "H": "uint16_t",
    "i": "int32_t",
    "I": "uint32_t",
    "q": "int64_t",
    "Q": "uint64_t",
    "e": "__fp16",
    "g": "__bf16",
    "f": "float",
    "d": "double",
}
_POINTER, _CONST = 1, 2
_Item = TypeVar("_Item", bound=ctypes.Structure)


class _Parameter(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("size", "alignment", "flags", "dtype"))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("parameter_text", ctypes.c_char_p),
        ("parameters", ctypes.POINTER(_Parameter)),
        ("parameter_count", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("run", ctypes.c_void_p),
    )


class _Global(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    )


class _Module(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("instruction_level", ctypes.c_uint32),
        ("kernels_begin", ctypes.c_void_p),
        ("kernels_end", ctypes.c_void_p),
        ("globals_begin", ctypes.c_void_p),
        ("globals_end", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class HostLibrary:
    """Description of a host kernel library, from the file."""

    kernels: dict[str, list[CType]]
    parameter_texts: dict[str, str]
    """The parameter list of each kernel, spelled as in its source, without parentheses."""
    variables: dict[str, int]


def read(path: Path) -> HostLibrary:
    """Read the table of a library built with `<uhal/kernel.h>`."""
    library = ctypes.CDLL(str(path))
    module = _Module.in_dll(library, "uhal_host_module")
    kernels = sorted(
        _items(_Kernel, module.kernels_begin, module.kernels_end), key=lambda one: one.order
    )
    variables = _items(_Global, module.globals_begin, module.globals_end)
    return HostLibrary(
        {
            one.entry.decode(): [_type_of(one.parameters[i]) for i in range(one.parameter_count)]
            for one in kernels
        },
        {one.entry.decode(): one.parameter_text.decode().strip("()") for one in kernels},
        {one.name.decode(): one.bytes for one in variables},
    )


def assemble(path: Path, *targets: str) -> bytes:
    """Return a `.topsfb` with the kernels and variables of a library."""
    library = read(path)
    return topsfb(*(Gcu(library.kernels, one, variables=library.variables) for one in targets))


def sidecar(path: Path) -> str:
    """Return the lines of the `.sig` file: the names of all parameters."""
    texts = read(path).parameter_texts
    return "".join(
        f"{entry}: {' '.join(text.split())}\n"
        for entry, text in texts.items()
        # Structures and vectors have no spelling in signatures.
        if not re.search(r"\b(?:[A-Z]\w*|\w+x\d) [*\w]", text)
    )


def _items(kind: type[_Item], begin: int, end: int) -> Iterator[_Item]:
    size = ctypes.sizeof(ctypes.c_void_p)
    for at in range(begin, end, size):
        address = ctypes.c_void_p.from_address(at).value
        if address:
            yield kind.from_address(address)


def _type_of(parameter: _Parameter) -> CType:
    element = _SPELLINGS.get(chr(parameter.dtype)) if parameter.dtype else None
    if parameter.flags & _POINTER:
        const = "const " if parameter.flags & _CONST else ""
        return f"{const}{element or 'void'}*"
    return element or Aggregate("struct", parameter.size, parameter.alignment)


def main() -> None:
    """Write the image and its sidecar."""
    library, image = (Path(argument) for argument in sys.argv[1:])
    image.write_bytes(assemble(library, "gcu300"))
    Path(f"{image}.sig").write_text(sidecar(library), encoding="utf-8")


if __name__ == "__main__":
    main()
