"""Merges symbols to pieces, best pair first, for byte pair encoding and SentencePiece.

Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units" (2016).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable


def merged(symbols: Iterable[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Merge neighbours, lowest rank first, then from the left.

    `rank` is None for symbols that do not merge. Takes n·log(n) steps for n symbols.
    """
    text = list(symbols)
    count = len(text)
    before, after = list(range(-1, count - 1)), list(range(1, count + 1))
    waiting: list[tuple[float, int, str, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < count:
            found = rank(text[left], text[right])
            if found is not None:
                heapq.heappush(waiting, (found, left, text[left], text[right]))

    for index in range(count - 1):
        offer(index, index + 1)
    while waiting:
        _, left, first, second = heapq.heappop(waiting)
        right = after[left]
        # Another merge has already taken one of the two symbols.
        if right >= count or text[left] != first or text[right] != second:
            continue
        text[left], text[right] = first + second, ""
        after[left] = after[right]
        if after[right] < count:
            before[after[right]] = left
        offer(before[left], left)
        offer(left, after[left])
    return [one for one in text if one]
