"""Begin and end of a profile, and its results."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from uhal import _lane, environment
from uhal.errors import ArgumentValueError
from uhal.images.regular_file import path_of
from uhal.profiler.results import Results
from uhal.terminal import printable

Graphs = Literal["nodes", "whole"]


def profile(
    *, graphs: Graphs = "nodes", limit: int = 1_000_000, measure_copy: bool = True
) -> Profile:
    """Return a profile of the program's work on devices.

    Use it as `with uhal.profile() as p:`.

    Records every launch, copy, fill, replay, wait and allocation of every thread on all devices,
    including devices opened later. Events around each operation give its times on the device. The
    events are read in batches, and at the end of the profile, which waits for the devices.
    `print(p)` shows a table.

    `graphs="nodes"` replays a plan operation by operation, in the order of its capture, so that
    each kernel in it has its own times. Streams that joined the capture then do not overlap, and
    each operation costs its call and two events. `graphs="whole"` replays the whole plan, with one
    time for all operations. A plan with work unknown to `uhal` is always replayed whole.

    At most `limit` records are kept, about 160 bytes each; others are only counted. At its end the
    profile measures the rate of a copy on each device, once a process, unless `measure_copy` is
    False.

    A broken device is left out of the profile and named among the results. Faults that appear
    during the wait at the end are raised; the results are still available.

    Only one profile is open at a time: entering another raises `RuntimeError`. Entering during a
    capture raises `CaptureError`.
    """
    if graphs not in ("nodes", "whole"):
        raise ArgumentValueError(f"graphs: expected 'nodes' or 'whole', got {graphs!r}")
    return Profile(graphs, limit, measure_copy)


def is_profiling() -> bool:
    """Return whether a profile is under way in this process.

    Any thread may ask.
    """
    return _lane.profile_session() is not None


class Profile(Results):
    """Result of `uhal.profile()`: a context manager, and afterwards the results.

    Times are nanoseconds, on one clock for host and devices, from the profile's begin. Any thread
    may enter, also a thread that does no work itself. Results exist once the profile has ended;
    earlier reads raise `RuntimeError`.
    """

    def __init__(self, graphs: Graphs, limit: int, measure_copy: bool) -> None:
        self._session: _lane.ProfileSession | None = _lane.ProfileSession(limit, graphs == "nodes")
        super().__init__()
        self._measure_copy = measure_copy
        self._counts_begin: int | None = None

    def __enter__(self) -> Profile:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._session
        try:
            try:
                # A call of `stop` may fail for lack of memory; this call needs none.
                if session is not None:
                    session.end()
            finally:
                self.stop()
        except Exception:
            if value is None:
                raise
            # the loss of the device has already been reported

    def __del__(self) -> None:
        """End a session that nobody can end any more: memory may fail as `with` is left."""
        session = getattr(self, "_session", None)
        if session is not None and session.begun is not None and not sys.is_finalizing():
            session.end()

    def start(self) -> None:
        """Begin the profile, as `with` does."""
        if self._session is None:
            raise RuntimeError("the profile has ended; make another with uhal.profile()")
        from uhal.profiler import counts

        self._counts_begin = counts.size_of_file()
        self._session.begin()

    def stop(self) -> None:
        """Wait for the devices, and read the records.

        A second call does nothing.

        Raises faults that appear during the wait; the results are still available.
        """
        session = self._session
        if session is None:
            return
        if session.begun is None:
            raise RuntimeError("the profile was not begun")
        self._session = None
        try:
            session.end()
        finally:
            from uhal.profiler import bandwidth, counts, records

            self._records = records.read(session)
            if self._counts_begin is not None:
                self._counted = counts.read(environment.read(counts.VARIABLE), self._counts_begin)
            if self._measure_copy and self._records.rows["bytes"].any():
                rates = [bandwidth.copy_bandwidth(one[0]) for one in session.contexts]
                devices = [
                    replace(device, copy_bandwidth=rate)
                    for device, rate in zip(self._records.devices, rates, strict=True)
                ]
                self._records = replace(self._records, devices=devices)

    def table(self, rows: int = 30) -> str:
        """Return the profile as text, with at most `rows` rows of kernels."""
        from uhal.profiler import table

        return table.text(self, rows)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a trace that ui.perfetto.dev and chrome://tracing open; return the path.

        Threads of the host and streams of the devices are tracks, each launch an arrow from one to
        the other. A name that ends in `.gz` is compressed.
        """
        from uhal.profiler import trace

        return trace.write(self, path_of("export_chrome_trace, path", path))

    def export_json(self, path: str | os.PathLike[str]) -> Path:
        """Write every row and every event as JSON; return the path.

        See docs/guide/profiling.md for the format.
        """
        from uhal.profiler import report

        return report.write_json(self, path_of("export_json, path", path))

    def export_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a page with tables and plots, for use offline."""
        from uhal.profiler import report

        return report.write_html(self, path_of("export_html, path", path))

    def __str__(self) -> str:
        return printable(self.table())

    def __repr__(self) -> str:
        if self._records is not None:
            return f"<uhal.Profile of {len(self._records.rows)} records>"
        begun = self._session is None or self._session.begun is not None
        return f"<uhal.Profile, {'under way' if begun else 'not begun'}>"


__all__ = ["Graphs", "Profile", "is_profiling", "profile"]
