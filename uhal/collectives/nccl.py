"""The engine of GPUs and GCUs: NCCL, and libraries with its functions.

ECCL's names have another prefix. `LIBRARIES` has the differences; `nccl_abi.h` declares the
functions of NCCL 2.14. ECCL lacks some of them. The symbols and the version of a library show
which calls are missing; these are refused before a call.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from uhal._lane import Context, DeviceBuffer, Stream, address_for
from uhal.abi import Header, Library, find_library
from uhal.collectives.engine import Collective, Engine
from uhal.contract import joined_reasons
from uhal.errors import DeviceError, LibraryNotFoundError, NotSupportedError


@dataclass(frozen=True)
class VendorLibrary:
    """Names and limits of a vendor's library."""

    name: str
    prefix: str
    """First letters of its functions, where NCCL's are `nccl`."""
    variable: str
    candidates: tuple[str, ...]
    """Arguments of `uhal.abi.find_library`: the variable and the candidates."""
    install: str
    """Advice for installing the library."""
    only_copied: tuple[str, ...] = ()
    """Dtypes that only `broadcast` and `all_gather` take."""


LIBRARIES = {
    "cuda": VendorLibrary(
        "NCCL",
        "nccl",
        "UHAL_NCCL_LIBRARY",
        ("libnccl.so.2", "libnccl.so"),
        "install NCCL (pip install nvidia-nccl-cu13, or NVIDIA's package libnccl2)",
    ),
    "tops": VendorLibrary(
        "ECCL",
        "eccl",
        "UHAL_ECCL_LIBRARY",
        ("libeccl.so", "/usr/lib/libeccl.so", "/opt/tops/lib/libeccl.so"),
        "install ECCL, a part of TopsRider",
        only_copied=("i64", "u64", "f64"),
    ),
}
"""Libraries by backend."""
REFUSED = {
    "rocm": "RCCL enqueues in streams of HIP, and HIP makes no stream of an HSA queue, which is "
    "what a stream of rocm has. Use RCCL with HIP's own streams, for example by PyTorch"
}
"""Why a backend has no library, although its vendor has one."""

_TYPES = {
    "i8": "Int8",
    "u8": "Uint8",
    "i32": "Int32",
    "u32": "Uint32",
    "i64": "Int64",
    "u64": "Uint64",
    "f16": "Float16",
    "f32": "Float32",
    "f64": "Float64",
    "bf16": "Bfloat16",
    "f8e4m3": "Float8e4m3",
    "f8e5m2": "Float8e5m2",
}
"""NCCL's names of the dtypes."""
_SINCE = {"f8e4m3": (2, 24), "f8e5m2": (2, 24)}
"""First versions of NCCL with a dtype. ECCL (versions from 3 on) lacks these dtypes."""
_COPIES = ("broadcast", "all_gather")
_OLDEST = (2, 14)
_IN_PROGRESS = 7
_POLL_SECONDS = 0.0002


