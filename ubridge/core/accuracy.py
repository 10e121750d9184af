"""Accuracy of results: the bounds for definitions to choose from.

f16, bf16 and f8 are computed in f32, f64 in f64, and every result is rounded to its dtype once. `u`
is the rounding error of the dtype, `c` is the rounding error of the kernel's type of computation. A
result differs from the exact result by at most

    u |exact| + c (relative |exact| + of_magnitude M)

`M` is the sum of the summands' magnitudes; uncompensated sums count `of_magnitude` once for each
term. Integers are exact, modulo their range. Tests check the kernels of CUDA, AMD and the host
against these bounds. GCUs run Ubridge's kernels, whose accuracy is not documented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROUNDING: Mapping[str, float] = {
    "f64": 2.0**-53,
    "f32": 2.0**-24,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "f8e4m3": 2.0**-4,
}
"""Half the relative distance between neighboring numbers."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy bound of a family."""

    words: str
    relative: float = 0
    of_magnitude: float = 0
    for_each_term: bool = False
    """Whether `of_magnitude` counts for each term that is added."""

    def bound(self, dtype: str, exact: Any, magnitude: Any = 0, terms: int = 1) -> Any:
        """Return the largest error of a result of `dtype`, element by element.

        A result below the smallest normal number may also be off by half the smallest subnormal.
        """
        computed = ROUNDING["f64" if dtype == "f64" else "f32"]
        share = self.of_magnitude * (terms if self.for_each_term else 1)
        inner = computed * (self.relative * abs(exact) + share * magnitude)
        if self is EXACT:
            return inner
        return ROUNDING[dtype] * abs(exact) + inner


EXACT = Accuracy("exact")
ROUNDED = Accuracy("rounded once", relative=1)
FUNCTION = Accuracy("8 roundings", relative=8)
SHARE = Accuracy("32 roundings", relative=32)
PARTS = Accuracy("1 rounding of each part", relative=1, of_magnitude=2)
OF_SUM = Accuracy("1 rounding of the sum of magnitudes", relative=1, of_magnitude=1)
OF_PRODUCT = Accuracy(
    "1 rounding of the magnitudes per term", relative=1, of_magnitude=1, for_each_term=True
)
STEP = Accuracy("1/220 of the largest magnitude of a run", relative=1, of_magnitude=2.0**24 / 220)
ROW = Accuracy("16 roundings, and 4 of the largest part", relative=16, of_magnitude=4)
