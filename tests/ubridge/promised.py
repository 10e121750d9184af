"""Checks that a device's result is as accurate as its operation promises."""

from __future__ import annotations

import numpy as np

from tests.ubridge.op_rows import OpRow
from tests.ubridge.op_runs import Outcome
from tests.ubridge.operands import LARGEST
from ubridge.core.accuracy import EXACT, ROUNDING, Accuracy
from uhal import as_dtype

SUBNORMAL = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}


def within(outcome: Outcome, accuracy: Accuracy, row: OpRow, told: str) -> None:
    """Fail if a result exceeds the promised error; NaN must give NaN."""
    got, exact = outcome.got, outcome.exact
    assert got.shape == exact.shape, told
    dtype = as_dtype(got.dtype).name
    if as_dtype(dtype).kind != "float":
        np.testing.assert_array_equal(got, exact.astype(got.dtype), told)
        return
    wide = exact.astype(np.longdouble)
    if dtype == "f8e4m3":
        wide = np.clip(wide, -448, 448)
    with np.errstate(all="ignore"):
        rounded = wide.astype(got.dtype).astype(np.longdouble)
        bound = row.ulps * accuracy.bound(dtype, wide, outcome.magnitude, outcome.terms)
        if row.rounds_each_step:
            parts = (1 + accuracy.relative) * abs(wide) + outcome.terms * outcome.magnitude
            bound = np.maximum(bound, row.ulps * ROUNDING[dtype] * parts)
    found = got.astype(np.longdouble)
    if accuracy is EXACT:
        # Copies and single roundings are exact to the nearest number.
        np.testing.assert_array_equal(found, rounded, told)
        return
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded), told)
    largest = LARGEST[dtype] * (1 - 2.0**-8)
    plain = np.isfinite(rounded) & (abs(wide) < largest)
    # Near the largest number, rounding may go up or down.
    np.testing.assert_array_equal(abs(found[~plain]) >= largest, abs(rounded[~plain]) >= largest)
    least = SUBNORMAL.get(dtype, 2.0**-9) / 2
    bound = np.broadcast_to(bound, wide.shape)[plain] + least
    off = abs(found[plain] - wide[plain])
    assert (off <= bound).all(), f"{told}: {(off / bound).max()} times the promised bound"
