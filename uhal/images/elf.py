"""Bounded reader of 64-bit ELF files: cubins, HSACO, GCU images, host kernel libraries.

The file is not trusted: every offset, size and count is checked against the bytes at hand, tables
are walked once, and every fault is an `InvalidImageError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from uhal.errors import InvalidImageError
from uhal.kept import kept_property

MAGIC = b"\x7fELF"

ET_REL = 1
ET_DYN = 3
EM_X86_64 = 62
EM_AARCH64 = 183
EM_CUDA = 190
EM_AMDGPU = 224
PT_LOAD = 1
PT_NOTE = 4
SHT_SYMTAB = 2
SHT_NOTE = 7
SHT_NOBITS = 8
SHT_DYNSYM = 11
SHT_LOPROC = 0x70000000
SHN_UNDEF = 0
STB_LOCAL = 0
STT_OBJECT = 1
STT_FUNC = 2

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_MAX_NAME_BYTES = 1 << 16


@dataclass(frozen=True)
class Segment:
    """A program header. Offsets and sizes are in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int


@dataclass(frozen=True)
class Section:
    """A section header with its name."""

    index: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class Symbol:
    """A symbol of one of the symbol tables."""

    name: str
    info: int
    other: int
    section: int
    """Index of the section that defines the symbol; `SHN_UNDEF` without a definition."""
    value: int
    size: int

    @property
    def type(self) -> int:
        """The `STT_` number."""
        return self.info & 15

    @property
    def binding(self) -> int:
        """The `STB_` number."""
        return self.info >> 4


@dataclass(frozen=True)
class Note:
    """An entry of a note section or segment."""

    name: str
    type: int
    description: bytes


