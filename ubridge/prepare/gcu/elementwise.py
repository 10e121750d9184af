"""Lowerings to Ubridge's elementwise kernels, and the work they leave to callers.

The kernels take no strides: operands are made contiguous first, and broadcasts are materialized,
except broadcasts of a single element. Some kernels write past short results, which get more memory.
"""

from __future__ import annotations

from functools import partial

from ubridge.core.kernel_def import BY_IDS, PLAIN
from ubridge.core.layout import Layout
from ubridge.core.lowering import Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions.elementwise import (
    AFFINE,
    ASTYPE,
    BINARY,
    COMPARISON,
    GELU_ERF,
    MASKED_FILL,
    UNARY,
    WHERE,
    WITH_NUMBER,
)
from ubridge.definitions.memory import COPY2D, FILL
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.copies import (
    copy_strided,
    deliver,
    room_for,
    roomy,
    threads_of,
    whole,
    write_rows,
)
from ubridge.prepare.gcu.kernels import gcu_kernel
from uhal import DeviceBuffer
from uhal.dtypes import f16, i8, i16, i32, i64, u8, u16, u32, u64
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

_CHOSEN_AS = {i8: u8, i16: f16, u16: f16, i32: u32, u64: i64}
_THROUGH = {(u8, i32): u32, (u8, i16): u16, (u16, i32): u32}
"""Casts without a kernel, to an equivalent cast of unsigned values."""
GELU_ERF_REASON = "the kernel is the tanh form under another name; gelu is that form"


def _unary(question: Question, steps: Steps) -> None:
    layout = question.layout(0)
    source = whole(steps.operands[0], layout, steps)
    steps.launch((), numel=layout.size, out=steps.result, **{"in": source})


def _unary_scalar(question: Question, steps: Steps) -> None:
    layout = question.layout(0)
    size = layout.size
    source = roomy(whole(steps.operands[0], layout, steps), size, steps)
    target = room_for(steps.result, size, steps)
    steps.launch((), numel=size, out=target, extValue=steps.number(), **{"in": source})
    deliver(target, steps.result, size, steps)


def _refuse_gelu_erf(question: Question, steps: Steps) -> None:
    """Refuse an operation whose kernel computes something else."""
    raise NotSupportedError(f"gelu_erf: {GELU_ERF_REASON}", backend="tops")


def _binary(question: Question, steps: Steps) -> None:
    x, y = steps.operands
    x_layout, y_layout = question.layout(0), question.layout(1)
    size = x_layout.size
    left = whole(x, x_layout, steps)
    one_element = size > 1 and y_layout.extent == y_layout.start_offset + 1
    right = y if one_element else whole(y, y_layout, steps)
    steps.launch(
        (),
        numel=size,
        num_dims=1,
        # A stride of 0 on the right means one element for all.
        dims_and_strides=Words((size, 1, 0 if one_element else 1)),
        in_a=left,
        in_b=right,
        out=steps.result,
    )


def _where(question: Question, steps: Steps) -> None:
    size, out = question.shape.size, steps.result
    condition, on_true, on_false = [
        roomy(whole(memory, layout, steps), size, steps)
        for memory, (_, layout) in zip(steps.operands, question.operands, strict=True)
    ]
    moved = _CHOSEN_AS.get(out.dtype, out.dtype)
    if condition.dtype is not u8 and moved.itemsize == 2:
        condition = _as_bytes(condition, size, steps)
    target = room_for(out, size, steps)
    steps.launch(
        (),
        moved,
        condition.dtype,
        ids=condition,
        in1=on_true.view(moved),
        in2=on_false.view(moved),
        out=target.view(moved),
        element_num=size,
    )
    deliver(target, out, size, steps)


