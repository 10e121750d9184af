"""The kernels of generating token by token: positions are read from device memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import assert_same, random_geometry, random_values, run
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_kv_append(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(4, 100)):
        rows, width, capacity = (int(one) for one in rng.integers(1, 9, 3))
        tokens = int(rng.integers(1, capacity + 1))
        start = int(rng.integers(0, capacity - tokens + 1))
        cache = random_values(rng, dtype, rows * capacity * width)
        given = random_values(rng, dtype, rows * tokens * width)
        target, source = DeviceBuffer.from_numpy(cache), DeviceBuffer.from_numpy(given)
        position = DeviceBuffer.from_numpy(np.array([start]))
        run(
            device, "decode", f"kv_append_{dtype}", given.size, position, source, target, tokens,
            capacity, width, **random_geometry(rng),
        )  # fmt: skip
        expected = cache.reshape(rows, capacity, width).copy()
        expected[:, start : start + tokens] = given.reshape(rows, tokens, width)
        assert_same(target.to_numpy(), expected.ravel())