class NcclEngine(Engine):
    """One rank of a communicator of NCCL or ECCL. Not blocking, except for ECCL."""

    operations = ("sum", "prod", "max", "min", "avg")
    root_broadcasts_result = False

    def __init__(self, context: Context, handle: int, ranks: int) -> None:
        """Own the library's communicator."""
        self._context = context
        self._library = _library(context)
        self.name = self._library.vendor.name
        self.dtypes = self._library.dtypes
        self._handle = handle
        self._captured = False
        self._ranks = ranks
        with context.enter():
            self._token = DeviceBuffer.zeros(1, "i32")
        """Operand of barriers, which NCCL lacks."""

    @classmethod
    def unique_id(cls, context: Context) -> bytes:
        """Return the library's identifier: it also says where rank 0 listens."""
        library = _library(context)
        identifier = library.header.ctype("ncclUniqueId")()
        with context.enter():
            library.ncclGetUniqueId(identifier)
        return bytes(identifier)

    @classmethod
    def join(
        cls,
        context: Context,
        ranks: int,
        identifier: bytes,
        rank: int,
        meanwhile: Callable[[], None],
    ) -> NcclEngine:
        """Return the engine of this rank. `meanwhile` runs while other ranks are awaited."""
        library = _library(context)
        native = library.header.ctype("ncclUniqueId").from_buffer_copy(identifier)
        handle = ctypes.c_void_p()
        with context.enter():
            if library.has("ncclCommInitRankConfig"):
                config = library.configuration()
                library.ncclCommInitRankConfig(handle, ranks, native, rank, config)
            else:
                library.ncclCommInitRank(handle, ranks, native, rank)
            library.await_end(handle.value or 0, meanwhile)
        return cls(context, handle.value or 0, ranks)

    def lacks(self, call: str, dtype: str) -> str:
        """Return what the library lacks for a call; empty if nothing."""
        needed = {"reduce": "ncclReduce", "split": "ncclCommSplit"}.get(call)
        if needed is not None and not self._library.has(needed):
            return f"this {self.name} {self._library.version_text} has no {call}"
        vendor = self._library.vendor
        if dtype in vendor.only_copied and call not in _COPIES:
            return f"{self.name} takes {dtype} in {' and '.join(_COPIES)} only"
        return ""

    def enqueue(self, call: Collective, stream: Stream) -> None:
        """Enqueue one call of the library, or several as a group."""
        self._note_capture()
        if call.name == "all_to_all":
            with self._grouped():
                self._exchange(call, stream)
        elif call.name == "barrier":
            token = address_for(self._token, stream)
            self._call(Collective("all_reduce", token, token, 1, "i32", "max"), stream)
            self._token.record_stream(stream)
        else:
            self._call(call, stream)
        self._library.await_end(self._handle)

    def enqueue_group(self, calls: list[tuple[Collective, Stream]]) -> None:
        """Enqueue sends and receives as one group of the library."""
        self._note_capture()
        with self._grouped():
            for call, stream in calls:
                self._call(call, stream)
        self._library.await_end(self._handle)

    def failure(self) -> str:
        """Return the library's text of an asynchronous error."""
        code = self._library.state(self._handle)
        return self._library.text("ncclCommGetAsyncError", code, self._handle) if code else ""

    def split(self, color: int, key: int) -> tuple[Engine, int, int] | None:
        """Split the library's communicator."""
        made = ctypes.c_void_p()
        with self._context.enter():
            self._library.ncclCommSplit(self._handle, max(color, -1), key, made, None)
            self._library.await_end(self._handle)
            if made.value is None:
                return None
            self._library.await_end(made.value)
        ranks, rank = ctypes.c_int(), ctypes.c_int()
        self._library.ncclCommCount(made.value, ranks)
        self._library.ncclCommUserRank(made.value, rank)
        engine = NcclEngine(self._context, made.value, ranks.value)
        return engine, ranks.value, rank.value

    def close(self) -> None:
        """Finalize and destroy the communicator, unless a plan may still use it."""
        if self._captured:
            _kept.append(self)
            return
        with self._context.enter():
            if self._library.has("ncclCommFinalize"):
                self._library.ncclCommFinalize(self._handle)
                self._library.await_end(self._handle)
            self._library.ncclCommDestroy(self._handle)
        self._token.close()

    def abort(self, stuck: bool) -> None:
        """Stop the communicator's work and free it."""
        with self._context.enter():
            self._library.ncclCommAbort(self._handle)
        self._token.close()

    # -- helpers -----------------------------------------------------------------------------------

    def _call(self, call: Collective, stream: Stream) -> None:
        constants = self._library.header.constants
        values = {
            "send": call.send,
            "recv": call.recv,
            "count": call.count,
            "type": constants[f"nccl{_TYPES[call.dtype]}"],
            "op": constants.get(f"nccl{call.op.capitalize()}", 0),
            "peer": call.peer,
        }
        function, names = _CALLS[call.name]
        arguments = (values[name] for name in names)
        getattr(self._library, function)(*arguments, self._handle, stream.handle)

    def _note_capture(self) -> None:
        self._captured |= self._context.capturing

    @contextmanager
    def _grouped(self) -> Iterator[None]:
        self._library.ncclGroupStart()
        try:
            yield
        except BaseException:
            with suppress(DeviceError):
                self._library.ncclGroupEnd()
            raise
        self._library.ncclGroupEnd()

    def _exchange(self, call: Collective, stream: Stream) -> None:
        """Send every rank its part, and receive one of each."""
        width = call.count * call.itemsize
        for peer in range(self._ranks):
            for name in ("send", "recv"):
                send, recv = call.send + peer * width, call.recv + peer * width
                self._call(Collective(name, send, recv, call.count, call.dtype, peer=peer), stream)


_CALLS = {
    "all_reduce": ("ncclAllReduce", ("send", "recv", "count", "type", "op")),
    "reduce": ("ncclReduce", ("send", "recv", "count", "type", "op", "peer")),
    "broadcast": ("ncclBroadcast", ("send", "recv", "count", "type", "peer")),
    "all_gather": ("ncclAllGather", ("send", "recv", "count", "type")),
    "reduce_scatter": ("ncclReduceScatter", ("send", "recv", "count", "type", "op")),
    "send": ("ncclSend", ("send", "count", "type", "peer")),
    "recv": ("ncclRecv", ("recv", "count", "type", "peer")),
}
"""Each collective's function with its arguments; a communicator and a stream follow."""
_kept: list[NcclEngine] = []
"""Engines whose communicators plans may still use."""


