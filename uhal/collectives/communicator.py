"""One rank of a group: checks of each call, then a call of the device's engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from uhal._lane import Context, Stream, address_for
from uhal._refusal import describe
from uhal.collectives.engine import ID_BYTES, Collective, Engine
from uhal.collectives.joining import current, engine_of, watch_of
from uhal.collectives.operands import Elements, Operands, in_range, whole
from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NotSupportedError,
)

if TYPE_CHECKING:
    from uhal._lane import StreamLike


_Pending = list[tuple[Collective, Stream, Engine]]
_group: ContextVar[_Pending | None] = ContextVar("uhal collectives group", default=None)
_POLL_SECONDS = 0.1


@contextmanager
def group() -> Iterator[None]:
    """Submit the calls inside together: sends and receives need no order.

    Takes `send` and `recv` only. All calls come from one thread. After an exception nothing is
    submitted.
    """
    if _group.get() is not None:
        raise ArgumentValueError("group: expected no group inside a group. End the outer first.")
    pending: _Pending = []
    token = _group.set(pending)
    try:
        yield
    finally:
        _group.reset(token)
    engines = {id(engine): engine for _, _, engine in pending}
    for engine in engines.values():
        engine.enqueue_group([(call, queue) for call, queue, owner in pending if owner is engine])


class Communicator:
    """One rank of a group, on the current device. A context manager.

    Every rank makes the same calls in the same order, from one thread at a time. A call is work of
    its stream, by default the device's default stream, and a capture records it. Calls of one
    communicator on several streams run in the order of the calls.

    Operands are buffers or contiguous tensors of the communicator's device. Wrong ones raise the
    errors of a launch, before anything is enqueued.
    """

    def __init__(self, ranks: int, identifier: bytes, rank: int) -> None:
        """Join the group as `rank` of `ranks`. Waits until every rank has joined.

        Raises `NotSupportedError` for a backend without collectives.
        """
        ranks = whole("Communicator, ranks", ranks, 1)
        rank = in_range("Communicator, rank", rank, ranks)
        if not isinstance(identifier, bytes) or len(identifier) != ID_BYTES:
            raise ArgumentValueError(
                f"Communicator, identifier: expected the {ID_BYTES} bytes of unique_id(), got "
                f"{describe(identifier)}. Send rank 0's bytes to every rank."
            )
        context = current()
        watch = self._watch = watch_of(identifier)

        def require_ranks() -> None:
            gone = "" if watch is None else watch.gone()
            if gone:
                raise DeviceError(
                    f"Communicator: expected {ranks} ranks, but {gone}. Start all again.",
                    backend=context.backend_name,
                )

        join = engine_of(context).join
        self._join(context, join(context, ranks, identifier, rank, require_ranks), ranks, rank)

    def _join(self, context: Context, engine: Engine, ranks: int, rank: int) -> None:
        self.ranks = ranks
        """Number of ranks of the group."""
        self.rank = rank
        """This rank, counted from 0."""
        self.calls = 0
        """Number of collectives that were enqueued."""
        self._context = context
        self._engine: Engine | None = engine
        self._last: Stream | None = None

    # -- collectives -------------------------------------------------------------------------------

    def all_reduce(
        self,
        send: Elements,
        recv: Elements | None = None,
        op: str = "sum",
        stream: StreamLike | None = None,
    ) -> None:
        """Combine the ranks' `send` element by element into every `recv`.

        `op` is sum, prod, max or min, on GPUs also avg. Without `recv` the result replaces `send`.
        """
        self._reduction("all_reduce", send, recv, op, stream)

    def reduce(
        self,
        send: Elements,
        recv: Elements | None = None,
        root: int = 0,
        op: str = "sum",
        stream: StreamLike | None = None,
    ) -> None:
        """Combine the ranks' `send` into `recv` of rank `root`.

        Other ranks' `recv` is not written.
        """
        self._reduction(
            "reduce", send, recv, op, stream, in_range("reduce, root", root, self.ranks)
        )

    def broadcast(
        self,
        send: Elements,
        recv: Elements | None = None,
        root: int = 0,
        stream: StreamLike | None = None,
    ) -> None:
        """Copy `send` of rank `root` into every `recv`, by default `send` itself."""
        checked = self._checked("broadcast", stream, send, send if recv is None else recv)
        checked.require_size(1, checked.size(0))
        checked.require_apart(in_place=0)
        root = in_range("broadcast, root", root, self.ranks)
        if checked.engine.root_broadcasts_result and self.rank == root:
            checked.copy_operand()
        self._enqueue(checked, checked.size(0), peer=root)

    def all_gather(self, send: Elements, recv: Elements, stream: StreamLike | None = None) -> None:
        """Put the ranks' `send` one after the other into every `recv`.

        `send` may be the rank's own part of `recv`.
        """
        checked = self._checked("all_gather", stream, send, recv)
        part = checked.size(0)
        checked.require_size(1, part * self.ranks)
        checked.require_apart(in_place=-self.rank * part)
        self._enqueue(checked, part)

    def reduce_scatter(
        self, send: Elements, recv: Elements, op: str = "sum", stream: StreamLike | None = None
    ) -> None:
        """Combine the ranks' `send`; rank r gets part r of the result in `recv`.

        `recv` may be the rank's own part of `send`.
        """
        checked = self._checked("reduce_scatter", stream, send, recv)
        part = checked.size(1)
        checked.require_size(0, part * self.ranks)
        checked.require_apart(in_place=self.rank * part)
        self._enqueue(checked, part, op=self._operation("reduce_scatter", op))

    def all_to_all(self, send: Elements, recv: Elements, stream: StreamLike | None = None) -> None:
        """Send part r of `send` to rank r, which stores it as part `rank` of its `recv`."""
        checked = self._checked("all_to_all", stream, send, recv)
        size = checked.size(0)
        if size % self.ranks:
            raise ArgumentValueError(
                f"all_to_all, send: expected a multiple of {self.ranks} elements, got {size}"
            )
        checked.require_size(1, size)
        checked.require_apart()
        self._enqueue(checked, size // self.ranks)

    def send(self, buffer: Elements, peer: int, stream: StreamLike | None = None) -> None:
        """Send elements to another rank, which receives as many of the same dtype.

        Sends and receives that wait for each other stand in one `group()`.
        """
        checked = self._checked("send", stream, buffer)
        self._enqueue(checked, checked.size(0), peer=self._peer("send", peer))

    def recv(self, buffer: Elements, peer: int, stream: StreamLike | None = None) -> None:
        """Receive elements from another rank."""
        checked = self._checked("recv", stream, None, buffer)
        self._enqueue(checked, checked.size(1), peer=self._peer("recv", peer))

    def barrier(self, stream: StreamLike | None = None) -> None:
        """Let the stream's later work wait until every rank's stream arrives here."""
        self._enqueue(self._checked("barrier", stream), 0)

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Return a communicator of the ranks that give the same color, ordered by `key`.

        Waits for every rank. A negative color joins no group and returns `None`.
        """
        made = self._require("split").split(whole("split, color", color), whole("split, key", key))
        if made is None:
            return None
        engine, ranks, rank = made
        other = Communicator.__new__(Communicator)
        other._watch = None
        other._join(self._context, engine, ranks, rank)
        return other

    # -- ends --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `DeviceError` if an earlier collective failed, or a rank has ended."""
        failure = self._open("check").failure()
        if not failure and self._watch is not None:
            failure = self._watch.gone()
        self._raise(failure)

    def wait(self, seconds: float, stream: Stream | None = None) -> None:
        """Wait for the stream's work, at most `seconds`.

        Raises `TimeoutError`, which names the missing ranks, and the errors of `check`: they name a
        rank within a second after its process ends. After `unique_id()` without `share`, ranks have
        no names.
        """
        engine = self._open("wait")
        with self._context.enter():
            queue = Stream.default() if stream is None else stream
        if not queue.query():
            reached = threading.Event()
            queue.add_callback(reached.set)
            end = time.monotonic() + seconds
            while not reached.wait(min(_POLL_SECONDS, max(0.0, end - time.monotonic()))):
                if queue.query():
                    break
                self.check()
                if time.monotonic() > end:
                    self._time_out(seconds)
        self._raise(engine.failure())

    def _time_out(self, seconds: float) -> NoReturn:
        missing = "" if self._watch is None else self._watch.missing()
        raise TimeoutError(
            f"Communicator.wait, rank {self.rank} of {self.ranks}: expected the end of "
            f"collective {self.calls} in {seconds:g} s; "
            f"{missing or 'other ranks did not come'}. Call abort(), then make another "
            "communicator."
        )

    def _raise(self, failure: str) -> None:
        if failure:
            raise DeviceError(
                f"Communicator, rank {self.rank} of {self.ranks}: {failure}. The communicator is "
                "done: call abort(), and make another one.",
                backend=self._context.backend_name,
            )

    def abort(self) -> None:
        """Leave the group without waiting for the others. Idempotent.

        NCCL ends its calls; MPI cannot. A stream whose MPI call waits for a missing rank waits
        forever, and other streams go on. The process then exits with status 1, because MPI's own
        shutdown would wait, too.
        """
        engine, self._engine = self._engine, None
        if engine is None:
            return
        last = self._last
        busy = last is not None and not last.closed and not last.query()
        stuck = busy or (self._watch is not None and bool(self._watch.gone()))
        engine.abort(stuck)
        if self._watch is not None:
            self._watch.close(politely=False)

    def close(self) -> None:
        """Leave the group after the enqueued calls. Every rank calls this. Idempotent."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if self._last is not None and not self._last.closed:
            self._last.synchronize()
        engine.close()
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception the other ranks may never come to the end.
        if kind is None:
            self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        state = "closed" if self._engine is None else self._engine.name
        return f"<Communicator, rank {self.rank} of {self.ranks}, {state}>"

    # -- helpers -----------------------------------------------------------------------------------

    def _open(self, what: str) -> Engine:
        if self._engine is None:
            raise InvalidHandleError(f"{what}: the communicator is closed. Make another one.")
        return self._engine

    def _checked(
        self, name: str, stream: StreamLike | None, *operands: Elements | None
    ) -> Operands:
        return Operands(self._open(name), self._context, name, stream, *operands)

    def _require(self, what: str, dtype: str = "") -> Engine:
        engine = self._open(what)
        reason = engine.lacks(what, dtype)
        if reason:
            raise NotSupportedError(f"{what}: {reason}", backend=self._context.backend_name)
        return engine

    def _reduction(
        self,
        name: str,
        send: Elements,
        recv: Elements | None,
        op: str,
        stream: StreamLike | None,
        root: int = 0,
    ) -> None:
        checked = self._checked(name, stream, send, send if recv is None else recv)
        checked.require_size(1, checked.size(0))
        checked.require_apart(in_place=0)
        self._enqueue(checked, checked.size(0), op=self._operation(name, op), peer=root)

    def _operation(self, what: str, op: str) -> str:
        engine = self._open(what)
        if op not in ("sum", "prod", "max", "min", "avg"):
            raise ArgumentValueError(
                f"{what}, op: expected one of {', '.join(engine.operations)}, got {describe(op)}"
            )
        if op not in engine.operations:
            raise NotSupportedError(
                f"{what}, op: {engine.name} has no {op}; it has {', '.join(engine.operations)}",
                backend=self._context.backend_name,
            )
        return op

    def _peer(self, what: str, peer: int) -> int:
        peer = in_range(f"{what}, peer", peer, self.ranks)
        if peer == self.rank and _group.get() is None:
            raise ArgumentValueError(
                f"{what}, peer: expected another rank, got this rank {peer}. Copy the buffer, or "
                "use group()."
            )
        return peer

    def _enqueue(self, checked: Operands, count: int, op: str = "", peer: int = 0) -> None:
        engine, queue = checked.engine, checked.stream
        self._require(checked.name, checked.dtype)
        pending = _group.get()
        if pending is not None and checked.name not in ("send", "recv"):
            raise ArgumentValueError(
                f"{checked.name}: expected only send and recv inside group(). Call it outside."
            )
        self._order(queue)
        send, recv = (
            0 if buffer is None else address_for(buffer, queue) for buffer in checked.buffers
        )
        call = Collective(checked.name, send, recv, count, checked.dtype, op, peer)
        if pending is None:
            with self._context.enter():
                engine.enqueue(call, queue)
        else:
            pending.append((call, queue, engine))
        for buffer in checked.buffers:
            if buffer is not None:
                buffer.record_stream(queue)
        self.calls += 1
        if self._watch is not None:
            self._watch.calls = self.calls

    def _order(self, queue: Stream) -> None:
        """Let the call run behind the last call, which may be on another stream."""
        last, self._last = self._last, queue
        if last is None or last.id == queue.id or last.closed or self._context.capturing:
            return
        queue.wait_event(last.record_event())


__all__ = ["Communicator", "group"]
