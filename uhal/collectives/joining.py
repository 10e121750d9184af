"""The way into a group: rank 0's identifier, on every rank, and the device's engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uhal._lane import Context, current_context
from uhal._refusal import describe
from uhal.collectives.engine import Engine
from uhal.collectives.launchers import Place
from uhal.errors import ArgumentValueError, NoDeviceError, NotSupportedError

if TYPE_CHECKING:
    from uhal.collectives.watch import Watch

_watches: dict[bytes, Watch] = {}
"""Connections between ranks by the group's identifier, until a communicator takes them."""


def unique_id() -> bytes:
    """Return the identifier of a new group: 128 bytes for each rank's `Communicator`."""
    context = current()
    return engine_of(context).unique_id(context)


def share(
    identifier: bytes | None = None,
    address: str | None = None,
    key: bytes | None = None,
    seconds: float = 60.0,
) -> bytes:
    """Return rank 0's identifier on every rank. Waits for all of them.

    MPI carries the identifier, or connections to `address`, where rank 0 listens, for example
    `node1:29600`. Both ends of a connection prove that they have the same `key`, a secret of the
    job. The ranks stay connected, so that `Communicator.wait` can name a missing rank.

    Raises `TimeoutError` for ranks that do not connect within `seconds`.
    """
    watch: Watch | None
    if address is None:
        from uhal.collectives import mpi

        identifier, watch = mpi.share(identifier, seconds)
    else:
        identifier, watch = _share_at(identifier, address, key, seconds)
    if watch is not None:
        _watches[identifier] = watch
    return identifier


def _share_at(
    identifier: bytes | None, address: str, key: bytes | None, seconds: float
) -> tuple[bytes, Watch | None]:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ArgumentValueError(
            f"share, address: expected host:port, as in node1:29600, got {describe(address)}"
        )
    if not isinstance(key, bytes) or len(key) < 16:
        raise ArgumentValueError(
            "share, key: expected 16 bytes or more, a secret that all ranks have. Make one with "
            "secrets.token_bytes(32)."
        )
    # Only a group that is joined this way pays for these imports.
    from multiprocessing.connection import Listener

    from uhal.collectives.watch import call, listen

    own = Place.of()
    at = (host, int(port))
    if own.rank:
        return call(own.rank, own.ranks, at, key, seconds)
    return listen(Listener(at, backlog=own.ranks, authkey=key), own.ranks, identifier, seconds)


def watch_of(identifier: bytes) -> Watch | None:
    """Hand over the connections of a group's ranks, if `share` made them."""
    return _watches.pop(identifier, None)


def current() -> Context:
    """Return the current device's context; `NoDeviceError` without one."""
    context = current_context()
    if context is None:
        raise NoDeviceError(
            "collectives: expected a current device, got none. Use `with Device(…):`."
        )
    context.check_usable()
    return context


def engine_of(context: Context) -> type[Engine]:
    """Return the engine of a device's backend; `NotSupportedError` without collectives."""
    if context.backend.takes_calls:
        from uhal.collectives.mpi import MpiEngine

        return MpiEngine
    from uhal.collectives.nccl import LIBRARIES, REFUSED, NcclEngine

    if context.backend_name in LIBRARIES:
        return NcclEngine
    raise NotSupportedError(
        f"Communicator: expected a device of host, {', '.join(LIBRARIES)}, which have collectives, "
        f"got {context.backend_name}:{context.ordinal}. "
        f"{REFUSED.get(context.backend_name, 'Use another backend')}.",
        backend=context.backend_name,
    )


__all__ = ["current", "engine_of", "share", "unique_id", "watch_of"]
