"""Tracebacks without frames of uhal and ubridge, for `UHAL_TRACEBACK=short`.

They end in the program's own line. Errors of other kinds keep every frame, because they may be
faults of this package.
"""

from __future__ import annotations

import sys
from types import TracebackType

from uhal import environment
from uhal._refusal import is_frame_of_ours
from uhal.errors import DeviceError


def install_from_environment() -> None:
    """Shorten the tracebacks of uncaught errors if the variable is `short`.

    Raises `ArgumentValueError` for another value than `full` and `short`.
    """
    if environment.read("UHAL_TRACEBACK") == "full":
        return
    previous = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        shorten(error)
        previous(kind, error, error.__traceback__)

    sys.excepthook = hook


def shorten(error: BaseException) -> None:
    """Remove our frames from the traceback of an error, of its cause and its context."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, (DeviceError, IndexError)):
            one.__traceback__ = _without_ours(one.__traceback__) or one.__traceback__
        one = one.__cause__ or one.__context__


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without our frames; `None` if all frames are ours."""
    kept = []
    while traceback is not None:
        if not is_frame_of_ours(traceback.tb_frame):
            kept.append(traceback)
        traceback = traceback.tb_next
    following: TracebackType | None = None
    for one in reversed(kept):
        following = TracebackType(following, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return following
