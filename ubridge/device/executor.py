"""What ubridge keeps of a device: kernels found once, layouts in its memory, how to launch on it.

There is one `DeviceExecutor` a device; it lasts until the device is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from ubridge.core.product import MatmulKernel
from ubridge.device.kernels import DeviceKernels
from ubridge.device.lowering import Lowering
from ubridge.device.plans import NoPlans, Plans
from uhal import Device, DeviceBuffer, DType, _lane, registry
from uhal.errors import DeviceError
from uhal.interop import StreamLike


class DeviceExecutor(DeviceKernels):
    """Finds kernels for a device, and gives launches what they need. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        """Made by `of`."""
        super().__init__(device)
        self._ranges: WeakKeyDictionary[DeviceBuffer, tuple[float, float]] = WeakKeyDictionary()
        convention = conventions[device.backend]
        self.lowering: Lowering = convention(self)
        self.plans = Plans(self) if convention.is_planned else NoPlans()

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

    def synchronize(self) -> None:
        """Wait for everything on the device; `IndexError` for ids out of bounds in it."""
        self.device.synchronize()

    @property
    def matmul_launches(self) -> Mapping[str, int]:
        """How many products each kernel took, by name; `ubridge.matmul_choice` says why."""
        return self.lowering.matmul_launches()

    @property
    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """The kernels products may go to, in order of preference; none where there is no choice."""
        return self.lowering.matmul_kernels()

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


conventions: dict[str, type[Lowering]] = {}
"""Backend to how its kernels are called, which `ubridge.prepare` says."""

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
