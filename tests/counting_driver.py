"""A driver that does nothing but count: for what no real driver can show.

Every slot of its hot table is a Python function that notes the call. Streams are busy or idle as
the test says, calls fail as the test says. Refusals "before any native call", orderings the pool
asks for and failures of every slot are tested against it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
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

_C_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "unsigned short": ctypes.c_ushort,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}


def _parameter_types(prototype: str) -> list[Any]:
    types = []
    for parameter in prototype.strip("()").split(","):
        spelling = re.sub(r"\b\w+$", "", parameter.strip()).strip()
        types.append(_C_TYPES.get(spelling, ctypes.c_void_p))
    return types


class CountingDriver(Backend):
    """One device whose calls are in `calls` as (slot, arguments)."""

    name = "counting"

    def __init__(self, *, without: tuple[str, ...] = ()) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.busy: set[int] = set()
        """Handles of streams with pending work."""
        self.failures: dict[str, list[int]] = {}
        """Slot to the codes its next calls answer."""
        self.on_call: Callable[[str], None] = lambda slot: None
        self._next = 0x1000
        self._current: int | None = None
        self._event_streams: dict[int, int] = {}
        self._callbacks = []
        slots = {}
        for name, (_, prototype) in _lane.slot_prototypes().items():
            if name in without:
                continue
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *_parameter_types(prototype))
            callback = kind(self._answer(name))
            self._callbacks.append(callback)
            slots[name] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        self._table = _lane.HotTable(
            slots,
            not_ready=NOT_READY,
            out_of_memory=OUT_OF_MEMORY,
            sticky=(ILLEGAL_ADDRESS,),
            names={"launch": "countLaunchKernel"},
        )

    def count(self, *names: str) -> int:
        """How often the named slots were called; all of them when none is named."""
        return sum(1 for slot, _ in self.calls if not names or slot in names)

    def open_context(self) -> _lane.Context:
        return _lane.Context(self, 0, 0xC0DE, self.device_limits(0))

    def _fresh(self) -> int:
        self._next += 0x100000
        return self._next

    def _answer(self, slot: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append((slot, arguments))
            self.on_call(slot)
            planned = self.failures.get(slot)
            if planned:
                return planned.pop(0)
            return self._succeed(slot, arguments)

        return call

    def _succeed(self, slot: str, arguments: tuple[Any, ...]) -> int:
        if slot == "current":
            ctypes.c_void_p.from_address(arguments[0]).value = self._current
        elif slot == "bind":
            self._current = arguments[0]
        elif slot in ("alloc", "alloc_async"):
            ctypes.c_uint64.from_address(arguments[0]).value = self._fresh()
        elif slot in ("stream_create", "event_create", "get_function"):
            ctypes.c_void_p.from_address(arguments[0]).value = self._fresh()
        elif slot == "host_alloc":
            block = ctypes.create_string_buffer(max(arguments[1], 4))
            self._callbacks.append(block)
            ctypes.c_void_p.from_address(arguments[0]).value = ctypes.addressof(block)
        elif slot == "stream_query":
            return NOT_READY if arguments[0] in self.busy else 0
        elif slot == "stream_synchronize":
            self.busy.discard(arguments[0])
        elif slot == "event_record":
            self._event_streams[arguments[0]] = arguments[1]
        elif slot == "event_query":
            return NOT_READY if self._event_streams.get(arguments[0]) in self.busy else 0
        elif slot == "event_synchronize":
            self.busy.discard(self._event_streams.get(arguments[0], 0))
        return 0

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
        return 1

    def device_context(self, ordinal: int) -> int:
        return 0xC0DE

    def device_name(self, ordinal: int) -> str:
        return "counter"

    def device_uuid(self, ordinal: int) -> str:
        return "00000000-0000-0000-0000-000000000000"

    def device_limits(self, ordinal: int) -> DeviceLimits:
        return DeviceLimits(
            max_grid=(2**31 - 1, 65535, 65535),
            max_block=(1024, 1024, 64),
            max_threads_per_block=1024,
            max_shared_bytes_per_block=49152,
            warp_size=32,
            processors=1,
        )

    def device_attributes(self, ordinal: int) -> Mapping[str, int | str]:
        return {}

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        return (1 << 30, 1 << 30)

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        return LoadedModule(0xBEEF, Chosen("nothing", "there is nothing else"))

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        raise errors.NotFoundError(name)

    def function_attributes(self, function: int, name: str) -> FunctionAttributes:
        return FunctionAttributes(max_threads_per_block=1024, static_shared_bytes=0)

    def error_text(self, code: int) -> ErrorText:
        return ErrorText(CODES.get(code, ("UNKNOWN", None))[0], "as the test asked")

    def error_class(self, code: int) -> type[Exception]:
        return CODES.get(code, ("", errors.DeviceError))[1]

    # -- what tests launch -------------------------------------------------------------------------

    def function(self, context: _lane.Context, signature: Any, name: str = "k") -> _lane.Function:
        module = _lane.ModuleHandle(context, 0xBEEF)
        return _lane.Function(
            module, module.find_function(name), name, signature, self.function_attributes(0, name)
        )
