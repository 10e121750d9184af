"""Every operation of ubridge, one line each; everything else about them is derived from here.

A line holds the operation's name, the root of its kernels' names, the element types it is promised
for, and the same computation in numpy. The family says what operands it takes and the result's
shape. `columns.py` says how each backend names the kernels of a family, `prepare` what arguments
they get.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = Any
"""A numpy array; the references are written for f64 and for integers."""


@dataclass(frozen=True)
class Family:
    """Operations with the same operands and the same rule for the result's shape."""

    name: str
    operands: str
    """The operands, as the documentation lists them."""
    shape: str
    """The result's shape, in words."""
    replaces: int = 0
    """How many of the first operands a result of the same layout may overwrite in place.

    Kernels read all that they need of such an element before they write there.
    """


FAMILIES = {
    family.name: family
    for family in (
        Family("unary", "x", "shape of x", replaces=1),
        Family("unary_scalar", "x, parameter", "shape of x", replaces=1),
        Family("affine", "x, multiplier, addend", "shape of x", replaces=1),
        Family("binary", "x, y", "broadcast of x and y", replaces=2),
        Family("compare", "x, y", "broadcast of x and y; u8, 0 or 1", replaces=2),
        Family("cast", "x, dtype", "shape of x", replaces=1),
        Family("where", "condition, x, y", "broadcast of all three", replaces=3),
        Family("masked_fill", "x, mask, value", "broadcast of x and mask", replaces=2),
        Family("fill", "x, value", "shape of x, overwritten"),
        Family("copy2d", "x", "rows of x, written over rows of another buffer"),
        Family("index_select", "x, ids, axis", "shape of x; the axis has one entry per id"),
        Family("gather", "x, ids, axis", "shape of ids"),
        Family("scatter", "x, ids, source, axis", "shape of x, changed in place"),
        Family("index_add", "x, ids, source, axis", "shape of x, changed in place"),
        Family("reduce", "x, axes", "shape of x without the axes"),
        Family("arg_reduce", "x, axis", "shape of x without the axis; u32"),
        Family("softmax", "x", "shape of x; over its last axis", replaces=1),
        Family("rmsnorm", "x, weight, epsilon", "shape of x; over its last axis", replaces=1),
        Family(
            "layernorm", "x, weight, bias, epsilon", "shape of x; over its last axis", replaces=1
        ),
        Family("rope_i", "x, cos, sin", "shape of x: (batch, heads, positions, width)", replaces=1),
        Family("rope", "x, cos, sin", "shape of x: (batch, heads, positions, width)", replaces=1),
        Family(
            "rope_thd", "x, cos, sin", "shape of x: (batch, positions, heads, width)", replaces=1
        ),
        Family("sort", "x", "shape of x; along its last axis; u32"),
        Family("random", "shape, seed, position", "the given shape"),
        Family("im2col1d", "x, window", "(batch, length, channels, kernel)"),
        Family("im2col", "x, window", "(batch, rows, columns, channels, kernel, kernel)"),
        Family("col2im1d", "x, window", "(batch, channels, length)"),
        Family("conv1d", "x, kernel, window", "(batch, channels, length)"),
        Family("conv2d", "x, kernel, window", "(batch, channels, rows, columns)"),
        Family("conv_transpose1d", "x, kernel, window", "(batch, channels, length)"),
        Family("conv_transpose2d", "x, kernel, window", "(batch, channels, rows, columns)"),
        Family("pool2d", "x, window, stride", "(batch, channels, rows, columns)"),
        Family("nearest2d", "x, rows, columns", "(batch, channels, rows, columns)"),
        Family("matmul", "x, y", "(…, rows of x, columns of y)"),
        Family("attention", "query, key, value, mask", "shape of query"),
        Family("log_softmax", "x", "shape of x; over its last axis", replaces=1),
        Family("gated", "x, y", "shape of x", replaces=2),
        Family("quantized_matmul", "x, y, scales, zeros", "(…, rows of x, columns of y)"),
        Family("quantized_matvec", "block weight, x", "(…, rows of the weight)"),
        Family("activations", "x", "(vectors, bytes)"),
        Family("quantized_product", "block weight, activations", "(vectors, rows)"),
        Family("indexed_product", "block weights, activations, ids", "(tokens, used, rows)"),
        Family("block_elements", "block weight", "(rows, columns) of the weight"),
        Family("kv_concat", "x, y, axis", "shape of x, longer along the axis"),
        Family("kv_append", "x, source, position", "shape of x, changed in place"),
        Family("rope_at", "x, cos, sin, position", "shape of x: (tokens, heads, width)"),
        Family("cached_attention", "query, keys, values, position, bias", "shape of query"),
        Family("rotary", "query, key, angles, positions", "query and key, in place"),
        Family("dequantize", "blocks", "one axis"),
        Family("quantize", "x", "blocks"),
        Family("cache", "key, value, caches, slots", "the caches, in place"),
        Family("paged_attention", "query, caches, tables, lengths", "shape of query"),
        Family("bilinear2d", "x, rows, columns", "(batch, channels, rows, columns)"),
    )
}


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. There is one object of each: compare with `is`."""

    name: str
    family: Family
    root: str
    """The beginning of its kernels' names."""
    dtypes: tuple[str, ...]
    """Element types of `x` it is promised for wherever Candle's kernels run."""
    summary: str
    reference: Callable[..., Array] | None = None
    """The same in numpy, where it is one expression."""

    @cached_property
    def is_of_floats(self) -> bool:
        """Whether it is promised for floats alone; for integers numpy's result is f64."""
        return bool(self.dtypes) and not self.has_integers

    @cached_property
    def has_integers(self) -> bool:
        """Whether it is promised for integers."""
        return not set(self.dtypes).isdisjoint(INTEGERS.split())

    def __repr__(self) -> str:
        return f"<op {self.name}>"


