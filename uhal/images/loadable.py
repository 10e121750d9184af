"""Checks the parts of a shared library that a loader trusts.

The loader follows every address in the segments, tables and relocations. Each address must lie in
the library's own segments, so that a damaged file raises an error instead of a crash. The code
itself cannot be checked. Constants come from the System V ABI, "Object Files" and "Program Loading
and Dynamic Linking", and from GNU's linker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from uhal.errors import InvalidImageError
from uhal.images import elf

_PT_DYNAMIC = 2
_PT_TLS = 7
_PT_NULL, _PT_GNU_STACK = 0, 0x6474E551
_PF_EXECUTE, _PF_WRITE, _PF_READ = 1, 2, 4
_PAGE = 4096
_MOST_LOADED = 1 << 32
"""Most bytes of memory of a library; kernel libraries take some megabytes."""

_DYNAMIC = struct.Struct("<qQ")
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_BYTES = _SYMBOL.size
_ADDRESSES = {
    **{4: "DT_HASH", 5: "DT_STRTAB", 6: "DT_SYMTAB", 7: "DT_RELA", 12: "DT_INIT", 13: "DT_FINI"},
    **{23: "DT_JMPREL", 25: "DT_INIT_ARRAY", 26: "DT_FINI_ARRAY", 0x6FFFFEF5: "DT_GNU_HASH"},
    **{0x6FFFFFF0: "DT_VERSYM", 0x6FFFFFFE: "DT_VERNEED", 0x6FFFFFFC: "DT_VERDEF", 3: "DT_PLTGOT"},
}
_CODE = (12, 13)
_SIZE_OF = {5: 10, 7: 8, 23: 2, 25: 27, 26: 28}
"""Maps the tag of a table to the tag of its size in bytes."""
_TOGETHER = ((5, 10), (6, 11), (7, 8, 9), (23, 2, 20), (25, 27), (26, 28))
"""Tags that come together: a table, its bytes, and the size or kind of its entries."""
_GENERIC = frozenset((*range(1, 17), *range(20, 31), 34, *range(35, 38)))
"""Tags of the generic ABI in 64-bit libraries: relocations always have addends."""
_FIRST_OF_SYSTEM, _FILTERS = 0x60000000, (0x7FFFFFFD, 0x7FFFFFFF)
_RELA, _JMPREL, _STRTAB, _SYMTAB, _NEEDED, _SONAME = 7, 23, 5, 6, 1, 14
_STRTAB_BYTES, _ARRAYS, _RELR = 10, (25, 26), 36
_GNU_HASH, _RELACOUNT = 0x6FFFFEF5, 0x6FFFFFF9
RELATIVE = (8, 1027)
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE."""
_CALLED = (37, 1032)
"""R_X86_64_IRELATIVE and R_AARCH64_IRELATIVE: the loader calls their target."""
_VISIBILITY = 3
"""Bits of a symbol's `st_other`; 0: other libraries see the symbol."""
_STT_GNU_IFUNC = 10
"""Type of a symbol that the loader calls for the address of a function."""


def require_loadable(library: elf.Elf, what: str) -> None:
    """Raise `InvalidImageError` if the loader would leave the library's segments."""
    try:
        _Reader(library).check()
    except _Damage as damage:
        raise InvalidImageError(f"{what} is a damaged library: {damage}") from None


