"""`annotate`: name a part of the program, for profiles and for vendors' tools."""

from __future__ import annotations

import contextlib
from types import TracebackType

from uhal import _lane
from uhal.profiler import vendor_ranges
from uhal.profiler.vendor_ranges import RangeLibrary


class annotate(contextlib.ContextDecorator):
    """Name the work of a block: `with uhal.annotate("step 3"):`.

    Also works as a decorator.

    A profile groups host and device time by range; ranges may be nested. NVTX and roctx get the
    range too if such a library can be opened. Nsight or rocprof then show it, with or without a
    profile. With a `stream`, work that other libraries put into it is timed on its device as one
    piece, of `nbytes` bytes if given.

    A range belongs to the thread that enters it. One object can be entered again, also within
    itself. Costs about a microsecond while nothing listens.
    """

    def __init__(
        self, name: str, *, stream: _lane.StreamLike | None = None, nbytes: int = 0
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name: expected a str, got {type(name).__name__}")
        self.name = name
        """Name of the range."""
        self._stream = stream
        self._nbytes = nbytes
        self._open: list[tuple[_lane.OpenRange | None, tuple[RangeLibrary, ...]]] = []

    def _recreate_cm(self) -> annotate:
        # Calls of a decorated function may overlap on several threads.
        return annotate(self.name, stream=self._stream, nbytes=self._nbytes)

    def __enter__(self) -> annotate:
        libraries = vendor_ranges.listening()
        for library in libraries:
            library.push(self.name)
        opened = None
        try:
            if _lane.profile_session() is not None:
                opened = _lane.OpenRange(self.name, self._stream, self._nbytes)
        except BaseException:
            for library in reversed(libraries):
                library.pop()
            raise
        self._open.append((opened, libraries))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened, libraries = self._open.pop()
        try:
            if opened is not None:
                opened.close()
        finally:
            for library in reversed(libraries):
                library.pop()

    def __repr__(self) -> str:
        return f"uhal.annotate({self.name!r})"


__all__ = ["annotate"]