FLOATS = "bf16 f16 f32 f64 f8e4m3"
REALS = "bf16 f16 f32 f64"
INTEGERS = "u8 u32 i16 i32 i64"
ALL = f"{FLOATS} {INTEGERS}"
CAST_ONLY = "i8 u16 u64"
"""Integers that operations take after `astype` alone."""
ORDERED = f"{REALS} {INTEGERS}"
CONVOLVED = f"{REALS} u8 u32"


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erfinv(x: Array) -> Array:
    # Newton's method from a normal quantile, on erf or erfc, whichever does not cancel.
    def inverse(x: float) -> float:
        if not x < 1:
            return math.inf if x == 1 else math.nan
        y = -NormalDist().inv_cdf((1 - x) / 2) / math.sqrt(2)
        for _ in range(2):
            error = math.erf(y) - x if x < 0.5 else (1 - x) - math.erfc(y)
            y -= error * math.sqrt(math.pi) / 2 * math.exp(y * y)
        return y

    from statistics import NormalDist  # it takes long to import

    return np.copysign(np.vectorize(inverse, otypes=[np.float64])(np.abs(x)), x)


def _normcdf(x: Array) -> Array:
    return np.vectorize(lambda one: math.erfc(-one / math.sqrt(2)) / 2, otypes=[np.float64])(x)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def _round_half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _log_softmax(x: Array) -> Array:
    above = x - x.max(-1, keepdims=True)
    return above - np.log(np.exp(above).sum(-1, keepdims=True))


def _rmsnorm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def _layernorm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centered * centered).mean(-1, keepdims=True) + epsilon)
    return centered / deviation * weight + bias


