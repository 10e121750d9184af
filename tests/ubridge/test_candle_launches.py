"""ubridge's launches suit Candle's kernels, too: kernels that read a layout get one.

The PTX of Candle's kernels (candle-kernels, commit 2a13b0f3) shows the use of a null `info`. Some
kernels treat a null `info` as contiguous operands; the others read all `num_dims` dimensions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from tests.ubridge.graph_mutants import traced
from ubridge.core.prepared import Launch
from ubridge.device.executor import DeviceExecutor
from uhal import Device

SPEC = Path(__file__).resolve().parents[1] / "data" / "candle_entries.json"
CANDLES = {
    entry: module
    for module, entries in json.loads(SPEC.read_text("utf-8"))["modules"].items()
    for entry in entries
}

NULL_IS_CONTIGUOUS = {"affine", "binary", "cast", "fill", "unary"}
"""Modules whose kernels compare `info` with null."""
READS_ITS_DIMENSIONS = {"conv", "indexing", "reduce", "ternary"}
"""Modules whose kernels always read `info`: `num_dims` entries, or all."""


def test_null_is_given_only_where_candle_takes_it(host: Device, rng: np.random.Generator) -> None:
    """Prepare an operation of every family, with contiguous operands where that is possible."""
    executor = DeviceExecutor.of(host)
    seen = set()
    for call in traced(rng).calls:
        for step in executor.prepare(call.question).steps if call is not None else ():
            if not isinstance(step, Launch) or candles(step.entry) is None:
                continue
            module = CANDLES[str(candles(step.entry))]
            given = step.arguments
            info = {"info", "dims_and_strides"} & set(given)
            if not info:
                continue
            seen.add(module)
            if given[info.pop()] is None:
                reads_nothing = given.get("num_dims") == 0
                assert module in NULL_IS_CONTIGUOUS or reads_nothing, f"{step.entry} reads null"
    assert seen == NULL_IS_CONTIGUOUS | READS_ITS_DIMENSIONS


def candles(entry: str) -> str | None:
    """Return the name of Candle's entry that `entry` replaces, if any."""
    spelled = [entry, *(re.sub("f8e4m3", one, entry) for one in ("f8_e4m3", "fp8_e4m3"))]
    return next((one for one in spelled if one in CANDLES), None)
