"""Compensated sums and sums in log space, against exact sums and against one softmax in f64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sampling import rounds
from ubridge.stable_sums import CompensatedSum, StableAccumulator
from uhal.errors import ArgumentValueError


def total(terms: list[float], kind: str) -> float:
    made = CompensatedSum(kind)  # type: ignore[arg-type]
    for one in terms:
        made.add(one)
    return float(made.value)


def test_neumaier_keeps_what_kahan_loses() -> None:
    terms = [1.0, 1e100, 1.0, -1e100]
    assert [total(terms, one) for one in ("none", "kahan", "neumaier")] == [0, 0, 2]
    assert total([1.0, math.inf, 2.0], "neumaier") == math.inf
    assert math.isnan(total([math.inf, -math.inf], "kahan"))
    with pytest.raises(ArgumentValueError, match="compensation: expected one of"):
        CompensatedSum("some")  # type: ignore[arg-type]


def test_a_sum_of_many_terms_is_within_one_rounding(rng: np.random.Generator) -> None:
    """Each sum of a row adds a thousand terms, and is compared with the exact sum."""
    terms = rng.random((1000, rounds(50, 1000)))
    for kind in ("kahan", "neumaier"):
        made = CompensatedSum(kind)  # type: ignore[arg-type]
        for one in terms:
            made.add(one)
        exact = np.array([math.fsum(one) for one in terms.T])
        assert (abs(made.value - exact) <= np.spacing(exact)).all()


def test_a_million_tiny_terms_are_kept() -> None:
    plain, kept = np.float64(1.0), CompensatedSum("kahan")
    kept.add(1.0)
    for _ in range(rounds(20_000, 1_000_000)):
        plain = plain + 1e-17
        kept.add(1e-17)
    assert plain == 1
    assert float(kept.value) == pytest.approx(1 + rounds(20_000, 1_000_000) * 1e-17, rel=1e-15)


def test_the_published_example() -> None:
    made = StableAccumulator()
    assert made.update(5, 10) == 0
    assert made.update(3, 5) == 1
    assert float(made.log_sum) == pytest.approx(5 + math.log(10 + 5 * math.exp(-2)), rel=1e-15)


@pytest.mark.parametrize("count", [1, 7, 4096, 1_000_000])
def test_parts_in_any_split_are_one_softmax(rng: np.random.Generator, count: int) -> None:
    """Parts summed in f32 are within 1e-6 of one softmax in f64, even for a million keys."""
    for scores in (
        rng.standard_normal(count) * float(rng.choice([1.0, 1e4])),
        np.zeros(count),
        np.where(np.arange(count) == rng.integers(count), 1e4, 0.0),
        np.where(rng.random(count) < 0.5, -np.inf, rng.standard_normal(count)),
    ):
        values = rng.standard_normal((count, 2)).astype(np.float32)
        ends = np.sort(rng.integers(0, count + 1, int(rng.integers(1, 40))))
        made, parts = StableAccumulator(), []
        for begin, end in zip([0, *ends], [*ends, count], strict=True):
            part = scores[begin:end]
            largest = part.max(initial=-np.inf)
            base = 0 if np.isneginf(largest) else largest
            shares = np.exp(part - base).astype(np.float32)
            wide = shares.astype(np.float64)
            parts.append((largest, wide.sum(), wide @ values[begin:end]))
            made.update(*parts[-1])
        base = max(scores.max(), -1e300)
        shares = np.exp(scores - base)
        exact = shares @ values / max(shares.sum(), np.finfo(np.float64).tiny)
        magnitude = shares @ abs(values) / max(shares.sum(), np.finfo(np.float64).tiny)
        assert (abs(made.output - exact) <= 1e-6 * magnitude).all()
        if np.isneginf(scores).all():
            assert np.isneginf(made.log_sum)
        else:
            assert made.log_sum == pytest.approx(base + np.log(shares.sum()), rel=1e-6, abs=1e-6)
        # The results of another order and of a tree of accumulators differ by roundings only.
        again = StableAccumulator()
        for half in (parts[::2], parts[1::2]):
            own = StableAccumulator()
            for one in half:
                own.update(*one)
            again.merge(own)
        assert (abs(again.output - made.output) <= 1e-12 * magnitude).all()
        assert again.count == made.count == len(parts)


def test_rows_are_independent_and_masked_parts_change_nothing(rng: np.random.Generator) -> None:
    made, alone = StableAccumulator(), [StableAccumulator() for _ in range(3)]
    assert np.isneginf(made.log_sum)
    for _ in range(5):
        largest = np.where(rng.random(3) < 0.4, -np.inf, rng.standard_normal(3) * 1e3)
        sums = np.where(np.isneginf(largest), 0.0, 1 + rng.random(3))
        output = rng.standard_normal((3, 4)) * sums[:, None]
        made.update(largest, sums, output)
        for row, one in enumerate(alone):
            one.update(largest[row], sums[row], output[row])
    np.testing.assert_array_equal(made.output, [one.output for one in alone])
    np.testing.assert_array_equal(made.log_sum, [one.log_sum for one in alone])
    assert np.isfinite(made.output).all()