def _as_bytes(condition: Memory, size: int, steps: Steps) -> Memory:
    """The condition as u8; the kernels for f16 and bf16 take no other type."""
    room = max(size, threads_of(steps))
    ones, zeros, chosen = [steps.scratch(room, u8) for _ in range(3)]
    for value, memory in ((1, ones), (0, zeros)):
        steps.run(FILL, (), (memory, Layout.contiguous(room)), value)
    steps.launch(
        (), u8, condition.dtype, ids=condition, in1=ones, in2=zeros, out=chosen, element_num=size
    )
    return chosen


def _affine(question: Question, steps: Steps) -> None:
    """Add `x * multiplier + addend`; the kernel rounds twice."""
    layout = question.layout(0)
    steps.launch(
        (),
        numel=layout.size,
        inp=whole(steps.operands[0], layout, steps),
        out=steps.result,
        mulv=steps.number(0),
        addv=steps.number(1),
    )


def _cast(question: Question, steps: Steps) -> None:
    layout, out = question.layout(0), steps.result
    x = steps.operands[0]
    if x.dtype is out.dtype:
        copy_strided(x, layout, out, steps)
        return
    through = _THROUGH.get((x.dtype, out.dtype), out.dtype)
    size = layout.size
    source = roomy(whole(x, layout, steps), size, steps)
    target = room_for(out, size, steps)
    steps.launch((), x.dtype, through, numel=size, inp=source, out=target.view(through))
    deliver(target, out, size, steps)


def _masked_fill(question: Question, steps: Steps) -> None:
    """Add a choice between one element and `x`."""
    x, mask = steps.operands
    layout = question.layout(0)
    element = steps.scratch(1, x.dtype)
    steps.run(FILL, (), (element, Layout.contiguous(1)), steps.number())
    spread = Layout(layout.shape, (0,) * layout.rank)
    steps.run(
        WHERE,
        [(mask, question.layout(1)), (element, spread), (x, layout)],
        (steps.result, question.result[1]),
    )


def _fill(question: Question, steps: Steps) -> None:
    """Set every element; rows of a strided layout one after the other."""
    layout, out = question.result[1], steps.result
    size = layout.size
    target = out if layout.is_contiguous else steps.scratch(size, out.dtype)
    steps.launch((), out.dtype, output=target, total_size=size, value=steps.number())
    if not layout.is_contiguous:
        write_rows(target, out, layout, steps)


def _copy2d(question: Question, steps: Steps) -> None:
    """Copy rows with the runtime and wait: no kernel copies rows."""
    pitches = question.layout(0).strides[0], question.result[1].strides[0]
    rows, columns = question.shape
    steps.work(partial(_copy_rows, rows, columns, pitches), steps.operands[0], steps.result)


def _copy_rows(
    rows: int,
    columns: int,
    pitches: tuple[int, int],
    at: DeviceExecutor,
    stream: StreamLike | None,
    source: DeviceBuffer,
    destination: DeviceBuffer,
) -> None:
    destination[: (rows - 1) * pitches[1] + columns].copy_2d_from(
        source[: (rows - 1) * pitches[0] + columns],
        (rows, columns),
        pitch=pitches[1],
        source_pitch=pitches[0],
        stream=stream,
    )


LOWERINGS: Lowerings = {
    UNARY: Launches(_unary, gcu_kernel("unary", PLAIN)),
    WITH_NUMBER: Launches(_unary_scalar, gcu_kernel("unary", PLAIN, in_l2=True)),
    GELU_ERF: Launches(_refuse_gelu_erf, gcu_kernel("unary", PLAIN)),
    AFFINE: Launches(_affine, gcu_kernel("affine", PLAIN)),
    BINARY: Launches(_binary, gcu_kernel("binary", PLAIN)),
    COMPARISON: Launches(_binary, gcu_kernel("binary", PLAIN)),
    ASTYPE: Launches(_cast, gcu_kernel("cast", "{root}_{dtype}_{other}", in_l2=True)),
    WHERE: Launches(_where, gcu_kernel("ternary", BY_IDS)),
    MASKED_FILL: Launches(_masked_fill),
    FILL: Launches(_fill, gcu_kernel("fill", "fill_{dtype}")),
    COPY2D: Launches(_copy2d),
}
