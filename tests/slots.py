"""Slots of the hot table called by hand: what the lane would check goes to the library as it is."""

from __future__ import annotations

import ctypes
from typing import Any

from uhal.contract import Backend
from uhal.errors import from_code

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
POINTER, UINT, SIZE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t
PARAMETERS: dict[str, tuple[type, ...]] = {
    "launch": (POINTER, *[UINT] * 7, POINTER, POINTER, POINTER),
    "copy_d2d": (U64, U64, SIZE, POINTER),
    "memset_32": (U64, UINT, SIZE, POINTER),
    "event_record": (POINTER, POINTER),
    "event_query": (POINTER,),
    "stream_wait_event": (POINTER, POINTER, UINT),
    "stream_synchronize": (POINTER,),
    "stream_query": (POINTER,),
    "stream_destroy": (POINTER,),
    "stream_create": (POINTER, UINT, ctypes.c_int),
}


class Slots:
    """The hot table by hand; a status other than 0 is raised as the backend has it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(self, slot: str, *arguments: object) -> None:
        function = ctypes.CFUNCTYPE(ctypes.c_int, *PARAMETERS[slot])
        status = function(self.backend.hot_table.slots[slot])(*arguments)
        if status != 0:
            raise from_code(self.backend, self.backend.hot_table.names[slot], status)

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: int,
        *values: Any,
    ) -> None:
        """Launch a kernel; `values` are ctypes objects, one for each parameter."""
        pointers = (POINTER * len(values))(*map(ctypes.addressof, values))
        self("launch", function, *grid, *block, 0, stream, pointers, None)
