"""Ids out of bounds that kernels report: an `IndexError` once the host waits for the kernels.

Modules that check ids define a pointer `uhal_fault`; it is set to a record in host memory that the
device reaches (`uhal/fault.h`). A kernel writes the first wrong id there and goes on without it:
a selection gives 0 for it, a write skips it, and the device stays usable. Kernels do not know their
stream: every stream that ran such kernels since the host last waited for it raises the error once.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np

from ubridge.definitions.table import OPS
from uhal import Device, HostBuffer, Module
from uhal.errors import DeviceError, NotFoundError, NotSupportedError

_WRITING, _WRITTEN = 1, 2
_LONGEST_WRITE = 1.0
"""Seconds after which a kernel that began a report is not waited for any more."""
_RECORD = np.dtype(
    [
        ("state", np.uint32),
        ("reserved", np.uint32),
        ("position", np.uint64),
        ("value", np.int64),
        ("bound", np.uint64),
        ("entry", "S32"),
    ]
)
"""`uhal_fault_record` of `uhal/fault.h`."""


def _operation(entry: str) -> str:
    """The operation of a kernel, as users call it; the kernel's own name if it has none."""
    root = entry.partition("_")[0]
    for op in OPS.values():
        if op.root == root and "ids" in op.family.operands.split():
            return op.called
    return entry


class IndexFaults:
    """The record that modules of one device report to. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: HostBuffer | None = None

    def attach(self, module: Module) -> None:
        """Let a module report here; nothing changes for one that does not check ids."""
        with contextlib.suppress(NotFoundError):
            module.write_global("uhal_fault", bytes(8))
            with contextlib.suppress(NotSupportedError):
                # Without mapped memory wrong ids are skipped as well, but not reported.
                record = int(self._record().device_ptr)
                module.write_global("uhal_fault", record.to_bytes(8, "little"))
                module.reports = True

    def _record(self) -> HostBuffer:
        if self._memory is None:
            memory = HostBuffer(_RECORD.itemsize, "u8", device=self._device, mapped=True)
            memory.array[:] = 0
            self._memory = memory
            # The context then holds this, and this the context, until `close`.
            self._device.context.watch_reports(memory.array.ctypes.data, self._taken)
        return self._memory

    def _taken(self) -> IndexError | None:
        """Take the report that some kernel wrote."""
        assert self._memory is not None
        memory = self._memory
        record = memory.array.view(_RECORD)[0]
        # A kernel that found the record taken may have ended: its stream raises this report.
        deadline = time.monotonic() + _LONGEST_WRITE
        while record["state"] == _WRITING and time.monotonic() < deadline:
            time.sleep(0)
        if record["state"] != _WRITTEN:
            return None
        entry = bytes(record["entry"]).decode()
        said = (
            f"{_operation(entry)}: index {record['value']} is out of bounds for axis with size "
            f"{record['bound']} (position {record['position']} of the ids; kernel {entry})"
        )
        memory.array[:] = 0
        return IndexError(said)

    def close(self) -> None:
        """Give the memory back once nothing can write to it any more."""
        if self._memory is not None:
            self._device.context.unwatch_reports(self._memory.array.ctypes.data)
            with contextlib.suppress(DeviceError):
                self._device.synchronize()
            self._memory.close()
            self._memory = None
