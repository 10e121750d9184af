"""The slots of the hot table that launch and change graphs, called by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from uhal.contract import Backend
from uhal.errors import from_code

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_UPDATE = ctypes.CFUNCTYPE(
    ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_uint] * 7, ctypes.c_void_p
)


@dataclass(frozen=True)
class KernelCall:
    """One whole launch of a kernel: what `update_kernel` puts in place of another."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    """Dynamic."""
    parameters: Sequence[bytes]
    """The value of each, as wide as the kernel has it."""


def launch_graph(backend: Backend, executable: int, stream: int) -> None:
    """Enqueue the whole graph; raise what the library says."""
    launch = _LAUNCH(backend.hot_table.slots["graph_launch"])
    _check(backend, "graph_launch", launch(executable, stream))


def update_kernel(backend: Backend, executable: int, node: int, call: KernelCall) -> None:
    """Let later launches of an executable graph make `call` at one of its kernels."""
    values = [ctypes.create_string_buffer(value, len(value)) for value in call.parameters]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    update = _UPDATE(backend.hot_table.slots["graph_update_kernel"])
    status = update(
        executable, node, call.function, *call.grid, *call.block, call.shared_bytes, pointers
    )
    _check(backend, "graph_update_kernel", status)


def _check(backend: Backend, slot: str, status: int) -> None:
    if status != 0:
        raise from_code(backend, backend.hot_table.names[slot], status)
