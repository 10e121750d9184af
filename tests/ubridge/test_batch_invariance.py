"""Products with `batch_invariant`: a row's bits are the same in every batch."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import SOAK, rounds
from tests.ubridge.block_data import random_blocks
from tests.ubridge.kernel_bench import numpy_dtype
from tests.ubridge.op_rows import row_of
from ubridge.definitions.products import INDEXED_PRODUCT, MATMUL, QUANTIZED_PRODUCT
from ubridge.quantized import FORMATS
from uhal import Device

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")


def counts(device: Device, rng: np.random.Generator) -> list[int]:
    """Return numbers of rows, around those where kernels change."""
    found = [2, 3, 4, 5, 8, 9, 17, 33, 128, 130] if device.backend == "host" else [2, 5, 9, 17]
    return found if SOAK else [int(one) for one in rng.choice(found, 3, replace=False)]


def test_a_dense_product_of_a_row_has_one_result(device: Device, rng: np.random.Generator) -> None:
    row = row_of(device.backend)
    row.require_images()
    dtypes = [one for one in ("f32", "f16", "bf16", "f64") if row.has(MATMUL, one, None)]
    for dtype in rng.permutation(dtypes)[: rounds(2, 4)]:
        most = 300 if device.backend == "host" else 60
        rows, columns = (int(one) for one in rng.integers(1, most, 2))
        weight, x = (
            ub.from_numpy(
                rng.standard_normal((count, columns)).astype(numpy_dtype(dtype)), device=device
            )
            for count in (rows, 130)
        )
        alone = [
            ub.linear(x[at : at + 1], weight, batch_invariant=True).to_numpy()[0]
            for at in range(17)
        ]
        for count in counts(device, rng):
            got = ub.linear(x[:count], weight, batch_invariant=True).to_numpy()
            np.testing.assert_array_equal(got[:17], alone[:count], err_msg=f"{dtype} {count}")
            if count > 2:
                # The same rows are at another place in the batch.
                moved = ub.linear(x[2:count], weight, batch_invariant=True).to_numpy()
                np.testing.assert_array_equal(moved, got[2:])
        wide = x[:17].to_numpy().astype("f8") @ weight.to_numpy().astype("f8").T
        scale = abs(x[:17].to_numpy().astype("f8")) @ abs(weight.to_numpy().astype("f8")).T
        error = abs(np.asarray(alone, "f8") - wide) / np.maximum(scale, 1e-30)
        assert error.max() < {"f64": 1e-14, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}[dtype]


def test_views_and_integers_are_taken(host: Device, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 20, 20), dtype="f4")
    given = ub.from_numpy(x, device=host), ub.from_numpy(y, device=host)
    got = ub.matmul(*given, batch_invariant=True).to_numpy()
    np.testing.assert_allclose(got, x.astype("f8") @ y, 1e-4, 1e-4)
    some = ub.matmul(given[0][:3], given[1], batch_invariant=True).to_numpy()
    np.testing.assert_array_equal(some, got[:3])
    numbers = rng.integers(-9, 9, (2, 5, 5))
    whole = [ub.from_numpy(one, device=host) for one in numbers]
    np.testing.assert_array_equal(
        ub.matmul(*whole, batch_invariant=True).to_numpy(), numbers[0] @ numbers[1]
    )


@pytest.mark.entries(drawn=6)
@pytest.mark.parametrize("name", FORMATS)
def test_a_quantized_product_of_a_row_has_one_result(
    name: str, device: Device, rng: np.random.Generator
) -> None:
    row = row_of(device.backend)
    row.require_images()
    if not row.has(QUANTIZED_PRODUCT, "f32", None):
        pytest.skip(f"{row.backend} has no kernel of quantized products")
    rows, columns = int(rng.integers(1, 70)), FORMATS[name].elements * int(rng.integers(1, 4))
    weight = _weight(rng, name, rows, columns, device)
    x = ub.from_numpy(rng.standard_normal((130, columns), dtype="f4"), device=device)

    def product(some: ub.DeviceTensor) -> np.ndarray:
        found = ub.quantized_matmul(some, weight, activations="q8", batch_invariant=True)
        return found.to_numpy()

    alone = [product(x[at : at + 1])[0] for at in range(9)]
    for count in counts(device, rng):
        np.testing.assert_array_equal(product(x[:count])[:9], alone[:count], err_msg=f"{count}")


def test_an_expert_product_of_a_token_has_one_result(
    device: Device, rng: np.random.Generator
) -> None:
    row = row_of(device.backend)
    row.require_images()
    if not row.has(INDEXED_PRODUCT, "f32", None):
        pytest.skip(f"{row.backend} has no kernel of products at ids")
    name = str(rng.choice(["q8_0", "q4_K", "q4_0"]))
    experts, rows, columns = 2, int(rng.integers(1, 40)), FORMATS[name].elements
    whole = _weight(rng, name, experts * rows, columns, device)
    weights = ub.QuantizedWeight(
        whole.buffer, name, experts * rows, columns, shape=(experts, rows, columns)
    )
    dense = ub.from_numpy(rng.standard_normal((experts, rows, columns), dtype="f4"), device=device)
    x = rng.standard_normal((9, 1, columns), dtype="f4")
    ids = rng.integers(0, experts, (9, 2)).astype(np.uint32)

    def product(some: slice, by: ub.DeviceTensor | ub.QuantizedWeight) -> np.ndarray:
        given, chosen = (ub.from_numpy(one[some], device=device) for one in (x, ids))
        return ub.indexed_matmul(given, by, chosen, batch_invariant=True).to_numpy()

    for by in (weights, dense):
        alone = [product(slice(at, at + 1), by)[0] for at in range(9)]
        np.testing.assert_array_equal(product(slice(9), by), alone)


def _weight(
    rng: np.random.Generator, name: str, rows: int, columns: int, device: Device
) -> ub.QuantizedWeight:
    blocks = random_blocks(rng, name, rows * columns // FORMATS[name].elements)
    return ub.QuantizedWeight.from_blocks(blocks.ravel(), name, rows, columns, device=device)
