"""Lowerings element by element, of random numbers, fills and copies.

Kernels take strides: an array of lengths and strides, or null where everything is contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ubridge.core.kernel_def import BY_IDS, PLAIN, KernelDef, by_vectors, covering, strided
from ubridge.core.layout import Layout, merged_axes, merged_words
from ubridge.core.lowering import Given, Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions.elementwise import (
    AFFINE,
    ASTYPE,
    BINARY,
    COMPARISON,
    COPY,
    COPYSIGN,
    MASKED_FILL,
    NOT_EQUAL,
    SIGNBIT,
    SILU_MUL,
    UNARY,
    WHERE,
    WITH_NUMBER,
)
from ubridge.definitions.memory import COPY2D, FILL, RANDOM
from uhal.dtypes import i16, i64, u8, u32

_TURNED = 1 << 16
"""With this many elements, a second launch costs less than reading an operand across its lines."""
_FEW = 8
"""The least lines and columns that the kernel takes in tiles."""
_BITS = {1: u8, 2: i16, 4: u32, 8: i64}
"""Types of each size that are copied bit by bit."""


def each(question: Question, steps: Steps, numbers: Sequence[str] = ()) -> None:
    """Add an operation on one operand; `numbers` are parameter names of its kernel."""
    x, layout = _operand(question, steps, 0)
    steps.launch(
        _work(question),
        question.dtype,
        question.result[0] if question.op is ASTYPE else None,
        **_walk(layout),
        inp=x,
        out=steps.result,
        **{name: steps.number(index) for index, name in enumerate(numbers)},
    )


def _binary(question: Question, steps: Steps) -> None:
    (x, x_layout), (y, y_layout) = (_operand(question, steps, index) for index in (0, 1))
    walk = _walk(x_layout, y_layout)
    steps.launch(
        _work(question),
        numel=walk["numel"],
        num_dims=walk["num_dims"],
        dims_and_strides=walk["info"],
        lhs=x,
        rhs=y,
        out=steps.result,
    )


def _where(question: Question, steps: Steps) -> None:
    (condition, *layout), (x, *left), (y, *right) = (
        _operand(question, steps, index) for index in range(3)
    )
    # The kernels read the strides even of contiguous operands.
    words = merged_words(*layout, *left, *right)
    steps.launch(
        _work(question),
        x.dtype,
        condition.dtype,
        numel=question.shape.size,
        num_dims=len(words) // 4,
        info=Words(words),
        ids=condition,
        t=x,
        f=y,
        out=steps.result,
    )


def _masked_fill(question: Question, steps: Steps) -> None:
    (x, layout), (mask, where) = (_operand(question, steps, index) for index in (0, 1))
    steps.launch(
        _work(question),
        **_walk(where, layout),
        mask=mask,
        inp=x,
        value=steps.number(),
        out=steps.result,
    )


def _signbit(question: Question, steps: Steps) -> None:
    """Give the sign to 1, and compare with 1."""
    (x,), layout = steps.operands, question.layout(0)
    whole, signed = Layout.contiguous(layout.shape), steps.scratch(layout.size, x.dtype)
    one = (steps.scratch(1, x.dtype), Layout(layout.shape, (0,) * layout.rank))
    steps.run(FILL, [], (one[0], Layout.contiguous((1,))), 1)
    steps.run(COPYSIGN, [one, (x, layout)], (signed, whole))
    steps.run(NOT_EQUAL, [(signed, whole), one], (steps.result, whole))


def _gated(question: Question, steps: Steps) -> None:
    gate, up = steps.operands
    steps.launch(_work(question), numel=question.shape.size, gate=gate, up=up, out=steps.result)


def _fill(question: Question, steps: Steps) -> None:
    layout = question.result[1]
    steps.launch((layout.size,), **_walk(layout), value=steps.number(), out=steps.result)


def copy_rows(question: Question, steps: Steps, *least: int) -> None:
    """Add a copy of rows; its geometry takes the number of elements, then `least`."""
    rows, columns = question.shape
    steps.launch(
        (rows * columns, *least),
        src=steps.operands[0],
        dst=steps.result,
        d1=rows,
        d2=columns,
        src_s=question.layout(0).strides[0],
        dst_s=question.result[1].strides[0],
    )


def _random(question: Question, steps: Steps) -> None:
    # Each counter of a generator makes two numbers, or four.
    size = question.shape.size
    steps.launch(
        (-(-size // 2),),
        numel=size,
        seed=steps.number(0),
        position=steps.number(1),
        out=steps.result,
    )


def _walk(first: Layout, *others: Layout) -> dict[str, Given]:
    """The kernels' arguments for layouts of one shape: null where all are contiguous."""
    if first.is_contiguous and all([one.is_contiguous for one in others]):
        return {"numel": first.size, "num_dims": len(first.shape), "info": None}
    words = merged_words(first, *others)
    rank = len(words) // (2 + len(others))
    return {"numel": first.size, "num_dims": rank, "info": Words(words)}


def _work(question: Question) -> tuple[int, int]:
    """The sizes for `by_vectors`."""
    sizes = [dtype.itemsize for dtype, _ in question.operands]
    return question.result[1].size, max(question.result[0].itemsize, *sizes)


def _operand(question: Question, steps: Steps, index: int) -> tuple[Memory, Layout]:
    """An operand, or its contiguous copy where a GPU would read it across its lines.

    The copy kernel reads such operands in tiles. The hundreds of other kernels have no code for
    tiles.
    """
    x, layout = steps.operands[index], question.operands[index][1]
    if layout.is_contiguous or layout.size < _TURNED or question.op is COPY:
        return x, layout
    if steps.limits.max_blocks_for_elements is not None or not _lies_across(layout):
        return x, layout
    bits = _BITS[x.dtype.itemsize]
    turned, line = steps.scratch(layout.size, x.dtype), Layout.contiguous(layout.shape)
    steps.run(COPY, [(x.view(bits), layout)], (turned.view(bits), line))
    return turned, line


def _lies_across(layout: Layout) -> bool:
    """Whether neighbors of the result are not adjacent, but elements of another axis are."""
    *outer, (columns, apart) = merged_axes(layout.shape, layout.strides) or [(1, 1)]
    lines = max((length for length, stride in outer if stride == 1), default=0)
    return apart > 1 and min(columns, lines) >= _FEW


LOWERINGS: Lowerings = {
    UNARY: Launches(each, KernelDef("unary", PLAIN, by_vectors)),
    WITH_NUMBER: Launches(partial(each, numbers=("param",)), KernelDef("unary", PLAIN, by_vectors)),
    AFFINE: Launches(partial(each, numbers=("mul", "add")), KernelDef("affine", PLAIN, by_vectors)),
    BINARY: Launches(_binary, KernelDef("binary", PLAIN, by_vectors)),
    COMPARISON: Launches(_binary, KernelDef("binary", PLAIN, by_vectors)),
    SIGNBIT: Launches(_signbit),
    ASTYPE: Launches(each, KernelDef("cast", "{root}_{dtype}_{other}", by_vectors)),
    WHERE: Launches(_where, KernelDef("ternary", BY_IDS, by_vectors)),
    MASKED_FILL: Launches(_masked_fill, KernelDef("fused", PLAIN, by_vectors)),
    SILU_MUL: Launches(_gated, KernelDef("fused", PLAIN, by_vectors)),
    FILL: Launches(_fill, KernelDef("fill", PLAIN, strided)),
    COPY2D: Launches(copy_rows, KernelDef("fill", PLAIN, covering)),
    RANDOM: Launches(_random, KernelDef("random", PLAIN, strided)),
}
