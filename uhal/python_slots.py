"""Slots of the hot table as Python functions, for a backend over a Python library.

A function takes a slot's parameters as `int`s, also device addresses and handles; a null pointer is
`None`. If a slot writes a result through its first parameter, the function returns that result
instead. A `MemoryError` means that the device is full. Any other exception reaches the user,
directly or as the cause of a `DeviceError`. ctypes alone would print the exception, drop it, and
report success.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any

from uhal._lane import note_python_slots, slot_prototypes
from uhal.errors import keep_exception

_SCALARS: Mapping[str, Any] = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "unsigned short": ctypes.c_ushort,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}
_RESULTS: Mapping[str, Any] = {
    "current": ctypes.c_void_p,
    "alloc": ctypes.c_uint64,
    "alloc_async": ctypes.c_uint64,
    "host_alloc": ctypes.c_void_p,
    "stream_create": ctypes.c_void_p,
    "event_create": ctypes.c_void_p,
    "event_elapsed": ctypes.c_float,
    "get_function": ctypes.c_void_p,
}
"""Type that a slot writes through its first parameter."""


def function_type(slot: str) -> Any:
    """Return the ctypes type of a slot; pointers of every kind are `c_void_p`."""
    _, prototype = slot_prototypes()[slot]
    return ctypes.CFUNCTYPE(ctypes.c_int, *map(_type_of, prototype.strip("()").split(",")))


def _type_of(parameter: str) -> Any:
    spelling = re.sub(r"\b\w+$", "", parameter.strip()).strip()
    return _SCALARS.get(spelling, ctypes.c_void_p)


class PythonSlots:
    """Python functions by slot, and their addresses for C.

    The functions must outlive the hot table that has their addresses, so a backend keeps this
    object. Any thread may call the functions; each call takes the GIL.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]], *, out_of_memory: int) -> None:
        """Wrap each function. Raises `KeyError` for a name that is no slot.

        `out_of_memory` is the hot table's code for a full device.
        """
        self._callbacks = {
            slot: function_type(slot)(_wrapped(function, _RESULTS.get(slot), out_of_memory))
            for slot, function in functions.items()
        }
        self.addresses: dict[str, int] = {
            slot: ctypes.cast(callback, ctypes.c_void_p).value or 0
            for slot, callback in self._callbacks.items()
        }
        """Addresses by slot, for `HotTable` or `uhal.emulation.complete`."""
        note_python_slots(self.addresses.values())


def _wrapped(
    function: Callable[..., Any], result_type: Any, out_of_memory: int
) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        try:
            if result_type is None:
                return int(function(*arguments) or 0)
            result = function(*arguments[1:])
            result_type.from_address(arguments[0]).value = result
        except MemoryError:
            return out_of_memory
        except BaseException as failure:
            return keep_exception(failure)
        return 0

    return call
