"""Plain records that every layer of uhal may use: this module imports no layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Verdict = Literal["ok", "absent", "refused"]


@dataclass(frozen=True)
class LibraryAttempt:
    """A path where a driver library was looked for, and the outcome."""

    path: str
    outcome: str
    """`opened`, or the loader's message."""


@dataclass(frozen=True)
class DeviceSummary:
    """A device in the doctor's list, before anything is created on it."""

    ordinal: int
    name: str
    description: str
    """Cores, instruction level, memory: one line, no newline."""
    kind: Literal["accelerator", "processor"] = "accelerator"
    """Accelerators are chosen before the host, the host before processors of other backends."""


@dataclass(frozen=True)
class BackendRecord:
    """Why a backend was chosen or not.

    Found in `Api.backends()`, `NoDeviceError` and the doctor's report.
    """

    name: str
    verdict: Verdict
    reason: str
    """One sentence; for `ok` the devices found."""
    next_step: str = ""
    """Advice for the user; empty for `ok`."""
    libraries_tried: tuple[LibraryAttempt, ...] = ()
    path: str | None = None
    version: str | None = None
    devices: tuple[DeviceSummary, ...] = ()


@dataclass(frozen=True)
class ErrorText:
    """A native error code with the vendor's text, and uhal's advice if any."""

    name: str
    text: str
    advice: str = ""


class MemoryInfo(NamedTuple):
    """Memory of a device, in bytes."""

    free: int
    total: int


class MemoryOwner(NamedTuple):
    """A line of Python and the size of its device memory still in use."""

    site: str
    """`file.py:line` of the innermost Python frame that allocated; `unknown` without a frame."""
    nbytes: int
    """Bytes taken from the pool, rounding included."""
    buffers: int


@dataclass(frozen=True)
class Launch:
    """A launch that may have caused a fault."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    """Bytes of dynamic shared memory."""
    stream_id: int
    site: str
    """`file.py:line` of the call."""
    arguments: str
    """Argument values as text, in a plan from its last replay; pointers are addresses."""
    plan: str = ""
    """Name of the plan with this launch; empty outside of a plan."""
    index: int = 0
    """Index of the launch in the plan, from 0."""
    replay_site: str = ""
    """`file.py:line` of the replay."""

    def __str__(self) -> str:
        shared = f", shared {self.shared}" if self.shared else ""
        replayed = ""
        if self.plan:
            replayed = f", launch {self.index} of plan {self.plan!r} replayed at {self.replay_site}"
        return (
            f"{self.kernel} grid {self.grid}, block {self.block}{shared}, stream "
            f"{self.stream_id} ({self.arguments}) [{self.site}]{replayed}"
        )


@dataclass(frozen=True)
class IpcHandle:
    """A buffer that another process of this machine can open; plain data, so it can be pickled.

    Made by `DeviceBuffer.ipc_handle`, opened by `DeviceBuffer.from_ipc_handle`. The handle keeps
    nothing alive: its maker must keep the buffer as long as another process uses the buffer.
    """

    backend: str
    native: bytes
    """The driver's handle of the allocation that contains the buffer."""
    offset: int
    """Bytes from the start of that allocation."""
    size: int
    """Elements."""
    dtype: str
