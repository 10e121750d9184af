"""A driver that runs no kernels and counts its calls and objects, for cases that no real driver
shows.

Every slot of its hot table is a Python function that notes the call. The test decides whether
streams are busy and calls fail. Memory is real, and copies and fills happen at once. The driver
counts native objects, so a leak, a double free or the use of a destroyed handle is seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uhal import _lane, errors
from uhal.contract import (
    Backend,
    BackendRecord,
    Chosen,
    DeviceLimits,
    ErrorText,
    FunctionAttributes,
    LoadedModule,
)
from uhal.python_slots import function_type

OUT_OF_MEMORY = 2
NOT_READY = 600
ILLEGAL_ADDRESS = 700
CODES = {
    1: ("INVALID_VALUE", errors.ArgumentValueError),
    OUT_OF_MEMORY: ("OUT_OF_MEMORY", errors.OutOfMemoryError),
    400: ("INVALID_HANDLE", errors.InvalidHandleError),
    NOT_READY: ("NOT_READY", errors.DeviceError),
    ILLEGAL_ADDRESS: ("ILLEGAL_ADDRESS", errors.DeviceError),
}

LIMITS = DeviceLimits(
    max_grid=(2**31 - 1, 65535, 65535),
    max_block=(1024, 1024, 64),
    max_threads_per_block=1024,
    max_shared_bytes_per_block=49152,
    warp_size=32,
    processors=1,
)

_ALIGNMENT = 256
_DISTANCE = 0x100000
"""Distance between consecutive handles."""
_LARGEST_REAL_ALLOCATION = 64 << 20

# Each slot's handle arguments, with the kinds of handles; these handles must be alive.
_USES: dict[str, tuple[tuple[int, str], ...]] = {
    "launch": ((8, "stream"),),
    "alloc_async": ((2, "stream"),),
    "free_async": ((1, "stream"),),
    "copy_h2d": ((3, "stream"),),
    "copy_d2h": ((3, "stream"),),
    "copy_d2d": ((3, "stream"),),
    "copy_peer": ((5, "stream"),),
    "memset_8": ((3, "stream"),),
    "memset_16": ((3, "stream"),),
    "memset_32": ((3, "stream"),),
    "stream_synchronize": ((0, "stream"),),
    "stream_query": ((0, "stream"),),
    "stream_wait_event": ((0, "stream"), (1, "event")),
    "stream_series": ((0, "stream"),),
    "stream_callback": ((0, "stream"),),
    "event_record": ((0, "event"), (1, "stream")),
    "event_synchronize": ((0, "event"),),
    "event_query": ((0, "event"),),
    "event_elapsed": ((1, "event"), (2, "event")),
    "get_function": ((1, "module"),),
}
_ENDS = {
    "free": "allocation",
    "free_async": "allocation",
    "host_free": "pinned",
    "stream_destroy": "stream",
    "event_destroy": "event",
    "module_unload": "module",
}
BLOCKING_SLOTS = ("stream_synchronize", "event_synchronize")


class CountingDriver(Backend):
    """A backend whose native calls are in `calls` as (slot, arguments)."""

    name = "counting"
    dlpack_device_type = 1

    def __init__(
        self,
        *,
        without: tuple[str, ...] = (),
        instead: Mapping[str, int] | None = None,
        limits: DeviceLimits = LIMITS,
        frees_wait: bool = False,
    ) -> None:
        """Omit optional slots in `without`; replace slots by the C functions in `instead`.

        `frees_wait` is the hot table's flag: whether freeing memory waits for work.
        """
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.busy: set[int] = set()
        """Handles of streams with pending work. A wait for a stream makes it idle."""
        self.passed: set[int] = set()
        """Handles of events that are complete although later work of their stream is pending."""
        self.failures: dict[str, list[int]] = {}
        """Codes that the next calls of each slot return; 0 is a success."""
        self.broken: int | None = None
        """Status that every call returns, as after a driver's sticky error."""
        self.stopped = False
        """If true, copies and fills are accepted but not executed."""
        self.on_call: Callable[[str, tuple[Any, ...]], None] = lambda slot, arguments: None
        self.parameter_sizes: Sequence[int] = ()
        self.parameters: list[bytes] = []
        """Bytes of the last launch's parameters, read if `parameter_sizes` is set."""
        self.live: dict[str, set[int]] = {
            kind: set() for kind in ("stream", "event", "module", "allocation", "pinned")
        }
        self._forgiven: dict[str, set[int]] = {}
        self.foreign_streams: set[int] = set()
        self.misuse: list[str] = []
        self.current: int | None = None
        self._limits = limits
        self._next = 0x1000
        self._memory: dict[int, Any] = {}
        self._event_streams: dict[int, int] = {}
        self._posted: dict[int, list[tuple[int, int | None]]] = {}
        self._callbacks: list[Any] = []
        slots = {}
        for name in _lane.slot_prototypes():
            if name in without:
                continue
            # The `_while` slots never call the caller's callback, because a wait ends at once here.
            callback = function_type(name)(self._answer(name.removesuffix("_while")))
            self._callbacks.append(callback)
            slots[name] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        slots.update(instead or {})
        self._table = _lane.HotTable(
            slots,
            not_ready=NOT_READY,
            out_of_memory=OUT_OF_MEMORY,
            sticky=(ILLEGAL_ADDRESS,),
            names={"launch": "countLaunchKernel"},
            frees_wait=frees_wait,
            staged_bytes=1 << 40,
        )

    # -- what tests ask ----------------------------------------------------------------------------

    def count(self, *names: str) -> int:
        """Return the number of calls of the named slots, or of all slots."""
        return sum(1 for slot, _ in self.calls if not names or slot in names)

    def slots(self, *without: str) -> list[str]:
        """Return the slots called, in order; by default without those that make the device
        current."""
        skipped = without or ("current", "bind")
        return [slot for slot, _ in self.calls if slot not in skipped]

    def open_context(self, ordinal: int = 0) -> _lane.Context:
        return _lane.Context(self, ordinal, self.device_context(ordinal), self._limits)

    def module(self, context: _lane.Context) -> _lane.ModuleHandle:
        return _lane.ModuleHandle(context, self._fresh("module"))

    def function(
        self,
        context: _lane.Context,
        signature: Any,
        name: str = "k",
        module: _lane.ModuleHandle | None = None,
    ) -> _lane.Function:
        """Return a kernel of the module, or of a new module."""
        module = self.module(context) if module is None else module
        return _lane.Function(
            module, module.find_function(name), name, signature, self.function_attributes(0, name)
        )

    def forgive(self, kind: str | None = None, handle: int = 0) -> None:
        """Exclude a handle, or all living handles, from the count of leaks."""
        if kind is not None:
            self._forgiven.setdefault(kind, set()).add(handle)
        else:
            self._forgiven = {kind: set(handles) for kind, handles in self.live.items()}

    def left(self) -> dict[str, set[int]]:
        """Return living objects by kind, without the forgiven objects."""
        forgiven = self._forgiven
        left = {kind: handles - forgiven.get(kind, set()) for kind, handles in self.live.items()}
        return {kind: handles for kind, handles in left.items() if handles}

    def run_callbacks(self, stream: int) -> None:
        """Run the host callbacks of a stream on the calling thread."""
        trampoline_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        for trampoline, data in self._posted.pop(stream, []):
            trampoline_type(trampoline)(data)

    # -- the slots ---------------------------------------------------------------------------------

    @contextmanager
    def next_handle(self, handle: int) -> Iterator[None]:
        """Reuse an earlier handle for the next object that the block creates."""
        before, self._next = self._next, handle - _DISTANCE
        yield
        self._next = before

    def _fresh(self, kind: str | None) -> int:
        self._next += _DISTANCE
        if kind is not None:
            self.live[kind].add(self._next)
        return self._next

    def _answer(self, slot: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((slot, arguments))
            self.on_call(slot, arguments)
            if self.broken is not None:
                self._end(slot, arguments)
                return self.broken
            planned = self.failures.get(slot)
            code = planned.pop(0) if planned else 0
            if code:
                return code
            self._account(slot, arguments)
            return self._succeed(slot, arguments)

        return call

    def _account(self, slot: str, arguments: tuple[Any, ...]) -> None:
        for position, kind in _USES.get(slot, ()):
            handle = arguments[position]
            if handle not in self.live[kind] and handle not in self.foreign_streams:
                self.misuse.append(f"{slot} uses a dead {kind} {handle!r}")
        self._end(slot, arguments)

    def _end(self, slot: str, arguments: tuple[Any, ...]) -> None:
        kind = _ENDS.get(slot)
        if kind is None:
            return
        handle = arguments[0]
        if handle not in self.live[kind]:
            self.misuse.append(f"{slot} ends a dead {kind} {handle!r}")
        self.live[kind].discard(handle)
        self._memory.pop(handle, None)

    def _succeed(self, slot: str, arguments: tuple[Any, ...]) -> int:
        if slot == "current":
            ctypes.c_void_p.from_address(arguments[0]).value = self.current
        elif slot == "bind":
            self.current = arguments[0]
        elif slot in ("alloc", "alloc_async"):
            ctypes.c_uint64.from_address(arguments[0]).value = self._allocate(
                "allocation", arguments[1]
            )
        elif slot == "host_alloc":
            ctypes.c_void_p.from_address(arguments[0]).value = self._allocate(
                "pinned", arguments[1]
            )
        elif slot in ("stream_create", "event_create", "get_function"):
            kind = {"stream_create": "stream", "event_create": "event"}.get(slot)
            ctypes.c_void_p.from_address(arguments[0]).value = self._fresh(kind)
        elif slot == "launch":
            self._read_parameters(arguments[9])
        elif slot.startswith(("copy", "memset")):
            self._move(slot, arguments)
        elif slot == "stream_callback":
            self._posted.setdefault(arguments[0], []).append(arguments[1:])
        else:
            return self._time(slot, arguments)
        return 0

    def _time(self, slot: str, arguments: tuple[Any, ...]) -> int:
        if slot == "stream_query":
            return NOT_READY if arguments[0] in self.busy else 0
        if slot == "stream_synchronize":
            self.busy.discard(arguments[0])
        elif slot == "event_record":
            self._event_streams[arguments[0]] = arguments[1]
        elif slot == "event_query":
            pending = self._event_streams.get(arguments[0]) in self.busy
            return NOT_READY if pending and arguments[0] not in self.passed else 0
        elif slot == "event_synchronize":
            self.busy.discard(self._event_streams.get(arguments[0], 0))
        elif slot == "event_elapsed":
            ctypes.c_float.from_address(arguments[0]).value = 1.5
        return 0

    def _allocate(self, kind: str, nbytes: int) -> int:
        if nbytes > _LARGEST_REAL_ALLOCATION:
            return self._fresh(kind)
        block = ctypes.create_string_buffer(nbytes + _ALIGNMENT)
        address = -(-ctypes.addressof(block) // _ALIGNMENT) * _ALIGNMENT
        self._memory[address] = block
        self.live[kind].add(address)
        return address

    def _move(self, slot: str, arguments: tuple[Any, ...]) -> None:
        if self.stopped:
            return
        if slot == "copy_peer":
            ctypes.memmove(arguments[0], arguments[2], arguments[4])
        elif slot.startswith("copy"):
            ctypes.memmove(arguments[0], arguments[1], arguments[2])
        else:
            width = int(slot.rpartition("_")[2]) // 8
            pattern = arguments[1].to_bytes(width, "little")
            ctypes.memmove(arguments[0], pattern * arguments[2], width * arguments[2])

    def _read_parameters(self, table: int | None) -> None:
        if self.parameter_sizes:
            assert table is not None
            addresses = (ctypes.c_void_p * len(self.parameter_sizes)).from_address(table)
            self.parameters = [
                ctypes.string_at(address, size)
                for address, size in zip(addresses, self.parameter_sizes, strict=True)
            ]

    # -- cold verbs --------------------------------------------------------------------------------

    @classmethod
    def probe(cls) -> BackendRecord:
        return BackendRecord(cls.name, "ok", "counts")

    @classmethod
    def open(cls) -> CountingDriver:
        return cls()

    @property
    def hot_table(self) -> _lane.HotTable:
        return self._table

    def version(self) -> str:
        return "1"

    def device_count(self) -> int:
        return 2

    def device_context(self, ordinal: int) -> int:
        return 0xC0DE + ordinal

    def device_name(self, ordinal: int) -> str:
        return "counter"

    def device_uuid(self, ordinal: int) -> str:
        return f"00000000-0000-0000-0000-{ordinal:012}"

    def device_limits(self, ordinal: int) -> DeviceLimits:
        return self._limits

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        return {}

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        return (1 << 30, 1 << 30)

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        return LoadedModule(self._fresh("module"), Chosen("nothing", "there is nothing else"))

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        raise errors.NotFoundError(name)

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        return FunctionAttributes(max_threads_per_block=1024, static_shared_bytes=0)

    def priority_range(self, ordinal: int) -> tuple[int, int]:
        return (0, -2)

    def error_text(self, code: int) -> ErrorText:
        return ErrorText(CODES.get(code, ("UNKNOWN", None))[0], "as the test asked")

    def error_class(self, code: int) -> type[Exception]:
        return CODES.get(code, ("", errors.DeviceError))[1]
