"""Interface of a backend: its records and rarely called methods, with working defaults.

A backend is a hot table (C function pointers, `cython_src/hot_table.h`), the cold verbs below, its
image format and an error table. It validates nothing: the interface has checked every argument
before a verb is called. This module lies below the lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NoReturn, Protocol, TypeAlias

from uhal.errors import ArgumentValueError, NotSupportedError
from uhal.records import BackendRecord as BackendRecord
from uhal.records import DeviceSummary as DeviceSummary
from uhal.records import ErrorText as ErrorText
from uhal.records import LibraryAttempt as LibraryAttempt
from uhal.records import Verdict as Verdict
from uhal.signature import Signature

MESSAGES = b"uhal_messages"
"""The variable of images whose kernels print or assert: `LoadedModule.has_messages`."""

Report: TypeAlias = tuple[Exception, int | None, int]
"""Report of `Context.watch_reports`: exception, stream, and number of earlier launches there."""
Reports: TypeAlias = tuple[int, Callable[[], Iterable[Report]]]
"""The address of a word that is not 0 while there are reports, and the function that takes them.

Each report has the native handle of the stream that raises the exception, or `None` if the stream
is unknown.
"""

CaptureStatus = Literal["none", "active", "invalidated"]
"""State of a stream: launching, recording, or a capture that a mistake has invalidated."""


@dataclass(frozen=True)
class DeviceLimits:
    """Limits of a launch on the device.

    `None` means that the vendor does not document the limit.
    """

    max_grid: tuple[int, int, int]
    max_block: tuple[int, int, int]
    max_threads_per_block: int
    max_shared_bytes_per_block: int
    """Static plus dynamic, without opting in to more."""
    warp_size: int
    processors: int
    """Multiprocessors, compute units, clusters or cores."""
    max_parameter_bytes: int = 4096
    max_cluster_blocks: int | None = None
    """Blocks of a cluster; 1 where there are no clusters."""
    block_for_elements: int = 256
    """Block size of `LaunchConfig.for_num_elems` when none is given."""
    max_blocks_for_elements: int | None = None
    """Grid cap of `LaunchConfig.for_num_elems`; `None` gives each element its own thread."""
    shared_granule: int = 0
    """Dynamic shared memory is rounded up to this and grows by it; 0: unchanged."""
    max_grid_threads: int | None = None
    """Threads of the grid along an axis, blocks times block; `None` where only blocks count."""
    max_threads_per_processor: int | None = None
    """Threads that one processor holds at once, over all its blocks."""

    def shared_bytes_for(self, wanted: int) -> int:
        """Return the dynamic shared bytes to request for `wanted` bytes.

        Raises `ArgumentValueError` for more than a block can have.
        """
        most = self.max_shared_bytes_per_block
        if not 0 <= wanted <= most:
            raise ArgumentValueError(
                f"dynamic shared memory: expected 0…{most} bytes, the most of a block, got {wanted}"
            )
        granule = self.shared_granule
        return min(-(-wanted // granule) * granule + granule, most) if granule else wanted


@dataclass(frozen=True)
class ImageCandidate:
    """An image that the chooser examined."""

    description: str
    accepted: bool
    reason: str


@dataclass(frozen=True)
class Chosen:
    """The image a module was loaded from, and the reasons against the others."""

    description: str
    reason: str
    candidates: tuple[ImageCandidate, ...] = ()

    def __str__(self) -> str:
        return f"{self.description}: {self.reason}"


@dataclass(frozen=True)
class LoadedModule:
    """Result of `Backend.module_load`. The caller owns `handle` and unloads it."""

    handle: int
    chosen: Chosen
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """Maps an entry's name to the parameters that the image itself describes, in the image's order.

    The mapping may be lazy: `uhal` looks up one entry at a time.
    """
    has_messages: bool = False
    """Whether the image has the variable by which kernels print and assert (`uhal/messages.h`)."""


@dataclass(frozen=True)
class FunctionAttributes:
    """Facts about a loaded kernel. `None` means the vendor does not say."""

    max_threads_per_block: int
    static_shared_bytes: int | None = None
    local_bytes: int | None = None
    registers: int | None = None
    max_dynamic_shared_bytes: int | None = None


@dataclass(frozen=True)
class ExecutableGraph:
    """Result of `Backend.instantiate_graph`. The caller owns `handle` and destroys it."""

    handle: int
    kernels: tuple[int, ...] | None
    """The kernel launches in dependency order; launches of one stream keep their order.

    The slot `graph_update_kernel` takes these nodes, which belong to the graph given to
    `instantiate_graph`. `None` where the library does not list the launches.
    """
    others: int | None = None
    """Number of nodes that do work without a kernel; `None` where only `uhal` records."""


class SlotTable(Protocol):
    """Protocol of a hot table; a backend makes a `uhal._lane.HotTable`."""

    @property
    def slots(self) -> dict[str, int]:
        """Maps a slot's name to its address, or to 0 where the vendor has no such function."""

    @property
    def names(self) -> dict[str, str]:
        """Maps a slot's name to the vendor's function, for error messages."""


