"""Collectives between GCUs: Enflame's ECCL, whose functions are shaped like NCCL's.

One process makes an id with `unique_id()` and sends its bytes to the others by any means; each
then makes a `Communicator` with its own rank. Calls are enqueued on a stream and complete with its
work. Written from the public header, not run on a GCU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from uhal._lane import DeviceBuffer, Stream, current_context
from uhal.abi import Header, Library, find_library
from uhal.contract import joined_reasons
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    LibraryNotFoundError,
    NoDeviceError,
    NotSupportedError,
)

LIBRARY_VARIABLE = "UHAL_ECCL_LIBRARY"
CANDIDATES = ("libeccl.so", "/usr/lib/libeccl.so", "/opt/tops/lib/libeccl.so")
UNIQUE_ID_BYTES = 128

_OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_TYPES = {
    "i8": 0,
    "u8": 1,
    "i32": 2,
    "u32": 3,
    "i64": 4,
    "u64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
_RESULTS = (
    "ecclSuccess",
    "ecclUnhandledTopsError",
    "ecclSystemError",
    "ecclInternalError",
    "ecclInvalidArgument",
    "ecclInvalidUsage",
    "ecclRemoteError",
    "ecclInProgress",
)
_WIDE_TYPES = ("i64", "u64", "f64")
_TAKE_WIDE_TYPES = ("broadcast", "all_gather")


def version() -> str:
    """Return the library's version, such as `3.1.0`."""
    number = ctypes.c_int()
    _library().ecclGetVersion(number)
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def unique_id() -> bytes:
    """Make the id of a new group of ranks: 128 bytes for every rank's `Communicator`."""
    identifier = _library().header.ctype("ecclUniqueId")()
    _library().ecclGetUniqueId(identifier)
    return bytes(identifier)


@contextmanager
def group() -> Iterator[None]:
    """Submit the calls made inside as one: sends and receives between ranks need not be ordered.

    All calls must come from one thread. After an exception inside the group is still ended.
    """
    library = _library()
    library.ecclGroupStart()
    try:
        yield
    except BaseException:
        with suppress(DeviceError):
            library.ecclGroupEnd()
        raise
    library.ecclGroupEnd()


