"""More elements, and places further apart, than 32 bits count."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.ubridge.kernel_bench import Output, assert_same, run, words
from uhal import Device, DeviceBuffer

BEYOND = (1 << 32) + 3


def test_elements_far_apart(host: Device, rng: np.random.Generator) -> None:
    """Only the pages with an element are ever touched."""
    stride = (1 << 31) + 5
    values = rng.integers(0, 256, 3, np.uint8)
    storage = DeviceBuffer.uninitialized(2 * stride + 1, "u8")
    for place, value in enumerate(values):
        storage[place * stride : place * stride + 1].copy_from(np.array([value]))
    output = Output("u8", 3)
    run(host, "unary", "ucopy_u8", 3, 1, words((3,), (stride,)), storage, output.buffer)
    assert_same(output.to_numpy(), values)
    run(host, "fill", "const_set_u8", 3, 1, words((3,), (stride,)), np.uint8(7), storage)
    run(host, "unary", "ucopy_u8", 3, 1, words((3,), (stride,)), storage, output.buffer)
    assert output.to_numpy().tolist() == [7, 7, 7]
    # A row far down, found by an index.
    ids = DeviceBuffer.from_numpy(np.array([1], np.int64))
    row = Output("u8", 1)
    run(host, "indexing", "gather_i64_u8", 1, ids, storage, row.buffer, 1, 2, 1, stride, grid=1)
    assert row.to_numpy().tolist() == [7]


def test_a_sum_of_more_than_32_bits_count(host: Device) -> None:
    """One element, broadcast: what is summed needs no memory."""
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
