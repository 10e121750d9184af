"""Ids out of bounds that kernels report: an `IndexError` once the host waits for the kernels.

Modules that check ids define a pointer `uhal_fault`, which is set to a record in host memory mapped
for the device (`uhal/fault.h`). A kernel writes the first wrong id there and continues: a selection
gives 0 for a wrong id, a write skips it, and the device stays usable. Kernels on the host know
their stream, which raises the error once. Kernels on other devices do not know their stream: each
stream that ran such kernels since its last wait raises the error once.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np

from ubridge.definitions.table import OPS
from uhal import Device, HostBuffer, Module
from uhal.contract import Report
from uhal.errors import DeviceError, NotFoundError, NotSupportedError

_NONE, _WRITING, _WRITTEN = 0, 1, 2
_LONGEST_WRITE = 1.0
"""Seconds to wait for a kernel that has begun a report."""
_RECORD = np.dtype(
    [
        ("state", np.uint32),
        ("streams", np.uint32),
        ("position", np.uint64),
        ("value", np.int64),
        ("bound", np.uint64),
        ("entry", "S32"),
    ]
)
"""`uhal_fault_record` of `uhal/fault.h`."""
_STREAM_FAULT = np.dtype(
    [("record", _RECORD), ("stream", np.uint64), ("launch", np.uint64), ("unused", "6u8")]
)
"""`uhal_stream_fault` of `uhal/fault.h`."""
_STREAMS = 64
"""Number of host streams with separate records between two waits."""


def _operation(entry: str) -> str:
    """The operation of a kernel, as users call it; the kernel's own name if no operation has it."""
    for op in OPS.values():
        checked = {"ids", "position"} & set(op.family.operands.split())
        if checked and entry.startswith(f"{op.root}_"):
            return op.called
    return entry


def _error(record: np.void) -> IndexError:
    """The error in a record."""
    entry = bytes(record["entry"]).partition(b"\0")[0].decode()
    return IndexError(
        f"{_operation(entry)}: index {record['value']} is out of bounds for axis with size "
        f"{record['bound']} (position {record['position']} of the ids; kernel {entry})"
    )


class IndexFaults:
    """The record that modules of one device report to. Any thread may use it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory: HostBuffer | None = None

    def attach(self, module: Module) -> None:
        """Let a module report here; a module that does not check ids is left unchanged."""
        with contextlib.suppress(NotFoundError):
            module.write_global("uhal_fault", bytes(8))
            with contextlib.suppress(NotSupportedError):
                # Without mapped memory wrong ids are skipped as well, but not reported.
                record = int(self._record().device_ptr)
                module.write_global("uhal_fault", record.to_bytes(8, "little"))
                module.reports = True

    def _record(self) -> HostBuffer:
        if self._memory is None:
            size = _RECORD.itemsize + _STREAMS * _STREAM_FAULT.itemsize
            memory = HostBuffer(size, "u8", device=self._device, mapped=True)
            memory.array[:] = 0
            memory.array[: _RECORD.itemsize].view(_RECORD)["streams"] = _STREAMS
            self._memory = memory
            # This object and the context now refer to each other, until `close`.
            self._device.context.watch_reports(memory.array.ctypes.data, self._taken)
        return self._memory

    def _taken(self) -> list[Report]:
        """Take the reports that kernels wrote, with stream and launch where known."""
        assert self._memory is not None
        memory = self._memory.array
        record = memory[: _RECORD.itemsize].view(_RECORD)[0]
        # A kernel that found the record in use may have ended; its stream then raises this report.
        deadline = time.monotonic() + _LONGEST_WRITE
        while record["state"] == _WRITING and time.monotonic() < deadline:
            time.sleep(0)
        if record["state"] == _WRITING:
            return []
        reports: list[Report] = []
        if record["state"] == _WRITTEN:
            reports.append((_error(record), None, 0))
        # Reset before reading the records of streams: a later report is found by the next call.
        record["state"] = _NONE
        for fault in memory[_RECORD.itemsize :].view(_STREAM_FAULT):
            if fault["record"]["state"] == _WRITTEN:
                origin = int(fault["stream"]), int(fault["launch"])
                reports.append((_error(fault["record"]), *origin))
                fault["record"]["state"] = _NONE
        return reports

    def close(self) -> None:
        """Free the memory once no kernel can write to it any more."""
        if self._memory is not None:
            self._device.context.unwatch_reports(self._memory.array.ctypes.data)
            with contextlib.suppress(DeviceError):
                self._device.synchronize()
            self._memory.close()
            self._memory = None
