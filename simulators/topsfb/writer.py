"""Writes `.topsfb` files as the vendor's compiler does, from C parameter lists, without code.

A `.topsfb` is an offload bundle of ELF files; each has a symbol for every kernel, and a note in
MessagePack that describes the kernels' parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FLAGS = {"gcu200": 2, "gcu210": 3, "gcu300": 4}
"""ELF flags by architecture; the flags of later architectures are not known."""
HOST = "host-x86_64-unknown-linux"

_C_TYPES = {
    # spelling: (bytes, ValueType)
    "bool": (1, "Struct"),
    "char": (1, "I8"),
    "int8_t": (1, "I8"),
    "uint8_t": (1, "U8"),
    "u_int8_t": (1, "U8"),
    "int16_t": (2, "I16"),
    "uint16_t": (2, "U16"),
    "u_int16_t": (2, "U16"),
    "int": (4, "I32"),
    "int32_t": (4, "I32"),
    "uint32_t": (4, "U32"),
    "u_int32_t": (4, "U32"),
    "int64_t": (8, "I64"),
    "uint64_t": (8, "U64"),
    "size_t": (8, "U64"),
    "float": (4, "F32"),
    "double": (8, "F64"),
    "__fp16": (2, "I16"),
    "__bf16": (2, "Struct"),
    "tops::half": (2, "I16"),
    "tops::bfloat": (2, "I16"),
}


def pack(value: Any) -> bytes:
    """MessagePack of None, bools, ints, strings, lists and maps, in the shortest forms."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 0x80:
            return bytes([value])
        if value < 0:
            return b"\xd3" + struct.pack(">q", value)
        return b"\xcd" + struct.pack(">H", value) if value < 1 << 16 else _u64(value)
    if isinstance(value, str):
        encoded = value.encode()
        head = bytes([0xA0 | len(encoded)]) if len(encoded) < 32 else _sized(0xD9, 0xDA, encoded)
        return head + encoded
    if isinstance(value, Mapping):
        body = b"".join(pack(key) + pack(item) for key, item in value.items())
        return _counted(0x80, 0xDE, len(value)) + body
    return _counted(0x90, 0xDC, len(value)) + b"".join(pack(item) for item in value)


def _u64(value: int) -> bytes:
    return b"\xcf" + struct.pack(">Q", value)


def _sized(short: int, long: int, encoded: bytes) -> bytes:
    if len(encoded) < 256:
        return bytes([short, len(encoded)])
    return bytes([long]) + struct.pack(">H", len(encoded))


def _counted(short: int, long: int, count: int) -> bytes:
    return bytes([short | count]) if count < 16 else bytes([long]) + struct.pack(">H", count)


@dataclass(frozen=True)
class Aggregate:
    """A structure that a kernel takes by value."""

    spelling: str
    size: int
    alignment: int


CType = str | Aggregate
"""A parameter's type: `float*`, `size_t`, or a structure of a known size."""


