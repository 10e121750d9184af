"""Writes code objects with a test's own metadata; there is no machine code in them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from uhal.images.amd_target import PROCESSORS, TargetId

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
    """A kernel and its resources. Sizes are in bytes."""

    name: str
    arguments: Sequence[Argument] = ()
    kernarg: int = 0
    group: int = 0
    private: int = 0
    max_group: int = 1024
    more: dict[str, Any] = field(default_factory=dict)
    """Further metadata members, which replace the members from these fields."""


def v5_hidden(start: int) -> list[Argument]:
    """Return the hidden arguments of code object version 5 that a launcher fills, from `start`
    on."""
    entries = [
        *((f"hidden_block_count_{axis}", 4 * at, 4) for at, axis in enumerate("xyz")),
        *((f"hidden_group_size_{axis}", 12 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_remainder_{axis}", 18 + 2 * at, 2) for at, axis in enumerate("xyz")),
        *((f"hidden_global_offset_{axis}", 40 + 8 * at, 8) for at, axis in enumerate("xyz")),
        ("hidden_grid_dims", 64, 2),
        ("hidden_heap_v1", 96, 8),
        ("hidden_dynamic_lds_size", 120, 4),
        ("hidden_queue_ptr", 200, 8),
    ]
    return [Argument(start + offset, size, kind) for kind, offset, size in entries]


def write(
    kernels: Sequence[Kernel],
    *,
    target: str = "gfx90a",
    flags: int | None = None,
    version: int = 4,
    variables: dict[str, int] | None = None,
    stripped: bool = False,
) -> bytes:
    """Return the bytes of a code object. `variables` are names and sizes in bytes.

    `flags` are the header's flags, by default a linker's flags for the target.

    A linker writes two symbol tables. `stripped` (a linker's `--strip-all`) removes the table in
    which AMD's runtime looks up kernels.
    """
    metadata = {
        "amdhsa.version": _METADATA_VERSION[version],
        "amdhsa.target": f"amdgcn-amd-amdhsa--{target}",
        "amdhsa.kernels": [_describe(kernel) for kernel in kernels],
    }
    note = _note(pack(metadata))
    file = _File(_HEADER.size + 3 * _PROGRAM.size)
    note_at = file.add(".note", 7, note, 4, _ALLOCATED)
    descriptors = b"".join(_descriptor(kernel) for kernel in kernels)
    rodata = len(file.sections)
    at = file.add(".rodata", 1, descriptors, 64, _ALLOCATED)
    bss = len(file.sections)
    bss_bytes = sum(-(-size // 16) * 16 for size in (variables or {}).values())
    file.add(".bss", 8, b"", 1, _ALLOCATED | _WRITABLE, address=_VARIABLES, size=bss_bytes)
    symbols_of = []
    for kernel in kernels:
        symbols_of.append((f"{kernel.name}.kd", rodata, at, _DESCRIPTOR_BYTES))
        at += _DESCRIPTOR_BYTES
    at = _VARIABLES
    for name, size in (variables or {}).items():
        symbols_of.append((name, bss, at, size))
        at += -(-size // 16) * 16
    names, symbols = b"\0", bytes(_SYMBOL.size)
    for name, section, address, size in symbols_of:
        symbols += _SYMBOL.pack(len(names), 0x11, 3, section, address, size)
        names += name.encode() + b"\0"
    file.add_symbols(".dynsym", 11, symbols, ".dynstr", names)
    loaded = file.end
    if not stripped:
        file.add_symbols(".symtab", 2, symbols, ".strtab", names)
    programs = _PROGRAM.pack(1, 4, 0, 0, 0, loaded, loaded, 4096)
    programs += _PROGRAM.pack(1, 6, 0, _VARIABLES, _VARIABLES, 0, bss_bytes, 4096)
    programs += _PROGRAM.pack(4, 4, note_at, note_at, note_at, len(note), len(note), 4)
    identity = b"\x7fELF\x02\x01\x01" + bytes([64, _ABI_OF_VERSION[version]]) + bytes(7)
    sections_at, sections = file.finish()
    header = _HEADER.pack(
        *(identity, 3, 224, 1, 0, _HEADER.size, sections_at),
        _flags(TargetId.parse(target)) if flags is None else flags,
        *(_HEADER.size, _PROGRAM.size, 3, _SECTION.size, sections, sections - 1),
    )
    return header + programs + file.body


def _flags(target: TargetId) -> int:
    """Return the header's flags; an unnamed feature of the processor is set to "any"."""
    (flags,) = (number for number, name in PROCESSORS.items() if name == target.processor)
    for feature, shift, owners in (("xnack", 8, _XNACK), ("sramecc", 10, _SRAMECC)):
        on = dict(target.features).get(feature)
        if on is not None or target.processor in owners:
            flags |= (1 if on is None else 3 if on else 2) << shift
    return flags


_SRAMECC = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950")
_XNACK = ("gfx900", *_SRAMECC)
_ALLOCATED, _WRITABLE = 2, 1
_VARIABLES = 0x40000
"""The address of the first variable."""


class _File:
    """The sections of an ELF file; a loaded section's address is its offset in the file."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.body = b""
        self.names = b"\0"
        self.sections = [bytes(_SECTION.size)]

    @property
    def end(self) -> int:
        return self.start + len(self.body)

    def add(
        self,
        name: str,
        kind: int,
        data: bytes,
        alignment: int,
        flags: int = 0,
        *,
        address: int | None = None,
        size: int | None = None,
        link: int = 0,
        info: int = 0,
        entry: int = 0,
    ) -> int:
        """Append a section; return its offset."""
        self.body += bytes(-self.end % alignment)
        offset = self.end
        value = (offset if flags & _ALLOCATED else 0) if address is None else address
        bytes_ = len(data) if size is None else size
        self.sections.append(
            _SECTION.pack(
                *(len(self.names), kind, flags, value, offset, bytes_),
                *(link, info, alignment, entry),
            )
        )
        self.names += name.encode() + b"\0"
        self.body += data
        return offset

    def add_symbols(self, name: str, kind: int, table: bytes, strings: str, names: bytes) -> None:
        flags = _ALLOCATED if kind == 11 else 0
        after = len(self.sections) + 1
        self.add(name, kind, table, 8, flags, link=after, info=1, entry=_SYMBOL.size)
        self.add(strings, 3, names, 1, flags)

    def finish(self) -> tuple[int, int]:
        """Append the table of sections; return its offset, and how many there are."""
        self.add(".shstrtab", 3, self.names + b".shstrtab\0", 1)
        self.body += bytes(-self.end % 8)
        at = self.end
        self.body += b"".join(self.sections)
        return at, len(self.sections)


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
