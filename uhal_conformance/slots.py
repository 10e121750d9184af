"""Calls slots of the hot table directly, without the lane's checks."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uhal.contract import Backend
from uhal.errors import from_code
from uhal.python_slots import function_type

POINTER, U32, U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


@dataclass(frozen=True)
class KernelCall:
    """All arguments of a kernel launch: the replacement in `update_kernel`."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    """Dynamic."""
    parameters: Sequence[bytes]
    """Value of each argument, in its parameter's width."""


class Slots:
    """Direct calls of the hot table; a status other than 0 raises the backend's exception."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(self, slot: str, *arguments: object) -> None:
        status = function_type(slot)(self.backend.hot_table.slots[slot])(*arguments)
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


def launch_graph(backend: Backend, executable: int, stream: int) -> None:
    """Enqueue the whole graph; raise the library's errors."""
    Slots(backend)("graph_launch", executable, stream)


def update_kernel(backend: Backend, executable: int, node: int, call: KernelCall) -> None:
    """Replace a kernel of an executable graph by `call` for later launches."""
    values = [ctypes.create_string_buffer(value, len(value)) for value in call.parameters]
    pointers = (POINTER * len(values))(*map(ctypes.addressof, values))
    shape = (*call.grid, *call.block, call.shared_bytes)
    Slots(backend)("graph_update_kernel", executable, node, call.function, *shape, pointers)
