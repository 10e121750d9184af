"""Lowerings of choices by ids on GCUs: the kernels check no id, and few cases are correct.

Ids are read back and checked on the host: one out of bounds is an `IndexError` before anything is
launched. The wait is needed because the kernels would read out of bounds. Ids of a range known to
the host, such as a graph's slots, are not read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.core.kernel_def import BY_IDS
from ubridge.core.layout import Layout
from ubridge.core.lowering import Launches, Lowerings, Memory, Steps
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.indexing import GATHER, INDEX_ADD, INDEX_SELECT, SCATTER_ADD, SCATTERING
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.copies import copy_strided
from ubridge.prepare.gcu.kernels import gcu_kernel
from uhal import DeviceBuffer
from uhal.dtypes import f16, i16, i32, i64, u16, u32, u64
from uhal.interop import StreamLike

_MOST_IDS = 40960
"""Most ids that index_select supports."""
_MOVED_AS = {i16: f16, u16: f16, i32: u32, u64: i64}

Ids = npt.NDArray[Any]
Sizes = tuple[int, int, int, int]
"""Four counts: elements before the axis, elements along it, ids along it, elements after it."""


def _index_select(question: Question, steps: Steps) -> None:
    x, ids = steps.operands
    left, count, right = question.shape
    length = question.layout(0).shape[1]
    require_ids(question.op, ids, count, length, steps)
    moved = _MOVED_AS.get(x.dtype, x.dtype)
    x, out = x.view(moved), steps.result.view(moved)
    if count <= _MOST_IDS:
        _select(x, ids, (left, length, count, right), out, steps)
        return
    for row in range(left):
        for start in range(0, count, _MOST_IDS):
            some = min(_MOST_IDS, count - start)
            _select(
                x[row * length * right :],
                ids[start : start + some],
                (1, length, some, right),
                out[(row * count + start) * right :],
                steps,
            )


def _select(x: Memory, ids: Memory, sizes: Sizes, out: Memory, steps: Steps) -> None:
    left, length, count, right = sizes
    steps.launch(
        (),
        x.dtype,
        ids.dtype,
        id_numel=count,
        ids=ids,
        inp=x,
        out=out,
        left_size=left,
        dim_size=length,
        right_size=right,
    )


def _gather(question: Question, steps: Steps) -> None:
    x, ids = steps.operands
    left, count, right = question.shape
    length, size = question.layout(0).shape[1], question.shape.size
    require_ids(question.op, ids, size, length, steps)
    moved = _MOVED_AS.get(x.dtype, x.dtype)
    x, target = x.view(moved), steps.result.view(moved)
    if right > 1:
        # One path of the kernel assumes that the axis is the last, so it is moved there.
        x = _last(x, (left, length, right), steps)
        ids = _last(ids, (left, count, right), steps)
        target = steps.scratch(size, moved)
    steps.launch(
        (),
        moved,
        ids.dtype,
        numel=size,
        ids=ids,
        inp=x,
        out=target,
        left_size=left * right,
        src_dim_size=length,
        ids_dim_size=count,
        right_size=1,
    )
    if right > 1:
        turned = Layout.contiguous((left, right, count)).transpose()
        copy_strided(target, turned, steps.result.view(moved), steps)


def _last(x: Memory, shape: tuple[int, int, int], steps: Steps) -> Memory:
    turned = Layout.contiguous(shape).transpose()
    out = steps.scratch(turned.size, x.dtype)
    copy_strided(x, turned, out, steps)
    return out


_IS_ROUND = ("is_round", True)
"""Attribute of a question whose ids are in range and distinct."""


def _index_add(question: Question, steps: Steps) -> None:
    """Add sums at ids.

    The kernel adds at all ids at once without atomics, so the host reads the ids and splits them
    into ordered rounds without repeated ids, one launch each.
    """
    ids, source = steps.operands
    left, count, right = question.layout(1).shape
    length, target = question.shape[1], steps.result
    if _IS_ROUND not in question.attributes:
        add = partial(_add_in_rounds, (left, length, count, right))
        steps.work(add, ids, source, target, is_beyond_launches=False)
        return
    for row in range(left):
        steps.launch(
            (),
            target.dtype,
            ids.dtype,
            ids=ids,
            ids_dim_size=count,
            inp=source[row * count * right :],
            out=target[row * length * right :],
            left_size=1,
            src_dim_size=count,
            dst_dim_size=length,
            right_size=right,
        )


def _scatter(question: Question, steps: Steps) -> None:
    """Write at ids on the host, as there is no kernel; waits."""
    ids, source = steps.operands
    left, count, right = question.layout(1).shape
    sizes = left, question.shape[1], count, right
    steps.work(partial(_scatter_on_host, question.op, sizes), ids, source, steps.result)


def _add_in_rounds(
    sizes: Sizes,
    at: DeviceExecutor,
    stream: StreamLike | None,
    ids: DeviceBuffer,
    source: DeviceBuffer,
    target: DeviceBuffer,
) -> None:
    """Read the ids; round n adds the n-th occurrence of each id."""
    left, length, count, right = sizes
    found = _checked(INDEX_ADD, ids, count, length, stream)
    rounds = _occurrences(found)
    into = (target.dtype, Layout.contiguous((left, length, right)))

    def added(of_round: DeviceBuffer, slices: DeviceBuffer, some: int) -> None:
        given = (
            (of_round.dtype, Layout.contiguous(some)),
            (source.dtype, Layout.contiguous((left, some, right))),
        )
        question = Question(INDEX_ADD, given, into, (_IS_ROUND,))
        at.run(question, stream, target, of_round, slices)

    if rounds.max() == 0:
        added(ids, source, count)
        return
    for number in range(int(rounds.max()) + 1):
        indices = np.flatnonzero(rounds == number)
        some = len(indices)
        of_round = DeviceBuffer.from_numpy(found[indices], device=at.device)
        chosen = DeviceBuffer.from_numpy(indices.astype(np.int64), device=at.device)
        at.note_range(chosen, 0, count - 1)
        selected = Question(
            INDEX_SELECT,
            (
                (source.dtype, Layout.contiguous((left, count, right))),
                (chosen.dtype, Layout.contiguous(some)),
            ),
            (source.dtype, Layout.contiguous((left, some, right))),
        )
        added(of_round, at.run(selected, stream, None, source, chosen), some)


def _scatter_on_host(
    op: Op,
    sizes: Sizes,
    at: DeviceExecutor,
    stream: StreamLike | None,
    ids: DeviceBuffer,
    source: DeviceBuffer,
    target: DeviceBuffer,
) -> None:
    """Write at ids on the host."""
    left, length, count, right = sizes
    size = left * count * right
    wanted = _checked(op, ids, size, length, stream).astype(np.int64).reshape(left, count, right)
    values = source[:size].to_numpy(stream=stream).reshape(left, count, right)
    changed = target[: left * length * right]
    array = changed.to_numpy(stream=stream).reshape(left, length, right)
    rows, columns = np.arange(left)[:, None], np.arange(right)
    for index in range(count):
        at_ids = (rows, wanted[:, index], columns)
        array[at_ids] = values[:, index] + (array[at_ids] if op is SCATTER_ADD else 0)
    changed.copy_from(array.reshape(-1), stream=stream)


def require_ids(op: Op, ids: Memory, count: int, length: int, steps: Steps) -> None:
    """Refuse ids out of bounds; they are read back unless the host knows their range."""
    steps.work(partial(_check, op, count, length), ids, is_beyond_launches=False)


def _check(
    op: Op,
    count: int,
    length: int,
    at: DeviceExecutor,
    stream: StreamLike | None,
    ids: DeviceBuffer,
) -> None:
    known = at.known_range(ids)
    if known is None or known[0] < 0 or known[1] >= length:
        _checked(op, ids, count, length, stream)


def _checked(op: Op, ids: DeviceBuffer, count: int, length: int, stream: StreamLike | None) -> Ids:
    """The ids on the host; `IndexError` when one is out of bounds."""
    found = ids[:count].to_numpy(stream=stream)
    wrong = (found < 0) | (found >= length)
    if wrong.any():
        raise IndexError(
            f"{op.name}: index {found[wrong][0]} is out of bounds for axis with size {length}"
        )
    return found


def _occurrences(ids: Ids) -> Ids:
    """Number of earlier occurrences of each id."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(ids)), 0))
    counts = np.empty(len(ids), np.int64)
    counts[order] = np.arange(len(ids)) - starts
    return counts


LOWERINGS: Lowerings = {
    INDEX_SELECT: Launches(_index_select, gcu_kernel("indexing", BY_IDS)),
    GATHER: Launches(_gather, gcu_kernel("indexing", BY_IDS, in_l2=True)),
    INDEX_ADD: Launches(_index_add, gcu_kernel("indexing", BY_IDS)),
    SCATTERING: Launches(_scatter),
}
