"""Length of the equal beginning of two sequences, such as a prompt and the tokens of a cache."""

from __future__ import annotations

from collections.abc import Sequence


def shared_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of equal leading elements."""
    most = min(len(one), len(other))
    return next((index for index in range(most) if one[index] != other[index]), most)
