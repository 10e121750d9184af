"""How far results may be from the exact ones: one line for each family of operations.

Halves and f8 are computed in f32, f64 in f64, and every result is rounded to its dtype once. With
`u` the rounding of the dtype and `c` that of the type computed in, a result is within

    u |exact| + c (relative |exact| + of_magnitude M)

of the exact one, where `M` is the sum of the magnitudes of what is added up; sums that are not
compensated have `of_magnitude` for each term. Integers are exact, modulo their range. This is what
tests hold CUDA's, AMD's and the host's kernels to. GCUs' kernels are Ubridge's, and no source says
what they promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ubridge.core.op_table import OPS, Op

ROUNDING: Mapping[str, float] = {
    "f64": 2.0**-53,
    "f32": 2.0**-24,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "f8e4m3": 2.0**-4,
}
"""Half the distance between neighboring numbers, relative to them."""


@dataclass(frozen=True)
class Accuracy:
    """What a family promises."""

    words: str
    relative: float = 0
    of_magnitude: float = 0
    for_each_term: bool = False
    """Whether `of_magnitude` counts for each term that is added."""

    def bound(self, dtype: str, exact: Any, magnitude: Any = 0, terms: int = 1) -> Any:
        """Return how far a result of `dtype` may be from `exact`, element by element.

        A result below the smallest normal number may also be off by half the smallest subnormal.
        """
        computed = ROUNDING["f64" if dtype == "f64" else "f32"]
        share = self.of_magnitude * (terms if self.for_each_term else 1)
        inner = computed * (self.relative * abs(exact) + share * magnitude)
        if self is EXACT:
            return inner
        return ROUNDING[dtype] * abs(exact) + inner


EXACT = Accuracy("exact")
_ROUNDED = Accuracy("rounded once", relative=1)
_FUNCTION = Accuracy("8 roundings", relative=8)
_SHARE = Accuracy("32 roundings", relative=32)
_PARTS = Accuracy("1 rounding of each part", relative=1, of_magnitude=2)
_SUM = Accuracy("1 rounding of the sum of magnitudes", relative=1, of_magnitude=1)
_PRODUCT = Accuracy(
    "1 rounding of the magnitudes per term", relative=1, of_magnitude=1, for_each_term=True
)
_STEP = Accuracy("1/220 of the largest magnitude of a run", relative=1, of_magnitude=2.0**24 / 220)
_ROW = Accuracy("16 roundings, and 4 of the largest part", relative=16, of_magnitude=4)

_OF_FAMILY: Mapping[str, Accuracy] = {
    "unary": _FUNCTION,
    "unary_scalar": _FUNCTION,
    "affine": _PARTS,
    "binary": _ROUNDED,
    "cast": _ROUNDED,
    "reduce": _SUM,
    "softmax": _ROW,
    "log_softmax": _ROW,
    "rmsnorm": _ROW,
    "layernorm": _ROW,
    "rope": _PARTS,
    "rope_i": _PARTS,
    "rope_thd": _PARTS,
    "rope_at": _PARTS,
    "gated": _FUNCTION,
    "col2im1d": _PRODUCT,
    "conv1d": _PRODUCT,
    "conv2d": _PRODUCT,
    "conv_transpose1d": _PRODUCT,
    "conv_transpose2d": _PRODUCT,
    "pool2d": _PRODUCT,
    "bilinear2d": _ROW,
    "matmul": _PRODUCT,
    "attention": _PRODUCT,
    "cached_attention": _PRODUCT,
    "quantized_matvec": _PRODUCT,
    "quantized_product": _PRODUCT,
    "indexed_product": _PRODUCT,
    "activations": _STEP,
    "block_elements": _ROUNDED,
}
_OF_OP: Mapping[str, Accuracy] = {
    **dict.fromkeys(("copy", "negative", "abs", "relu", "sign", "ceil", "floor", "round"), EXACT),
    **dict.fromkeys(("reciprocal", "square", "sqrt"), _ROUNDED),
    # Below -3 the distribution is so steep that one rounding of x is many of the result.
    **dict.fromkeys(("normcdf", "gelu", "gelu_erf"), _SHARE),
    "randn": _FUNCTION,
    **dict.fromkeys(("min", "max", "maximum", "minimum", "max_pool2d"), EXACT),
}
"""Exceptions to the family's. Operations in neither table only move or compare: exact."""


def accuracy_of(op: Op) -> Accuracy:
    """Return what an operation promises."""
    if op.family.name == "binary" and op.is_of_floats:
        return _FUNCTION  # a function, not arithmetic that the device rounds correctly
    return _OF_OP.get(op.name) or _OF_FAMILY.get(op.family.name) or EXACT


def markdown_table() -> str:
    """Return a Markdown table of every operation with dtypes."""
    lines = [
        "| Operation | Computes | Operands | Result | Dtypes | Largest error of floats |",
        "|---|---|---|---|---|---|",
    ]
    for op in OPS.values():
        if op.dtypes:
            summary = op.summary.replace("|", "\\|")
            lines.append(
                f"| `{op.name}` | {summary} | {op.family.operands} | {op.family.shape} | "
                f"{' '.join(op.dtypes)} | {accuracy_of(op).words} |"
            )
    return "\n".join(lines) + "\n"


__all__ = ["EXACT", "ROUNDING", "Accuracy", "accuracy_of", "markdown_table"]