# name, family, root of the kernels, dtypes, summary, reference
_LINES: tuple[tuple[str, str, str, str, str, Callable[..., Array] | None], ...] = (
    ("copy", "unary", "ucopy", ALL, "x", lambda x: x),
    ("negative", "unary", "uneg", ALL, "-x", np.negative),
    ("reciprocal", "unary", "urecip", FLOATS, "1 / x", lambda x: 1 / x),
    ("exp", "unary", "uexp", FLOATS, "e to the x", np.exp),
    ("expm1", "unary", "uexpm1", FLOATS, "e to the x, minus 1", np.expm1),
    ("log", "unary", "ulog", FLOATS, "natural logarithm", np.log),
    ("log1p", "unary", "ulog1p", FLOATS, "natural logarithm of 1 + x", np.log1p),
    ("sin", "unary", "usin", FLOATS, "sine", np.sin),
    ("cos", "unary", "ucos", FLOATS, "cosine", np.cos),
    ("tanh", "unary", "utanh", FLOATS, "hyperbolic tangent", np.tanh),
    ("erf", "unary", "uerf", FLOATS, "error function", _erf),
    ("erfinv", "unary", "uerfinv", FLOATS, "inverse of the error function", _erfinv),
    ("ceil", "unary", "uceil", ALL, "least integer not below x", np.ceil),
    ("floor", "unary", "ufloor", ALL, "greatest integer not above x", np.floor),
    ("round", "unary", "uround", ALL, "nearest integer, half away from 0", _round_half_away),
    ("normcdf", "unary", "unormcdf", FLOATS, "normal distribution function", _normcdf),
    ("abs", "unary", "uabs", ALL, "magnitude", np.abs),
    ("square", "unary", "usqr", ALL, "x times x", np.square),
    ("sqrt", "unary", "usqrt", FLOATS, "square root", np.sqrt),
    ("rsqrt", "unary", "ursqrt", "", "1 / square root of x", lambda x: 1 / np.sqrt(x)),
    ("gelu", "unary", "ugelu", FLOATS, "GELU, tanh form", _gelu),
    ("gelu_erf", "unary", "ugelu_erf", FLOATS, "GELU, erf form", lambda x: x * _normcdf(x)),
    ("relu", "unary", "urelu", ALL, "the larger of x and 0", lambda x: np.maximum(x, 0)),
    ("silu", "unary", "usilu", FLOATS, "x times sigmoid(x)", lambda x: x * _sigmoid(x)),
    ("sign", "unary", "usign", ALL, "-1, 0 or 1", np.sign),
    ("sigmoid", "unary", "usigmoid", FLOATS, "1 / (1 + e to the -x)", _sigmoid),
    ("elu", "unary_scalar", "uelu", FLOATS, "x above 0, parameter times (e to the x - 1) below",
     lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))),
    ("power", "unary_scalar", "upowf", FLOATS, "x to the parameter",
     # np.power takes a square root where the exponent is 0.5: of -inf it says NaN, powf +inf
     np.float_power),
    ("affine", "affine", "affine", ALL, "x times multiplier plus addend",
     lambda x, multiplier, addend: x * multiplier + addend),
    ("add", "binary", "badd", ALL, "x + y", np.add),
    ("subtract", "binary", "bsub", ALL, "x - y", np.subtract),
    ("multiply", "binary", "bmul", ALL, "x times y", np.multiply),
    ("divide", "binary", "bdiv", ALL, "x / y; integers towards 0",
     lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)),
    ("maximum", "binary", "bmaximum", ALL, "the larger", np.maximum),
    ("minimum", "binary", "bminimum", ALL, "the smaller", np.minimum),
    ("atan2", "binary", "batan2", FLOATS, "angle of the point (y, x), in radians", np.arctan2),
    ("mod", "binary", "mod", "", "remainder of x / y", np.fmod),
    ("equal", "compare", "eq", ALL, "x == y", np.equal),
    ("not_equal", "compare", "ne", ALL, "x != y", np.not_equal),
    ("less", "compare", "lt", ALL, "x < y", np.less),
    ("less_equal", "compare", "le", ALL, "x <= y", np.less_equal),
    ("greater", "compare", "gt", ALL, "x > y", np.greater),
    ("greater_equal", "compare", "ge", ALL, "x >= y", np.greater_equal),
    ("astype", "cast", "cast", f"{ALL} {CAST_ONLY}", "x as another dtype", None),
    ("where", "where", "where", ALL, "x where the condition is not 0, else y", np.where),
    ("masked_fill", "masked_fill", "maskfill", REALS, "x, or value where the mask is not 0",
     lambda x, mask, value: np.where(mask, value, x)),
    ("fill", "fill", "const_set", ALL, "value in every element", None),
    ("copy2d", "copy2d", "copy2d", ALL, "rows with a pitch", None),
    ("index_select", "index_select", "is", ALL, "x at ids of an axis",
     lambda x, ids, axis: np.take(x, ids, axis)),
    ("gather", "gather", "gather", ALL, "x at one id for each element",
     lambda x, ids, axis: np.take_along_axis(x, ids, axis)),
    ("scatter", "scatter", "s", ALL, "source to one id for each of its elements", None),
    ("scatter_add", "scatter", "sa", ALL, "source added at one id for each element", None),
    ("index_add", "index_add", "ia", ALL, "slices of source added at ids of an axis", None),
    ("sum", "reduce", "fast_sum", ORDERED, "sum", np.sum),
    ("min", "reduce", "fast_min", ORDERED, "minimum", np.min),
    ("max", "reduce", "fast_max", ORDERED, "maximum", np.max),
    ("argmin", "arg_reduce", "fast_argmin", ORDERED, "index of the first minimum", np.argmin),
    ("argmax", "arg_reduce", "fast_argmax", ORDERED, "index of the first maximum", np.argmax),
    ("softmax", "softmax", "softmax", REALS, "e to the x over the sum of e to the x", _softmax),
    ("rms_norm", "rmsnorm", "rmsnorm", REALS, "x over its root mean square", _rmsnorm),
    ("layer_norm", "layernorm", "layernorm", REALS, "(x - mean) over the standard deviation",
     _layernorm),
    ("rope_i", "rope_i", "rope_i", REALS, "rotary positions on neighbouring pairs", None),
    ("rope", "rope", "rope", REALS, "rotary positions on pairs half a width apart", None),
    ("rope_thd", "rope_thd", "rope_thd", REALS, "rope with positions before heads", None),
    ("argsort", "sort", "asort_asc", ORDERED, "indices in rising order", None),
    ("argsort_descending", "sort", "asort_desc", ORDERED, "indices in falling order", None),
    ("rand", "random", "rand", FLOATS, "uniform numbers in [0, 1)", None),
    ("randn", "random", "randn", FLOATS, "normal numbers of mean 0 and variance 1", None),
    ("im2col1d", "im2col1d", "im2col1d", CONVOLVED, "windows as rows", None),
    ("im2col", "im2col", "im2col", CONVOLVED, "windows as rows", None),
    ("col2im1d", "col2im1d", "col2im1d", CONVOLVED, "sum of overlapping windows", None),
    ("conv1d", "conv1d", "conv1d", CONVOLVED, "convolution, not flipped", None),
    ("conv2d", "conv2d", "conv2d", CONVOLVED, "convolution, not flipped", None),
    ("conv_transpose1d", "conv_transpose1d", "conv_transpose1d", CONVOLVED,
     "gradient of a convolution", None),
    ("conv_transpose2d", "conv_transpose2d", "conv_transpose2d", CONVOLVED,
     "gradient of a convolution", None),
    ("avg_pool2d", "pool2d", "avg_pool2d", CONVOLVED, "mean of windows", None),
    ("max_pool2d", "pool2d", "max_pool2d", CONVOLVED, "maximum of windows", None),
    ("upsample_nearest2d", "nearest2d", "upsample_nearest2d", CONVOLVED,
     "nearest element", None),
    ("upsample_bilinear2d", "bilinear2d", "upsample_bilinear2d", CONVOLVED,
     "bilinear interpolation", None),
    ("matmul", "matmul", "matmul", ORDERED, "matrix product", np.matmul),
    ("attention", "attention", "sdpa", REALS, "softmax-weighted sum of values", None),
    ("log_softmax", "log_softmax", "log_softmax", REALS,
     "x minus the logarithm of the sum of e to the x", _log_softmax),
    ("silu_mul", "gated", "silu_mul", REALS, "silu(x) times y",
     lambda x, y: x * _sigmoid(x) * y),
    ("matmul_4bit", "quantized_matmul", "4bit", "", "product with a weight of 4 bits", None),
    ("matmul_8bit", "quantized_matmul", "8bit", "", "product with a weight of 8 bits", None),
    ("quantized_matvec", "quantized_matvec", "matvec", "f32",
     "x times the transpose of a block weight of a `format`", None),
    ("activations", "activations", "activations", "bf16 f16 f32",
     "x in 8 bits, in runs of 32 or 256 `elements`", None),
    ("quantized_product", "quantized_product", "product", "bf16 f16 f32",
     "8-bit x times the transpose of a block weight of a `format`", None),
    ("indexed_product", "indexed_product", "indexed", "bf16 f16 f32",
     "8-bit x times the transposes of the block weights at ids", None),
    ("block_elements", "block_elements", "dequantize", "bf16 f16 f32",
     "elements of a block weight of a `format`", None),
    ("kv_concat", "kv_concat", "kvconcat", REALS, "keys or values, appended", None),
    ("kv_append", "kv_append", "kv_append", REALS, "keys or values written to a cache", None),
    ("rope_at", "rope_at", "rope_at", REALS, "rotary positions from device memory", None),
    ("cached_attention", "cached_attention", "sdpa_cached", REALS,
     "attention over the filled part of a cache", None),
    ("rotary", "rotary", "rope", "", "queries and keys rotated in place", None),
    ("rotary_f32", "rotary", "rope_f32", "", "the same by angles of f32", None),
    ("dequantize_q8_0", "dequantize", "dequantize_block_q8_0", "", "elements of blocks", None),
    ("quantize_q8_0", "quantize", "quantize_block_q8_0", "", "blocks of elements", None),
    ("reshape_and_cache", "cache", "reshape_and_cache", "", "keys and values kept", None),
    ("paged_attention", "paged_attention", "paged_attention_v1", "",
     "attention of one token over kept keys and values", None),
)  # fmt: skip

WORK = Op(
    "work",
    Family("work", "buffers", "shape of a buffer it may write"),
    "",
    (),
    "a program's own work",
)
"""What a trace records besides operations: launches of others' kernels, copies and fills."""

OPS = {
    name: Op(name, FAMILIES[family], root, tuple(dtypes.split()), summary, reference)
    for name, family, root, dtypes, summary, reference in _LINES
}
"""Name to operation, in the order of the table."""
