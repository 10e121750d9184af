"""Lowerings along axes: reductions, softmax, norms, sorting, rotary positions."""

from __future__ import annotations

from math import prod

from ubridge.core.kernel_def import (
    PLAIN,
    KernelDef,
    bitonic,
    block_per_result,
    block_per_row,
    covering,
    held_threads,
    keyed_bytes,
    norm_threads,
    pieces_of_scans,
    power_of_two,
    strided,
    wide_block_per_row,
)
from ubridge.core.layout import merged_axes
from ubridge.core.lowering import Given, Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions.attention import ROPE, ROPE_I, ROPE_THD
from ubridge.definitions.composing import accumulated
from ubridge.definitions.rows import (
    ARG_REDUCTION,
    ARGSORT,
    ARGSORT_DESCENDING,
    CUMSUM,
    LAYER_NORM,
    LOG_SOFTMAX,
    REDUCTION,
    RMS_NORM,
    SOFTMAX,
    SORTING,
)

_SCANNING_THREADS = 256
"""Threads of a block that scans a contiguous piece of a line."""
_SCANNED_AT_ONCE = 1 << 18
"""Threads that fill a GPU, for which lines are cut into pieces."""
_LEAST_PART = 16
"""Least elements of a piece for each of its threads."""
_TOTALS = KernelDef("scan", "scan_totals_{dtype}", pieces_of_scans)

_MERGED = 8
"""Elements of a sorted row that a GPU's work-item merges."""
_RUNS = {
    ARGSORT: KernelDef("sort", "asort_runs_asc_{dtype}", bitonic),
    ARGSORT_DESCENDING: KernelDef("sort", "asort_runs_desc_{dtype}", bitonic),
}
"""The kernels that sort runs of a row, each by a block."""
_PAIRS = {
    ARGSORT: KernelDef("sort", "asort_merge_asc_{dtype}", strided),
    ARGSORT_DESCENDING: KernelDef("sort", "asort_merge_desc_{dtype}", strided),
}
"""The kernels that merge pairs of runs."""


def _reduce(question: Question, steps: Steps) -> None:
    layout = question.layout(0)
    results = question.shape.size
    elements = layout.size // results
    split = len(question.shape)  # the result has the operand's first axes
    kept = merged_axes(layout.shape[:split], layout.strides[:split])
    reduced = list(zip(layout.shape[split:], layout.strides[split:], strict=True))
    if question.op.family is REDUCTION:  # a place is an index in the last axis
        reduced = merged_axes(layout.shape[split:], layout.strides[split:])
    # Neighboring results are adjacent, and the elements of each result lie apart.
    side_by_side = kept[-1:] and kept[-1][1] == 1 and len(reduced) == 1 and reduced[0][1] > 1
    axes = [*kept, *reduced]
    steps.launch(
        (results, elements, layout.is_contiguous, 32 if side_by_side else 1),
        src_numel=layout.size,
        el_per_block=elements,
        num_dims=len(axes),
        # Never null, because the kernels read it even for contiguous operands.
        info=Words((*(length for length, _ in axes), *(stride for _, stride in axes))),
        src=steps.operands[0],
        dst=steps.result,
    )


def _softmax(question: Question, steps: Steps) -> None:
    rows, columns = question.shape
    limits = steps.limits
    threads = 32 if limits.max_blocks_for_elements else held_threads(limits, columns)
    steps.launch((rows, threads), src=steps.operands[0], dst=steps.result, n_cols=columns)


def _log_softmax(question: Question, steps: Steps) -> None:
    rows, columns = question.shape
    steps.launch(
        (rows, columns),
        src=steps.operands[0],
        dst=steps.result,
        n_cols=columns,
        compensated=int(question.attribute("compensated")),
    )


def _norm(question: Question, steps: Steps) -> None:
    x, weight, *biases = steps.operands
    rows, columns = question.shape
    threads = norm_threads(steps.limits, columns)
    added: dict[str, Given] = {"beta": biases[0]} if biases else {}
    steps.launch(
        (rows, threads),
        src=x,
        dst=steps.result,
        alpha=weight,
        n_cols=columns,
        block_size=threads,
        eps=steps.number(),
        **added,
    )


