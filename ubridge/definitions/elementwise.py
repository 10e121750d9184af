"""Operations element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ubridge.core.accuracy import EXACT, FUNCTION, PARTS, ROUNDED, ROW, SHARE
from ubridge.core.fits import same, shapes
from ubridge.core.layout import Layout, Shape
from ubridge.core.lowering import Steps
from ubridge.core.operation import (
    ALL,
    CAST_ONLY,
    FLOATS,
    INTEGERS,
    REALS,
    Array,
    Family,
    define,
)
from ubridge.core.question import Question
from ubridge.definitions import memory
from uhal.errors import ArgumentValueError


def require_one_shape(name: str, given: Sequence[Shape]) -> Shape:
    """Return the shape that all operands have; refuse different ones."""
    if not same(*given):
        raise ArgumentValueError(
            f"{name}: expected operands of one shape, got {' '.join(map(str, given))}; "
            "broadcast_to makes it"
        )
    return given[0]


def _each(question: Question) -> Shape:
    return require_one_shape(question.op.name, shapes(question))


def _erfinv(x: Array) -> Array:
    # Newton's method from a normal quantile, on erf or erfc to avoid cancellation.
    def inverse(x: float) -> float:
        if not x < 1:
            return math.inf if x == 1 else math.nan
        y = -NormalDist().inv_cdf((1 - x) / 2) / math.sqrt(2)
        for _ in range(2):
            error = math.erf(y) - x if x < 0.5 else (1 - x) - math.erfc(y)
            y -= error * math.sqrt(math.pi) / 2 * math.exp(y * y)
        return y

    from statistics import NormalDist  # slow to import

    return np.copysign(np.vectorize(inverse, otypes=[np.float64])(np.abs(x)), x)


def _normcdf(x: Array) -> Array:
    return np.vectorize(lambda one: math.erfc(-one / math.sqrt(2)) / 2, otypes=[np.float64])(x)


def _gelu(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    # Negative powers of integers are truncated towards 0.
    cut = np.where(x == 1, 1, np.where(x + 1 == 0, 1 - 2 * (y & 1), 0))
    return np.where(y < 0, cut, np.power(x, np.where(y < 0, 0, y)))


def _left_shift(x: Array, y: Array) -> Array:
    inside = (y >= 0) & (y < 8 * x.itemsize)
    shifted = np.where(inside, np.left_shift(x, np.where(inside, y, 0).astype(y.dtype)), 0)
    return shifted.astype(x.dtype)


def _right_shift(x: Array, y: Array) -> Array:
    inside = (y >= 0) & (y < 8 * x.itemsize)
    shifted = np.right_shift(x, np.where(inside, y, 0).astype(y.dtype))
    return np.where(inside, shifted, np.where(x < 0, -1, 0).astype(x.dtype))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


UNARY = Family("unary", "x", "shape of x", rule=_each, replaces=1, accuracy=FUNCTION)
COPY = define("copy", UNARY, "ucopy", ALL, "x", lambda x: x, accuracy=EXACT)
NEGATIVE = define("negative", UNARY, "uneg", ALL, "-x", np.negative, accuracy=EXACT)
RECIPROCAL = define(
    "reciprocal", UNARY, "urecip", FLOATS, "1 / x", lambda x: 1 / x, accuracy=ROUNDED
)
EXP = define("exp", UNARY, "uexp", FLOATS, "e to the x", np.exp)
EXPM1 = define("expm1", UNARY, "uexpm1", FLOATS, "e to the x, minus 1", np.expm1)
LOG = define("log", UNARY, "ulog", FLOATS, "natural logarithm", np.log)
LOG1P = define("log1p", UNARY, "ulog1p", FLOATS, "natural logarithm of 1 + x", np.log1p)
SIN = define("sin", UNARY, "usin", FLOATS, "sine", np.sin)
COS = define("cos", UNARY, "ucos", FLOATS, "cosine", np.cos)
TAN = define("tan", UNARY, "utan", REALS, "tangent", np.tan)
ASIN = define("asin", UNARY, "uasin", REALS, "inverse sine, in radians", np.arcsin)
ACOS = define("acos", UNARY, "uacos", REALS, "inverse cosine, in radians", np.arccos)
ATAN = define("atan", UNARY, "uatan", REALS, "inverse tangent, in radians", np.arctan)
SINH = define("sinh", UNARY, "usinh", REALS, "hyperbolic sine", np.sinh)
COSH = define("cosh", UNARY, "ucosh", REALS, "hyperbolic cosine", np.cosh)
ASINH = define("asinh", UNARY, "uasinh", REALS, "inverse hyperbolic sine", np.arcsinh)
ACOSH = define("acosh", UNARY, "uacosh", REALS, "inverse hyperbolic cosine", np.arccosh)
ATANH = define("atanh", UNARY, "uatanh", REALS, "inverse hyperbolic tangent", np.arctanh)
LOG2 = define("log2", UNARY, "ulog2", REALS, "logarithm to base 2", np.log2)
LOG10 = define("log10", UNARY, "ulog10", REALS, "logarithm to base 10", np.log10)
TANH = define("tanh", UNARY, "utanh", FLOATS, "hyperbolic tangent", np.tanh)
ERF = define(
    "erf",
    UNARY,
    "uerf",
    FLOATS,
    "error function",
    lambda x: np.vectorize(math.erf, otypes=[np.float64])(x),
)
ERFINV = define("erfinv", UNARY, "uerfinv", FLOATS, "inverse of the error function", _erfinv)
CEIL = define("ceil", UNARY, "uceil", ALL, "least integer not below x", np.ceil, accuracy=EXACT)
FLOOR = define(
    "floor", UNARY, "ufloor", ALL, "greatest integer not above x", np.floor, accuracy=EXACT
)
ROUND = define(
    "round",
    UNARY,
    "uround",
    ALL,
    "nearest integer, half away from 0",
    lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    accuracy=EXACT,
)
TRUNC = define(
    "trunc",
    UNARY,
    "utrunc",
    f"{REALS} {INTEGERS}",
    "nearest integer towards 0",
    np.trunc,
    accuracy=EXACT,
)
NORMCDF = define(
    "normcdf",
    UNARY,
    "unormcdf",
    FLOATS,
    "normal distribution function",
    _normcdf,
    accuracy=SHARE,
)
ABS = define("abs", UNARY, "uabs", ALL, "magnitude", np.abs, accuracy=EXACT)
SQUARE = define("square", UNARY, "usqr", ALL, "x times x", np.square, accuracy=ROUNDED)
SQRT = define("sqrt", UNARY, "usqrt", FLOATS, "square root", np.sqrt, accuracy=ROUNDED)
RSQRT = define("rsqrt", UNARY, "ursqrt", REALS, "1 / square root of x", lambda x: 1 / np.sqrt(x))
GELU = define("gelu", UNARY, "ugelu", FLOATS, "GELU, tanh form", _gelu, accuracy=SHARE)
GELU_ERF = define(
    "gelu_erf",
    UNARY,
    "ugelu_erf",
    FLOATS,
    "GELU, erf form",
    lambda x: x * _normcdf(x),
    accuracy=SHARE,
)
RELU = define(
    "relu", UNARY, "urelu", ALL, "the larger of x and 0", lambda x: np.maximum(x, 0), accuracy=EXACT
)
SILU = define("silu", UNARY, "usilu", FLOATS, "x times sigmoid(x)", lambda x: x * _sigmoid(x))
SIGN = define("sign", UNARY, "usign", ALL, "-1, 0 or 1", np.sign, accuracy=EXACT)
SIGMOID = define("sigmoid", UNARY, "usigmoid", FLOATS, "1 / (1 + e to the -x)", _sigmoid)
WITH_NUMBER = Family(
    "unary_scalar",
    "x",
    "shape of x",
    rule=_each,
    replaces=1,
    accuracy=FUNCTION,
    numbers="parameter",
)
ELU = define(
    "elu",
    WITH_NUMBER,
    "uelu",
    FLOATS,
    "x above 0, parameter times (e to the x - 1) below",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
)
# for the exponent 0.5 np.power uses a square root: -inf gives NaN, but +inf with powf
POWER = define("power", WITH_NUMBER, "upowf", FLOATS, "x to the parameter", np.float_power)
AFFINE = define(
    "affine",
    Family(
        "affine",
        "x",
        "shape of x",
        rule=_each,
        replaces=1,
        accuracy=PARTS,
        numbers="multiplier addend",
    ),
    "affine",
    ALL,
    "x times multiplier plus addend",
    lambda x, multiplier, addend: x * multiplier + addend,
)
WHOLE = f"{INTEGERS} u64"
COMPUTED = f"{FLOATS} {WHOLE}"
DIVIDED = f"{REALS} {WHOLE}"
BINARY = Family("binary", "x y", "broadcast of x and y", rule=_each, replaces=2, accuracy=ROUNDED)
ADD = define("add", BINARY, "badd", COMPUTED, "x + y", np.add)
SUBTRACT = define("subtract", BINARY, "bsub", COMPUTED, "x - y", np.subtract)
MULTIPLY = define("multiply", BINARY, "bmul", COMPUTED, "x times y", np.multiply)
DIVIDE = define(
    "divide",
    BINARY,
    "bdiv",
    COMPUTED,
    "x / y; integers towards 0",
    lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype),
)
MAXIMUM = define("maximum", BINARY, "bmaximum", COMPUTED, "the larger", np.maximum, accuracy=EXACT)
MINIMUM = define("minimum", BINARY, "bminimum", COMPUTED, "the smaller", np.minimum, accuracy=EXACT)
ATAN2 = define(
    "atan2",
    BINARY,
    "batan2",
    FLOATS,
    "angle of the point (y, x), in radians",
    np.arctan2,
    accuracy=FUNCTION,
)
MOD = define(
    "mod",
    BINARY,
    "mod",
    DIVIDED,
    "C's remainder of x / y, with the sign of x",
    np.fmod,
    accuracy=EXACT,
)
REMAINDER = define(
    "remainder",
    BINARY,
    "bremainder",
    DIVIDED,
    "Python's remainder of x / y, with the sign of y",
    np.remainder,
)
FLOOR_DIVIDE = define(
    "floor_divide",
    BINARY,
    "bfloor_divide",
    DIVIDED,
    "x / y rounded down",
    np.floor_divide,
)
POW = define(
    "pow", BINARY, "bpow", DIVIDED, "x to the power y; integers wrap", _power, accuracy=FUNCTION
)
HYPOT = define(
    "hypot",
    BINARY,
    "bhypot",
    REALS,
    "square root of x squared plus y squared",
    np.hypot,
    accuracy=FUNCTION,
)
LOGADDEXP = define(
    "logaddexp",
    BINARY,
    "blogaddexp",
    REALS,
    "logarithm of e to the x plus e to the y",
    np.logaddexp,
    accuracy=ROW,
)
COPYSIGN = define(
    "copysign",
    BINARY,
    "bcopysign",
    REALS,
    "magnitude of x with the sign of y",
    np.copysign,
    accuracy=EXACT,
)
BITWISE_AND = define(
    "bitwise_and", BINARY, "band", WHOLE, "bits set in both", np.bitwise_and, accuracy=EXACT
)
BITWISE_OR = define(
    "bitwise_or", BINARY, "bor", WHOLE, "bits set in either", np.bitwise_or, accuracy=EXACT
)
BITWISE_XOR = define(
    "bitwise_xor", BINARY, "bxor", WHOLE, "bits set in one of both", np.bitwise_xor, accuracy=EXACT
)
BITWISE_LEFT_SHIFT = define(
    "bitwise_left_shift",
    BINARY,
    "bshl",
    WHOLE,
    "bits of x moved up by y places",
    _left_shift,
    accuracy=EXACT,
)
BITWISE_RIGHT_SHIFT = define(
    "bitwise_right_shift",
    BINARY,
    "bshr",
    WHOLE,
    "bits of x moved down by y places",
    _right_shift,
    accuracy=EXACT,
)
COMPARISON = Family(
    "compare", "x y", "broadcast of x and y; u8, 0 or 1", rule=_each, kinds="T T -> u8", replaces=2
)
EQUAL = define("equal", COMPARISON, "eq", COMPUTED, "x == y", np.equal)
NOT_EQUAL = define("not_equal", COMPARISON, "ne", COMPUTED, "x != y", np.not_equal)
LESS = define("less", COMPARISON, "lt", COMPUTED, "x < y", np.less)
LESS_EQUAL = define("less_equal", COMPARISON, "le", COMPUTED, "x <= y", np.less_equal)
GREATER = define("greater", COMPARISON, "gt", COMPUTED, "x > y", np.greater)
GREATER_EQUAL = define("greater_equal", COMPARISON, "ge", COMPUTED, "x >= y", np.greater_equal)
ASTYPE = define(
    "astype",
    Family(
        "cast",
        "x",
        "shape of x",
        rule=_each,
        kinds="* -> *",
        replaces=1,
        accuracy=ROUNDED,
        settings="dtype",
    ),
    "cast",
    f"{ALL} {CAST_ONLY}",
    "x as another dtype",
    copy=False,
)
WHERE = define(
    "where",
    Family(
        "where",
        "condition x y",
        "broadcast of all three",
        rule=_each,
        kinds="* T T -> T",
        replaces=3,
    ),
    "where",
    ALL,
    "x where the condition is not 0, else y",
    np.where,
)
MASKED_FILL = define(
    "masked_fill",
    Family(
        "masked_fill",
        "x mask",
        "broadcast of x and mask",
        rule=_each,
        kinds="T u8 -> T",
        replaces=2,
        numbers="value",
    ),
    "maskfill",
    REALS,
    "x, or value where the mask is not 0",
    lambda x, mask, value: np.where(mask, value, x),
)
SILU_MUL = define(
    "silu_mul",
    Family("gated", "x y", "shape of x", rule=_each, packed=2, replaces=2, accuracy=FUNCTION),
    "silu_mul",
    REALS,
    "silu(x) times y",
    lambda x, y: x * _sigmoid(x) * y,
)


def _compose_clip(question: Question, steps: Steps) -> None:
    """Take the maximum with one bound, and the minimum with the other."""
    (x,), layout = steps.operands, question.layout(0)
    whole, one = Layout.contiguous(layout.shape), Layout.contiguous((1,))
    spread = Layout(layout.shape, (0,) * layout.rank)
    for index, op in enumerate((MAXIMUM, MINIMUM)):
        bound = steps.scratch(1, x.dtype)
        steps.run(memory.FILL, [], (bound, one), steps.number(index))
        steps.run(op, [(x, layout), (bound, spread)], (steps.result, whole))
        x, layout = steps.result, whole


CLIP = define(
    "clip",
    Family("clip", "x", "shape of x", rule=_each, packed=1, replaces=1, numbers="min max"),
    "clip",
    REALS,
    "x limited to two numbers",
    np.clip,
    composed=_compose_clip,
)


def _compose_isfinite(question: Question, steps: Steps) -> None:
    """Compare x - x, which is NaN unless x is finite, with itself."""
    (x,), layout = steps.operands, question.layout(0)
    whole, rest = Layout.contiguous(layout.shape), steps.scratch(layout.size, x.dtype)
    steps.run(SUBTRACT, [(x, layout), (x, layout)], (rest, whole))
    steps.run(EQUAL, [(rest, whole), (rest, whole)], (steps.result, whole))


def _compose_isinf(question: Question, steps: Steps) -> None:
    """Compare the magnitude with infinity."""
    (x,), layout = steps.operands, question.layout(0)
    whole, size = Layout.contiguous(layout.shape), steps.scratch(layout.size, x.dtype)
    steps.run(ABS, [(x, layout)], (size, whole))
    bound, spread = steps.scratch(1, x.dtype), Layout(layout.shape, (0,) * layout.rank)
    steps.run(memory.FILL, [], (bound, Layout.contiguous((1,))), math.inf)
    steps.run(EQUAL, [(size, whole), (bound, spread)], (steps.result, whole))


def _compose_isnan(question: Question, steps: Steps) -> None:
    """Compare x with itself: NaN alone is not equal."""
    (x,), layout = steps.operands, question.layout(0)
    whole = Layout.contiguous(layout.shape)
    steps.run(NOT_EQUAL, [(x, layout), (x, layout)], (steps.result, whole))


KIND = Family(
    "kind_of_float", "x", "shape of x; u8, 0 or 1", rule=_each, kinds="T -> u8", replaces=1
)
ISFINITE = define(
    "isfinite",
    KIND,
    "isfinite",
    REALS,
    "whether x is neither infinite nor NaN",
    np.isfinite,
    composed=_compose_isfinite,
)
ISINF = define(
    "isinf", KIND, "isinf", REALS, "whether x is infinite", np.isinf, composed=_compose_isinf
)
ISNAN = define("isnan", KIND, "isnan", REALS, "whether x is NaN", np.isnan, composed=_compose_isnan)
SIGNBIT = define("signbit", KIND, "signbit", REALS, "whether x has a minus sign", np.signbit)
