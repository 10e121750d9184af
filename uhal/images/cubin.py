"""Reads cubins, NVIDIA's compiled kernels: the architecture, the kernels and their parameters.

A cubin is an ELF file. NVIDIA does not document its own sections; the layout here was found in
outputs of ptxas 12.4 and 13.0, and LLVM's `BinaryFormat/ELF.h` confirms the flags. A cubin has each
parameter's index, offset, size and, from the newest compilers, whether it is a pointer.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from uhal.errors import InvalidImageError
from uhal.images import elf, header_signature
from uhal.signature import Parameter, ParameterKind, Signature

MAX_PARAMETERS = 4096
MAX_PARAMETER_BYTES = 32764
MAX_ATTRIBUTES = 1 << 19
"""Limit for all `.nv.info` sections together; a kernel has some ten and one per parameter."""

Extent = tuple[int, int, int]

# The ABI versions of the two generations of cubins. Each generation has its own bit in the ELF
# flags for code that runs on exactly one architecture.
_OLD_ABI = 0x33
_NEW_ABI = 0x41
_OLD_SPECIFIC = 0x800
_NEW_SPECIFIC = 0x8
_STO_ENTRY = 0x10

# Attributes of .nv.info sections: a format byte, the attribute's number, a 16-bit value or size.
_SIZED_FORMAT = 4
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_PARAMETER = 0x17
_PARAMETER_BYTES = 0x19
_REGISTERS = 0x2F
_TOOLKIT = 0x37
_PARAMETER_OF_ANY_SIZE = 0x45

_ATTRIBUTE = struct.Struct("<BBH")
_PARAMETER_RECORD = struct.Struct("<IHHI")  # reserved, index, offset, packed size
_LARGE_RECORD = struct.Struct("<IHHHBB")  # reserved, index, offset, size, log2 alignment, space
_POINTER_SPACES = (4, 5)
"""Global and generic memory: where a device address may point."""


@dataclass(frozen=True)
class CubinEntry:
    """A kernel of a cubin."""

    name: str
    signature: Signature | None
    """`None` when the file leaves the parameters out."""
    registers: int | None = None
    """Registers of one thread."""
    max_block: Extent | None = None
    """Extents whose product is the largest number of threads of a block."""
    required_block: Extent | None = None
    """The only block the kernel may be launched with."""


@dataclass(frozen=True)
class CubinImage:
    """Description of a cubin, from the file."""

    target: str
    """`sm_80`, `sm_90a`, `sm_100f`."""
    toolkit: tuple[int, int] | None
    """Version of the CUDA toolkit that made the cubin; `None` if unknown."""
    relocatable: bool
    """True for an object that still has to be linked and cannot be loaded."""
    entries: tuple[CubinEntry, ...]

    @property
    def signatures(self) -> dict[str, Signature]:
        """Maps an entry's name to its signature, for entries with one, in the file's order."""
        return {
            entry.name: entry.signature for entry in self.entries if entry.signature is not None
        }


def is_cubin(image: bytes) -> bool:
    """Say whether the bytes begin like a cubin."""
    return image[:4] == elf.MAGIC and image[18:20] == elf.EM_CUDA.to_bytes(2, "little")


def read_cubin(image: bytes) -> CubinImage:
    """Read a cubin. Raises `InvalidImageError` for other and damaged files."""
    if not is_cubin(image):
        _fail("it is no ELF file for CUDA")
    return _Reader(elf.Elf(image, "this cubin"), len(image)).read()


class _Reader:
    def __init__(self, file: elf.Elf, image_bytes: int) -> None:
        self._file = file
        self._sections = {section.name: section for section in file.sections}
        # Sections may overlap in a hostile file, so their total size may not exceed the file's.
        self._budget = image_bytes
        self._attributes_left = MAX_ATTRIBUTES

    def read(self) -> CubinImage:
        # The program headers are not needed here; reading them detects a truncated file.
        self._file.segments  # noqa: B018
        registers = self._registers()
        constants = self._header_constants()
        toolkit: int | None = None
        entries: dict[str, CubinEntry] = {}
        for index, symbol in enumerate(self._file.symbols):
            is_entry = symbol.type == elf.STT_FUNC and symbol.other & _STO_ENTRY
            if not is_entry or symbol.section == elf.SHN_UNDEF:
                continue
            if symbol.name in entries:
                _fail(f"it defines {symbol.name!r} twice")
            attributes = self._attributes(f".nv.info.{symbol.name}")
            entry, toolkit_of_entry = _entry(symbol.name, attributes, registers.get(index))
            if entry.signature is not None:
                reported = header_signature.with_header(entry.signature, constants)
                entry = replace(entry, signature=reported)
            entries[symbol.name] = entry
            toolkit = toolkit if toolkit_of_entry is None else toolkit_of_entry
        return CubinImage(
            target=self._target(),
            toolkit=None if toolkit is None else divmod(toolkit, 10),
            relocatable=self._file.type == elf.ET_REL,
            entries=tuple(entries.values()),
        )

    def _target(self) -> str:
        flags = self._file.flags
        if self._file.os_abi == _NEW_ABI:
            suffix = "a" if flags & _NEW_SPECIFIC else self._suffix_in_notes()
            return f"sm_{flags >> 8 & 0xFF}{suffix}"
        if self._file.os_abi == _OLD_ABI:
            return f"sm_{flags & 0xFF}{'a' if flags & _OLD_SPECIFIC else ''}"
        _fail(f"its ABI {self._file.os_abi:#x} is unknown")

    def _suffix_in_notes(self) -> str:
        """The target's suffix, from the command line in a newer cubin's note.

        ptxas 13.0 leaves the ELF flag clear, even for code that runs on exactly one architecture.
        """
        for note in self._file.notes:
            found = re.search(rb"-arch[ =]sm_\d{2,3}([af])\b", note.description[:65536])
            if found is not None:
                return found[1].decode()
        return ""

    def _header_constants(self) -> dict[str, bytes]:
        """Each kernel's parameters, from the constants of `<uhal/kernel.h>`."""
        found: dict[str, bytes] = {}
        data: dict[int, bytes] = {}
        for symbol in self._file.symbols:
            entry = symbol.name.removeprefix(header_signature.PREFIX)
            if entry == symbol.name or not 0 < symbol.section < len(self._file.sections):
                continue
            if symbol.type != elf.STT_OBJECT or symbol.size > header_signature.MAX_BYTES:
                continue
            section = self._file.sections[symbol.section]
            if symbol.section not in data:
                self._budget -= section.size
                if self._budget < 0:
                    _fail("its sections overlap")
                data[symbol.section] = self._file.data(section)
            start = max(symbol.value - section.address, 0)
            found[entry] = data[symbol.section][start : start + symbol.size]
        return found

    def _registers(self) -> dict[int, int]:
        """Maps a symbol's index to the registers per thread of that kernel."""
        return {
            int.from_bytes(value[:4], "little"): int.from_bytes(value[4:], "little")
            for number, value in self._attributes(".nv.info")
            if number == _REGISTERS and len(value) == 8
        }

    def _attributes(self, section_name: str) -> Iterator[tuple[int, bytes]]:
        """Yield (number, value) of a section's attributes; nothing when there is no section."""
        section = self._sections.get(section_name)
        if section is None:
            return
        self._budget -= section.size
        if self._budget < 0:
            _fail("its sections overlap")
        data = self._file.data(section)
        position = 0
        while position < len(data):
            if position + _ATTRIBUTE.size > len(data):
                _fail(f"{section_name} breaks off")
            self._attributes_left -= 1
            if self._attributes_left < 0:
                _fail(f"it has more than {MAX_ATTRIBUTES} attributes")
            form, number, size = _ATTRIBUTE.unpack_from(data, position)
            position += _ATTRIBUTE.size
            if form != _SIZED_FORMAT:
                yield number, size.to_bytes(2, "little")
                continue
            if position + size > len(data):
                _fail(f"{section_name} breaks off")
            yield number, data[position : position + size]
            position += size


