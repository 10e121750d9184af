"""Launches of Candle's kernels on windows: convolutions, pooling, resizing.

Kernels always take strides. Some call rows `w`, as Candle does.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, Shape
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.prepare.steps import Arguments, Given, Steps

_CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")


def windows(question: Question, steps: Steps) -> bool:
    """Add the launch of an operation on windows; say whether it is one."""
    family = question.op.family.name
    if family in _CONVOLUTIONS:
        arguments = convolution(question, steps)
        threads = question.shape.size
    elif family in _OTHERS:
        arguments, threads = _OTHERS[family](question, question.layout(0), question.shape)
        arguments = {**arguments, "src": steps.operands[0], "dst": steps.result}
    else:
        return False
    steps.launch(question.op, question.dtype, (threads,), arguments)
    return True


def convolution(question: Question, steps: Steps) -> dict[str, Given]:
    """Return the arguments of a convolution, which has the result's columns before its rows."""
    layout, weight = question.layout(0), question.layout(1)
    positions = question.shape[2:]
    names = ("l_out",) if len(positions) == 1 else ("h_out", "w_out")
    sizes = dict(zip(names, positions, strict=True))
    return {
        "src_numel": layout.size,
        **sizes,
        **dict(question.attributes),
        "info": Words((*layout.words, *weight.words)),
        "src": steps.operands[0],
        "kernel": steps.operands[1],
        "dst": steps.result,
    }


Found = tuple[dict[str, Given], int]


def _pool2d(question: Question, layout: Layout, shape: Shape) -> Found:
    window, stride = question.attribute("window"), question.attribute("stride")
    arguments: Arguments = {
        "src_numel": layout.size,
        "w_k": window[0],
        "h_k": window[1],
        "w_stride": stride[0],
        "h_stride": stride[1],
        "info": Words(layout.words),
    }
    return arguments, shape.size


def _nearest2d(question: Question, layout: Layout, shape: Shape) -> Found:
    rows, columns = shape[2:]
    arguments: Arguments = {
        "w_out": rows,
        "h_out": columns,
        "w_scale": layout.shape[2] / rows,
        "h_scale": layout.shape[3] / columns,
        "info": Words(layout.words),
    }
    return arguments, shape.size


def _bilinear2d(question: Question, layout: Layout, shape: Shape) -> Found:
    rows, columns = shape[2:]
    scale = question.attribute("scale")
    row_scale, column_scale = scale or (0.0, 0.0)
    told = scale is not None
    arguments: Arguments = {
        "w_out": columns,
        "h_out": rows,
        "align_corners": question.attribute("align_corners"),
        "has_scale_h": told,
        "scale_h": row_scale,
        "has_scale_w": told,
        "scale_w": column_scale,
        "info": Words(layout.words),
    }
    return arguments, shape.size


def _im2col1d(question: Question, layout: Layout, shape: Shape) -> Found:
    # It writes a whole window with each thread.
    threads = shape.size // shape[-1]
    arguments: Arguments = {
        "threads": threads,
        "l_out": shape[1],
        "l_k": shape[-1],
        **dict(question.attributes),
        "info": Words(layout.words),
    }
    return arguments, threads


def _im2col(question: Question, layout: Layout, shape: Shape) -> Found:
    arguments: Arguments = {
        "dst_numel": shape.size,
        "h_out": shape[1],
        "w_out": shape[2],
        "h_k": shape[-2],
        "w_k": shape[-1],
        **dict(question.attributes),
        "info": Words(layout.words),
    }
    return arguments, shape.size


def _col2im1d(question: Question, layout: Layout, shape: Shape) -> Found:
    _, length, channels, window = layout.shape
    arguments: Arguments = {
        "dst_el": shape.size,
        "l_out": shape[2],
        "l_in": length,
        "c_out": channels,
        "k_size": window,
        "stride": question.attribute("stride"),
    }
    return arguments, shape.size


_OTHERS = {
    "pool2d": _pool2d,
    "nearest2d": _nearest2d,
    "bilinear2d": _bilinear2d,
    "im2col1d": _im2col1d,
    "im2col": _im2col,
    "col2im1d": _col2im1d,
}

__all__ = ["convolution", "windows"]
