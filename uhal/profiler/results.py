"""Results of a profile, as rows made on demand.

The code that makes them is also imported on demand, so that `import uhal` stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uhal.kept import kept_property

if TYPE_CHECKING:
    from uhal.profiler import summary, timeline
    from uhal.profiler.counts import KernelCounts
    from uhal.profiler.records import Records


class Results:
    """Results of an ended profile. Times are nanoseconds."""

    def __init__(self) -> None:
        self._records: Records | None = None
        self._counted: Sequence[KernelCounts] = ()

    @property
    def records(self) -> Records:
        """The records, as columns."""
        if self._records is None:
            raise RuntimeError("the profile has not ended: leave its `with` block, or stop() it")
        return self._records

    @kept_property
    def work(self) -> Sequence[summary.Work]:
        """A row for each kernel, piece of library work and kind of copy, by device.

        Rows with the most device time come first.
        """
        from uhal.profiler import summary

        return summary.work(self.records)

    @property
    def kernels(self) -> Sequence[summary.Work]:
        """The rows of kernels and of libraries' work."""
        return [row for row in self.work if row.kind in ("launch", "work")]

    @property
    def counted(self) -> Sequence[KernelCounts]:
        """Kernel counts of the simulated CUDA driver; empty unless it counts."""
        return self._counted

    @property
    def copies(self) -> Sequence[summary.Work]:
        """The rows of copies and fills."""
        from uhal.profiler.records import COPIES

        return [row for row in self.work if row.kind in COPIES]

    @kept_property
    def ranges(self) -> Sequence[summary.RangeRow]:
        """A row for each range of `uhal.annotate`."""
        from uhal.profiler import summary

        return summary.ranges(self.records)

    @kept_property
    def devices(self) -> Sequence[timeline.Use]:
        """Busy and idle time of each device that worked, and its longest gaps."""
        from uhal.profiler import timeline

        return timeline.uses(self.records)

    @kept_property
    def memory(self) -> Sequence[timeline.Memory]:
        """Memory in use on each device over time, and its owners at the peak."""
        from uhal.profiler import timeline

        return timeline.memory(self.records)
