"""Lowerings of windows: convolutions, pooling, resizing. Kernels always take strides.

Some kernels call rows `w`, as Candle does.
"""

from __future__ import annotations

from math import prod

from ubridge.core.kernel_def import PLAIN, KernelDef, covering
from ubridge.core.layout import Layout
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions import windows
from ubridge.definitions.elementwise import COPY
from ubridge.prepare.candle.packing import packs
from ubridge.prepare.matmul.packed_products import product_pieces, work_items

PACKED_WINDOWS = "conv_packed"


def _launch(question: Question, steps: Steps, threads: int, /, **arguments: Given) -> None:
    """Add a launch on one operand and its layout."""
    info = Words(question.layout(0).words)
    steps.launch((threads,), **arguments, info=info, src=steps.operands[0], dst=steps.result)


def convolution_arguments(question: Question, steps: Steps) -> dict[str, Given]:
    """Return the arguments of a convolution."""
    layout, weight = question.layout(0), question.layout(1)
    positions = question.shape[2:]
    names = ("l_out",) if len(positions) == 1 else ("h_out", "w_out")
    return {
        "src_numel": layout.size,
        **dict(zip(names, positions, strict=True)),
        **{name: one for name, one in question.attributes if name != "groups"},
        "info": Words((*layout.words, *weight.words)),
        "src": steps.operands[0],
        "kernel": steps.operands[1],
        "dst": steps.result,
    }


def add_groups(question: Question, steps: Steps) -> None:
    """Add a convolution of each group of channels, for kernels without groups."""
    window = dict(question.attributes)
    groups = window.pop("groups")
    x, weight = question.layout(0), question.layout(1)
    batch, results, *positions = question.shape
    shape = (batch, results // groups, *positions)
    of_group = Layout.contiguous(shape)
    # The results of groups come one after another; with one batch that is the final order.
    whole = steps.result
    made = whole if batch == 1 else steps.scratch(question.shape.size, whole.dtype)
    channels, some = x.shape[1] // groups, weight.shape[0] // groups
    for group in range(groups):
        parts = x.narrow(1, group * channels, channels), weight.narrow(0, group * some, some)
        operands = [
            (memory[part.start_offset :], part.from_start)
            for memory, part in zip(steps.operands, parts, strict=True)
        ]
        start = group * of_group.size
        target = made[start : start + of_group.size]
        steps.run(question.op, operands, (target, of_group), **window, groups=1)
    if batch > 1:
        order = (1, 0, *range(2, of_group.rank + 1))
        turned = Layout.contiguous((groups, *shape)).permute(order)
        steps.run(COPY, [(made, turned)], (whole, Layout.contiguous(turned.shape)))


def _convolution(question: Question, steps: Steps) -> None:
    if packs(PACKED_WINDOWS, question.dtype, steps.device.device):
        _packed_convolution(question, steps)
    elif question.attribute("groups") > 1:
        add_groups(question, steps)
    else:
        steps.launch((question.shape.size,), **convolution_arguments(question, steps))


def _packed_convolution(question: Question, steps: Steps) -> None:
    """Add a convolution of images as a product; a line is an image of one row."""
    layouts = question.layout(0), question.layout(1)
    batch, results, *positions = question.shape
    padding = question.attribute("padding")
    if len(positions) == 1:
        layouts = layouts[0].expanded(2), layouts[1].expanded(2)
    rows, columns = (1, *positions)[-2:]
    groups = question.attribute("groups")
    count, depth = batch * rows * columns, layouts[1].size // results
    pieces = product_pieces(steps.limits.processors, groups, results // groups, count, depth)
    work = layouts[1].size * count // prod((*pieces, groups))
    steps.launch_entry(
        PACKED_WINDOWS,
        f"{PACKED_WINDOWS}_{question.dtype}",
        ((*pieces, min(groups, steps.limits.max_grid[2])), work_items(steps.limits, work), 0),
        info=Words(layouts[0].words + layouts[1].words),
        src=steps.operands[0],
        kernel=steps.operands[1],
        dst=steps.result,
        h_out=rows,
        w_out=columns,
        groups=groups,
        stride=question.attribute("stride"),
        h_padding=padding if len(positions) == 2 else 0,
        w_padding=padding,
        dilation=question.attribute("dilation"),
        transposed=question.op in (windows.CONV_TRANSPOSE1D, windows.CONV_TRANSPOSE2D),
    )


def pool2d(question: Question, steps: Steps) -> None:
    """Add a pooling of windows."""
    window, stride = question.attribute("window"), question.attribute("stride")
    _launch(
        question,
        steps,
        question.shape.size,
        src_numel=question.layout(0).size,
        w_k=window[0],
        h_k=window[1],
        w_stride=stride[0],
        h_stride=stride[1],
    )


def nearest2d(question: Question, steps: Steps) -> None:
    """Add a choice of the nearest elements."""
    rows, columns = question.shape[2:]
    shape = question.layout(0).shape
    _launch(
        question,
        steps,
        question.shape.size,
        w_out=rows,
        h_out=columns,
        w_scale=shape[2] / rows,
        h_scale=shape[3] / columns,
    )


def bilinear2d(question: Question, steps: Steps) -> None:
    """Add a mix of the four nearest elements."""
    rows, columns = question.shape[2:]
    scale = question.attribute("scale")
    row_scale, column_scale = scale or (0.0, 0.0)
    _launch(
        question,
        steps,
        question.shape.size,
        w_out=columns,
        h_out=rows,
        align_corners=question.attribute("align_corners"),
        has_scale_h=scale is not None,
        scale_h=row_scale,
        has_scale_w=scale is not None,
        scale_w=column_scale,
    )


def _im2col1d(question: Question, steps: Steps) -> None:
    shape = question.shape
    # Each thread of this kernel writes a whole window.
    threads = shape.size // shape[-1]
    sizes = dict(question.attributes)
    _launch(question, steps, threads, threads=threads, l_out=shape[1], l_k=shape[-1], **sizes)


def _im2col(question: Question, steps: Steps) -> None:
    shape = question.shape
    _launch(
        question,
        steps,
        shape.size,
        dst_numel=shape.size,
        h_out=shape[1],
        w_out=shape[2],
        h_k=shape[-2],
        w_k=shape[-1],
        **dict(question.attributes),
    )


def _col2im1d(question: Question, steps: Steps) -> None:
    _, length, channels, window = question.layout(0).shape
    size = question.shape.size
    steps.launch(
        (size,),
        dst_el=size,
        l_out=question.shape[2],
        l_in=length,
        c_out=channels,
        k_size=window,
        stride=question.attribute("stride"),
        src=steps.operands[0],
        dst=steps.result,
    )


_WINDOW = KernelDef("conv", PLAIN, covering)

LOWERINGS: Lowerings = {
    windows.CONV1D: Launches(_convolution, _WINDOW),
    windows.CONV2D: Launches(_convolution, _WINDOW),
    windows.CONV_TRANSPOSE1D: Launches(_convolution, _WINDOW),
    windows.CONV_TRANSPOSE2D: Launches(_convolution, _WINDOW),
    windows.POOLING: Launches(pool2d, _WINDOW),
    windows.UPSAMPLE_NEAREST2D: Launches(nearest2d, _WINDOW),
    windows.UPSAMPLE_BILINEAR2D: Launches(bilinear2d, _WINDOW),
    windows.IM2COL1D: Launches(_im2col1d, _WINDOW),
    windows.IM2COL: Launches(_im2col, _WINDOW),
    windows.COL2IM1D: Launches(_col2im1d, _WINDOW),
}
