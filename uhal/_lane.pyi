"""Types of the compiled lane (`cython_src/lane.pyx`). Public names are re-exported by `uhal`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType, TracebackType
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, final

import numpy.typing as npt

from uhal.contract import Backend, DeviceLimits, FunctionAttributes
from uhal.dtypes import DType, DTypeLike
from uhal.flags import EventFlags, StreamFlags
from uhal.foreign_streams import ForeignStream
from uhal.records import IpcHandle, MemoryInfo, MemoryOwner
from uhal.signature import Signature

_Made = TypeVar("_Made")
_Self = TypeVar("_Self")
DeviceLike: TypeAlias = Device | str
StreamLike: TypeAlias = Stream | ForeignStream
Dim3: TypeAlias = int | tuple[int] | tuple[int, int] | tuple[int, int, int]

# -- libraries -----------------------------------------------------------------------------------

@final
class KeptArithmetic(AbstractContextManager[None]):
    """Context manager that restores the thread's floating-point mode.

    Libraries compiled with `-ffast-math` make the thread that loads them flush tiny numbers to 0.
    """

    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

# -- backends ------------------------------------------------------------------------------------

def note_python_slots(addresses: Iterable[int]) -> None:
    """Register addresses of Python functions, before a hot table has them."""

def slot_prototypes() -> dict[str, tuple[str, str]]:
    """Maps a slot's name to (`required` or `optional`, C parameters) as `hot_table.h` states."""

@final
class HotTable:
    """A backend's C function pointers and constants. Immutable; lives as long as the process."""

    def __new__(
        cls,
        slots: Mapping[str, int],
        *,
        not_ready: int,
        out_of_memory: int,
        sticky: Sequence[int] = (),
        names: Mapping[str, str] | None = None,
        frees_wait: bool = True,
        staged_bytes: int = 65536,
    ) -> HotTable:
        """Fill the slots by name with addresses. `ValueError` names an unknown or missing slot.

        `names` gives the vendor's function for a slot, for error messages. With `frees_wait`,
        freeing memory waits for everything pending. `staged_bytes` is the size of the largest
        pageable source that a copy reads at once, also behind pending work.
        """
    @property
    def runs_python(self) -> bool: ...
    @property
    def slots(self) -> dict[str, int]: ...
    @property
    def names(self) -> dict[str, str]: ...

@final
class Context:
    """An opened device: hot table, pool, default stream, state. Made by `uhal.registry` only."""

    def __new__(
        cls, backend: Backend, ordinal: int, token: int, limits: DeviceLimits
    ) -> Context: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def backend_name(self) -> str: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def limits(self) -> DeviceLimits: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lost(self) -> str | None:
        """The message of errors about a lost device; `None` for other devices."""
    @property
    def device(self) -> Device: ...
    def check_usable(self) -> None:
        """Raise when the device is closed, lost or belongs to the parent of a forked process."""
    def enter(self) -> AbstractContextManager[Context]:
        """Context manager that makes the device current on this thread."""
    def synchronize(self) -> None:
        """Wait for every live stream of the device."""
    def watch_reports(
        self,
        word: int,
        report: Callable[[], Iterable[tuple[Exception, int | None, int]]],
        asserts: bool = False,
    ) -> None:
        """Raise reports when a wait of the user finds a nonzero word.

        `report` returns triples: an exception, the native handle of the stream that raises it, and
        the number of earlier launches in this stream. With `None` and 0, each stream that may have
        caused the exception raises it.
        """
    def unwatch_reports(self, word: int) -> None:
        """Stop watching the word at an address."""
    def check_reports(self, stream: StreamLike | None = None) -> None:
        """Raise the reports of a stream's kernels.

        The stream is idle; by default it is the device's default stream.
        """
    def pool_statistics(self) -> dict[str, int]: ...
    def reset_peak_statistics(self) -> None:
        """Set the pool's peak counters to the current use."""
    def pool_owners(self) -> list[tuple[int, int, CodeType | None, int]]:
        """(bytes, bytes asked for, code object, instruction offset) of each block in use."""
    @property
    def memory_limit(self) -> int | None:
        """Most bytes the pool takes from the driver; `None`: no limit."""
    @memory_limit.setter
    def memory_limit(self, limit: int | None) -> None: ...
    @property
    def peers(self) -> frozenset[int]:
        """Ordinals of the devices whose memory this device's kernels may use."""
    @property
    def capturing(self) -> bool:
        """Whether the calling thread is capturing a stream of the device."""
    def observe_work(self, observer: Callable[..., None] | None) -> None:
        """Call `observer(kind, *details)` before work of the device is enqueued; `None` ends it."""
    def note_peer(self, ordinal: int) -> None:
        """Note that kernels of this device may use device `ordinal`'s memory."""
    def empty_cache(self) -> int:
        """Give unused pool segments back to the driver; bytes freed."""
    def close(self) -> None:
        """Refuse new objects. Native teardown follows when the last child is gone."""

