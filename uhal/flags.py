"""Flags of streams and events, with the values of the CUDA driver."""

from __future__ import annotations

from enum import IntFlag


class StreamFlags(IntFlag):
    """Order of a CUDA stream relative to `Stream.legacy()`.

    Streams are independent of each other and of `Stream.default()` with either flag.
    """

    DEFAULT = 0
    """This stream and CUDA's legacy default stream wait for each other."""
    NON_BLOCKING = 1
    """Independent of CUDA's legacy default stream, too."""


class EventFlags(IntFlag):
    """Whether waiting for an event spins, and whether it records the time."""

    DEFAULT = 0
    """Spins while waiting and records the time."""
    BLOCKING_SYNC = 1
    """Sleeps while waiting."""
    DISABLE_TIMING = 2
    """Records no time. The event is cheaper, and `elapsed_since` refuses it."""
    INTERPROCESS = 4
    """May be shared with another process; needs `DISABLE_TIMING`."""