class Elf:
    """A 64-bit little-endian ELF file. Immutable; tables are read at their first use.

    Every attribute and method may raise `InvalidImageError`.
    """

    def __init__(self, image: bytes, what: str = "the image") -> None:
        """Check the file header. `what` stands for the image in messages."""
        self._image = image
        self._what = what
        if image[:4] != MAGIC:
            self._refuse("is not an ELF file")
        if len(image) < _HEADER.size:
            self._refuse("ends inside the ELF header")
        fields = _HEADER.unpack_from(image)
        identification = fields[0]
        if identification[4] != 2 or identification[5] != 1 or identification[6] != 1:
            self._refuse("is not a 64-bit little-endian ELF file of version 1")
        self.os_abi: int = identification[7]
        self.abi_version: int = identification[8]
        self.type: int = fields[1]
        self.machine: int = fields[2]
        self.entry: int = fields[4]
        self._program_offset: int = fields[5]
        self._section_offset: int = fields[6]
        self.flags: int = fields[7]
        self._program_entry: int = fields[9]
        self._program_count: int = fields[10]
        self._section_entry: int = fields[11]
        self._section_count: int = fields[12]
        self._names_index: int = fields[13]

    @kept_property
    def segments(self) -> tuple[Segment, ...]:
        """The program headers; each lies inside the file."""
        if self._program_count == 0:
            return ()
        self._check_entry("program header", self._program_entry, _PROGRAM_HEADER.size)
        table = self._range(
            self._program_offset, self._program_count * self._program_entry, "program headers"
        )
        found: list[Segment] = []
        for fields in self._rows(_PROGRAM_HEADER, table, self._program_entry):
            kind, flags, offset, address, _, file_size, memory_size, _ = fields
            self._check_range(offset, file_size, f"segment {len(found)}")
            if kind == PT_LOAD and memory_size < file_size:
                self._refuse(f"has segment {len(found)}, which is larger in the file than loaded")
            found.append(Segment(kind, flags, offset, address, file_size, memory_size))
        return tuple(found)

    @kept_property
    def sections(self) -> tuple[Section, ...]:
        """The section headers with their names; each of a standard type lies inside the file."""
        if self._section_offset == 0 or self._section_count == 0:
            return ()
        self._check_entry("section header", self._section_entry, _SECTION_HEADER.size)
        table = self._range(
            self._section_offset, self._section_count * self._section_entry, "section headers"
        )
        rows = list(self._rows(_SECTION_HEADER, table, self._section_entry))
        for index, row in enumerate(rows):
            # A section of a vendor's own type may, like NOBITS, take no bytes of the file.
            if row[1] != SHT_NOBITS and row[1] < SHT_LOPROC:
                self._check_range(row[4], row[5], f"section {index}")
        if self._names_index >= len(rows):
            self._refuse("has no section for the names of sections")
        names = self._names(
            self._bytes_of(rows[self._names_index]), [row[0] for row in rows], "section names"
        )
        return tuple(
            Section(index, name, kind, flags, address, offset, size, link, info, entry_size)
            for index, (name, row) in enumerate(zip(names, rows, strict=True))
            for _, kind, flags, address, offset, size, link, info, _, entry_size in (row,)
        )

    def section(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def data(self, section: Section) -> bytes:
        """Return the bytes of a section; none for a section that only has a size."""
        if section.type == SHT_NOBITS:
            return b""
        return self._range(section.offset, section.size, section.name)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of the full table, or of the dynamic table if the full table was stripped."""
        return self.full_symbols or self.dynamic_symbols

    @kept_property
    def full_symbols(self) -> tuple[Symbol, ...]:
        """The symbols of the full table; none if they were stripped."""
        return self._symbols_of(SHT_SYMTAB)

    @kept_property
    def dynamic_symbols(self) -> tuple[Symbol, ...]:
        """The symbols of the dynamic table, which the system's loader uses."""
        return self._symbols_of(SHT_DYNSYM)

    @kept_property
    def notes(self) -> tuple[Note, ...]:
        """The notes of the note segments, or of the note sections where there are none."""
        ranges = [(part.offset, part.file_size) for part in self.segments if part.type == PT_NOTE]
        if not ranges:
            ranges = [(part.offset, part.size) for part in self.sections if part.type == SHT_NOTE]
        # Ranges may overlap in a hostile file, so their total size may not exceed the file's.
        if sum(size for _, size in ranges) > len(self._image):
            self._refuse("has notes that overlap")
        found: list[Note] = []
        for offset, size in ranges:
            found.extend(self._notes_in(self._range(offset, size, "notes")))
        return tuple(found)

    def read(self, address: int, size: int) -> bytes:
        """Return bytes by their load address, before relocation."""
        for segment in self.segments:
            inside = address - segment.address
            if segment.type == PT_LOAD and 0 <= inside <= segment.file_size - size:
                return self._range(segment.offset + inside, size, "loaded data")
        self._refuse(f"loads nothing at {address:#x}")

    # -- checks ------------------------------------------------------------------------------------

    def _symbols_of(self, table_type: int) -> tuple[Symbol, ...]:
        for section in self.sections:
            if section.type != table_type:
                continue
            if section.entry_size != _SYMBOL.size or section.size % _SYMBOL.size:
                self._refuse(f"has a damaged symbol table {section.name}")
            if section.link >= len(self.sections):
                self._refuse(f"has symbol table {section.name} without names")
            rows = list(_SYMBOL.iter_unpack(self.data(section)))
            strings = self.data(self.sections[section.link])
            names = self._names(strings, [row[0] for row in rows], section.name)
            return tuple(
                Symbol(name, info, other, index, value, size)
                for name, (_, info, other, index, value, size) in zip(names, rows, strict=True)
            )
        return ()

    def _notes_in(self, data: bytes) -> Iterator[Note]:
        position = 0
        while position + _NOTE.size <= len(data):
            name_size, size, kind = _NOTE.unpack_from(data, position)
            name_at = position + _NOTE.size
            data_at = name_at + _aligned(name_size)
            if data_at + size > len(data):
                self._refuse("has a note that runs past its end")
            name = data[name_at : name_at + name_size].rstrip(b"\0")
            yield Note(name.decode("ascii", "replace"), kind, data[data_at : data_at + size])
            position = data_at + _aligned(size)

    def _rows(
        self, layout: struct.Struct, table: bytes, entry_size: int
    ) -> Iterator[tuple[int, ...]]:
        for position in range(0, len(table), entry_size):
            yield layout.unpack_from(table, position)

    def _check_entry(self, what: str, size: int, least: int) -> None:
        if size < least:
            self._refuse(f"has {what}s of {size} bytes, expected {least}")

    def _bytes_of(self, row: tuple[int, ...]) -> bytes:
        return b"" if row[1] == SHT_NOBITS else self._range(row[4], row[5], "section names")

    def _range(self, offset: int, size: int, what: str) -> bytes:
        self._check_range(offset, size, what)
        return self._image[offset : offset + size]

    def _check_range(self, offset: int, size: int, what: str) -> None:
        if offset > len(self._image) or size > len(self._image) - offset:
            self._refuse(
                f"has {what} at {offset:#x} + {size:#x} bytes, past its end at "
                f"{len(self._image):#x}: is it truncated?"
            )

    def _names(self, strings: bytes, offsets: list[int], what: str) -> list[str]:
        """Return the string at each offset. Names may overlap, within a limit."""
        budget = 2 * len(self._image) + _MAX_NAME_BYTES
        names: list[str] = []
        for offset in offsets:
            if offset == 0 and not strings:
                names.append("")
                continue
            end = strings.find(b"\0", offset, offset + _MAX_NAME_BYTES)
            if offset >= len(strings) or end < 0:
                self._refuse(f"has a name in {what} that does not end")
            budget -= end - offset
            if budget < 0:
                self._refuse(f"has more names in {what} than it has bytes")
            names.append(strings[offset:end].decode("utf-8", "replace"))
        return names

    def _refuse(self, words: str) -> NoReturn:
        raise InvalidImageError(f"{self._what} {words}")


def _aligned(size: int) -> int:
    return (size + 3) & ~3