class Backend(ABC):
    """The cold verbs. Every method may be called from any thread; ordinals are always valid.

    A native failure raises the exception from `uhal.errors.from_code`.
    """

    name: str
    dlpack_device_type: int | None = None
    """DLPack's `DLDeviceType` of the memory; `None` where it has none."""
    stream_refusal: str = ""
    """Why streams of other libraries cannot be used here; empty where they can."""
    survives_fork: bool = False
    """True when a forked child may use the backend afresh. Old objects stay refused either way."""

    @classmethod
    @abstractmethod
    def probe(cls) -> BackendRecord:
        """Look for the driver library and its devices without creating anything on them."""

    @classmethod
    @abstractmethod
    def open(cls) -> Backend:
        """Load and initialise the driver. Called once per process, after `probe` said `ok`."""

    @property
    @abstractmethod
    def hot_table(self) -> SlotTable:
        """The backend's filled hot table, a `uhal._lane.HotTable`."""

    @abstractmethod
    def version(self) -> str:
        """Driver or runtime version as the vendor writes it."""

    @abstractmethod
    def device_count(self) -> int: ...

    @abstractmethod
    def device_context(self, ordinal: int) -> int:
        """Token for the `bind` slot; retained, not created, where the vendor shares contexts."""

    def release_device_context(self, ordinal: int, token: int) -> None:
        """Release the token of `device_context`; a no-op if the vendor retains nothing.

        `token` is the result of `device_context`; the device may have been opened again since.
        """

    @abstractmethod
    def device_name(self, ordinal: int) -> str: ...

    @abstractmethod
    def device_uuid(self, ordinal: int) -> str: ...

    @abstractmethod
    def device_limits(self, ordinal: int) -> DeviceLimits: ...

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        """Further attributes of the device, under the vendor's own names."""
        return {}

    @abstractmethod
    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """(free, total) bytes. The device is current."""

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for everything on the device. The default lets `uhal` wait for each stream."""
        raise NotImplementedError

    @abstractmethod
    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        """Read, choose and load an image. The device is current.

        `path` is where the bytes came from, for messages and sidecars only.
        """

    @abstractmethod
    def module_global(self, module: int, name: str) -> tuple[int, int]:
        """(device address, bytes) of a module's global variable. `NotFoundError` when absent."""

    def write_global(self, module: int, name: str, value: bytes) -> None:
        """Set a module's variable, of at least as many bytes. `NotFoundError` when absent.

        The device is current. By default `uhal` copies to the address from `module_global`;
        override it if variables have no address.
        """
        raise NotImplementedError

    @abstractmethod
    def function_attributes(self, function: int, name: str) -> FunctionAttributes: ...

    def function_layout(self, function: int) -> Sequence[tuple[int, int]] | None:
        """(offset, size) of each parameter in bytes; `None` if the driver does not report them.

        The device is current. The layout is compared with the signature before any launch.
        """
        return None

    def set_max_dynamic_shared_bytes(
        self, function: int, name: str, nbytes: int
    ) -> FunctionAttributes:
        """Let the kernel's launches request `nbytes`; return the kernel's new attributes.

        The device is current.
        """
        raise NotSupportedError(
            f"{self.name}: a kernel's limit of dynamic shared memory is fixed", backend=self.name
        )

    def max_active_blocks(
        self, function: int, ordinal: int, block_threads: int, dynamic_shared_bytes: int
    ) -> int:
        """Blocks of the kernel one processor holds at once; by default one."""
        return 1

    @abstractmethod
    def error_text(self, code: int) -> ErrorText: ...

    @abstractmethod
    def error_class(self, code: int) -> type[Exception]:
        """Class from the backend's error table; `uhal.errors.DeviceError` for other codes."""

    def copy_2d(
        self,
        direction: Literal["h2d", "d2h", "d2d"],
        destination: int,
        destination_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        """Enqueue a copy of `height` rows of `width` bytes, pitches in bytes.

        The device is current. The default lets `uhal` copy row by row through the hot table.
        """
        raise NotImplementedError

    def host_device_pointer(self, pointer: int) -> int:
        """Device address of mapped pinned memory. The device is current."""
        raise NotSupportedError(
            f"{self.name}: devices do not reach host memory; copy it", backend=self.name
        )

    def device_reports(self, ordinal: int) -> Reports | None:
        """Reports of launch failures that the device survives; `None`: unsupported.

        For `Context.watch_reports`: the address of a word, and the function that takes reports.
        """
        return None

    def pointer_device(self, address: int) -> int | None:
        """Ordinal of the device a foreign address belongs to; `None` if unknown."""
        return None

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Whether kernels of one device can access another device's memory."""
        return False

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let kernels of the current device use memory of `peer`. Enabling twice is no error."""
        raise NotSupportedError(
            f"{self.name}: kernels reach their own device's memory only; copy between devices",
            backend=self.name,
        )

    def ipc_export(self, address: int) -> bytes:
        """Handle of a plain allocation, for another process. The device is current."""
        raise NotSupportedError(
            f"{self.name}: memory cannot be shared with another process; copy through the host",
            backend=self.name,
        )

    def ipc_open(self, handle: bytes) -> int:
        """Map another process's allocation; its device address here. The device is current."""
        raise NotSupportedError(
            f"{self.name}: memory of another process cannot be mapped", backend=self.name
        )

    def ipc_close(self, address: int) -> None:
        """Undo one `ipc_open`. The device is current; its work on the memory is done."""

    # Graphs: launches recorded once and run as a whole. A stream belongs to one capture at a time,
    # and only one thread may use it meanwhile. The device is current in every verb.
    #
    # Two slots of the hot table belong to these verbs. `graph_launch` enqueues the whole graph; the
    # launches of an executable graph never overlap. `graph_update_kernel` replaces a launch in
    # `ExecutableGraph.kernels` and copies the parameters; earlier launches of the graph keep the
    # old launch. No other thread uses the executable graph meanwhile.

    def begin_capture(self, stream: int) -> bool:
        """Start to record launches on the stream instead of running them.

        The default returns False: the library cannot record. In this case `uhal` keeps the list,
        each replay enqueues the operations one by one, and no other verb of graphs is called. A
        backend that returns True implements all verbs of graphs. Recorded kernels, and the memory
        their parameters point to, must outlive the graphs. Raises `NotSupportedError` if the
        library has graphs but cannot record.
        """
        return False

    def capture_status(self, stream: int) -> CaptureStatus:
        """Say whether the stream records."""
        return "none"

    def end_capture(self, stream: int) -> int:
        """End the capture begun on this stream; return the graph, which the caller destroys.

        Afterwards the stream runs its launches again, even if the capture was invalid and this call
        fails. A failed call returns no graph.
        """
        self._refuse_graphs()

    def instantiate_graph(self, graph: int) -> ExecutableGraph:
        """Make a graph ready to be launched. It does not change, and the caller still owns it."""
        self._refuse_graphs()

    def graph_kernel_function(self, node: int) -> int:
        """Return the function of a kernel node; 0 if foreign or unknown."""
        return 0

    def destroy_executable_graph(self, executable: int) -> None:
        """Free an executable graph. Its launches are done."""
        self._refuse_graphs()

    def destroy_graph(self, graph: int) -> None:
        """Free a graph, after all executable graphs whose launches may still change."""
        self._refuse_graphs()

    def _refuse_graphs(self) -> NoReturn:
        raise NotSupportedError(
            f"{self.name}: launches cannot be captured into a graph. Launch without a capture.",
            backend=self.name,
        )

    def live_counts(self) -> Mapping[str, int]:
        """Native objects alive by kind, where the driver counts them."""
        return {}

    takes_calls: ClassVar[bool] = False
    """Whether the backend has `launch_call`, which collectives on CPUs need."""

    def launch_call(
        self, stream: int, function: int, arguments: Sequence[int], status: int
    ) -> None:
        """Call a C function of at most 8 integers in the stream's order; a capture records it.

        The function may block and returns an int. The int at `status` keeps the first result other
        than 0; after this failure no function with this status is called.
        """
        raise NotSupportedError(f"{self.name}: no C functions in streams", backend=self.name)

    def half_reduction(self, dtype: str, op: str) -> int:
        """Return the address of an `MPI_User_function` of f16 or bf16."""
        raise NotSupportedError(f"{self.name}: no reductions by MPI", backend=self.name)

    def priority_range(self, ordinal: int) -> tuple[int, int]:
        """(least, greatest) stream priority; the greatest is the smaller number."""
        return (0, 0)

    def foreign_stream(self, ordinal: int, handle: int) -> tuple[int, object]:
        """Return the native stream of another library's handle, and an object that keeps it alive.

        `NotSupportedError` where there is none. By default the handle is the stream.
        """
        if self.stream_refusal:
            raise NotSupportedError(f"handle: {self.stream_refusal}", backend=self.name)
        return handle, None

    def special_stream(self, kind: Literal["legacy", "per_thread"]) -> int | None:
        """Handle of a vendor's special stream, or `None`."""
        return None


def joined_reasons(attempts: Sequence[LibraryAttempt]) -> str:
    """Return the attempts as a line of a message."""
    return "; ".join(f"{attempt.path}: {attempt.outcome}" for attempt in attempts)