class Communicator:
    """One rank of a group, on the device that was current when it was made. A context manager.

    Buffers must be of that device; `stream` is the default stream if omitted. Calls of one
    communicator must come from one thread at a time. `LibraryNotFoundError` where there is no ECCL.
    """

    def __init__(self, ranks: int, identifier: bytes, rank: int) -> None:
        """Join the group as `rank` of `ranks`. Waits until every rank has."""
        if not 0 <= rank < ranks:
            raise ArgumentValueError(f"rank: expected 0…{ranks - 1}, got {rank}")
        if len(identifier) != UNIQUE_ID_BYTES:
            raise ArgumentValueError(
                f"identifier: expected the {UNIQUE_ID_BYTES} bytes of unique_id(), got "
                f"{len(identifier)}"
            )
        context = current_context()
        if context is None or context.backend_name != "tops":
            raise NoDeviceError("a Communicator is made with a GCU current: `with TopsDevice(0):`")
        self.ranks = ranks
        self.rank = rank
        self._context = context
        self._handle: int | None = None
        handle = ctypes.c_void_p()
        native = _library().header.ctype("ecclUniqueId").from_buffer_copy(identifier)
        with context.enter():
            _library().ecclCommInitRank(handle, ranks, native, rank)
        self._handle = handle.value

    def all_reduce(
        self,
        send: DeviceBuffer,
        recv: DeviceBuffer,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the ranks' `send` element by element into every rank's `recv`.

        `op` is one of sum, prod, max, min, avg. `recv` may be `send`.
        """
        kind = self._type("all_reduce", send, recv)
        _require_size("all_reduce, recv", recv, send.size)
        self._call("ecclAllReduce", stream, (send, recv), send.size, kind, _operation(op))

    def all_gather(
        self, send: DeviceBuffer, recv: DeviceBuffer, stream: Stream | None = None
    ) -> None:
        """Put the ranks' `send` one after the other into every rank's `recv`."""
        kind = self._type("all_gather", send, recv)
        _require_size("all_gather, recv", recv, send.size * self.ranks)
        self._call("ecclAllGather", stream, (send, recv), send.size, kind)

    def reduce_scatter(
        self,
        send: DeviceBuffer,
        recv: DeviceBuffer,
        op: str = "sum",
        stream: Stream | None = None,
    ) -> None:
        """Combine the ranks' `send`; rank r gets the r-th part of the result in `recv`."""
        kind = self._type("reduce_scatter", send, recv)
        _require_size("reduce_scatter, send", send, recv.size * self.ranks)
        self._call("ecclReduceScatter", stream, (send, recv), recv.size, kind, _operation(op))

    def broadcast(
        self,
        send: DeviceBuffer,
        recv: DeviceBuffer,
        root: int,
        stream: Stream | None = None,
    ) -> None:
        """Copy `send` of rank `root` into every rank's `recv`. `recv` may be `send`."""
        kind = self._type("broadcast", send, recv)
        _require_size("broadcast, recv", recv, send.size)
        root = self._peer("broadcast, root", root)
        self._call("ecclBroadcast", stream, (send, recv), send.size, kind, root)

    def send(self, buffer: DeviceBuffer, peer: int, stream: Stream | None = None) -> None:
        """Send a buffer to another rank, which receives as many elements of the same type."""
        kind = self._type("send", buffer)
        self._call("ecclSend", stream, (buffer,), buffer.size, kind, self._peer("send, peer", peer))

    def recv(self, buffer: DeviceBuffer, peer: int, stream: Stream | None = None) -> None:
        """Receive a buffer from another rank."""
        kind = self._type("recv", buffer)
        self._call("ecclRecv", stream, (buffer,), buffer.size, kind, self._peer("recv, peer", peer))

    def check(self) -> None:
        """Raise `DeviceError` when work enqueued before has failed since."""
        error = ctypes.c_int()
        with self._context.enter():
            _library().ecclCommGetAsyncError(self._open(), error)
        if error.value:
            _fail("ecclCommGetAsyncError", error.value)

    def abort(self) -> None:
        """Leave the group without waiting for the others; pending calls fail. Idempotent."""
        self._end("ecclCommAbort")

    def close(self) -> None:
        """Leave the group. Every rank calls this after its work. Idempotent."""
        self._end("ecclCommDestroy")

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        # After an exception the other ranks may never come to the end.
        if error is None:
            self.close()
        else:
            self.abort()

    # -- helpers -----------------------------------------------------------------------------------

    def _call(
        self, name: str, stream: Stream | None, buffers: tuple[DeviceBuffer, ...], *rest: int
    ) -> None:
        handle = self._open()
        with self._context.enter():
            queue = Stream.default() if stream is None else stream
            for buffer in buffers:
                buffer.record_stream(queue)
            addresses = [buffer.as_device_ptr().address for buffer in buffers]
            getattr(_library(), name)(*addresses, *rest, handle, queue.handle)

    def _open(self) -> int:
        if self._handle is None:
            raise InvalidHandleError("this Communicator is closed")
        return self._handle

    def _end(self, name: str) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with self._context.enter():
                getattr(_library(), name)(handle)

    def _type(self, what: str, *buffers: DeviceBuffer) -> int:
        for buffer in buffers:
            device = buffer.device
            if (device.backend, device.ordinal) != ("tops", self._context.ordinal):
                raise InvalidHandleError(
                    f"{what}: a buffer is on {device.backend}:{device.ordinal}, the communicator "
                    f"on tops:{self._context.ordinal}"
                )
        names = {str(buffer.dtype) for buffer in buffers}
        if len(names) > 1:
            raise ArgumentTypeError(f"{what}: the buffers are of {' and '.join(sorted(names))}")
        (name,) = names
        if name not in _TYPES:
            raise ArgumentTypeError(f"{what}: expected one of {', '.join(_TYPES)}, got {name}")
        if name in _WIDE_TYPES and what not in _TAKE_WIDE_TYPES:
            raise NotSupportedError(
                f"{what}: ECCL takes {name} in {' and '.join(_TAKE_WIDE_TYPES)} only",
                backend="tops",
            )
        return _TYPES[name]

    def _peer(self, what: str, rank: int) -> int:
        if not 0 <= rank < self.ranks:
            raise ArgumentValueError(f"{what}: expected 0…{self.ranks - 1}, got {rank}")
        return rank


def _operation(op: str) -> int:
    if op not in _OPERATIONS:
        raise ArgumentValueError(f"op: expected one of {', '.join(_OPERATIONS)}, got {op!r}")
    return _OPERATIONS[op]


def _require_size(what: str, buffer: DeviceBuffer, size: int) -> None:
    if buffer.size != size:
        raise ArgumentValueError(f"{what}: expected {size} elements, got {buffer.size}")


@cache
def _header() -> Header:
    return Header.load(Path(__file__).resolve().parent / "eccl_abi.h")


@cache
def _library() -> Library:
    search = find_library(LIBRARY_VARIABLE, CANDIDATES)
    if search.handle is None:
        raise LibraryNotFoundError(
            f"{joined_reasons(search.attempts)}. To use collectives, install ECCL, a part of "
            f"TopsRider, or set {LIBRARY_VARIABLE} to its libeccl.so",
            backend="tops",
        )
    path = search.path or search.attempts[-1].path
    return Library(search.handle, path, _header(), status="ecclResult_t", check=_fail)


def _fail(call: str, code: int) -> NoReturn:
    name = _RESULTS[code] if 0 <= code < len(_RESULTS) else "unknown"
    said: bytes | None = _library().unchecked("ecclGetErrorString")(code)
    text = (said or b"").decode("utf-8", "replace") or "the library says no more"
    raise DeviceError(
        f"{call}: {name} ({code}): {text}", backend="tops", call=call, code=code, name=name
    )