def _entry(
    name: str, attributes: Iterator[tuple[int, bytes]], registers: int | None
) -> tuple[CubinEntry, int | None]:
    """Return the kernel, and the toolkit's version as 10 · major + minor."""
    parameters: dict[int, Parameter] = {}
    toolkit: int | None = None
    total: int | None = None
    extents: dict[int, Extent] = {}
    for number, value in attributes:
        if number in (_PARAMETER, _PARAMETER_OF_ANY_SIZE):
            parameter = _parameter(name, number, value)
            if parameters.setdefault(parameter.index, parameter) is not parameter:
                _fail(f"it describes parameter {parameter.index} of {name!r} twice")
        elif number == _PARAMETER_BYTES:
            if len(value) > 4:
                _fail(f"the size of the parameters of {name!r} cannot be read")
            total = int.from_bytes(value, "little")
        elif number in (_MAX_THREADS, _REQUIRED_THREADS) and len(value) == 12:
            extents[number] = struct.unpack("<III", value)
        elif number == _TOOLKIT and len(value) == 4:
            toolkit = int.from_bytes(value, "little")
    entry = CubinEntry(
        name,
        _signature(name, parameters, total),
        registers,
        max_block=extents.get(_MAX_THREADS),
        required_block=extents.get(_REQUIRED_THREADS),
    )
    return entry, toolkit


def _signature(name: str, parameters: dict[int, Parameter], total: int | None) -> Signature | None:
    if sorted(parameters) != list(range(len(parameters))):
        _fail(f"it leaves out a parameter of {name!r}")
    signature = Signature((parameters[index] for index in range(len(parameters))), name)
    if parameters and total is not None and signature.total_bytes != total:
        _fail(f"the parameters of {name!r} take {signature.total_bytes} bytes instead of {total}")
    return None if total and not parameters else signature


def _parameter(name: str, number: int, value: bytes) -> Parameter:
    expected = _PARAMETER_RECORD if number == _PARAMETER else _LARGE_RECORD
    if len(value) != expected.size:
        _fail(f"a parameter of {name!r} cannot be read")
    if number == _PARAMETER:
        _, index, offset, packed = _PARAMETER_RECORD.unpack(value)
        space = packed >> 8 & 0xF
        size = packed >> 18
    else:
        _, index, offset, size, _, space = _LARGE_RECORD.unpack(value)
    if index >= MAX_PARAMETERS or not size or offset + size > MAX_PARAMETER_BYTES:
        _fail(f"parameter {index} of {name!r} cannot be: {size} bytes at {offset}")
    return Parameter(index, kind=_kind(size, space), size=size, offset=offset, source="cubin")


def _kind(size: int, space: int) -> ParameterKind:
    if size == 8 and space in _POINTER_SPACES:
        return "pointer"
    return "unknown" if size in (1, 2, 4, 8) else "aggregate"


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this cubin cannot be read: {problem}")
