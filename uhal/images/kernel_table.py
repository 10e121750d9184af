"""Checks the pointers in a host library's table of kernels.

`<uhal/host_module.h>` defines the table: pointers to descriptors, whose own pointers lead to names,
parameters and code. Every pointer must lead into the library's own segments. A relocation gives a
pointer its value (System V ABI, "Relocation"); pointers to other libraries are left to the loader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from uhal.errors import InvalidImageError
from uhal.images import elf
from uhal.images.loadable import RELATIVE, relocations

_TABLE = struct.Struct("<QIIQQQQ")
_KERNEL = struct.Struct("<QQQIIIxxxxQ")
_PARAMETER = struct.Struct("<IIII")
_GLOBAL = struct.Struct("<QQQ")
_POINTER = struct.Struct("<Q")
_SYMBOLIC = (1, 6, 257, 1025)
"""R_X86_64_64 and GLOB_DAT, R_AARCH64_ABS64 and GLOB_DAT."""
_MOST_BYTES, _MOST_THREADS = 4096, 1024
"""UHAL_HOST_MAX_PARAMETER_BYTES and UHAL_HOST_MAX_THREADS."""
_MOST_TEXT = 1 << 20
_PF_EXECUTE, _PF_WRITE = 1, 2


def require_kernel_table(library: elf.Elf, address: int, what: str) -> None:
    """Raise `InvalidImageError` if the table at `address` points out of the library."""
    try:
        _Reader(library).check(address)
    except InvalidImageError as error:
        raise InvalidImageError(
            f"{what} is a library with a damaged kernel table: {error}"
        ) from None


class _Reader:
    def __init__(self, library: elf.Elf) -> None:
        self._library = library
        self._loads = [one for one in library.segments if one.type == elf.PT_LOAD]
        self._relocated: dict[int, int | None] = {}
        for target, kind, symbol, addend in relocations(library):
            self._relocated[target] = self._value(kind, symbol, addend)

    def _value(self, kind: int, symbol: int, addend: int) -> int | None:
        """Value that a relocation writes; `None` if the file does not determine it."""
        if kind in RELATIVE:
            return addend
        if kind in _SYMBOLIC and self._library.dynamic_symbols[symbol].section != elf.SHN_UNDEF:
            return self._library.dynamic_symbols[symbol].value + addend
        return None

    def check(self, address: int) -> None:
        self._library.read(address, _TABLE.size)
        first_list = address + 16
        for pointer in self._listed(first_list, "kernels"):
            self._check_kernel(pointer)
        for pointer in self._listed(first_list + 16, "variables"):
            self._check_global(pointer)

    def _pointer(self, address: int) -> int | None:
        if address in self._relocated:
            return self._relocated[address]
        found: int = _POINTER.unpack(self._library.read(address, 8))[0]
        return found

    def _listed(self, address: int, name: str) -> Iterator[int]:
        """Targets of the pointers between two bounds; null pointers are padding."""
        begin, end = self._pointer(address), self._pointer(address + 8)
        if begin is None or end is None:
            return
        if end < begin or (end - begin) % 8:
            raise InvalidImageError(f"its list of {name} is from {begin:#x} to {end:#x}")
        self._library.read(begin, end - begin)
        for slot in range(begin, end, 8):
            found = self._pointer(slot)
            if found:
                yield found

    def _check_kernel(self, address: int) -> None:
        data = self._library.read(address, _KERNEL.size)
        _, _, _, count, threads, _, _ = _KERNEL.unpack(data)
        self._check_text(address, "a kernel's name")
        self._check_text(address + 8, "a kernel's parameter list")
        if count > _MOST_BYTES or not 0 < threads <= _MOST_THREADS:
            raise InvalidImageError(f"a kernel has {count} parameters and {threads} threads")
        parameters = self._pointer(address + 16)
        if parameters is not None:
            table = self._library.read(parameters, count * _PARAMETER.size)
            for size, alignment, _, _ in _PARAMETER.iter_unpack(table):
                if not 0 < size <= _MOST_BYTES or not alignment or alignment & (alignment - 1):
                    raise InvalidImageError(f"a parameter has {size} bytes, aligned to {alignment}")
        self._check_within(self._pointer(address + 40), 1, _PF_EXECUTE, "a kernel's code")

    def _check_global(self, address: int) -> None:
        _, _, size = _GLOBAL.unpack(self._library.read(address, _GLOBAL.size))
        self._check_text(address, "a variable's name")
        self._check_within(self._pointer(address + 8), size, _PF_WRITE, "a variable")

    def _check_text(self, address: int, name: str) -> None:
        pointer = self._pointer(address)
        if pointer is None:
            return
        for load in self._loads:
            inside = pointer - load.address
            if 0 <= inside < load.file_size:
                most = min(load.file_size - inside, _MOST_TEXT)
                if b"\0" in self._library.read(pointer, most):
                    return
        raise InvalidImageError(f"{name} is at {pointer:#x}, where no text ends")

    def _check_within(self, address: int | None, size: int, flags: int, name: str) -> None:
        if address is None:
            return
        for load in self._loads:
            inside = address - load.address
            if 0 <= inside <= load.memory_size - size and load.flags & flags == flags:
                return
        raise InvalidImageError(f"{name} is at {address:#x} + {size:#x} bytes, where there is none")
