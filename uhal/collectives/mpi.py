"""The host backend's engine: MPI's functions as calls in a stream's order, without copies.

`mpi4py` starts MPI and makes its objects; the runtime's threads call the functions of the library
that it loaded. They never hold Python's lock. A thread may block in MPI, so that several streams
need MPI_THREAD_MULTIPLE.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import socket
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Listener
from typing import TYPE_CHECKING, Any

from uhal._lane import Context
from uhal.collectives.engine import ID_BYTES, Collective, Engine
from uhal.collectives.launchers import Place
from uhal.collectives.watch import Watch, call, listen
from uhal.errors import ArgumentValueError, DeviceError, LibraryNotFoundError, NotSupportedError

if TYPE_CHECKING:
    from uhal._lane import Stream

_TYPES = {
    "i8": "INT8_T",
    "u8": "UINT8_T",
    "i16": "INT16_T",
    "u16": "UINT16_T",
    "i32": "INT32_T",
    "u32": "UINT32_T",
    "i64": "INT64_T",
    "u64": "UINT64_T",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "f16": "UINT16_T",
    "bf16": "UINT16_T",
}
_HALVES = ("f16", "bf16")
_OPERATIONS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN"}
_PIECE_BYTES = 16 << 20
"""Larger messages are cut: MPI libraries lose their pipelining above."""
_MOST_COUNT = 2**31 - 1
_TAG = 7


def share(identifier: bytes | None, seconds: float) -> tuple[bytes, Watch | None]:
    """Return rank 0's identifier on every rank, by MPI's broadcast, and the ranks' lines."""
    world = _world()
    hosts = world.allgather(socket.gethostname())
    alone = len(set(hosts)) == 1
    told, listener = None, None
    if world.rank == 0 and identifier is not None and len(identifier) == ID_BYTES:
        key = secrets.token_bytes(32)
        listener = Listener(("127.0.0.1" if alone else "", 0), backlog=world.size, authkey=key)
        told = identifier, ("127.0.0.1" if alone else hosts[0], listener.address[1]), key
    told = world.bcast(told)
    if told is None:
        raise ArgumentValueError(f"share: expected {ID_BYTES} bytes on rank 0. Pass unique_id().")
    identifier, address, key = told
    if listener is not None:
        return listen(listener, world.size, identifier, seconds)
    return call(world.rank, world.size, address, key, seconds)


@cache
def _mpi() -> Any:
    """The module `mpi4py.MPI`; its import starts MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise LibraryNotFoundError(
            f"collectives of the host backend need mpi4py and an MPI library: {error}. "
            'Run pip install "uhal-py[mpi]".',
            backend="host",
        ) from None
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise NotSupportedError(
            "collectives: expected MPI with MPI_THREAD_MULTIPLE, because threads of the host "
            "backend call it, got less. Set mpi4py.rc.thread_level = 'multiple', or leave it.",
            backend="host",
        )
    return MPI


def _world() -> Any:
    """MPI's group of all processes. Refuses a launcher that did not start MPI."""
    world = _mpi().COMM_WORLD
    told = Place.of()
    if (told.rank, told.ranks) != (world.rank, world.size):
        raise DeviceError(
            f"collectives: expected MPI to have the {told.ranks} ranks of "
            f"{told.launcher or 'a program without a launcher'}, got rank {world.rank} of "
            f"{world.size}. Start the program with this MPI's mpirun.",
            backend="host",
        )
    return world


@cache
def _function(name: str) -> int:
    """The address of a function of the library that mpi4py loaded."""
    library = ctypes.CDLL(_mpi().__file__)
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def _handle(made: object) -> int:
    """MPI's handle: an int of 32 bits, or an address."""
    return int(_mpi()._handleof(made))


@cache
def _type(dtype: str) -> int:
    return _handle(getattr(_mpi(), _TYPES[dtype]))


