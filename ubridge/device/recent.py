"""A dictionary that keeps what was used lately: the least recently used half goes at a time."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """At most `most` entries, in two generations. Any thread may use it.

    What is found in the older generation moves to the latest. When that one holds half of `most`,
    it becomes the older, and what was in the older and was not asked for meanwhile is gone. So a
    look-up among the latest is one look into a dictionary, with no account of each use.
    """

    __slots__ = ("_half", "_older", "latest")

    def __init__(self, most: int) -> None:
        self._half = max(most // 2, 1)
        self._older: dict[Key, Value] = {}
        self.latest: dict[Key, Value] = {}
        """What was used since the generations last changed. For looking into only."""

    def get(self, key: Key) -> Value | None:
        """Return what is kept of a key, which counts as a use; `None` for nothing."""
        found = self.latest.get(key)
        if found is None:
            found = self._older.get(key)
            if found is not None:
                self.keep(key, found)
        return found

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value, as used now."""
        if len(self.latest) >= self._half:
            self._older = self.latest
            self.latest = {}
        self.latest[key] = value

    def __len__(self) -> int:
        return len(self.latest.keys() | self._older.keys())


__all__ = ["Recent"]
