"""Lowerings of windows: convolutions, pooling, resizing. Kernels always take strides.

Some kernels call rows `w`, as Candle does.
"""

from __future__ import annotations

from math import prod

from ubridge.core.kernel_def import PLAIN, KernelDef, covering, tiles
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions import windows
from ubridge.device.images import has_module
from ubridge.prepare.candle.packing import packs
from ubridge.prepare.matmul.packed_products import product_pieces, work_items

PACKED_WINDOWS = "conv_packed"
TENSOR_WINDOWS = "conv_tensor"
_TENSOR = KernelDef(TENSOR_WINDOWS, f"{TENSOR_WINDOWS}_{{dtype}}", tiles(64, 128))
_TILED = KernelDef("conv_tiles", "conv_tiles_{dtype}", tiles(64, 256))
_TRANSPOSED = (windows.CONV_TRANSPOSE1D, windows.CONV_TRANSPOSE2D)


def _launch(question: Question, steps: Steps, threads: int, /, **arguments: Given) -> None:
    """Add a launch on one operand and its layout."""
    info = Words(question.layout(0).words)
    steps.launch((threads,), **arguments, info=info, src=steps.operands[0], dst=steps.result)


def _convolution(question: Question, steps: Steps) -> None:
    """Add a convolution as products, a product for each group and phase."""
    device, dtype = steps.device.device, question.dtype
    batch, results, *positions = question.shape
    groups, depth = question.attribute("groups"), question.layout(1).size // results
    count, some = batch * prod(positions), results // groups
    if packs(PACKED_WINDOWS, dtype, device):
        pieces = product_pieces(steps.limits.processors, groups, some, count, depth)
        work = question.layout(1).size * count // prod((*pieces, groups))
        steps.launch_entry(
            PACKED_WINDOWS,
            f"{PACKED_WINDOWS}_{dtype}",
            ((*pieces, min(groups, steps.limits.max_grid[2])), work_items(steps.limits, work), 0),
            **_arguments(question, steps),
        )
        return
    phases = 1
    if question.op in _TRANSPOSED:
        # Results that lie a stride apart form a phase.
        stride = question.attribute("stride")
        phases = prod([min(stride, length) for length in positions])
        count = batch * prod([-(-length // stride) for length in positions])
    parts = min(groups * phases, steps.limits.max_grid[2])
    is_tensor = dtype.name in ("bf16", "f16") and has_module(TENSOR_WINDOWS, device)
    kernel = _TENSOR if is_tensor else _TILED
    steps.launch((some, count, parts), dtype, None, kernel, **_arguments(question, steps))


def _arguments(question: Question, steps: Steps) -> dict[str, Given]:
    """Return the arguments of a convolution of images; a line is an image of one row."""
    layouts = question.layout(0), question.layout(1)
    positions = question.shape[2:]
    padding = question.attribute("padding")
    if len(positions) == 1:
        layouts = layouts[0].expanded(2), layouts[1].expanded(2)
    rows, columns = (1, *positions)[-2:]
    return {
        "info": Words(layouts[0].words + layouts[1].words),
        "src": steps.operands[0],
        "kernel": steps.operands[1],
        "dst": steps.result,
        "h_out": rows,
        "w_out": columns,
        "groups": question.attribute("groups"),
        "stride": question.attribute("stride"),
        "h_padding": padding if len(positions) == 2 else 0,
        "w_padding": padding,
        "dilation": question.attribute("dilation"),
        "transposed": question.op in _TRANSPOSED,
    }


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
    windows.CONV1D: Launches(_convolution, _TILED),
    windows.CONV2D: Launches(_convolution, _TILED),
    windows.CONV_TRANSPOSE1D: Launches(_convolution, _TILED),
    windows.CONV_TRANSPOSE2D: Launches(_convolution, _TILED),
    windows.POOLING: Launches(pool2d, _WINDOW),
    windows.UPSAMPLE_NEAREST2D: Launches(nearest2d, _WINDOW),
    windows.UPSAMPLE_BILINEAR2D: Launches(bilinear2d, _WINDOW),
    windows.IM2COL1D: Launches(_im2col1d, _WINDOW),
    windows.IM2COL: Launches(_im2col, _WINDOW),
    windows.COL2IM1D: Launches(_col2im1d, _WINDOW),
}
