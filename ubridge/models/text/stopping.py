"""`StopStrings`: ends a text in pieces before its first stop string."""

from __future__ import annotations

from collections.abc import Iterable

from ubridge.core.fits import require
from uhal.errors import ArgumentTypeError


class StopStrings:
    """Passes text on, and holds back an end that may be the beginning of a stop string."""

    def __init__(self, strings: str | Iterable[str]) -> None:
        """Take one string or several. Raises `ArgumentValueError` for an empty string."""
        if not isinstance(strings, Iterable):
            raise ArgumentTypeError(f"stop: expected texts, got {type(strings).__name__}")
        self.strings = (strings,) if isinstance(strings, str) else tuple(strings)
        for one in self.strings:
            if not isinstance(one, str):
                raise ArgumentTypeError(f"stop: expected texts, got {type(one).__name__}")
            require(one, "stop: expected texts that are not empty")
        self._held = ""
        self.found: str | None = None
        """The string that ended the text."""

    def push(self, text: str) -> str:
        """Return the text to pass on; an empty text after a stop string was found."""
        if self.found is not None:
            return ""
        whole = self._held + text
        offsets = [(whole.find(one), -len(one), one) for one in self.strings if one in whole]
        if offsets:
            offset, _, self.found = min(offsets)
            self._held = ""
            return whole[:offset]
        keep = max((_overlap(whole, one) for one in self.strings), default=0)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def finish(self) -> str:
        """Return the text held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """Return the number of characters at a text's end that begin a stop string."""
    most = min(len(text), len(string) - 1)
    return next((count for count in range(most, 0, -1) if text.endswith(string[:count])), 0)
