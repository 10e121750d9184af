"""Operations on windows: convolutions, pools, resizing."""

from __future__ import annotations

from functools import partial

from ubridge.core.accuracy import EXACT, OF_PRODUCT, ROW
from ubridge.core.fits import count, flag, require, require_counts, shapes
from ubridge.core.layout import Shape
from ubridge.core.operation import CONVOLVED, Family, Op, define
from ubridge.core.question import Question


def _convolved(question: Question, axes: int) -> Shape:
    """Return the result's shape; refuse inconsistent channels and windows."""
    name, (x, kernel) = question.op.name, shapes(question)
    window = _window(question)
    groups = window.pop("groups")
    for operand, shape in (("x", x), ("kernel", kernel)):
        _require_axes(name, operand, shape, axes + 2)
    transposed = "out_padding" in window
    expected = kernel[0] if transposed else kernel[1] * groups
    require(
        x[1] == expected,
        f"{name}: expected as many channels in both, got shapes {x} and {kernel}"
        f"{f' in {groups} groups' if groups > 1 else ''}",
    )
    require(
        kernel[0] % groups == 0,
        f"{name}: expected a multiple of the {groups} groups in the first axis of the kernel, "
        f"got {kernel}",
    )
    results = kernel[1] * groups if transposed else kernel[0]
    length_of = _spread if transposed else partial(_positions, name)
    lengths = zip(x[2:], kernel[2:], strict=True)
    return Shape((x[0], results, *[length_of(*one, **window) for one in lengths]))


def _positions(
    name: str, length: int, size: int, stride: int, padding: int = 0, dilation: int = 1
) -> int:
    """Number of windows along an axis."""
    reach = dilation * (size - 1) + 1
    whole = length + 2 * padding
    require(
        size >= 1 and whole >= reach,
        f"{name}: expected a window of 1 to {whole} elements with its gaps, which an axis of "
        f"{length} has with its padding, got {reach}",
    )
    return (whole - reach) // stride + 1


def _spread(
    length: int, size: int, stride: int, padding: int, dilation: int, out_padding: int
) -> int:
    """Length of an axis on which windows are added."""
    whole = (length - 1) * stride + dilation * (size - 1) + out_padding + 1
    return max(whole - 2 * padding, 0) if length else 0


def _require_axes(name: str, operand: str, shape: Shape, axes: int) -> None:
    require(len(shape) == axes, f"{name}, {operand!r}: expected {axes} axes, got shape {shape}")


def _window(question: Question) -> dict[str, int]:
    """Return the attributes; refuse values that kernels cannot represent."""
    window = dict(question.attributes)
    require_counts(question.op.name, *window.values())
    for name in ("stride", "dilation", "groups"):
        least = f"{question.op.name}: expected at least 1 for {name}"
        require(count(window.get(name, 1)), least)
    return window


def _pooled(question: Question) -> Shape:
    name, (x,) = question.op.name, shapes(question)
    _require_axes(name, "x", x, 4)
    pairs = [question.attribute("window"), question.attribute("stride")]
    fits = all(type(one) is tuple and len(one) == 2 and count(*one) for one in pairs)
    require(fits, f"{name}: expected a window and a stride of two numbers, got {pairs!r:.80}")
    sizes = zip(x[2:], *pairs, strict=True)
    return Shape((*x[:2], *[_positions(name, *one) for one in sizes]))


def _resized(question: Question) -> Shape:
    name, (x,) = question.op.name, shapes(question)
    _require_axes(name, "x", x, 4)
    sizes = question.shape[2:]
    require(x.size or 0 in (*x[:2], *sizes), f"{name}: nothing to enlarge in shape {x}")
    return Shape((*x[:2], *sizes))


def _interpolated(question: Question) -> Shape:
    scale = question.attribute("scale")
    pair = type(scale) is tuple and len(scale) == 2 and all(type(one) is float for one in scale)
    require(pair or scale is None, f"{question.op.name}: expected two scales, got {scale!r:.80}")
    flag(question, "align_corners")
    return _resized(question)


def _as_rows(question: Question, axes: int) -> Shape:
    """Return the shape of windows as rows: the last axes are the window."""
    name, (x,) = question.op.name, shapes(question)
    _require_axes(name, "x", x, axes + 2)
    _require_axes(name, "out", question.shape, 2 * axes + 2)
    sizes, window = question.shape[axes + 2 :], _window(question)
    positions = [_positions(name, *one, **window) for one in zip(x[2:], sizes, strict=True)]
    return Shape((x[0], *positions, x[1], *sizes))


def _as_windows(question: Question) -> Shape:
    (x,), window = shapes(question), _window(question)
    _require_axes(question.op.name, "x", x, 4)
    batch, length, channels, size = x
    return Shape((batch, channels, _spread(length, size, window["stride"], 0, 1, 0)))


_WINDOW = "stride padding dilation"
_CONVOLUTION = f"{_WINDOW} groups"

_LINE, _IMAGE = "(batch, channels, length)", "(batch, channels, rows, columns)"


def _windows(name: str, axes: int, shape: str) -> Op:
    """Define windows of some axes as rows."""
    rule, settings = partial(_as_rows, axes=axes), "window"
    family = Family(name, "x", shape, rule=rule, attributes=_WINDOW, settings=settings)
    return define(name, family, name, CONVOLVED, "windows as rows")


def _convolution(name: str, axes: int, summary: str, attributes: str = _CONVOLUTION) -> Op:
    """Define a convolution along some axes."""
    rule, shape = partial(_convolved, axes=axes), _LINE if axes == 1 else _IMAGE
    family = Family(name, "x kernel", shape, rule=rule, attributes=attributes, accuracy=OF_PRODUCT)
    return define(name, family, name, CONVOLVED, summary)


IM2COL1D = _windows("im2col1d", 1, "(batch, length, channels, kernel)")
IM2COL = _windows("im2col", 2, "(batch, rows, columns, channels, kernel, kernel)")
COL2IM1D = define(
    "col2im1d",
    Family(
        "col2im1d",
        "x",
        _LINE,
        rule=_as_windows,
        packed=1,
        attributes="stride",
        accuracy=OF_PRODUCT,
    ),
    "col2im1d",
    CONVOLVED,
    "sum of overlapping windows",
)
CONV1D = _convolution("conv1d", 1, "convolution, not flipped")
CONV2D = _convolution("conv2d", 2, "convolution, not flipped")
CONV_TRANSPOSE1D = _convolution(
    "conv_transpose1d", 1, "gradient of a convolution", f"{_CONVOLUTION} out_padding"
)
CONV_TRANSPOSE2D = _convolution(
    "conv_transpose2d", 2, "gradient of a convolution", f"{_CONVOLUTION} out_padding"
)
POOLING = Family(
    "pool2d",
    "x",
    _IMAGE,
    rule=_pooled,
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
        _IMAGE,
        rule=_resized,
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
        _IMAGE,
        rule=_interpolated,
        attributes="align_corners scale",
        accuracy=ROW,
        settings="rows columns",
    ),
    "upsample_bilinear2d",
    CONVOLVED,
    "bilinear interpolation",
)
