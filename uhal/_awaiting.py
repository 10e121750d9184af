"""`await stream` and `await event`: asyncio asks the device now and then, without a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_LONGEST_NAP = 0.002
"""Seconds by which an answer may come late."""


async def until(is_done: Callable[[], bool]) -> None:
    """Return once `is_done()`; other tasks run meanwhile.

    The naps grow with the wait: an answer comes at most an eighth later than the work ends.
    """
    begun = time.perf_counter()
    while not is_done():
        await asyncio.sleep(min((time.perf_counter() - begun) / 8, _LONGEST_NAP))
