"""Kernels, copies and waits of a program, with times: `uhal.profile()`, `uhal.annotate(…)`.

- session.py: begin and end of a profile, and its results.
- results.py: rows of a profile, made on first use.
- records.py: the lane's records, as columns with names.
- summary.py: a row for each kernel, copy, piece of library work and range.
- timeline.py: busy and idle times of devices, memory over time.
- bandwidth.py: measured speed of a device's copies.
- table.py: the profile as text.
- trace.py: the profile as a trace for Perfetto and chrome://tracing.
- report.py: the profile as one HTML page, with report.html, .css and .js.
- ranges.py: `annotate`.
- vendor_ranges.py: the ranges of vendors' tools.
- command.py: `python -m uhal profile`.
"""

from __future__ import annotations

from uhal.profiler.ranges import annotate
from uhal.profiler.session import Profile, is_profiling, profile

__all__ = ["Profile", "annotate", "is_profiling", "profile"]
