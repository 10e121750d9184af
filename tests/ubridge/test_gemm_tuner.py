"""The gemm tuner against what Ubridge's own answers, and where it departs from it."""

from __future__ import annotations

import dataclasses
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
    AtenGemmTuner,
    DataType,
    GemmOpParams,
    Multicore,
    tune,
)
from uhal.errors import ArgumentTypeError, ArgumentValueError

VECTORS = Path(__file__).parents[1] / "data" / "tops" / "gemm_tuner_vectors.json"


def vectors() -> list[dict[str, dict[str, Any]]]:
    found: list[dict[str, dict[str, Any]]] = json.loads(VECTORS.read_text("utf-8"))["vectors"]
    return found


def info_of(given: dict[str, Any]) -> AtenGemmInfo:
    return AtenGemmInfo.of(
        DataType[given["data_type"].upper()],
        DataType[given["weight_type"].upper()],
        *(given[name] for name in ("batch", "m", "k", "n")),
        rhs_trans=given["rhs_trans"] > 0,
    )


def test_every_vector_of_ubridge() -> None:
    compared = 0
    # One tuner for all of them: products that differ in anything must not share an answer.
    tuner = AtenGemmTuner()
    for vector in vectors():
        assert tuner.tuner(info_of(vector["in"])).as_dict() == vector["out"], vector["in"]
        compared += 1
    assert compared == 100


def test_the_parameters_are_in_ubridges_order() -> None:
    names = [field.name for field in dataclasses.fields(GemmOpParams)]
    assert len(names) == 33
    assert names == list(vectors()[0]["out"])


def test_the_default_product() -> None:
    info = AtenGemmInfo()
    assert not info.is_batch
    assert AtenGemmInfo(batch=2).is_batch
    assert tune(info) == AtenGemmTune(32, 960, 64, Multicore.RHS)


def test_another_result_type_is_not_tuned() -> None:
    info = dataclasses.replace(AtenGemmInfo(), data_type=DataType.F16)
    assert tune(info) == AtenGemmTune(0, 0, 0, Multicore.NONE)


def test_the_cache_tells_weights_and_transposes_apart() -> None:
    tuner = AtenGemmTuner()
    plain = AtenGemmInfo.of(DataType.F16, DataType.F16, 1, 128, 4096, 4096, True)
    four_bits = AtenGemmInfo.of(DataType.F16, DataType.I4, 1, 128, 4096, 4096, False)
    assert (tuner.tuner(plain).sip_k, tuner.tuner(plain).rhs_transpose) == (960, 1)
    assert (tuner.tuner(four_bits).sip_k, tuner.tuner(four_bits).rhs_transpose) == (896, 0)
    left = dataclasses.replace(plain, transa=True)
    assert tuner.tuner(left).lhs_transpose == 1
    assert tuner.tuner(plain) is tuner.tuner(dataclasses.replace(plain))


def test_rows_too_wide_for_l1_leave_no_depth() -> None:
    for columns in (375_000, 400_000):
        info = AtenGemmInfo.of(DataType.F16, DataType.F16, 1, 1, 4096, columns, False)
        assert tune(info).sip_k == 0


def test_tiles_of_random_products_fit(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(rounds(2000, 200_000)):
        data_type = generator.choice([DataType.F32, DataType.F16, DataType.BF16])
        weight = data_type
        if data_type is not DataType.F32:
            weight = generator.choice([data_type, DataType.I8, DataType.I4])
        sizes = [int(2 ** generator.uniform(0, 14)) for _ in range(4)]
        info = AtenGemmInfo.of(data_type, weight, *sizes, rhs_trans=generator.random() < 0.5)
        tile = tune(info)
        assert tile.multicore is not Multicore.NONE
        assert min(tile.sip_m, tile.sip_k, tile.sip_n) > 0, info
        assert tile.sip_m == 1 or tile.sip_m % 32 == 0, info
        element, accumulator = (4, 16) if data_type is DataType.F32 else (2, 8)
        elements = 2 * tile.sip_m * tile.sip_k + tile.sip_m * tile.sip_n
        elements += 2 * tile.sip_n * tile.sip_k + info.n
        # Ubridge rounds 2 to 8 half rows up to 32 after it has fitted them, and so do we.
        if data_type is DataType.F32 or info.m * info.batch > 8 or tile.sip_m == 1:
            assert elements * 2 * element <= L1_BYTES, info
        assert tile.sip_m * tile.sip_n * accumulator <= ACCUMULATOR_BYTES, info


@pytest.mark.parametrize("name", ["batch", "m", "k", "n"])
def test_sizes_that_cannot_be(name: str) -> None:
    sizes: dict[str, Any] = {name: 0}
    with pytest.raises(ArgumentValueError, match=f"{name}: expected an int of at least 1, got 0"):
        AtenGemmInfo(**sizes)
    for wrong in (1.5, True, "4"):
        sizes = {name: wrong}
        with pytest.raises(ArgumentTypeError, match=f"{name}: expected an int"):
            AtenGemmInfo(**sizes)
