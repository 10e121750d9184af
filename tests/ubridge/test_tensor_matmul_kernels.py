"""Matrix products on tensor cores: every tile, layout and type, at any pitch and address."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import Array, Output, numpy_dtype, run
from uhal import Device, DeviceBuffer

DEVICES = ("cuda-sim",)
pytestmark = pytest.mark.entries

THREADS = 128
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8}


def stored(
    rng: np.random.Generator, values: Array, letter: str, aligned: bool
) -> tuple[DeviceBuffer, int, int]:
    """Return a buffer of matrices in pitched lines, the batch stride and the pitch."""
    lines = values if letter == "n" else values.swapaxes(1, 2)
    batch, count, length = lines.shape
    pitch = -(-length // 8) * 8 + 8 if aligned else length + int(rng.integers(0, 3))
    start = 0 if aligned else int(rng.integers(1, 8))
    flat = np.full(start + batch * count * pitch + 1, np.nan, values.dtype)
    held = flat[start : start + batch * count * pitch].reshape(batch, count, pitch)
    held[:, :, :length] = lines
    return DeviceBuffer.from_numpy(flat)[start:], count * pitch, pitch


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("letters", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("tile", [64, 128])
def test_products(
    device: Device, rng: np.random.Generator, tile: int, letters: str, dtype: str
) -> None:
    for aligned in rounds([bool(rng.integers(2))], [True, False] * 10):
        m, n, k = (int(one) for one in rng.choice([1, 7, 33, 64, 65, 130, 150], 3))
        k = 0 if rng.random() < 0.05 else k
        batch = int(rng.integers(1, 3))
        a = rng.standard_normal((batch, m, k)).astype(numpy_dtype(dtype))
        b = rng.standard_normal((batch, k, n)).astype(numpy_dtype(dtype))
        output = Output(dtype, batch * m * n)
        left, right = stored(rng, a, letters[0], aligned), stored(rng, b, letters[1], aligned)
        run(
            device,
            "matmul_tensor",
            f"matmul_tensor{tile}_{letters}_{dtype}",
            left[0],
            right[0],
            output.buffer,
            m,
            n,
            k,
            *left[1:],
            *right[1:],
            m * n,
            grid=(-(-n // tile), -(-m // tile), batch),
            block=THREADS,
        )
        wide = a.astype(np.float64), b.astype(np.float64)
        expected = wide[0] @ wide[1]
        allowed = HALF_ULP[dtype] * np.abs(expected) + 2.0**-20 * (
            np.abs(wide[0]) @ np.abs(wide[1])
        )
        got = output.to_numpy().astype(np.float64).reshape(expected.shape)
        worst = np.abs(got - expected) / (allowed + 2.0**-24)
        assert (worst <= 1).all(), float(worst.max())
