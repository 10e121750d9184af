"""What ubridge keeps of a device: kernels found once, layouts in its memory, how to launch on it.

There is one `DeviceExecutor` a device; it lasts until the device is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary

from ubridge.candle_lowering import CandleLowering
from ubridge.content_cache import ConstantCache
from ubridge.gcu_lowering import GcuLowering
from ubridge.images import load_module
from ubridge.index_faults import IndexFaults
from ubridge.launch_rows import ARGUMENTS, COLUMNS, GCU, Configuration, Configure, Row
from ubridge.lowering import Lowering
from ubridge.matmul_kernels import MatmulKernel
from ubridge.op_table import Op
from ubridge.plans import NoPlans, Plans
from ubridge.slice_ptr import LayoutCache
from uhal import Device, DeviceBuffer, DType, Function, _lane, launch, registry
from uhal.dtypes import ALL as ALL_DTYPES
from uhal.errors import ArgumentTypeError, DeviceError, NotFoundError, NotSupportedError
from uhal.interop import StreamLike


class Kernel:
    """A kernel of an operation for certain element types, ready to be launched on its device."""

    __slots__ = ("_configure", "_function", "_in_order")

    def __init__(self, function: Function, row: Row, listed: Sequence[str], configure: Configure):
        self._function = function
        self._configure = configure
        places = [listed.index(name) for name in row.arguments]
        # What a backend leaves out or takes elsewhere costs a pick; the usual order costs nothing.
        self._in_order = None if places == list(range(len(listed))) else itemgetter(*places)

    @property
    def function(self) -> Function:
        """The entry itself."""
        return self._function

    def configuration(self, *work: int) -> Configuration:
        """Return grid, block and bytes of shared memory for as much work."""
        return self._configure(*work)

    def launch(self, arguments: tuple[Any, ...], stream: StreamLike | None, *work: int) -> None:
        """Enqueue one launch.

        `arguments` are in the order of `ARGUMENTS`; `work` is what the row's geometry asks for.
        """
        grid, block, shared = self._configure(*work)
        if self._in_order is not None:
            arguments = self._in_order(arguments)
        launch(self._function, grid, block, arguments, shared, stream)


class DeviceExecutor:
    """Finds kernels for a device, and gives launches what they need. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        """Made by `of`."""
        column = COLUMNS.get(device.backend)
        if column is None:
            raise NotSupportedError(
                f"ubridge has no kernels for the {device.backend} backend, only for "
                f"{', '.join(COLUMNS)}",
                backend=device.backend,
            )
        self.device = device
        self.layouts = LayoutCache(device)
        self.constants = ConstantCache(device)
        self.index_faults = IndexFaults(device)
        self._attached: set[str] = set()
        self._rows = column
        self._kernels: dict[tuple[Op, str, str], Kernel] = {}
        self._ranges: WeakKeyDictionary[DeviceBuffer, tuple[float, float]] = WeakKeyDictionary()
        self.lowering: Lowering = GcuLowering(self) if column is GCU else CandleLowering(self)
        self.plans = Plans(self) if isinstance(self.lowering, CandleLowering) else NoPlans()

    @classmethod
    def of(cls, device: Device | None = None) -> DeviceExecutor:
        """Return the executor of a device, the current one when none is given."""
        context = device._context if device is not None else _lane.current_context()
        if context is None:
            raise DeviceError("no device is current: call Api.quick_init() first, or pass device=")
        found = _executors.get(context)
        if found is None:
            with _lock:
                found = _executors.get(context)
                if found is None:
                    found = _executors[context] = cls(Device._of(context))
        return found

    def get_or_load_func(self, entry: str, module: str) -> Function:
        """Return a kernel of one of ubridge's modules, which is loaded when first asked for.

        Raises `NotFoundError` for a module or an entry that does not exist.
        """
        loaded = load_module(module, device=self.device)
        if module not in self._attached:
            self.index_faults.attach(loaded)
            self._attached.add(module)
        return loaded.get_function(entry)

    def synchronize(self) -> None:
        """Wait for everything on the device; `IndexError` for ids out of bounds in it."""
        self.device.synchronize()

    def kernel(self, op: Op, dtype: DType, other: DType | None = None) -> Kernel:
        """Return the kernel of `op` for elements of `dtype`.

        `other` is the ids' type, or the one a cast is to. Raises `ArgumentTypeError` when the
        operation has none for these element types.
        """
        key = (op, dtype.code, "" if other is None else other.code)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._make_kernel(op, dtype, other)
        return found

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: int,
        arguments: tuple[Any, ...],
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a kernel with a geometry that no row tells."""
        launch(function, grid, block, arguments, 0, stream)

    @property
    def matmul_launches(self) -> Mapping[str, int]:
        """How many products each kernel took, by name; `ubridge.matmul_choice` says why."""
        return self.lowering.matmul_launches()

    @property
    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """The kernels products may go to, in order of preference; none where there is no choice."""
        return self.lowering.matmul_kernels()

    def _make_kernel(self, op: Op, dtype: DType, other: DType | None) -> Kernel:
        family = op.family.name
        row = self._rows.get(family)
        if row is None:
            raise NotSupportedError(
                f"{op.name}: the {self.device.backend} backend has no such kernel",
                backend=self.device.backend,
            )
        entry = row.entry.format(root=op.root, dtype=dtype.name, other=other)
        try:
            function = self.get_or_load_func(entry, row.module)
        except NotFoundError as error:
            raise self._no_kernel(op, row, entry, dtype, other) from error
        return Kernel(function, row, ARGUMENTS[family], row.geometry(self.device.limits))

    def _no_kernel(
        self, op: Op, row: Row, entry: str, dtype: DType, other: DType | None
    ) -> ArgumentTypeError:
        kernels = load_module(row.module, device=self.device).kernels
        known = [
            one.name
            for one in ALL_DTYPES
            if row.entry.format(root=op.root, dtype=one.name, other=other) in kernels
        ]
        besides = "" if other is None else f" and {other}"
        instead = f"; there are kernels for {' '.join(known)}{besides}" if known else ""
        return ArgumentTypeError(
            f"{op.name}: not supported for the dtype {dtype}{besides} on "
            f"{self.device.backend} (no kernel {entry}){instead}",
            backend=self.device.backend,
        )

    @property
    def is_recorded(self) -> bool:
        """Whether operations on the device are being traced."""
        return bool(getattr(self.lowering, "is_recording", False))

    def note_range(self, buffer: DeviceBuffer, low: float, high: float) -> None:
        """Remember between which numbers, both included, a buffer's elements always are."""
        self._ranges[buffer._place[0]] = low, high

    def known_range(self, buffer: DeviceBuffer) -> tuple[float, float] | None:
        """Return the least and the greatest number a buffer may hold, where that was noted."""
        return self._ranges.get(buffer._place[0]) if self._ranges else None

    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return a buffer for a result, in the order of `stream`, with whatever the memory held."""
        if stream is None:
            return DeviceBuffer.uninitialized(size, dtype, device=self.device)
        return DeviceBuffer.uninitialized_async(size, dtype, stream)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.device!r}>"


_executors: dict[_lane.Context, DeviceExecutor] = {}
_lock = threading.Lock()


def _forget(context: _lane.Context) -> None:
    with _lock:
        executor = _executors.pop(context, None)
    if executor is not None:
        executor.index_faults.close()
        executor.lowering.close()


def _start_afresh() -> None:
    """In a forked child: what is kept is the parent's, and one of its threads may hold the lock."""
    global _executors, _lock
    _executors = {}
    _lock = threading.Lock()


registry.call_before_close(_forget)
os.register_at_fork(after_in_child=_start_afresh)
