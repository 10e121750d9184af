"""Lowerings of windows: convolutions, pooling, resizing. Kernels always take strides.

Some kernels call rows `w`, as Candle does.
"""

from __future__ import annotations

from ubridge.core.kernel_def import PLAIN, KernelDef, covering
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions import windows


def _launch(question: Question, steps: Steps, threads: int, /, **arguments: Given) -> None:
    """Add a launch on one operand, whose layout the kernel is given."""
    info = Words(question.layout(0).words)
    steps.launch((threads,), **arguments, info=info, src=steps.operands[0], dst=steps.result)


def convolution_arguments(question: Question, steps: Steps) -> dict[str, Given]:
    """Return the arguments of a convolution, which has the result's columns before its rows."""
    layout, weight = question.layout(0), question.layout(1)
    positions = question.shape[2:]
    names = ("l_out",) if len(positions) == 1 else ("h_out", "w_out")
    return {
        "src_numel": layout.size,
        **dict(zip(names, positions, strict=True)),
        **dict(question.attributes),
        "info": Words((*layout.words, *weight.words)),
        "src": steps.operands[0],
        "kernel": steps.operands[1],
        "dst": steps.result,
    }


def _convolution(question: Question, steps: Steps) -> None:
    steps.launch((question.shape.size,), **convolution_arguments(question, steps))


def _pool2d(question: Question, steps: Steps) -> None:
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


def _nearest2d(question: Question, steps: Steps) -> None:
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


def _bilinear2d(question: Question, steps: Steps) -> None:
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
    # It writes a whole window with each thread.
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
    windows.POOLING: Launches(_pool2d, _WINDOW),
    windows.UPSAMPLE_NEAREST2D: Launches(_nearest2d, _WINDOW),
    windows.UPSAMPLE_BILINEAR2D: Launches(_bilinear2d, _WINDOW),
    windows.IM2COL1D: Launches(_im2col1d, _WINDOW),
    windows.IM2COL: Launches(_im2col, _WINDOW),
    windows.COL2IM1D: Launches(_col2im1d, _WINDOW),
}
