"""The gemm tuner, compared with Ubridge's own answers, and its deliberate differences."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import rounds
from ubridge.prepare.gcu.gemm_tuner import (
    ACCUMULATOR_BYTES,
    L1_BYTES,
    AtenGemmInfo,
    AtenGemmTune,
    DataType,
    Multicore,
    tune,
)

VECTORS = Path(__file__).parents[1] / "data" / "tops" / "gemm_tuner_vectors.json"


def vectors() -> list[dict[str, dict[str, Any]]]:
    found: list[dict[str, dict[str, Any]]] = json.loads(VECTORS.read_text("utf-8"))["vectors"]
    return found


def info_of(given: dict[str, Any]) -> AtenGemmInfo:
    types = (DataType[given[name].upper()] for name in ("data_type", "weight_type"))
    return AtenGemmInfo(*types, *(given[name] for name in ("batch", "m", "k", "n")))


def test_every_vector_of_ubridge() -> None:
    compared = 0
    for vector in vectors():
        info, out = info_of(vector["in"]), vector["out"]
        tile = tune(info)
        assert (tile.sip_m, tile.sip_k, tile.sip_n) == (out["sip_m"], out["sip_k"], out["sip_n"])
        for axis in (Multicore.BATCH, Multicore.LHS, Multicore.RHS):
            assert out[f"{axis.value}_multicore"] == (tile.multicore is axis), vector["in"]
        assert out["input_dtype"] == info.data_type
        compared += 1
    assert compared == 100


def test_the_default_product() -> None:
    default = AtenGemmInfo(DataType.F32, DataType.F32, 1, 1, 4096, 4096)
    assert tune(default) == AtenGemmTune(32, 960, 64, Multicore.RHS)


@pytest.mark.parametrize(
    ("batch", "m", "n", "axis"),
    [
        (1, 32, 128, Multicore.RHS),
        (1, 33, 128, Multicore.LHS),  # a part of a tile is a tile
        (1, 64, 129, Multicore.RHS),
        (1, 65, 129, Multicore.LHS),
        (2, 33, 128, Multicore.BATCH),
        (2, 65, 128, Multicore.LHS),
        (2, 33, 129, Multicore.RHS),
    ],
)
def test_processors_divide_the_axis_of_most_tiles(
    batch: int, m: int, n: int, axis: Multicore
) -> None:
    assert tune(AtenGemmInfo(DataType.F32, DataType.F32, batch, m, 64, n)).multicore is axis


def test_the_cache_tells_weights_apart() -> None:
    plain = AtenGemmInfo(DataType.F16, DataType.F16, 1, 128, 4096, 4096)
    four_bits = AtenGemmInfo(DataType.F16, DataType.I4, 1, 128, 4096, 4096)
    assert (tune(plain).sip_k, tune(four_bits).sip_k) == (960, 896)
    assert tune(plain) is tune(AtenGemmInfo(*plain))


def test_rows_too_wide_for_l1_leave_no_depth() -> None:
    for columns in (375_000, 400_000):
        info = AtenGemmInfo(DataType.F16, DataType.F16, 1, 1, 4096, columns)
        assert tune(info).sip_k == 0


def test_tiles_of_random_products_fit(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(2000, 200_000)):
        data_type = generator.choice([DataType.F32, DataType.F16, DataType.BF16])
        weight = data_type
        if data_type is not DataType.F32:
            weight = generator.choice([data_type, DataType.I8, DataType.I4])
        sizes = [int(2 ** generator.uniform(0, 14)) for _ in range(4)]
        info = AtenGemmInfo(data_type, weight, *sizes)
        tile = tune(info)
        assert min(tile.sip_m, tile.sip_k, tile.sip_n) > 0, info
        assert tile.sip_m == 1 or tile.sip_m % 32 == 0, info
        element, accumulator = (4, 16) if data_type is DataType.F32 else (2, 8)
        elements = 2 * tile.sip_m * tile.sip_k + tile.sip_m * tile.sip_n
        elements += 2 * tile.sip_n * tile.sip_k + info.n
        # Like Ubridge, the tuner rounds 2 to 8 rows of halves up to 32 after fitting them to L1.
        if data_type is DataType.F32 or info.m * info.batch > 8 or tile.sip_m == 1:
            assert elements * 2 * element <= L1_BYTES, info
        assert tile.sip_m * tile.sip_n * accumulator <= ACCUMULATOR_BYTES, info
