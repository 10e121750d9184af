"""Watches a counting driver's calls for memory that is reused before its last work is done.

Every stream has a count of its operations and a vector clock. The clock holds, for each stream, the
last operation that is known to come before. An operation on memory must come after all earlier
operations of other buffers on that memory. Work whose end the host saw comes before everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.counting_driver import CountingDriver

Clock = dict[int, int]


class RaceDetector:
    """Set `driver.on_call` to `observe`; report launches with `uses` and ends with `finish`."""

    def __init__(self, driver: CountingDriver) -> None:
        self._driver = driver
        self._counts: Clock = defaultdict(int)
        self._clocks: dict[int, Clock] = defaultdict(dict)
        self._finished: Clock = defaultdict(int)
        self._events: dict[int, tuple[int, Clock]] = {}
        self._uses: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self.races: list[str] = []

    def observe(self, slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == "event_record":
            event, stream = arguments
            clock = {**self._clocks[stream], stream: self._advance(stream)}
            self._events[event] = (stream, clock)
        elif slot == "stream_wait_event":
            stream, event, _ = arguments
            self._learn(stream, self._events[event][1])
        elif slot == "stream_synchronize":
            self.finish(arguments[0])
        elif slot == "event_synchronize" or (
            slot == "event_query" and self._events[arguments[0]][0] not in self._driver.busy
        ):
            self._finish(self._events[arguments[0]][1])

    def finish(self, stream: int) -> None:
        """Note that the host saw the end of `stream`, and of all work that `stream` waited for."""
        self._finish({**self._clocks[stream], stream: self._counts[stream]})

    def _finish(self, clock: Clock) -> None:
        for stream, count in clock.items():
            self._finished[stream] = max(self._finished[stream], count)

    def uses(self, stream: int, owner: int, addresses: Iterable[int]) -> None:
        """Note the operation just put into `stream`, which uses `addresses` on behalf of
        `owner`."""
        operation = self._advance(stream)
        for address in addresses:
            for other, before, count in self._uses[address]:
                if other != owner and not self._comes_before(before, count, stream):
                    self.races.append(f"0x{address:x}: stream {stream} beside {before}@{count}")
            self._uses[address].append((owner, stream, operation))

    def _advance(self, stream: int) -> int:
        self._counts[stream] += 1
        if stream not in self._driver.busy:
            self.finish(stream)
        return self._counts[stream]

    def _learn(self, stream: int, clock: Clock) -> None:
        own = self._clocks[stream]
        for other, count in clock.items():
            own[other] = max(own.get(other, 0), count)

    def _comes_before(self, before: int, count: int, stream: int) -> bool:
        return (
            before == stream
            or self._finished[before] >= count
            or self._clocks[stream].get(before, 0) >= count
        )