def resolve_backend(cls: type, backend: str | None) -> str | None:
    """Return the backend that an argument, or else the class, names."""

def chosen_context(cls: type, device: DeviceLike | None) -> Context:
    """Return the context of `device`, else of the current device, for an object of `cls`.

    A class fixed to a backend takes this backend's device 0 if the current device belongs to
    another backend.
    """

def address_for(buffer: DeviceBuffer, stream: StreamLike | None) -> int:
    """Return the first element's address, for a library that enqueues work.

    The library must enqueue the work on `stream`.

    The stream waits on the device for earlier work on the memory. Call `record_stream` after the
    work is enqueued, so that the pool knows of the use.
    """

def address_of(buffer: DeviceBuffer) -> int:
    """Return the address of the first element, to compare it with others.

    Work at the address is neither ordered nor tracked: `address_for` is for that.
    """

def shares_memory(buffer: DeviceBuffer, *others: object) -> bool:
    """Return whether any buffer among `others` overlaps `buffer`, by addresses.

    Other objects in `others` do not count.
    """

def current_context() -> Context | None:
    """The calling thread's context, else the process default, else `None`."""

def set_default_context(context: Context | None) -> None: ...
def push_context(context: Context) -> None:
    """Make `context` current in the calling thread or task until the matching `pop_context`."""

def pop_context() -> None: ...
def fork_generation() -> int:
    """Number of forks since the process that imported uhal."""

def refuse_pickle(held: object, kind: str, advice: str) -> NoReturn:
    """Raise `TypeError` with what to send to another process instead."""

def initialization_site() -> str:
    """`file.py:line` of the first context opened here or in the parent of a fork."""

def set_initialization_site(site: str) -> None: ...
def live_counts() -> dict[str, int]:
    """Open objects: contexts, streams, events, modules, functions, (host_)buffers, plans."""

def dlpack_of(
    source: Any,
    buffer: DeviceBuffer,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *,
    copied: bool = False,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
) -> Any:
    """A DLPack capsule of a tensor that begins with a buffer; strides in elements.

    A consumer on the host gets `source.to_numpy()`.
    """

def strided_dlpack(
    source: Any, device: DeviceLike | None = None, stream: StreamLike | None = None
) -> tuple[DeviceBuffer, tuple[int, ...], tuple[int, ...]]:
    """Take over a tensor whose strides are not negative: (buffer, lengths, strides)."""

# -- public --------------------------------------------------------------------------------------