@cache
def _operation(backend: Any, dtype: str, op: str) -> int:
    """MPI's operation; for f16 and bf16 the runtime's, which rounds each result."""
    if dtype not in _HALVES:
        return _handle(getattr(_mpi(), _OPERATIONS[op]))
    made = (ctypes.c_int if _mpi()._sizeof(_mpi().Op) == 4 else ctypes.c_void_p)()
    create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    address = backend.half_reduction(dtype, op)
    create(_function("MPI_Op_create"))(address, 1, ctypes.addressof(made))
    return made.value or 0


class MpiEngine(Engine):
    """One rank of an MPI communicator."""

    name = "MPI"
    dtypes = frozenset(_TYPES)
    operations = tuple(_OPERATIONS)
    root_broadcasts_result = True

    def __init__(self, context: Context, group: Any) -> None:
        """Own the MPI communicator."""
        group.Set_errhandler(_mpi().ERRORS_RETURN)
        self._group = group
        self._context = context
        self._backend = context.backend
        self._handle = _handle(group)
        self._status = ctypes.c_int()
        self._requests: list[ctypes.Array[Any]] = []
        self._captured = False

    @classmethod
    def unique_id(cls, context: Context) -> bytes:
        """Return random bytes: MPI's processes know each other already."""
        return secrets.token_bytes(ID_BYTES)

    @classmethod
    def join(
        cls,
        context: Context,
        ranks: int,
        identifier: bytes,
        rank: int,
        meanwhile: Callable[[], None],
    ) -> MpiEngine:
        """Return the engine of this rank. Waits for all processes of MPI."""
        world = _world()
        told = world.allgather((ranks, rank, identifier))
        wrong = [at for at, one in enumerate(told) if one != (world.size, at, told[0][2])]
        if wrong:
            raise ArgumentValueError(
                f"Communicator: expected on each rank its number in MPI, {world.size} ranks and "
                f"rank 0's identifier, got others on rank {', '.join(map(str, wrong))} of MPI. "
                "Pass Place.of().rank, Place.of().ranks and share(unique_id())."
            )
        return cls(context, world.Dup())

    def enqueue(self, call: Collective, stream: Stream) -> None:
        """Enqueue one call of MPI, or one call for each piece."""
        for part in _pieces(call):
            self._call(stream, *_ARGUMENTS[part.name](self, part))

    def enqueue_group(self, calls: list[tuple[Collective, Stream]]) -> None:
        """Start all sends and receives, then wait for all, on the last call's stream."""
        pieces = [part for call, _ in calls for part in _pieces(call)]
        size = _mpi()._sizeof(_mpi().Request)
        requests = (ctypes.c_char * (size * len(pieces)))()
        self._requests.append(requests)
        begin = ctypes.addressof(requests)
        stream = calls[-1][1]
        for _, other in calls:
            if other.id != stream.id and not self._context.capturing:
                stream.wait_event(other.record_event())
        for number, part in enumerate(pieces):
            name, *arguments = _ARGUMENTS[part.name](self, part)
            started = [*arguments[:6], begin + size * number]
            self._call(stream, name.replace("_S", "_Is").replace("_R", "_Ir"), *started)
        self._call(stream, "MPI_Waitall", len(pieces), begin, _ignored_statuses(len(pieces)))
        for _, other in calls:
            if other.id != stream.id and not self._context.capturing:
                other.wait_event(stream.record_event())

    def _call(self, stream: Stream, name: str, *arguments: int) -> None:
        self._captured |= self._context.capturing
        status = ctypes.addressof(self._status)
        self._backend.launch_call(stream.handle, _function(name), arguments, status)

    def failure(self) -> str:
        """Return MPI's text of the first failure."""
        code = self._status.value
        return f"MPI: {_mpi().Get_error_string(code)}" if code else ""

    def split(self, color: int, key: int) -> tuple[Engine, int, int] | None:
        """Split MPI's communicator."""
        made = self._group.Split(_mpi().UNDEFINED if color < 0 else color, key)
        if made == _mpi().COMM_NULL:
            return None
        return MpiEngine(self._context, made), made.size, made.rank

    def close(self) -> None:
        """Free the communicator, unless a plan may still call it."""
        if self._captured:
            _kept.append(self)
        else:
            self._group.Free()

    def abort(self, stuck: bool) -> None:
        """Let calls that have not begun do nothing. MPI cannot end a call that has begun."""
        self._status.value = self._status.value or _mpi().ERR_OTHER
        _kept.append(self)
        if stuck:
            atexit.unregister(_exit_at_once)
            atexit.register(_exit_at_once)