def _sort(question: Question, steps: Steps) -> None:
    x = steps.operands[0]
    rows, columns = question.shape
    padded = power_of_two(columns)
    itemsize = x.dtype.itemsize
    fitting = steps.limits.max_shared_bytes_per_block // keyed_bytes(itemsize)
    if padded <= fitting:
        steps.launch(
            (rows, padded, itemsize), x=x, dst=steps.result, ncols=columns, ncols_pad=padded
        )
    else:
        _sort_long(question, steps, power_of_two(fitting // 2 + 1))


def _sort_long(question: Question, steps: Steps, run: int) -> None:
    """Sort runs, each by a block, then merge pairs of runs until each row is one run."""
    x = steps.operands[0]
    rows, columns = question.shape
    runs = -(-columns // run)
    last, other = steps.result, steps.scratch(rows * columns, steps.result.dtype)
    if (runs - 1).bit_length() % 2:
        # The last merge must write the result.
        last, other = other, last
    by_runs, by_pairs = _RUNS[question.op], _PAIRS[question.op]
    steps.launch(
        (rows * runs, run, x.dtype.itemsize),
        None,
        None,
        by_runs,
        x=x,
        ncols=columns,
        run=run,
        dst=last,
    )
    work = (rows * -(-columns // _MERGED),)
    while run < columns:
        steps.launch(
            work, None, None, by_pairs, x=x, ncols=columns, run=run, src=last, dst=other, rows=rows
        )
        last, other, run = other, last, 2 * run


def _scan(question: Question, steps: Steps) -> None:
    """Add running sums along the middle axis; few long lines are cut into pieces."""
    left, length, right = question.shape
    lines = left * right
    x, sizes = steps.operands[0], {"left": left, "right": right}
    wanted = _SCANNED_AT_ONCE // (lines if right > 1 else lines * _SCANNING_THREADS)
    least = _LEAST_PART if right > 1 else _LEAST_PART * _SCANNING_THREADS
    part = min(length, max(least, -(-length // max(1, wanted))))
    pieces = -(-length // part)
    totals: Memory | None = None
    if pieces > 1:
        dtype = accumulated(x.dtype)
        totals = steps.scratch(lines * pieces, dtype)
        given: dict[str, Given] = {"totals": totals, "length": length, "part": part, **sizes}
        steps.launch((left * pieces, right), None, None, _TOTALS, src=x, **given)
        given = {"totals": None, "length": pieces, "part": pieces, **sizes}
        steps.launch((left, right), dtype, src=totals, dst=totals, **given)
    steps.launch(
        (left * pieces, right),
        src=x,
        dst=steps.result,
        totals=totals,
        length=length,
        part=part,
        **sizes,
    )


def _rope(question: Question, steps: Steps) -> None:
    x, cos, sin = steps.operands
    batch, outer, inner, width = question.shape
    sizes = {
        ROPE: {"bh": batch * outer, "td": inner * width, "d": width},
        ROPE_I: {"bh": batch * outer, "td": inner * width},
        ROPE_THD: {"b": batch, "t": outer, "h": inner, "d": width},
    }
    per_batch = question.layout(1).rank == 3
    steps.launch(
        (question.shape.size // 2,),
        src=x,
        cos=cos,
        sin=sin,
        dst=steps.result,
        stride_b=prod(question.shape[1:]) if per_batch else 0,
        **sizes[question.op],
    )


LOWERINGS: Lowerings = {
    REDUCTION: Launches(_reduce, KernelDef("reduce", PLAIN, block_per_result)),
    ARG_REDUCTION: Launches(_reduce, KernelDef("reduce", PLAIN, block_per_result)),
    SOFTMAX: Launches(_softmax, KernelDef("reduce", PLAIN, block_per_row)),
    LOG_SOFTMAX: Launches(_log_softmax, KernelDef("fused", PLAIN, wide_block_per_row)),
    RMS_NORM: Launches(_norm, KernelDef("reduce", PLAIN, block_per_row)),
    LAYER_NORM: Launches(_norm, KernelDef("reduce", PLAIN, block_per_row)),
    CUMSUM: Launches(_scan, KernelDef("scan", "scan_{dtype}", pieces_of_scans)),
    SORTING: Launches(_sort, KernelDef("sort", PLAIN, bitonic)),
    ROPE: Launches(_rope, KernelDef("reduce", PLAIN, covering)),
    ROPE_I: Launches(_rope, KernelDef("reduce", PLAIN, covering)),
    ROPE_THD: Launches(_rope, KernelDef("reduce", PLAIN, covering)),
}
