"""`annotate`: name a part of the program, for profiles and for vendors' tools."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from uhal import _lane
from uhal.profiler import vendor_ranges
from uhal.profiler.vendor_ranges import RangeLibrary

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Entered = tuple[_lane.OpenRange | None, tuple[RangeLibrary, ...]]
_entered: ContextVar[tuple[_Entered, ...]] = ContextVar("uhal ranges", default=())
"""Open ranges of the calling thread or asyncio task, innermost last."""


class annotate(contextlib.ContextDecorator):
    """Name the work of a block: `with uhal.annotate("step 3"):`.

    Also works as a decorator, of coroutine functions too.

    A profile groups host and device time by range; ranges may be nested. NVTX and roctx get the
    range too if such a library can be opened. Nsight or rocprof then show the range, with or
    without a profile. With a `stream`, the work that other libraries enqueue on the stream is timed
    on the device as one piece, of `nbytes` bytes if given.

    A range belongs to the thread or asyncio task that enters it. Vendors' libraries know threads
    only. A range object can be entered again, also while it is open. Costs about a microsecond
    while nothing listens.
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

    def __call__(self, function: _Function) -> _Function:
        """Return the function, with its whole body inside a range."""
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def inside(*arguments: Any, **named: Any) -> Any:
            with self:
                return await function(*arguments, **named)

        return inside  # type: ignore[return-value]

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
        _entered.set((*_entered.get(), (opened, libraries)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        *outer, (opened, libraries) = _entered.get()
        _entered.set(tuple(outer))
        try:
            if opened is not None:
                opened.close()
        finally:
            for library in reversed(libraries):
                library.pop()

    def __repr__(self) -> str:
        return f"uhal.annotate({self.name!r})"


__all__ = ["annotate"]