def relocations(library: elf.Elf) -> Iterator[tuple[int, int, int, int]]:
    """Yield (target, kind, symbol's number, addend) of each relocation of a loadable library."""
    (dynamic,) = (one for one in library.segments if one.type == _PT_DYNAMIC)
    data = library.read(dynamic.address, dynamic.file_size)
    entries: dict[int, int] = {}
    for tag, value in _DYNAMIC.iter_unpack(data[: len(data) // 16 * 16]):
        if tag == 0:
            break
        entries[tag] = value
    for tag in (_RELA, _JMPREL):
        if tag in entries:
            table = library.read(entries[tag], entries[_SIZE_OF[tag]])
            for target, information, addend in _RELOCATION.iter_unpack(table):
                yield target, information & 0xFFFFFFFF, information >> 32, addend


class _Damage(Exception):
    """Description of the damage."""


class _Reader:
    def __init__(self, library: elf.Elf) -> None:
        self._library = library
        self._loads = [one for one in library.segments if one.type == elf.PT_LOAD]

    def check(self) -> None:
        end = 0
        for load in self._loads:
            if load.address < end or load.address % _PAGE != load.offset % _PAGE:
                raise _Damage(f"its segment at {load.address:#x} overlaps another or lies askew")
            if load.flags not in (_PF_READ, _PF_READ | _PF_EXECUTE, _PF_READ | _PF_WRITE):
                raise _Damage(f"its segment at {load.address:#x} has the rights {load.flags:#x}")
            if load.file_size != load.memory_size and not load.flags & _PF_WRITE:
                raise _Damage(f"its segment at {load.address:#x} is not whole")
            end = load.address + load.memory_size
            if end > _MOST_LOADED:
                raise _Damage(f"it loads {end:#x} bytes")
        self._end = end
        for one in self._library.segments:
            # Thread-local storage: the loader maps only initial values; each thread allocates the
            # rest.
            size = one.file_size if one.type == _PT_TLS else one.memory_size
            if one.type not in (_PT_NULL, _PT_GNU_STACK) and size != 0:
                self._within(one.address, size, f"a segment of type {one.type:#x}")
        dynamic = [one for one in self._library.segments if one.type == _PT_DYNAMIC]
        if len(dynamic) != 1:
            raise _Damage(f"it has {len(dynamic)} dynamic segments")
        self._dynamic = dynamic[0]
        self._check_dynamic(dict(self._entries(dynamic[0])))

    def _entries(self, dynamic: elf.Segment) -> Iterator[tuple[int, int]]:
        data = self._library.read(dynamic.address, dynamic.file_size)
        for tag, value in _DYNAMIC.iter_unpack(data[: len(data) // 16 * 16]):
            if tag == 0:
                return
            yield tag, value
        raise _Damage("its dynamic segment does not end")

    def _check_dynamic(self, entries: dict[int, int]) -> None:
        for tag in entries:
            if (tag < _FIRST_OF_SYSTEM and tag not in _GENERIC) or tag in _FILTERS:
                raise _Damage(f"its dynamic segment has an entry {tag:#x}")
        for tags in _TOGETHER:
            if 0 < len(entries.keys() & tags) < len(tags):
                raise _Damage(
                    f"its dynamic segment has not all that describes {_ADDRESSES[tags[0]]}"
                )
        for tag, name in _ADDRESSES.items():
            if tag in entries:
                size = entries.get(_SIZE_OF.get(tag, -1), 1)
                runs = _PF_EXECUTE if tag in _CODE else 0
                self._within(entries[tag], max(size, 1), name, runs)
        missing = {_STRTAB, _SYMTAB} - entries.keys()
        if missing:
            raise _Damage(f"it has no {_ADDRESSES[min(missing)]}")
        if any(
            entries.get(tag, 0) >= entries.get(10, 0)
            for tag in (_NEEDED, _SONAME)
            if tag in entries
        ):
            raise _Damage("a name lies outside of its names")
        if entries.get(11, _SYMBOL_BYTES) != _SYMBOL_BYTES or entries.get(9, 24) != 24:
            raise _Damage("its symbols or relocations have another size")
        symbols = len(self._library.dynamic_symbols)
        self._check_symbols(entries[_SYMTAB], symbols, entries[_STRTAB_BYTES])
        if _GNU_HASH in entries:
            self._check_hash(entries[_GNU_HASH], symbols)
        called = {
            address
            for tag in _ARRAYS
            if tag in entries
            for address in range(entries[tag], entries[tag] + entries[_SIZE_OF[tag]], 8)
        }
        for tag in (_RELA, _JMPREL):
            if tag in entries:
                self._check_relocations(entries[tag], entries[_SIZE_OF[tag]], symbols, called)
        if called and _RELR not in entries:
            raise _Damage("the loader calls an address that is no function")
        if _RELACOUNT in entries:
            self._check_relative(entries.get(_RELA, 0), entries[_RELACOUNT], entries.get(8, 0))

    def _check_hash(self, address: int, symbols: int) -> None:
        """GNU's table of symbols: a filter, the first symbol of each bucket, a chain of hashes."""
        buckets, first, words, _ = struct.unpack("<IIII", self._library.read(address, 16))
        size = 16 + 8 * words + 4 * buckets + 4 * max(symbols - first, 0)
        if not buckets or not words or words & (words - 1) or size > _MOST_LOADED:
            raise _Damage("its table of hashes cannot be")
        self._within(address, size, "its table of hashes")
        table = self._library.read(address + 16 + 8 * words, 4 * buckets)
        starts = struct.unpack(f"<{buckets}I", table)
        if any(start and not first <= start < symbols for start in starts):
            raise _Damage("its table of hashes names symbols that it has not")
        chain_at = address + 16 + 8 * words + 4 * buckets
        chain = self._library.read(chain_at, 4 * max(symbols - first, 0))
        if symbols > first and not chain[-4] & 1:
            raise _Damage("its table of hashes does not end")

    def _check_symbols(self, address: int, count: int, names: int) -> None:
        self._within(address, count * _SYMBOL.size, "DT_SYMTAB")
        table = self._library.read(address, count * _SYMBOL.size)
        for name, information, other, section, value, _ in _SYMBOL.iter_unpack(table):
            if name >= max(names, 1):
                raise _Damage("a symbol's name lies outside of its names")
            if section == 0 and other & _VISIBILITY:
                raise _Damage("a symbol of another library is hidden")
            if information & 15 == _STT_GNU_IFUNC and section != 0:
                self._within(value, 1, "a resolver that the loader calls", _PF_EXECUTE)

    def _check_relocations(self, address: int, size: int, symbols: int, called: set[int]) -> None:
        """Check relocations; remove their targets from `called`, pointers that the loader calls."""
        if size % _RELOCATION.size:
            raise _Damage(f"its relocations have {size} bytes")
        start, end = self._dynamic.address, self._dynamic.address + self._dynamic.memory_size
        table = self._library.read(address, size)
        for target, information, addend in _RELOCATION.iter_unpack(table):
            self._within(target, 8, "a relocation's target", _PF_WRITE)
            if start - 8 < target < end:
                raise _Damage("a relocation writes into its dynamic segment")
            symbol, kind = information >> 32, information & 0xFFFFFFFF
            if symbol >= max(symbols, 1):
                raise _Damage(f"a relocation is of symbol {symbol}, which it has not")
            if kind in RELATIVE and not self._loads[0].address <= addend <= self._end:
                raise _Damage(f"a pointer leads to {addend:#x}, which it does not load")
            if kind in _CALLED or (kind in RELATIVE and target in called):
                self._within(addend, 1, "a function that the loader calls", _PF_EXECUTE)
            called.discard(target)

    def _check_relative(self, address: int, count: int, size: int) -> None:
        """Check the type of relative relocations: the loader ends the process for other types."""
        if count * _RELOCATION.size > size:
            raise _Damage(f"it has {count} relative relocations in {size} bytes")
        table = self._library.read(address, count * _RELOCATION.size)
        if any(kind & 0xFFFFFFFF not in RELATIVE for _, kind, _ in _RELOCATION.iter_unpack(table)):
            raise _Damage("a relative relocation is of another type")

    def _within(self, address: int, size: int, name: str, flags: int = 0) -> None:
        for load in self._loads:
            inside = address - load.address
            if 0 <= inside <= load.memory_size - size and load.flags & flags == flags:
                return
        raise _Damage(f"{name} is at {address:#x} + {size:#x} bytes, where it loads nothing")