_kept: list[MpiEngine] = []
"""Engines whose memory enqueued calls or plans may still use."""
atexit.register(_kept.clear)


def _exit_at_once() -> None:
    """End the process without MPI's own end, which would wait for the missing ranks."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1)


def _pieces(call: Collective) -> list[Collective]:
    """Cut a call whose elements are independent and contiguous on every rank."""
    most = _PIECE_BYTES // call.itemsize
    if call.name in ("all_gather", "reduce_scatter", "all_to_all"):
        if call.count > _MOST_COUNT:
            raise NotSupportedError(
                f"{call.name}: expected at most {_MOST_COUNT} elements a rank, which is MPI's "
                f"limit, got {call.count}. Call it for parts of the memory.",
                backend="host",
            )
        return [call]
    if call.count <= most:
        return [call]
    width = call.itemsize
    return [
        Collective(
            call.name,
            call.send + begin * width if call.send else 0,
            call.recv + begin * width if call.recv else 0,
            min(most, call.count - begin),
            call.dtype,
            call.op,
            call.peer,
        )
        for begin in range(0, call.count, most)
    ]


def _source(call: Collective, own: int) -> int:
    """The operand's address, or MPI's sign for an operand in the result's memory."""
    return int(_mpi().IN_PLACE) if call.send == own else call.send


def _all_reduce(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    op = _operation(engine._backend, call.dtype, call.op)
    source = _source(call, call.recv)
    return "MPI_Allreduce", source, call.recv, call.count, _type(call.dtype), op, engine._handle


def _reduce(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    op = _operation(engine._backend, call.dtype, call.op)
    is_root = engine._group.rank == call.peer
    source = _source(call, call.recv) if is_root else call.send
    kind = _type(call.dtype)
    target = call.recv if is_root else 0
    return "MPI_Reduce", source, target, call.count, kind, op, call.peer, engine._handle


def _broadcast(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    return "MPI_Bcast", call.recv, call.count, _type(call.dtype), call.peer, engine._handle


def _all_gather(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    kind = _type(call.dtype)
    own = call.recv + engine._group.rank * call.count * call.itemsize
    part = (call.count, kind)
    return "MPI_Allgather", _source(call, own), *part, call.recv, *part, engine._handle


def _reduce_scatter(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    op = _operation(engine._backend, call.dtype, call.op)
    kind = _type(call.dtype)
    name = "MPI_Reduce_scatter_block"
    return name, call.send, call.recv, call.count, kind, op, engine._handle


def _all_to_all(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    part = (call.count, _type(call.dtype))
    return "MPI_Alltoall", call.send, *part, call.recv, *part, engine._handle


def _send(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    kind = _type(call.dtype)
    return "MPI_Send", call.send, call.count, kind, call.peer, _TAG, engine._handle


def _recv(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    kind = _type(call.dtype)
    ignored = _ignored_statuses(1)
    return "MPI_Recv", call.recv, call.count, kind, call.peer, _TAG, engine._handle, ignored


def _barrier(engine: MpiEngine, call: Collective) -> tuple[Any, ...]:
    return "MPI_Barrier", engine._handle


_ARGUMENTS = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send": _send,
    "recv": _recv,
    "barrier": _barrier,
}
"""Each collective's function of MPI, with its arguments."""


@cache
def _ignored_statuses(count: int) -> int:
    """The address of memory for statuses that nobody reads."""
    statuses = (ctypes.c_char * (count * max(64, _mpi()._sizeof(_mpi().Status))))()
    _ignored.append(statuses)
    return ctypes.addressof(statuses)


_ignored: list[ctypes.Array[Any]] = []

__all__ = ["MpiEngine", "share"]