class Device:
    """One device of one backend.

    A Device is a value: devices with the same backend and ordinal are equal.

    Creating a Device opens the device, once in a process. A name stands for backend and ordinal:
    `"cuda"`, `"cuda:1"`. `with device:` makes the device current in the calling thread or asyncio
    task: streams, buffers and modules made in the block belong to this device. Any thread may use
    it.
    """

    def __init__(self, ordinal: int | str = 0, backend: str | None = None) -> None: ...
    @classmethod
    def count(cls, backend: str | None = None) -> int: ...
    @classmethod
    def current(cls: type[_Self]) -> _Self: ...
    @property
    def context(self) -> Context:
        """The opened device, a `uhal.frameworks.Context`; another one after `close`."""
    @property
    def ordinal(self) -> int: ...
    @property
    def backend(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def limits(self) -> DeviceLimits: ...
    @property
    def attributes(self) -> Mapping[str, int | str]: ...
    @property
    def closed(self) -> bool: ...
    def can_access_peer(self, peer: Device) -> bool: ...
    def enable_peer_access(self, peer: Device) -> None: ...
    def memory_info(self) -> MemoryInfo: ...
    def synchronize(self) -> None: ...
    def empty_cache(self) -> int: ...
    def pool_statistics(self) -> dict[str, int]: ...
    def memory_stats(self) -> dict[str, int]: ...
    def reset_peak_memory_stats(self) -> None: ...
    def memory_owners(self) -> list[MemoryOwner]: ...
    @property
    def memory_limit(self) -> int | None: ...
    @memory_limit.setter
    def memory_limit(self, limit: int | None) -> None: ...
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class DevicePointer:
    """A raw device address, the only integer a pointer parameter accepts. Not tracked."""

    def __init__(self, address: int) -> None: ...
    @property
    def address(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __add__(self, nbytes: int, /) -> DevicePointer: ...
    def __sub__(self, nbytes: int, /) -> DevicePointer: ...

class Stream:
    """An in-order queue of work on one device."""

    def __init__(
        self,
        flags: StreamFlags | int = 0,
        priority: int = 0,
        *,
        device: DeviceLike | None = None,
    ) -> None: ...
    @classmethod
    def default(cls: type[_Self], device: DeviceLike | None = None) -> _Self: ...
    @classmethod
    def legacy(cls: type[_Self], device: DeviceLike | None = None) -> _Self: ...
    @classmethod
    def per_thread(cls: type[_Self], device: DeviceLike | None = None) -> _Self: ...
    @classmethod
    def from_handle(
        cls: type[_Self], handle: object, *, device: DeviceLike | None = None, owner: object = None
    ) -> _Self: ...
    @property
    def handle(self) -> int: ...
    @property
    def id(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def __cuda_stream__(self) -> Callable[[], tuple[int, int]]:
        """CUDA's stream protocol; `AttributeError` on other vendors."""
    @property
    def device(self) -> Device: ...
    @property
    def flags(self) -> StreamFlags: ...
    @property
    def priority(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def synchronize(self) -> None: ...
    def __await__(self) -> Generator[Any]: ...
    def query(self) -> bool: ...
    def wait_event(self, event: Event) -> None: ...
    def record_event(self, event: Event | None = None) -> Event: ...
    def add_callback(self, function: Callable[..., object], *args: object) -> None: ...
    def capture(self, name: str | None = None) -> AbstractContextManager[Plan]:
        """Record the work of a `with` block on the stream into a plan; nothing runs."""
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class Event:
    """A mark in a stream that can be waited for and timed."""

    def __init__(
        self, flags: EventFlags | int = 0, *, device: DeviceLike | None = None
    ) -> None: ...
    @property
    def handle(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def flags(self) -> EventFlags: ...
    @property
    def closed(self) -> bool: ...
    def record(self, stream: StreamLike | None = None) -> None: ...
    def synchronize(self) -> None: ...
    def __await__(self) -> Generator[Any]: ...
    def query(self) -> bool: ...
    def elapsed_since(self, start: Event) -> float: ...
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class PlanSlot:
    """A value of a plan that every replay can change; made by `Plan.slot`."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> Any:
        """Value of the last replay, or of the capture."""

@final
class Plan:
    """Recorded work of a capture; `replay` runs it as a whole."""

    @property
    def name(self) -> str: ...
    @property
    def begun(self) -> str:
        """Where the capture began: `file.py:line`."""
    @property
    def device(self) -> Device: ...
    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels it launches, in the order of their capture."""
    @property
    def slots(self) -> dict[str, PlanSlot]: ...
    @property
    def closed(self) -> bool: ...
    def __len__(self) -> int: ...
    def slot(self, name: str, value: Any) -> PlanSlot:
        """Name a value that each replay can change, before its first use in the capture."""
    def replay(self, stream: StreamLike | None = None, **slots: Any) -> None:
        """Run the captured work in the order of `stream`, with new values for slots."""
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class DeviceBuffer:
    """A typed, contiguous run of elements in one device's memory."""

    @classmethod
    def from_numpy(
        cls: type[_Self],
        array: npt.ArrayLike,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> _Self: ...
    @classmethod
    def from_slice(
        cls: type[_Self],
        values: Sequence[Any],
        dtype: DTypeLike,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> _Self: ...
    @classmethod
    def zeros(
        cls: type[_Self],
        size: int,
        dtype: DTypeLike,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> _Self: ...
    @classmethod
    def uninitialized(
        cls: type[_Self], size: int, dtype: DTypeLike, *, device: DeviceLike | None = None
    ) -> _Self: ...
    @classmethod
    def uninitialized_async(
        cls: type[_Self], size: int, dtype: DTypeLike, stream: StreamLike, *, native: bool = False
    ) -> _Self: ...
    @classmethod
    def from_dlpack(
        cls: type[_Self],
        source: object,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> _Self: ...
    @classmethod
    def from_cuda_array_interface(
        cls: type[_Self],
        source: object,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> _Self: ...
    @classmethod
    def from_ipc_handle(
        cls: type[_Self], handle: IpcHandle, *, device: DeviceLike | None = None
    ) -> _Self: ...
    @classmethod
    def from_raw(
        cls: type[_Self],
        address: int | DevicePointer,
        size: int,
        dtype: DTypeLike,
        *,
        device: DeviceLike | None = None,
        owner: object = None,
    ) -> _Self: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def device(self) -> Device: ...
    @property
    def base(self) -> DeviceBuffer:
        """The allocated buffer that this is a view of, or itself."""
    @property
    def byte_offset(self) -> int:
        """Bytes of `base` before the first element."""
    @property
    def closed(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self: _Self, elements: slice) -> _Self: ...
    def view(self: _Self, dtype: DTypeLike) -> _Self: ...
    def as_device_ptr(self) -> DevicePointer: ...
    def to_numpy(self, *, stream: StreamLike | None = None) -> npt.NDArray[Any]: ...
    def copy_from(self, source: object, *, stream: StreamLike | None = None) -> None: ...
    def copy_to(self, destination: object, *, stream: StreamLike | None = None) -> None: ...
    def copy_from_async(self, source: object, stream: StreamLike) -> None: ...
    def copy_to_async(self, destination: object, stream: StreamLike) -> None: ...
    def copy_2d_from(
        self,
        source: npt.NDArray[Any] | HostBuffer | DeviceBuffer,
        shape: tuple[int, int] | None = None,
        *,
        pitch: int | None = None,
        source_pitch: int | None = None,
        stream: StreamLike | None = None,
    ) -> None: ...
    def copy_2d_to(
        self,
        destination: npt.NDArray[Any] | HostBuffer | DeviceBuffer,
        shape: tuple[int, int] | None = None,
        *,
        pitch: int | None = None,
        destination_pitch: int | None = None,
        stream: StreamLike | None = None,
    ) -> None: ...
    def set_8(self, value: int, *, stream: StreamLike | None = None) -> None: ...
    def set_16(self, value: int, *, stream: StreamLike | None = None) -> None: ...
    def set_32(self, value: int, *, stream: StreamLike | None = None) -> None: ...
    def record_stream(self, stream: StreamLike) -> None: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's array protocol, version 3; `AttributeError` on other vendors."""
    def ipc_handle(self) -> IpcHandle: ...
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class HostBuffer:
    """Pinned host memory: copies to and from it are asynchronous."""

    def __init__(
        self, size: int, dtype: DTypeLike, *, device: DeviceLike | None = None, mapped: bool = False
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def closed(self) -> bool: ...
    @property
    def address(self) -> int: ...
    @property
    def mapped(self) -> bool: ...
    @property
    def device_ptr(self) -> DevicePointer:
        """Kernels' address of the memory, for buffers made with `mapped=True`."""
    @property
    def array(self) -> npt.NDArray[Any]:
        """The memory as a numpy array; it keeps the memory alive."""
    def __len__(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class ModuleHandle:
    """Owns a loaded native module; unloads it when the last function and module are gone."""

    def __new__(cls, context: Context, handle: int) -> ModuleHandle: ...
    @property
    def context(self) -> Context: ...
    @property
    def handle(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def reports(self) -> bool:
        """Whether its kernels report to a word that `Context.watch_reports` watches."""
    @reports.setter
    def reports(self, value: bool) -> None: ...
    @property
    def asserts(self) -> bool:
        """Whether its kernels may fail assertions, in a word that `watch_reports` watches."""
    @asserts.setter
    def asserts(self, value: bool) -> None: ...
    def find_function(self, name: str) -> int:
        """Native handle of an entry; `DeviceError` with the vendor's code when it is missing."""
    def find_global(self, name: str) -> tuple[int, int]:
        """Address and bytes of a variable; `NotFoundError` when there is none."""
    def write_global(self, name: str, value: bytes) -> None:
        """Set a variable's first bytes; `NotImplementedError` if it has an address."""
    def describe_global(self, address: int, size: int, dtype: DTypeLike) -> DeviceBuffer:
        """A buffer over a variable, which closes with the module."""
    def close(self) -> None: ...

class Function:
    """A kernel of a loaded module, with its signature. `f[grid, block, shared, stream](*args)`."""

    def __init__(
        self,
        module: ModuleHandle,
        handle: int,
        name: str,
        signature: Signature | None,
        attributes: FunctionAttributes,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature | None: ...
    @property
    def attributes(self) -> FunctionAttributes: ...
    @property
    def handle(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def context(self) -> Context: ...
    def max_active_blocks(self, block: Dim3, shared: int = 0) -> int: ...
    def set_max_dynamic_shared_bytes(self, nbytes: int) -> None: ...
    def __getitem__(self, configuration: Any, /) -> BoundLaunch: ...

class BoundLaunch:
    """A function with geometry and stream fixed: checks only the arguments of each call."""

    def __call__(self, *args: object) -> None: ...

@final
class Passed:
    """An argument of each `LaunchSequence` call, or the sequence's own memory.

    `Passed.operand(i)` is the i-th argument behind `out`, and `Passed.result()` the result.
    `Passed.scratch(start, size, dtype)` is a part of the memory that lasts from the first step to
    the last. With a `size`, `operand` and `result` are `size` elements of `dtype` in that buffer,
    from byte `start` on.
    """

    @property
    def index(self) -> int:
        """Which operand; -1 for the result, -2 for scratch."""
    @property
    def start(self) -> int:
        """Bytes before the first element."""
    @property
    def size(self) -> int:
        """Elements; -1: the whole buffer, or a number."""
    @property
    def dtype(self) -> DType: ...
    @staticmethod
    def operand(
        index: int, start: int = 0, size: int = -1, dtype: DTypeLike | None = None
    ) -> Passed: ...
    @staticmethod
    def result(start: int = 0, size: int = -1, dtype: DTypeLike | None = None) -> Passed: ...
    @staticmethod
    def scratch(start: int, size: int, dtype: DTypeLike) -> Passed: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Tally:
    """A count of calls that sequences share."""

    count: int

@final
class LaunchSequence:
    """Prepared launches that one call enqueues: `sequence(stream, out, *operands)`.

    `steps` are pairs of a bound launch and its arguments, in order. Each call passes the arguments
    that are `Passed`; the sequence keeps all others. A call passes all operands that
    the steps name, at least `operands`.

    A call returns `out`. If `out` is None, it returns a new buffer of `size` elements of `dtype`,
    allocated in the order of the stream. A sequence without a size needs an `out`. `scratch` bytes
    are allocated for each call, also in that order. With `stream` None each bound launch uses its
    own stream. `about` is any object that the maker attaches; a `tally` counts the calls.

    The arguments of every call are checked like a launch's arguments. The caller ensures that
    buffers are large enough. Raises as `launch` does; steps before a refused step are enqueued. Any
    thread may call it.
    """

    def __init__(
        self,
        steps: Iterable[tuple[BoundLaunch, Iterable[object]]],
        size: int | None = None,
        dtype: DTypeLike | None = None,
        *,
        operands: int = 0,
        scratch: int = 0,
        about: object = None,
        tally: Tally | None = None,
    ) -> None: ...
    @property
    def operands(self) -> int:
        """How many arguments a call passes behind `out`."""
    @property
    def scratch(self) -> int:
        """Bytes that are allocated for each call."""
    @property
    def about(self) -> Any: ...
    def __len__(self) -> int: ...
    def __call__(
        self, stream: StreamLike | None, out: DeviceBuffer | None, /, *operands: object
    ) -> DeviceBuffer: ...

_Recorder = Callable[[LaunchSequence, DeviceBuffer, bool, tuple[Any, ...]], None]

def set_copy_listener(
    callback: Callable[[int, int], object] | None,
) -> Callable[[int, int], object] | None:
    """Call `callback(done, total)`, in bytes, during copies of very large pageable memory.

    The copying thread calls it after each piece of 256 MiB; its exception ends the copy. There is
    one listener in a process; None removes it. Returns the previous listener.
    """

def set_recorder(callback: _Recorder | None) -> _Recorder | None:
    """Call `callback(sequence, result, is_new, operands)` for every call of every sequence.

    The calling thread calls it after all steps are enqueued; `is_new` says whether the call
    allocated the result. The call raises the callback's exception. There is one recorder in a
    process; None removes it. Returns the previous recorder, or None.
    """

@final
class SlotMaker:
    """Makes objects of a class or a derived class, with slots set."""

    def __init__(self, base: type, /, *names: str) -> None: ...
    def __call__(self, cls: type[_Made], /, *values: object) -> _Made: ...

@final
class CallTable:
    """The latest answers to each `RememberedCall`, by identity of its arguments.

    A framework keeps one for each device, and replaces it by a new one when its answers are no
    longer valid. It is a table of sets of four entries: a set's fifth call replaces the oldest.
    """

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...

@final
class RememberedCall:
    """`function` with a table of answers; known calls run no Python.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. An argument may also be a tuple of tensors, the first also
    a list. A call looks in the table of the first tensor's executor for an equal earlier call.
    Without such a call, it calls `asks` with the function's arguments except `out` and `stream`;
    `asks` returns an answer or None.

    The answer is called as `launch(stream, None, *ahead, *buffers, *behind)`, with the buffers of
    all tensors from their first element on. The call returns a tensor of that buffer with the
    answer's layout and dtype. `function` itself runs if there is no answer, for other keywords than
    `settings`, `out` and `stream`, and for tensors of two classes or executors. `settings` names
    the function's parameters after its first parameter; `asks` need not have these parameters.

    An `out` is written directly only for a function with `writes_over`. `out` and all operands must
    have exactly the result's layout. An operand may share memory with `out` only if both begin at
    one address and have elements of one size. Otherwise `function` runs.

    A function that `changes` its first argument, a tensor, returns this tensor. Its answer is
    called as `launch(stream, buffer, *ahead, *others, *behind)`, with the first tensor's buffer and
    the buffers of the other tensors. `function` runs if these share memory with the first.

    An answer depends only on dtypes, layouts and constant arguments: numbers, strings, classes,
    dtypes, None, and tuples of them. Calls with other arguments are not remembered.

    `layouts` is the class of layouts and the names of its slots for words and start. `executors` is
    the class of executors and the slot for a `CallTable` or None. `answers` is the class of answers
    and the slots for launch, layout, dtype, and the tuples passed ahead of the buffers and behind
    them. As an attribute of a class it is a method. Any thread may call it.
    """

    __name__: str
    def __init__(
        self,
        function: Callable[..., Any],
        asks: Callable[..., Any],
        maker: SlotMaker,
        settings: tuple[str, ...] = (),
        writes_over: bool = False,
        changes: bool = False,
        *,
        layouts: tuple[type, str, str],
        executors: tuple[type, str],
        answers: tuple[type, str, str, str, str, str],
    ) -> None: ...
    def __call__(self, /, *operands: Any, **keywords: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

@final
class RememberedView:
    """`function`, which returns views of tensors, with a table of their layouts.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. A result of `function` with the first argument's buffer,
    dtype and executor is a view: its layout is kept for calls with the same layout and equal
    arguments, which then run no Python. Arguments may be ints, slices, `None`, `...` and tuples of
    them. For other arguments, for keywords and for results with other memory `function` runs.

    The layout of a view must depend on the layout and the arguments only. `layouts` is the class of
    layouts, which must not change. As an attribute of a class it is a method. Any thread may call
    it.
    """

    __name__: str
    def __init__(
        self, function: Callable[..., Any], maker: SlotMaker, *, layouts: type
    ) -> None: ...
    def __call__(self, /, *operands: Any, **keywords: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

@final
class Creation:
    """A new tensor that a `RememberedCreation` makes at each call.

    The tensor has `layout` and the dtype `element`. Its new buffer has `size` elements of `dtype`
    on the device. `launch`, a `LaunchSequence`, is called as `launch(stream, buffer, *arguments)`.
    Without a launch the elements are `zeros`, or `copies` of the call's array, or undefined.
    """

    def __init__(
        self,
        device: Device,
        size: int,
        dtype: DTypeLike,
        launch: LaunchSequence | None = None,
        arguments: tuple[object, ...] = (),
        *,
        layout: object,
        element: object,
        zeros: bool = False,
        copies: bool = False,
    ) -> None: ...

@final
class RememberedCreation:
    """`function`, which makes tensors, with a table; known calls run no Python.

    Arguments are numbers, strings, dtypes, classes, None, tuples of ints, and objects of the class
    `shapes`, which are tuples of ints. The first argument may be a tensor of the class `kind`: its
    dtype and layout are part of the call, and its executor makes the new tensor. In other calls the
    executor is that of the current device in `known`, a dictionary of `Context` and executor. The
    first argument may also be a contiguous array of numpy's: its dtype and shape are part of the
    call.

    If a call is new, `asks(executor, *arguments)` returns a `Creation` or None. `function` itself
    runs if there is no `Creation`, and for other arguments and keywords than `settings` and
    `stream`. It also runs without a current device, and while a recorder is set. `settings` names
    all parameters of `asks` after the executor.

    `maker` makes tensors from a buffer, a layout, a dtype and an executor. `layouts` is the class
    of layouts, the name of its slot for words, and the class of shapes. `executors` is the class of
    executors and the slot for a `CallTable` or None. Any thread may call it.
    """

    __name__: str
    def __init__(
        self,
        function: Callable[..., Any],
        asks: Callable[..., Creation | None],
        kind: type,
        maker: SlotMaker,
        settings: tuple[str, ...],
        known: dict[Any, Any],
        *,
        layouts: tuple[type, str, type],
        executors: tuple[type, str],
    ) -> None: ...
    def __call__(self, /, *given: Any, **keywords: Any) -> Any: ...

@final
class NumberReader:
    """`function`, which returns a tensor's only element, without Python.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. A call with a tensor of one element waits for the work
    that uses the buffer, copies the element and returns it as `kind`: `int`, `float`, `bool`, or
    None for the element's own kind. `function` itself runs for other arguments, other numbers of
    elements, and element types whose `DType.code` is not among `codes`.

    `layouts` is the class of layouts and the names of its slots for size and start. As an attribute
    of a class it is a method. Any thread may call it.
    """

    __name__: str
    def __init__(
        self,
        function: Callable[..., Any],
        maker: SlotMaker,
        kind: type | None = None,
        codes: str = ...,
        *,
        layouts: tuple[type, str, str],
    ) -> None: ...
    def __call__(self, /, *operands: Any, **keywords: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

@final
class ProfileSession:
    """Records the lane's calls from `begin` to `end`.

    There is one session in a process at a time.

    A session keeps at most `limit` records and counts the others. With `by_node`, plans whose
    operations are all known are replayed operation by operation, and each operation gets its own
    times.
    """

    def __init__(self, limit: int, by_node: bool) -> None: ...
    @property
    def begun(self) -> int | None: ...
    @property
    def ended(self) -> int | None: ...
    def begin(self) -> None:
        """Start to record, on every open device and on devices opened later.

        Waits for their pending work. Devices that are lost, or fail now, are left out and named in
        `broken_devices`. Raises `RuntimeError` if another session runs or this session has run, and
        `CaptureError` while a stream is captured.
        """
    def end(self) -> None:
        """Wait for every watched device, read the times, and stop recording.

        Raises errors that the wait finds. A device already known to be lost is only named in
        `broken_devices`.
        """
    def columns(self) -> npt.NDArray[Any]:
        """Return the records as a structured array, in order of begin.

        `kind` counts in `profile_kinds()`. Records that are open never happened: they were refused.
        """
    def lines(self) -> list[Any]:
        """Return the calling lines of records, numbered by `line`.

        Each line is (code object, instruction offset).

        The first line is None, for records without a known line. Call this before `columns`.
        """
    @property
    def subject_list(self) -> list[Any]:
        """Subjects of records, by `what`: Functions and names; the first is None."""
    @property
    def range_list(self) -> list[Any]:
        """(enclosing range's number, name) by `range`; the first is None."""
    @property
    def contexts(self) -> list[tuple[Context, int, list[tuple[int, int, CodeType | None, int]]]]:
        """(Context, bytes in use when the watching began, owners then) by `device`."""
    @property
    def broken_devices(self) -> list[tuple[str, str]]:
        """(name, reason) of each device that was not watched until the end."""
    @property
    def dropped_by_kind(self) -> dict[str, int]:
        """Number of records lost for lack of space, by kind."""

@final
class OpenRange:
    """A named range of the calling thread in the running profile.

    The range lasts from its construction to `close`.

    With a stream, the stream's work inside the range is timed on its device under this name.
    """

    def __init__(self, name: str, stream: StreamLike | None = None, nbytes: int = 0) -> None: ...
    def close(self) -> None:
        """End the range. Call `close` once, in the thread that made the range."""

def profile_kinds() -> list[str]:
    """Return the names of the kinds of records, in the order of their numbers."""

def profile_session() -> ProfileSession | None:
    """Return the running session, or None."""

class _LaunchConfig(Protocol):
    """A `uhal.LaunchConfig`; its module imports the lane."""

    @property
    def grid(self) -> Dim3: ...
    @property
    def block(self) -> Dim3: ...
    @property
    def shared(self) -> int: ...
    @property
    def cluster(self) -> Dim3 | None: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def priority(self) -> int | None: ...

def launch(
    function: Function,
    grid: Dim3 | None = None,
    block: Dim3 | None = None,
    args: tuple[object, ...] = (),
    shared: int = 0,
    stream: StreamLike | None = None,
    *,
    config: _LaunchConfig | None = None,
) -> None:
    """Check the arguments and enqueue one kernel launch."""