class _Opened(Library):
    """A vendor's library with its version and limits."""

    def __init__(self, handle: ctypes.CDLL, path: str, backend: str) -> None:
        self.vendor = vendor = LIBRARIES[backend]

        def symbol(name: str) -> str:
            return name.replace("nccl", vendor.prefix, 1)

        super().__init__(
            handle, path, header(), status="ncclResult_t", check=self._fail, symbol=symbol
        )
        self._backend = backend
        number = ctypes.c_int()
        self.ncclGetVersion(number)
        self.version = number.value // 10000, number.value // 100 % 100, number.value % 100
        self.version_text = ".".join(map(str, self.version))
        if self.version < _OLDEST:
            raise NotSupportedError(
                f"collectives: expected {vendor.name} {'.'.join(map(str, _OLDEST))} or later, got "
                f"{path} of version {number.value}. Install a newer library.",
                backend=backend,
            )
        self.dtypes = frozenset(
            name
            for name in _TYPES
            if name not in _SINCE or (vendor.prefix == "nccl" and self.version >= _SINCE[name])
        )

    def configuration(self) -> Any:
        """Return the configuration of communicators that do not block."""
        kind, constants = self.header.ctype("ncclConfig_t"), self.header.constants
        return kind(
            ctypes.sizeof(kind),
            constants["NCCL_CONFIG_MAGIC"],
            constants["NCCL_CONFIG_VERSION"],
            0,
        )

    def state(self, communicator: int) -> int:
        """Return the communicator's asynchronous result."""
        code = ctypes.c_int()
        self.ncclCommGetAsyncError(communicator, code)
        return 0 if code.value == _IN_PROGRESS else code.value

    def await_end(self, communicator: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until the communicator's last call is enqueued. Raises its error.

        An exception while waiting aborts the communicator.
        """
        code = ctypes.c_int()
        while True:
            self.ncclCommGetAsyncError(communicator, code)
            if code.value != _IN_PROGRESS:
                break
            try:
                if meanwhile is not None:
                    meanwhile()
                time.sleep(_POLL_SECONDS)
            except BaseException:
                self.ncclCommAbort(communicator)
                raise
        if code.value:
            self._fail("ncclCommGetAsyncError", code.value, communicator)

    def text(self, call: str, code: int, communicator: int | None = None) -> str:
        """Describe a result by its name and the library's words."""
        named = {value: name for name, value in self.header.constants.items() if name in _RESULTS}
        name = named.get(code, "unknown").replace("nccl", self.vendor.prefix, 1)
        said: bytes | None = self.unchecked("ncclGetErrorString")(code)
        words = [(said or b"").decode("utf-8", "replace")]
        if self.has("ncclGetLastError"):
            last: bytes | None = self.unchecked("ncclGetLastError")(communicator)
            words.append((last or b"").decode("utf-8", "replace").strip())
        told = ": ".join(filter(None, words)) or "the library says no more"
        return f"{call.replace('nccl', self.vendor.prefix, 1)}: {name} ({code}): {told}"

    def _fail(self, call: str, code: int, communicator: int | None = None) -> None:
        if code == _IN_PROGRESS:
            return
        raise DeviceError(
            self.text(call, code, communicator), backend=self._backend, call=call, code=code
        )


_RESULTS = frozenset(
    f"nccl{name}"
    for name in (
        *("Success", "UnhandledCudaError", "SystemError", "InternalError", "InvalidArgument"),
        *("InvalidUsage", "RemoteError", "InProgress", "Timeout"),
    )
)


def version(backend: str) -> str:
    """Return the version of a backend's library, such as `2.27.3`."""
    return _open(backend).version_text


def _library(context: Context) -> _Opened:
    return _open(context.backend_name)


@cache
def header() -> Header:
    """Return the declarations of NCCL's functions."""
    return Header.load(Path(__file__).resolve().parent / "nccl_abi.h")


@cache
def _open(backend: str) -> _Opened:
    vendor = LIBRARIES[backend]
    search = find_library(vendor.variable, vendor.candidates)
    if search.handle is None:
        raise LibraryNotFoundError(
            f"{joined_reasons(search.attempts)}. To use collectives, {vendor.install}, or set "
            f"{vendor.variable} to its {vendor.candidates[0]}",
            backend=backend,
        )
    return _Opened(search.handle, search.path or search.attempts[-1].path, backend)


__all__ = ["LIBRARIES", "REFUSED", "NcclEngine", "VendorLibrary", "header", "version"]
