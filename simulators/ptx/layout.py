"""Structures shared with the run time in C (runtime/ptx.h), by field and byte offset.

The test suite compares them with the C compiler's layout of the header.
"""

from __future__ import annotations

from typing import NamedTuple

ABI = 5
"""Changes whenever the structures or their meaning do."""

BLOCK = {
    "parameters": 0,
    "shared": 8,
    "window_base": 16,
    "window_span": 24,
    "window_delta": 32,
    "variables": 40,
    "block": 48,
    "grid": 60,
    "threads": 72,
    "dynamic_shared_bytes": 84,
    "total_shared_bytes": 88,
    "grid_id": 96,
    "intervals": 104,
    "allocate": 112,
    "trap": 120,
    "print": 128,
    "check": 136,
    "watch": 144,
    "heap_allocate": 152,
    "heap_free": 160,
    "assert_failed": 168,
    "trace": 176,
    "no_function": 184,
    "workspace": 192,
    "is_local": 200,
}
BLOCK_BYTES = 208
COUNTING = {"count": 208, "counts": 216}
"""Fields behind the block's record, in kernels that count."""
THREAD = {
    "request": 0,
    "line": 4,
    "operation": 8,
    "fuel": 12,
    "linear": 16,
    "handle": 24,
    "words": 32,
}


class _Interval(NamedTuple):
    bytes: int
    offsets: dict[str, int]


INTERVAL = _Interval(24, {"start": 0, "count": 8, "delta": 16})
CHECKS = {"off": 0, "on": 1, "strict": 2, "trace": 3, "count": 4}
ACCESSES = {"load": 0, "store": 1, "atomic": 2, "branch": 3}
SPACES = {"generic": 0, "global": 1, "shared": 2, "local": 3, "const": 4}

REQUESTS = {
    "exit": 0,
    "pause": 1,
    "barrier": 2,
    "warp_barrier": 3,
    "shuffle": 4,
    "vote": 5,
    "match": 6,
    "reduce": 7,
    "active_mask": 8,
    "elect": 9,
    "matrix_load": 10,
    "matrix_multiply": 11,
    "matrix_store": 12,
    "matrix_move": 13,
    "fragment": 14,
    "wmma": 15,
}
"""Reasons for a thread's return to the run time."""

MAX_THREADS = 1024
"""Limit of a block, on every device (CUDA Programming Guide, compute capabilities)."""
FUEL = 1 << 12
"""Number of turns of a waiting loop before other threads run."""