def describe(parameters: Sequence[CType]) -> list[dict[str, Any]]:
    """The note's `Args` for parameters."""
    offset = 0
    described = []
    for parameter in parameters:
        spelling = parameter if isinstance(parameter, str) else parameter.spelling
        pointer = spelling.endswith("*")
        size, alignment, value_type = _measure(parameter)
        offset = -(-offset // alignment) * alignment
        described.append(
            {
                "Name": "Unknown",
                "TypeName": spelling,
                "Size": size,
                "Align": alignment,
                "Offset": offset,
                "ValueKind": "GlobalBuffer" if pointer else "ByValue",
                "ValueType": value_type,
                "AccQual": "Default",
                **({"AddrSpaceQual": "Global"} if pointer else {}),
            }
        )
        offset += size
    return described


def _measure(parameter: CType) -> tuple[int, int, str]:
    """Return size, alignment and the note's `ValueType`."""
    if isinstance(parameter, Aggregate):
        return parameter.size, parameter.alignment, "Struct"
    element = parameter.removeprefix("const ").rstrip("*").strip()
    size, value_type = _C_TYPES.get(element, (4, "Struct"))
    return (8, 8, value_type) if parameter.endswith("*") else (size, size, value_type)


@dataclass(frozen=True)
class Gcu:
    """A GCU image to write."""

    kernels: Mapping[str, Sequence[CType]]
    """Maps a kernel's name to the C types of its parameters."""
    target: str = "gcu300"
    processor: str | None = None
    """Processor in the note; by default the target."""
    flags: int | None = None
    args: Mapping[str, Any] | None = None
    """Maps a kernel's name to `Args` that replace the generated `Args`."""
    undescribed: Sequence[str] = ()
    """Kernels that are in the symbol table, but not in the note."""
    relocatable: bool = False
    variables: Mapping[str, int] = field(default_factory=dict)
    """Maps the name of a module's variable to its bytes."""

    def elf(self) -> bytes:
        """The ELF file."""
        processor = self.target if self.processor is None else self.processor
        tags = {"Processor": processor, "Triple": "dtu-enflame-tops"}
        replaced = self.args or {}
        kernels = [
            {"Name": name, "Args": replaced.get(name, describe(types))}
            for name, types in self.kernels.items()
        ]
        notes = _note(pack({"Kernels": kernels, **tags})) + _note(pack(tags))
        # A helper is an ordinary function; a kernel has a system-defined symbol type.
        symbols = [
            ("__boot__", _FUNCTION, 64),
            *((name, _KERNEL, 64) for name in (*self.kernels, *self.undescribed)),
            *((name, _OBJECT, nbytes) for name, nbytes in self.variables.items()),
        ]
        flags = FLAGS.get(self.target, 0) if self.flags is None else self.flags
        return _elf(symbols, notes, flags, 1 if self.relocatable else 3)


_OBJECT, _FUNCTION, _KERNEL = 1, 2, 10


def _note(description: bytes) -> bytes:
    padded = description + b"\0" * (-len(description) % 4)
    return struct.pack("<III", 8, len(description), 0x20) + b"TOPSDTU\0" + padded


def _elf(defined: Sequence[tuple[str, int, int]], notes: bytes, flags: int, kind: int) -> bytes:
    strings = bytearray(b"\0")
    symbols = bytearray(24)
    for name, symbol_type, nbytes in defined:
        symbols += struct.pack("<IBBHQQ", len(strings), 1 << 4 | symbol_type, 0, 1, 0x100, nbytes)
        strings += name.encode() + b"\0"
    table = 2 if kind == 1 else 11
    parts = [
        # name, type, data, link, entry size
        (".text", 1, b"\0" * 64, 0, 0),
        (".note", 7, notes, 0, 0),
        (".symtab" if kind == 1 else ".dynsym", table, bytes(symbols), 4, 24),
        (".dynstr", 3, bytes(strings), 0, 0),
    ]
    section_names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    parts.append((".shstrtab", 3, section_names, 0, 0))
    position = 64 + 2 * 56
    body = bytearray()
    headers = bytearray(64)
    extents = {}
    for name, section_type, data, link, entry_size in parts:
        body += b"\0" * (-(position + len(body)) % 8)
        extents[name] = (position + len(body), len(data))
        at = section_names.index(name.encode() + b"\0")
        headers += struct.pack(
            "<IIQQQQIIQQ", at, section_type, 2, 0, *extents[name], link, 0, 8, entry_size
        )
        body += data
    body += b"\0" * (-(position + len(body)) % 8)
    text, note = extents[".text"], extents[".note"]
    segments = struct.pack("<IIQQQQQQ", 1, 5, text[0], 0, 0, text[1], text[1], 4096)
    segments += struct.pack("<IIQQQQQQ", 4, 4, note[0], 0, 0, note[1], note[1], 4)
    header = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 0x43, 0),
        *(kind, 0xF8, 1, 0, 64, position + len(body), flags),
        *(64, 56, 2, 64, len(parts) + 1, len(parts)),
    )
    return header + segments + bytes(body) + bytes(headers)


def bundle(*entries: tuple[str, bytes]) -> bytes:
    """An offload bundle of (id, image); the host's empty entry comes first."""
    listed = [(HOST, b""), *entries]
    start = 32 + sum(24 + len(name) for name, _ in listed)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(listed))
    body = b""
    for name, image in listed:
        head += struct.pack("<QQQ", start + len(body), len(image), len(name)) + name.encode()
        body += image
    return head + body


def topsfb(*images: Gcu) -> bytes:
    """A `.topsfb` of the images."""
    return bundle(*((f"tops-dtu-enflame-tops--{one.target}", one.elf()) for one in images))
