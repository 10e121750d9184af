"""`await stream` and `await event`: asyncio polls the device, without a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LONGEST_NAP = 0.002
"""Longest sleep between two queries, in seconds."""


async def until(is_done: Callable[[], bool]) -> None:
    """Return once `is_done()`; other tasks run meanwhile.

    The naps grow with the wait: the delay is at most an eighth of the waiting time.
    """
    begun = time.perf_counter()
    while not is_done():
        await asyncio.sleep(min((time.perf_counter() - begun) / 8, _LONGEST_NAP))
