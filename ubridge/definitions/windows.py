"""Operations on windows: convolutions, pools, resizing."""

from __future__ import annotations

from functools import partial

from ubridge.core.accuracy import EXACT, OF_PRODUCT, ROW
from ubridge.core.fits import count, lies, parts, require_counts, same
from ubridge.core.operation import CONVOLVED, Family, define
from ubridge.core.question import Question


def _convolved(question: Question, axes: int) -> bool:
    dtypes, (result, layout, weight) = parts(question)
    window = dict(question.attributes)
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    require_counts(question.op.name, *window.values())
    if not count(stride, dilation) or not same(axes + 2, layout.rank, weight.rank, result.rank):
        return False
    transposed = "out_padding" in window
    inner, outer = (0, 1) if transposed else (1, 0)
    batch, channels, *lengths = layout.shape
    if channels != weight.shape[inner] or not same(*dtypes):
        return False
    sizes = []
    for length, size in zip(lengths, weight.shape[2:], strict=True):
        reach = dilation * (size - 1)
        if transposed:
            sizes.append((length - 1) * stride + reach + window["out_padding"] + 1 - 2 * padding)
        else:
            sizes.append((length + 2 * padding - reach - 1) // stride + 1)
    return result.shape == (batch, weight.shape[outer], *sizes)


def _pooled(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    window, stride = question.attribute("window"), question.attribute("stride")
    if layout.rank != 4 or not _pairs(window, stride):
        return False
    sizes = [
        (length - size) // step + 1
        for length, size, step in zip(layout.shape[2:], window, stride, strict=True)
    ]
    return same(*dtypes) and result.shape == (*layout.shape[:2], *sizes)


def _pairs(*pairs: object) -> bool:
    return all(type(one) is tuple and len(one) == 2 and count(*one) for one in pairs)


def _resized(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    ranks = same(4, layout.rank, result.rank)
    return ranks and same(*dtypes) and result.shape[:2] == layout.shape[:2]


def _interpolated(question: Question) -> bool:
    scale, aligned = question.attribute("scale"), question.attribute("align_corners")
    is_told = scale is None or (
        type(scale) is tuple and len(scale) == 2 and all(type(one) is float for one in scale)
    )
    return is_told and type(aligned) is bool and _resized(question)


def _as_rows(question: Question, axes: int) -> bool:
    dtypes, (result, layout) = parts(question)
    window = dict(question.attributes)
    require_counts(question.op.name, *window.values())
    if layout.rank != axes + 2 or result.rank != 2 * axes + 2 or not same(*dtypes):
        return False
    if not count(window["stride"], window["dilation"]):
        return False
    sizes = result.shape[axes + 2 :]
    lengths = [
        (length + 2 * window["padding"] - window["dilation"] * (size - 1) - 1) // window["stride"]
        + 1
        for length, size in zip(layout.shape[2:], sizes, strict=True)
    ]
    return result.shape == (layout.shape[0], *lengths, layout.shape[1], *sizes)


def _as_windows(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    stride = question.attribute("stride")
    if layout.rank != 4 or not count(stride) or not lies(layout) or not same(*dtypes):
        return False
    batch, length, channels, window = layout.shape
    return result.shape == (batch, channels, (length - 1) * stride + window)


_WINDOW = "stride padding dilation"

IM2COL1D = define(
    "im2col1d",
    Family(
        "im2col1d",
        "x",
        "(batch, length, channels, kernel)",
        check=partial(_as_rows, axes=1),
        attributes=_WINDOW,
        settings="window",
    ),
    "im2col1d",
    CONVOLVED,
    "windows as rows",
)
IM2COL = define(
    "im2col",
    Family(
        "im2col",
        "x",
        "(batch, rows, columns, channels, kernel, kernel)",
        check=partial(_as_rows, axes=2),
        attributes=_WINDOW,
        settings="window",
    ),
    "im2col",
    CONVOLVED,
    "windows as rows",
)
COL2IM1D = define(
    "col2im1d",
    Family(
        "col2im1d",
        "x",
        "(batch, channels, length)",
        check=_as_windows,
        attributes="stride",
        accuracy=OF_PRODUCT,
    ),
    "col2im1d",
    CONVOLVED,
    "sum of overlapping windows",
)
CONV1D = define(
    "conv1d",
    Family(
        "conv1d",
        "x kernel",
        "(batch, channels, length)",
        check=partial(_convolved, axes=1),
        attributes=_WINDOW,
        accuracy=OF_PRODUCT,
    ),
    "conv1d",
    CONVOLVED,
    "convolution, not flipped",
)
CONV2D = define(
    "conv2d",
    Family(
        "conv2d",
        "x kernel",
        "(batch, channels, rows, columns)",
        check=partial(_convolved, axes=2),
        attributes=_WINDOW,
        accuracy=OF_PRODUCT,
    ),
    "conv2d",
    CONVOLVED,
    "convolution, not flipped",
)
CONV_TRANSPOSE1D = define(
    "conv_transpose1d",
    Family(
        "conv_transpose1d",
        "x kernel",
        "(batch, channels, length)",
        check=partial(_convolved, axes=1),
        attributes=f"{_WINDOW} out_padding",
        accuracy=OF_PRODUCT,
    ),
    "conv_transpose1d",
    CONVOLVED,
    "gradient of a convolution",
)
CONV_TRANSPOSE2D = define(
    "conv_transpose2d",
    Family(
        "conv_transpose2d",
        "x kernel",
        "(batch, channels, rows, columns)",
        check=partial(_convolved, axes=2),
        attributes=f"{_WINDOW} out_padding",
        accuracy=OF_PRODUCT,
    ),
    "conv_transpose2d",
    CONVOLVED,
    "gradient of a convolution",
)
POOLING = Family(
    "pool2d",
    "x",
    "(batch, channels, rows, columns)",
    check=_pooled,
    attributes="window stride",
    accuracy=OF_PRODUCT,
)
AVG_POOL2D = define("avg_pool2d", POOLING, "avg_pool2d", CONVOLVED, "mean of windows")
MAX_POOL2D = define(
    "max_pool2d", POOLING, "max_pool2d", CONVOLVED, "maximum of windows", accuracy=EXACT
)
UPSAMPLE_NEAREST2D = define(
    "upsample_nearest2d",
    Family(
        "nearest2d",
        "x",
        "(batch, channels, rows, columns)",
        check=_resized,
        settings="rows columns",
    ),
    "upsample_nearest2d",
    CONVOLVED,
    "nearest element",
)
UPSAMPLE_BILINEAR2D = define(
    "upsample_bilinear2d",
    Family(
        "bilinear2d",
        "x",
        "(batch, channels, rows, columns)",
        check=_interpolated,
        attributes="align_corners scale",
        accuracy=ROW,
        settings="rows columns",
    ),
    "upsample_bilinear2d",
    CONVOLVED,
    "bilinear interpolation",
)
