"""Writes code objects whose metadata says what a test wants; there is no machine code in them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_ABI_OF_VERSION = {4: 2, 5: 3, 6: 4}
_METADATA_VERSION = {4: [1, 1], 5: [1, 2], 6: [1, 2]}
_DESCRIPTOR_BYTES = 64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Argument:
    """An argument as the metadata describes it."""

    offset: int
    size: int
    kind: str = "by_value"


@dataclass(frozen=True)
class Kernel:
    """A kernel and what it takes up. Sizes are in bytes."""

    name: str
    arguments: Sequence[Argument] = ()
    kernarg: int = 0
    group: int = 0
    private: int = 0
    max_group: int = 1024
    more: dict[str, Any] = field(default_factory=dict)
    """Further members of its metadata, which win over these."""


def v5_hidden(start: int) -> list[Argument]:
    """The hidden arguments of code object version 5 that a launcher must fill, from `start` on."""
    places = [
        *((f"hidden_block_count_{axis}", 4 * at, 4) for at, axis in enumerate("xyz")),
        *((f"hidden_group_size_{axis}", 12 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_remainder_{axis}", 18 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_global_offset_{axis}", 40 + 8 * at, 8) for at, axis in enumerate("xyz")),
        ("hidden_grid_dims", 64, 2),
        ("hidden_heap_v1", 96, 8),
        ("hidden_dynamic_lds_size", 120, 4),
        ("hidden_queue_ptr", 200, 8),
    ]
    return [Argument(start + offset, size, kind) for kind, offset, size in places]


def write(
    kernels: Sequence[Kernel],
    *,
    target: str = "gfx90a",
    flags: int = 0x53F,
    version: int = 4,
    variables: dict[str, int] | None = None,
) -> bytes:
    """Return the bytes of a code object. `variables` are names and sizes in bytes."""
    metadata = {
        "amdhsa.version": _METADATA_VERSION[version],
        "amdhsa.target": f"amdgcn-amd-amdhsa--{target}",
        "amdhsa.kernels": [_describe(kernel) for kernel in kernels],
    }
    note = _note(pack(metadata))
    note_at = _HEADER.size + 2 * _PROGRAM.size
    descriptors_at = -(-(note_at + len(note)) // 64) * 64
    descriptors = b"".join(_descriptor(kernel) for kernel in kernels)
    objects = [
        (f"{kernel.name}.kd", descriptors_at + _DESCRIPTOR_BYTES * index, _DESCRIPTOR_BYTES)
        for index, kernel in enumerate(kernels)
    ]
    objects += [(name, 0x100000, size) for name, size in (variables or {}).items()]
    names = b"\0"
    symbols = bytes(_SYMBOL.size)
    for name, address, size in objects:
        symbols += _SYMBOL.pack(len(names), 0x11, 3, 1, address, size)
        names += name.encode() + b"\0"
    symbols_at = descriptors_at + len(descriptors)
    names_at = symbols_at + len(symbols)
    sections_at = -(-(names_at + len(names)) // 8) * 8
    sections = [
        bytes(_SECTION.size),
        _SECTION.pack(0, 11, 2, symbols_at, symbols_at, len(symbols), 2, 1, 8, _SYMBOL.size),
        _SECTION.pack(0, 3, 2, names_at, names_at, len(names), 0, 0, 1, 0),
    ]
    identity = b"\x7fELF\x02\x01\x01" + bytes([64, _ABI_OF_VERSION[version]]) + bytes(7)
    header = _HEADER.pack(
        *(identity, 3, 224, 1, 0, _HEADER.size, sections_at, flags),
        *(_HEADER.size, _PROGRAM.size, 2, _SECTION.size, len(sections), 0),
    )
    programs = _PROGRAM.pack(1, 4, 0, 0, 0, sections_at, sections_at, 4096)
    programs += _PROGRAM.pack(4, 4, note_at, note_at, note_at, len(note), len(note), 4)
    image = (header + programs + note).ljust(descriptors_at, b"\0") + descriptors + symbols
    return (image + names).ljust(sections_at, b"\0") + b"".join(sections)


def pack(value: Any) -> bytes:
    """Encode a value as MessagePack, every length and number in its longest form."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xce" + value.to_bytes(4, "big")
    if isinstance(value, str):
        return b"\xda" + len(value.encode()).to_bytes(2, "big") + value.encode()
    if isinstance(value, dict):
        items = b"".join(pack(key) + pack(one) for key, one in value.items())
        return b"\xde" + len(value).to_bytes(2, "big") + items
    return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(map(pack, value))


def _describe(kernel: Kernel) -> dict[str, Any]:
    return {
        ".name": kernel.name,
        ".symbol": f"{kernel.name}.kd",
        ".kernarg_segment_size": kernel.kernarg,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": kernel.group,
        ".private_segment_fixed_size": kernel.private,
        ".wavefront_size": 64,
        ".max_flat_workgroup_size": kernel.max_group,
        ".args": [
            {".offset": one.offset, ".size": one.size, ".value_kind": one.kind}
            for one in kernel.arguments
        ],
        **kernel.more,
    }


def _descriptor(kernel: Kernel) -> bytes:
    sizes = struct.pack("<III", kernel.group, kernel.private, kernel.kernarg)
    return sizes.ljust(_DESCRIPTOR_BYTES, b"\0")


def _note(metadata: bytes) -> bytes:
    padded = metadata.ljust(-(-len(metadata) // 4) * 4, b"\0")
    return struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + padded
