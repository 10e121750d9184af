"""Counts of live objects, for finding leaks."""

from __future__ import annotations

from typing import TypedDict

from uhal import _lane, registry


class Diagnostics(TypedDict):
    """Result of `diagnostics()`."""

    live: dict[str, int]
    """Open objects of the interface by kind: contexts, streams, events, modules, functions,
    buffers, host_buffers, plans."""
    native: dict[str, dict[str, int]]
    """For each opened backend, native objects by kind where its driver counts them."""
    pools: dict[str, dict[str, int]]
    """Memory pool statistics of each open device, under `backend:ordinal`."""


def diagnostics() -> Diagnostics:
    """Return counts of live objects in this process.

    Opens nothing; any thread may call it.
    """
    return {
        "live": _lane.live_counts(),
        "native": {
            name: dict(backend.live_counts())
            for name, backend in registry.opened_backends().items()
        },
        "pools": {
            f"{context.backend_name}:{context.ordinal}": context.pool_statistics()
            for context in registry.opened_contexts()
        },
    }
