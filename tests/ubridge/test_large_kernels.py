"""Tensors whose element counts or offsets exceed 32 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.sampling import SOAK
from tests.ubridge.kernel_bench import Output, assert_same, run, words
from uhal import Device, DeviceBuffer

BEYOND = (1 << 32) + 3


@pytest.fixture(autouse=True)
def nothing_kept(host: Device) -> Iterator[None]:
    """Free the pool after each test: it holds gigabytes that the next test cannot use."""
    yield
    host.empty_cache()


def test_elements_far_apart(host: Device, rng: np.random.Generator) -> None:
    """The test only touches memory pages that contain an element."""
    stride = (1 << 31) + 5
    values = rng.integers(0, 256, 3, np.uint8)
    storage = DeviceBuffer.uninitialized(2 * stride + 1, "u8")
    for number, value in enumerate(values):
        storage[number * stride : number * stride + 1].copy_from(np.array([value]))
    output = Output("u8", 3)
    run(host, "unary", "ucopy_u8", 3, 1, words((3,), (stride,)), storage, output.buffer)
    assert_same(output.to_numpy(), values)
    run(host, "fill", "const_set_u8", 3, 1, words((3,), (stride,)), np.uint8(7), storage)
    run(host, "unary", "ucopy_u8", 3, 1, words((3,), (stride,)), storage, output.buffer)
    assert output.to_numpy().tolist() == [7, 7, 7]
    # An index selects a row far from the start.
    ids = DeviceBuffer.from_numpy(np.array([1], np.int64))
    row = Output("u8", 1)
    run(host, "indexing", "gather_i64_u8", 1, ids, storage, row.buffer, 1, 2, 1, stride, grid=1)
    assert row.to_numpy().tolist() == [7]


def test_a_sum_of_more_than_32_bits_count(host: Device) -> None:
    """The operand of the sum is one broadcast element, so it needs no memory."""
    rows = 1 << 16
    count = rows * rows + rows
    given = DeviceBuffer.from_numpy(np.array([3], np.int64))
    output = Output("i64", 1)
    info = words((rows + 1, rows), (0, 0))
    run(host, "reduce", "fast_sum_i64", count, count, 2, info, given, output.buffer, grid=1)
    assert output.to_numpy().tolist() == [3 * count]


@pytest.mark.skipif(not SOAK, reason="writes 8 GB: UHAL_TEST_SOAK=1")
def test_a_contiguous_operation_beyond_32_bits(host: Device, rng: np.random.Generator) -> None:
    given = DeviceBuffer.zeros(BEYOND, "u8")
    output = DeviceBuffer.zeros(BEYOND, "u8")
    marked = rng.integers(1, 256, 3, np.uint8)
    given[BEYOND - 3 :].copy_from(marked)
    run(host, "binary", "badd_u8", BEYOND, 1, None, given, given, output, grid=64)
    assert_same(output[BEYOND - 3 :].to_numpy(), marked + marked)
    assert not output[: 1 << 20].to_numpy().any()


LARGE = (1 << 31) + 4096 + 7
"""Number of elements of a u8 operand."""
PERIOD = 4093
"""Period of the operand's values: a prime number, so that no two rows of a block are equal."""


@pytest.mark.skipif(not SOAK, reason="takes 10 GB of memory: UHAL_TEST_SOAK=1")
@pytest.mark.parametrize(
    "name",
    [
        "square",
        "add",
        "greater",
        "affine",
        "astype",
        "where",
        "masked_fill",
        "reverse",
        "max",
        "argmax",
        "sum",
        "take",
        "cat",
        "softmax",
    ],
)
def test_an_operand_of_more_than_2_to_31_bytes(
    name: str, host: Device, rng: np.random.Generator
) -> None:
    """Compare both ends and a sample with numpy; numpy would take minutes for all elements."""
    size = LARGE // 2 if name == "softmax" else LARGE
    block = rng.integers(0, 200, PERIOD, np.uint8)
    x = ubridge.from_numpy(np.resize(block, size), device=host)
    indices = np.r_[:3, size - 3 : size, rng.integers(0, size, 2000)]
    given = block[indices % PERIOD]

    def chosen(result: Any) -> Any:
        """Return the sampled elements of a result, selected without large ids."""
        flat = result.reshape(-1)
        return np.array([flat[int(one)].item() for one in indices])

    if name == "max":
        assert x.max().item() == block.max()
    elif name == "argmax":
        x[-2] = 255
        assert x.argmax().item() == size - 2
    elif name == "sum":
        whole, rest = divmod(size, PERIOD)
        total = whole * int(block.sum()) + int(block[:rest].sum())
        assert x.sum().item() == total % 256
    elif name == "take":
        rows = x[: size // 7 * 7].reshape(-1, 7)
        last = rows.shape[0] - 1
        got = ubridge.take(rows, [last, 0], 0).to_numpy()
        assert (
            got.tobytes()
            == np.resize(block, 7 * last + 7)[[*range(7 * last, 7 * last + 7), *range(7)]].tobytes()
        )
    elif name == "cat":
        got = ubridge.cat([x, x[:5]])
        assert got.shape == (size + 5,)
        np.testing.assert_array_equal(got[-5:].to_numpy(), block[:5])
        np.testing.assert_array_equal(chosen(got), given)
    elif name == "softmax":
        rows = x[: size // 64 * 64].reshape(-1, 64).astype("f16")
        shares = ubridge.softmax(rows)
        last = rows.shape[0] - 1
        wide = rows[last].to_numpy().astype(np.float64)
        expected = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum()
        np.testing.assert_allclose(shares[last].to_numpy(), expected, 2e-3, 1e-7)
    else:
        wanted = {
            "square": (lambda: ubridge.square(x), given * given),
            "add": (lambda: x + x, given + given),
            "greater": (lambda: x > 100, given > 100),
            "affine": (lambda: ubridge.affine(x, 3, 5), given * 3 + 5),
            "astype": (lambda: x.astype("i16"), given),
            "where": (lambda: ubridge.where(x, x, 9), np.where(given, given, 9)),
            "masked_fill": (
                lambda: ubridge.masked_fill(x, x > 50, 1),
                np.where(given > 50, 1, given),
            ),
            "reverse": (lambda: x[: size // 5 * 5].reshape(5, -1).T.copy().T, given),
        }
        compute, expected = wanted[name]
        got = compute()
        if name == "reverse":
            inside = indices < size // 5 * 5
            indices, expected = indices[inside], expected[inside]
            wide_row = size // 5
            found = [got[int(one) // wide_row, int(one) % wide_row].item() for one in indices]
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_array_equal(chosen(got), expected)
