"""Sums of very many terms on the host: compensated, and of exponentials in log space.

These sums merge the results of attention over parts of a million keys or more. They are computed by
NumPy in f64::

    total = StableAccumulator()
    for keys, values in parts:
        scores = query @ keys.T
        largest = scores.max()
        shares = np.exp(scores - largest)
        total.update(largest, shares.sum(), shares @ values)
    result = total.output
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ubridge.core.fits import require

Numbers: TypeAlias = npt.NDArray[np.float64]
Compensation: TypeAlias = Literal["none", "kahan", "neumaier"]
"""How a sum keeps its rounding errors. Neumaier's method also keeps the error where a term is
larger than the sum."""


class CompensatedSum:
    """Running sums of arrays of one shape in f64. One thread at a time may use it."""

    def __init__(self, compensation: Compensation = "neumaier") -> None:
        """Begin with zero; `ArgumentValueError` for an unknown compensation."""
        require(
            compensation in get_args(Compensation),
            f"CompensatedSum, compensation: expected one of {get_args(Compensation)}, got "
            f"{compensation!r}",
        )
        self._compensation = compensation
        self._sum: Numbers = np.zeros(())
        self._lost: Numbers = np.zeros(())

    def add(self, term: npt.ArrayLike) -> None:
        """Add an array; its shape is broadcast with the sum's."""
        x = np.asarray(term, np.float64)
        if self._compensation == "none":
            self._sum = self._sum + x
            return
        before = self._sum
        if self._compensation == "kahan":
            x = x + self._lost
        # The difference of two infinities is NaN.
        with np.errstate(invalid="ignore"):
            self._sum = total = before + x
            small_term, small_sum = (before - total) + x, (x - total) + before
        if self._compensation == "kahan":
            lost = small_term
        else:
            lost = self._lost + np.where(abs(before) >= abs(x), small_term, small_sum)
        # Nothing is lost next to an infinity.
        self._lost = np.where(np.isfinite(total), lost, 0.0)

    def scale(self, factor: npt.ArrayLike) -> None:
        """Multiply the sum and its compensation by a factor."""
        by = np.asarray(factor, np.float64)
        self._sum, self._lost = self._sum * by, self._lost * by

    @property
    def value(self) -> Numbers:
        """The sum."""
        return self._sum + self._lost


class StableAccumulator:
    """Attention over parts of the keys: sums of exponentials of scores, and of values by them.

    Scores are kept relative to the largest one so far, so they may have any size. One thread at a
    time may use it. Rows of scores are independent: all numbers may be arrays, one for each row.
    """

    def __init__(self, compensation: Compensation = "neumaier") -> None:
        """Begin with no key."""
        self._compensation: Compensation = compensation
        self._largest: Numbers = np.full((), -np.inf)
        self._total = CompensatedSum(compensation)
        self._output = CompensatedSum(compensation)
        self.count = 0
        """Number of parts so far."""

    def update(
        self, largest: npt.ArrayLike, total: npt.ArrayLike, output: npt.ArrayLike | None = None
    ) -> Numbers:
        """Add a part of the keys; return the factor by which earlier sums were scaled.

        `largest` is the largest score of each row, -infinity without a visible key. `total` is the
        sum of exp(score - largest), and `output` (…, width) of these times the values.
        """
        part = np.asarray(largest, np.float64)
        above = np.maximum(self._largest, part)
        # Without a visible key so far, differences would be NaN.
        base = np.where(np.isneginf(above), 0.0, above)
        kept, share = np.exp(self._largest - base), np.exp(part - base)
        self._total.scale(kept)
        self._total.add(share * np.asarray(total, np.float64))
        if output is not None:
            self._output.scale(kept[..., None])
            self._output.add(share[..., None] * np.asarray(output, np.float64))
        self._largest = above
        self.count += 1
        return kept

    def merge(self, other: StableAccumulator) -> None:
        """Add the keys of another accumulator of the same rows."""
        if other.count:
            output = other._output.value if other._output.value.ndim else None
            self.update(other._largest, other._total.value, output)
            self.count += other.count - 1

    @property
    def log_sum(self) -> Numbers:
        """Logarithm of the sum of the exponentials of all scores; -infinity without a key."""
        with np.errstate(divide="ignore"):
            return np.asarray(self._largest + np.log(self._total.value))

    @property
    def output(self) -> Numbers:
        """The values weighted by the softmax of all scores; zeros without a visible key."""
        total = self._total.value[..., None]
        return np.asarray(self._output.value / np.where(total == 0, 1.0, total))
