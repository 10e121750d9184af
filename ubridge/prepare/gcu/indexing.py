"""Choosing by ids on GCUs, whose kernels check no id and know few cases right.

Ids are read back and checked on the host: one out of bounds is an `IndexError` before anything is
launched. The waiting that costs is the price of kernels that would read anywhere. Only ids whose
range the host knows, as of a graph's slots, are not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.copies import GcuCopies
from uhal import DeviceBuffer
from uhal.dtypes import f16, i16, i32, i64, u16, u32, u64
from uhal.interop import StreamLike

_GATHER = OPS["gather"]
_INDEX_ADD = OPS["index_add"]
_INDEX_SELECT = OPS["index_select"]
_MOST_IDS = 40960
"""Ids that index_select keeps."""
_MOVED_AS = {i16: f16, u16: f16, i32: u32, u64: i64}

Ids = npt.NDArray[Any]


class GcuIndexing(GcuCopies):
    """The part of the GCU's launches that takes ids."""

    def index_select(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        left, length, count, right = sizes
        require_ids(_INDEX_SELECT, self._executor, ids, count, length, stream)
        moved = _MOVED_AS.get(x.dtype, x.dtype)
        kernel = self._executor.kernel(_INDEX_SELECT, moved, ids.dtype)
        x, out = x.view(moved), out.view(moved)
        if count <= _MOST_IDS:
            arguments = (0, 1, None, ids, x, out, left, length, count, right)
            kernel.launch(arguments, stream)
            return
        for row in range(left):
            for start in range(0, count, _MOST_IDS):
                some = min(_MOST_IDS, count - start)
                arguments = (
                    *(0, 1, None, ids[start : start + some], x[row * length * right :]),
                    *(out[(row * count + start) * right :], 1, length, some, right),
                )
                kernel.launch(arguments, stream)

    def gather(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        left, length, count, right = sizes
        size = left * count * right
        _checked(_GATHER, ids, size, length, stream)
        moved = _MOVED_AS.get(x.dtype, x.dtype)
        kernel = self._executor.kernel(_GATHER, moved, ids.dtype)
        x, target = x.view(moved), out.view(moved)
        if right > 1:
            # One of the kernel's paths takes the axis for the last: so it is made the last.
            x = self._last(x, (left, length, right), stream)
            ids = self._last(ids, (left, count, right), stream)
            target = self._executor.allocate(size, moved, stream)
        arguments = (size, ids, x, target, left * right, length, count, 1)
        kernel.launch(arguments, stream)
        if right > 1:
            turned = Layout.contiguous((left, right, count)).transpose()
            self.copy_strided(target, turned, out.view(moved), stream)

    def _last(
        self, x: DeviceBuffer, shape: tuple[int, int, int], stream: StreamLike | None
    ) -> DeviceBuffer:
        turned = Layout.contiguous(shape).transpose()
        out = self._executor.allocate(turned.size, x.dtype, stream)
        self.copy_strided(x, turned, out, stream)
        return out

    def index_add(
        self,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        stream: StreamLike | None,
    ) -> None:
        """Enqueue sums at ids; sizes are (left, ids, target's length, right).

        The kernel adds at all ids at once without atomics: repeated ids go in rounds, in which none
        is repeated, in their order.
        """
        left, count, length, right = sizes
        found = _checked(_INDEX_ADD, ids, count, length, stream)
        kernel = self._executor.kernel(_INDEX_ADD, target.dtype, ids.dtype)
        rounds = _occurrences(found)
        for row in range(left):
            values = source[row * count * right :]
            sums = target[row * length * right :]
            if rounds.max() == 0:
                kernel.launch((ids, count, values, sums, 1, count, length, right), stream)
                continue
            for number in range(int(rounds.max()) + 1):
                places = np.flatnonzero(rounds == number)
                of_round = DeviceBuffer.from_numpy(found[places], device=self._executor.device)
                some = len(places)
                slices = self._executor.allocate(some * right, source.dtype, stream)
                at = DeviceBuffer.from_numpy(places.astype(np.int64), device=self._executor.device)
                self.index_select(values, at, (1, count, some, right), slices, stream)
                kernel.launch((of_round, some, slices, sums, 1, some, length, right), stream)

    def scatter(
        self,
        op: Op,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        stream: StreamLike | None,
    ) -> None:
        """Write at ids on the host, as there is no kernel; waits.

        Sizes are (left, source's length, target's, right).
        """
        left, count, length, right = sizes
        size = left * count * right
        found = _checked(op, ids, size, length, stream).astype(np.int64)
        wanted = found.reshape(left, count, right)
        values = source[:size].to_numpy(stream=stream).reshape(left, count, right)
        changed = target[: left * length * right]
        array = changed.to_numpy(stream=stream).reshape(left, length, right)
        rows, columns = np.arange(left)[:, None], np.arange(right)
        for place in range(count):
            at = (rows, wanted[:, place], columns)
            array[at] = values[:, place] + (array[at] if op.name == "scatter_add" else 0)
        changed.copy_from(array.reshape(-1), stream=stream)


def _checked(op: Op, ids: DeviceBuffer, count: int, length: int, stream: StreamLike | None) -> Ids:
    """The ids on the host; `IndexError` when one is out of bounds."""
    found = ids[:count].to_numpy(stream=stream)
    wrong = (found < 0) | (found >= length)
    if wrong.any():
        raise IndexError(
            f"{op.name}: index {found[wrong][0]} is out of bounds for axis with size {length}"
        )
    return found


def require_ids(
    op: Op,
    executor: DeviceExecutor,
    ids: DeviceBuffer,
    count: int,
    length: int,
    stream: StreamLike | None,
) -> None:
    """Refuse ids out of bounds; they are read back unless the host knows their range."""
    known = executor.known_range(ids)
    if known is None or known[0] < 0 or known[1] >= length:
        _checked(op, ids, count, length, stream)


def _occurrences(ids: Ids) -> Ids:
    """How often each id came before."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(ids)), 0))
    counts = np.empty(len(ids), np.int64)
    counts[order] = np.arange(len(ids)) - starts
    return counts
