"""A dictionary that drops the less recently used half of its entries when it is full."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """At most `most` entries, in two generations. Any thread may use it.

    An entry that is found in the older generation moves to the latest. When the latest holds half
    of `most`, it becomes the older generation, and the entries of the previous older generation are
    dropped. So most look-ups need one dictionary, and no use is recorded.
    """

    __slots__ = ("_half", "_older", "latest")

    def __init__(self, most: int) -> None:
        self._half = max(most // 2, 1)
        self._older: dict[Key, Value] = {}
        self.latest: dict[Key, Value] = {}
        """The entries used since the generations last changed; read-only."""

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, which counts as a use; `None` for an unknown key."""
        found = self.latest.get(key)
        if found is None:
            found = self._older.get(key)
            if found is not None:
                self.keep(key, found)
        return found

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value; this counts as a use."""
        if len(self.latest) >= self._half:
            self._older = self.latest
            self.latest = {}
        self.latest[key] = value

    def __len__(self) -> int:
        return len(self.latest.keys() | self._older.keys())
