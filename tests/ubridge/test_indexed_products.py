"""`indexed_matmul`: products with several weights, chosen by ids."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.activation_data import exact_in_8_bits
from tests.ubridge.block_data import Array, elements, random_blocks
from tests.ubridge.op_rows import OP_ROWS, row_of
from ubridge.quantized import FORMATS
from uhal import Device, Stream
from uhal.dtypes import as_dtype
from uhal.errors import NotSupportedError

DEVICES = tuple(row.name for row in OP_ROWS)
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def drawn_weights(
    rng: np.random.Generator, device: Device, name: str, shape: tuple[int, int, int]
) -> tuple[ub.QuantizedWeight, Array]:
    experts, rows, columns = shape
    count = experts * rows * columns // FORMATS[name].elements
    blocks = random_blocks(rng, name, count)
    whole = ub.QuantizedWeight.from_blocks(
        blocks.ravel(), name, experts * rows, columns, device=device
    )
    weights = ub.QuantizedWeight(whole.buffer, name, experts * rows, columns, shape=shape)
    return weights, elements(blocks, name).astype(np.float64).reshape(shape)


def near(got: Array, x: Array, chosen: Array, dtype: str) -> None:
    wide = x.astype(np.float64)[..., None]
    exact = (chosen @ wide)[..., 0]
    terms = (abs(chosen) @ abs(wide) + 16 * abs(wide).sum(2, keepdims=True))[..., 0]
    bound = 2.0**-24 * x.shape[-1] * terms + ROUNDING[dtype] * abs(exact) + 1e-30
    if dtype == "f16":
        bound = np.where(abs(exact) > 65000, np.inf, bound + 2.0**-24)
    error = abs(np.where(np.isinf(bound), 0, got.astype(np.float64) - exact))
    assert np.all(error <= bound), (error / bound).max()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_and_type_on_the_host(
    host: Device, rng: np.random.Generator, name: str
) -> None:
    """Test both forms of the kernel: one unpacks the rows, for weights of many products."""
    for dtype in ROUNDING:
        experts, rows = int(rng.integers(1, 5)), int(rng.integers(1, 80))
        columns = FORMATS[name].elements * int(rng.integers(1, 4))
        tokens, used = int(rng.choice([1, 2, 19])), int(rng.integers(1, 4))
        each = used if rng.integers(0, 2) else 1
        weights, values = drawn_weights(rng, host, name, (experts, rows, columns))
        x = exact_in_8_bits(rng, (tokens, each, columns)).astype(as_dtype(dtype).dtype)
        ids = rng.integers(0, experts, (tokens, used)).astype(np.uint32)
        got = ub.indexed_matmul(
            ub.from_numpy(x, device=host), weights, ub.from_numpy(ids, device=host)
        )
        assert got.shape == (tokens, used, rows)
        assert got.dtype == dtype
        whole = np.broadcast_to(x, (tokens, used, columns))
        near(got.to_numpy(), whole, values[ids], dtype)


@pytest.mark.entries(drawn=1)
@pytest.mark.parametrize("name", ["q4_K", "q8_0", "iq4_nl"])
def test_ids_out_of_bounds_are_reported(
    device: Device, rng: np.random.Generator, name: str
) -> None:
    """Rows with valid ids are correct, and the device stays usable."""
    row_of(device.backend).require_images()
    if device.backend == "tops":
        pytest.skip("GCUs multiply by dense weights")
    weights, values = drawn_weights(rng, device, name, (3, 5, 256))
    x = exact_in_8_bits(rng, (3, 1, 256)).astype(np.float32)
    ids = rng.integers(0, 3, (3, 2)).astype(np.uint32)
    for hostile in (2**32 - 1, 3, 2**31)[: rounds(1, 3)]:
        wrong = ids.copy()
        wrong[1, 1] = hostile
        given = ub.from_numpy(x, device=device)
        made = ub.indexed_matmul(given, weights, ub.from_numpy(wrong, device=device))
        with pytest.raises(IndexError, match=f"index {hostile} is out of bounds for axis with"):
            made.to_numpy()
        got = made.to_numpy()
        keep = wrong == ids
        near(
            got[keep][:, None], np.repeat(x, 2, 1)[keep][:, None], values[ids[keep]][:, None], "f32"
        )
        if device.backend == "host":
            assert not got[1, 1].any()
    again = ub.indexed_matmul(given, weights, ub.from_numpy(ids, device=device)).to_numpy()
    near(again, np.repeat(x, 2, 1), values[ids], "f32")


def test_ids_of_the_host_count_from_the_end_and_are_checked(
    host: Device, rng: np.random.Generator
) -> None:
    weights, values = drawn_weights(rng, host, "q8_0", (3, 5, 64))
    x = exact_in_8_bits(rng, (1, 2, 64)).astype(np.float32)
    got = ub.indexed_matmul(ub.from_numpy(x, device=host), weights, [[-1, 0]]).to_numpy()
    near(got, x, values[[[2, 0]]], "f32")
    with pytest.raises(IndexError, match="index -4 is out of bounds for axis with size 3"):
        ub.indexed_matmul(ub.from_numpy(x, device=host), weights, [[-4, 0]])


@pytest.mark.entries(drawn=1)
@pytest.mark.parametrize("name", ["q4_K", "q4_0"])
def test_captured_and_replayed_with_other_ids(
    device: Device, rng: np.random.Generator, name: str
) -> None:
    """Both weights use one rounded activation; the device reads ids at each replay."""
    row_of(device.backend).require_images()
    if device.backend == "tops":
        pytest.skip("GCUs multiply by dense weights")
    pair = [drawn_weights(rng, device, name, (4, rows, 256))[0] for rows in (3, 6)]
    x = ub.from_numpy(exact_in_8_bits(rng, (1, 1, 256)).astype(np.float32), device=device)
    ids = ub.from_numpy(np.array([[1, 3]], np.uint32), device=device)
    with ub.trace(device) as graph:
        made = ub.indexed_matmul(x, pair, ids)
    names = [node.op.name for node in graph.nodes if node.op is not None]
    assert names == ["activations", "indexed_product", "indexed_product"]
    stream = Stream(device=device)
    plan = graph.instantiate(stream)
    for one in ([[1, 3]], [[2, 2]], [[0, 1]]):
        ids[:] = ub.from_numpy(np.array(one, np.uint32), device=device)
        device.synchronize()
        plan.replay(stream)
        stream.synchronize()
        for result, weights in zip(made, pair, strict=True):
            alone = [ub.quantized_matmul(x[0], weights[w], activations="q8") for w in one[0]]
            expected = np.stack([each.to_numpy()[0] for each in alone])
            terms = abs(expected).max() + 1
            assert abs(result.to_numpy()[0] - expected).max() <= 1e-4 * terms
    plan.close()


def test_weights_that_are_tensors(device: Device, rng: np.random.Generator) -> None:
    row_of(device.backend).require_images()
    values = rng.standard_normal((3, 5, 8)).astype(np.float32)
    x = rng.standard_normal((4, 1, 8)).astype(np.float32)
    ids = rng.integers(0, 3, (4, 2)).astype(np.uint32)
    given, chosen = (ub.from_numpy(one, device=device) for one in (x, ids))
    try:
        weights = ub.from_numpy(values, device=device)
        got = ub.indexed_matmul(given, weights, chosen).to_numpy()
    except NotSupportedError:
        assert device.backend == "tops"
        return
    exact = np.einsum("turc,tuc->tur", values[ids].astype(np.float64), np.repeat(x, 2, 1))
    assert abs(got - exact).max() <= 1e-5 * abs(exact).max()
