"""Progress of slow work: loads, long copies, first compilations.

Reports are off by default. A load's `progress` enables them for that load, `uhal.progress.show()`
or `UHAL_PROGRESS=1` for the whole process. Bars come from `tqdm` if it is installed; otherwise a
line names the current work.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeAlias

from uhal import _lane, environment, terminal

Progress: TypeAlias = bool | Callable[[int, int], object] | None
"""Reports of a load: True shows a line and a bar; a function gets the done and the total bytes;
None follows `show`; False shows nothing."""

_SLOW = 0.5
_shown = False


def show(shown: bool = True) -> None:
    """Switch reports of loads, long copies and compilations on stderr on or off."""
    global _shown
    _shown = shown
    _lane.set_copy_listener(_Copies() if shown else None)


def is_shown() -> bool:
    """Return whether reports are on."""
    return _shown


class Bar:
    """Progress of work of a known length; a context manager. Any thread may add to it."""

    def __init__(self, progress: Progress, total: int, words: str) -> None:
        """`words` names the work; `total` is in bytes."""
        self._lock = threading.Lock()
        self._done = 0
        self._total = total
        self._told = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True or (progress is None and _shown):
            terminal.write(sys.stderr, f"{words}\n")
            self._bar = _tqdm(total)

    def add(self, nbytes: int) -> None:
        """Count bytes."""
        with self._lock:
            self._done += nbytes
            if self._bar is not None:
                self._bar.update(nbytes)
            if self._told is not None:
                self._told(self._done, self._total)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def slow(words: str) -> Iterator[None]:
    """Announce work that takes more than half a second, and report its duration at the end."""
    if not _shown:
        yield
        return
    begun = time.monotonic()
    said = threading.Timer(_SLOW, lambda: terminal.write(sys.stderr, f"{words} …\n"))
    said.daemon = True
    with suppress(RuntimeError):  # no thread is left; the end is reported all the same
        said.start()
    try:
        yield
    finally:
        said.cancel()
        spent = time.monotonic() - begun
        if spent >= _SLOW:
            terminal.write(sys.stderr, f"{words}: {spent:.1f} s\n")


def in_units(nbytes: int) -> str:
    """Return a number of bytes to three digits, in B, kB, MB or GB."""
    for digits, unit in ((0, "B"), (3, "kB"), (6, "MB"), (9, "GB")):
        value = nbytes / 10**digits
        if value < 999.5 or unit == "GB":
            break
    decimals = 0 if unit == "B" else max(0, 3 - len(str(int(value))))
    return f"{value:.{decimals}f} {unit}"


class _Copies:
    """A bar for each thread that makes a long copy."""

    def __init__(self) -> None:
        self._now = threading.local()

    def __call__(self, done: int, total: int) -> None:
        bar = getattr(self._now, "bar", None)
        if bar is None:
            bar = self._now.bar = Bar(True, total, f"copying {in_units(total)}")
            self._now.before = 0
        bar.add(done - self._now.before)
        self._now.before = done
        if done == total:
            bar.__exit__(None, None, None)
            self._now.bar = None


def _tqdm(total: int) -> Any:
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        return None
    return tqdm.tqdm(total=total, unit="B", unit_scale=True)


if environment.read("UHAL_PROGRESS") == "1":
    show()

__all__ = ["Bar", "Progress", "is_shown", "show", "slow"]
