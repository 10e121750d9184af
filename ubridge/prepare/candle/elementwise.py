"""Lowerings element by element, of random numbers, fills and copies.

Kernels take strides: an array of lengths and strides, or null where everything is contiguous.
"""

from __future__ import annotations

from ubridge.core.kernel_def import BY_IDS, PLAIN, KernelDef, covering, strided
from ubridge.core.layout import Layout
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions.elementwise import (
    AFFINE,
    ASTYPE,
    BINARY,
    COMPARISON,
    MASKED_FILL,
    SILU_MUL,
    UNARY,
    WHERE,
    WITH_NUMBER,
)
from ubridge.definitions.memory import COPY2D, FILL, RANDOM
from ubridge.device.slice_ptr import joined_words


def _each(question: Question, steps: Steps, *numbers: str) -> None:
    """Add an operation on one operand; `numbers` are parameter names of its kernel."""
    layout = question.layout(0)
    steps.launch(
        (layout.size,),
        None,
        question.result[0] if question.op is ASTYPE else None,
        **_walk(layout),
        inp=steps.operands[0],
        out=steps.result,
        **{name: steps.number(index) for index, name in enumerate(numbers)},
    )


def _with_number(question: Question, steps: Steps) -> None:
    _each(question, steps, "param")


def _with_factors(question: Question, steps: Steps) -> None:
    _each(question, steps, "mul", "add")


def _binary(question: Question, steps: Steps) -> None:
    x, y = steps.operands
    walk = _walk(question.layout(0), question.layout(1))
    steps.launch(
        (question.shape.size,),
        numel=walk["numel"],
        num_dims=walk["num_dims"],
        dims_and_strides=walk["info"],
        lhs=x,
        rhs=y,
        out=steps.result,
    )


def _where(question: Question, steps: Steps) -> None:
    condition, x, y = steps.operands
    layouts = [layout for _, layout in question.operands]
    # The kernels read the strides even of contiguous operands.
    steps.launch(
        (question.shape.size,),
        x.dtype,
        condition.dtype,
        numel=question.shape.size,
        num_dims=layouts[0].rank,
        info=Words(joined_words(*layouts)),
        ids=condition,
        t=x,
        f=y,
        out=steps.result,
    )


def _masked_fill(question: Question, steps: Steps) -> None:
    x, mask = steps.operands
    steps.launch(
        (question.shape.size,),
        **_walk(question.layout(1), question.layout(0)),
        mask=mask,
        inp=x,
        value=steps.number(),
        out=steps.result,
    )


def _gated(question: Question, steps: Steps) -> None:
    gate, up = steps.operands
    size = question.shape.size
    steps.launch((size,), numel=size, gate=gate, up=up, out=steps.result)


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
    plain = first.is_contiguous and all(one.is_contiguous for one in others)
    info = None if plain else Words(joined_words(first, *others))
    return {"numel": first.size, "num_dims": first.rank, "info": info}


LOWERINGS: Lowerings = {
    UNARY: Launches(_each, KernelDef("unary", PLAIN, strided)),
    WITH_NUMBER: Launches(_with_number, KernelDef("unary", PLAIN, strided)),
    AFFINE: Launches(_with_factors, KernelDef("affine", PLAIN, strided)),
    BINARY: Launches(_binary, KernelDef("binary", PLAIN, strided)),
    COMPARISON: Launches(_binary, KernelDef("binary", PLAIN, strided)),
    ASTYPE: Launches(_each, KernelDef("cast", "{root}_{dtype}_{other}", strided)),
    WHERE: Launches(_where, KernelDef("ternary", BY_IDS, strided)),
    MASKED_FILL: Launches(_masked_fill, KernelDef("fused", PLAIN, strided)),
    SILU_MUL: Launches(_gated, KernelDef("fused", PLAIN, strided)),
    FILL: Launches(_fill, KernelDef("fill", PLAIN, strided)),
    COPY2D: Launches(copy_rows, KernelDef("fill", PLAIN, covering)),
    RANDOM: Launches(_random, KernelDef("random", PLAIN, strided)),
}
