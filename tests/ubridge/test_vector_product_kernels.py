"""Products of a matrix and few vectors: every kernel, type and count, at any pitch and address."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.kernel_bench import Array, Output, numpy_dtype, run
from uhal import Device, DeviceBuffer

HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
SUM = {"f64": 2.0**-48}
"""Rounding error of a sum relative to the sum of magnitudes; other types use f32 sums."""
DEPTHS = (1, 7, 31, 32, 64, 257, 1023, 1024, 1100, 2056)
LINES = (1, 7, 16, 17, 33, 40)


def stored(
    rng: np.random.Generator, values: Array, is_aligned: bool
) -> tuple[DeviceBuffer, int, int]:
    """Return a buffer of matrices in pitched lines, the batch stride and the pitch."""
    batch, count, length = values.shape
    pitch = -(-length // 8) * 8 + 8 if is_aligned else length + int(rng.integers(0, 3))
    start = 0 if is_aligned else int(rng.integers(1, 8))
    flat = np.full(start + batch * count * pitch + 1, np.nan, values.dtype)
    held = flat[start : start + batch * count * pitch].reshape(batch, count, pitch)
    held[:, :, :length] = values
    return DeviceBuffer.from_numpy(flat)[start:], count * pitch, pitch


def check(
    device: Device, rng: np.random.Generator, module: str, entry: str, dtype: str, lines: int
) -> None:
    """Check random products by a kernel whose blocks take `lines` lines."""
    for is_aligned in rounds((True, False), (True, False) * 10):
        n, k, batch = int(rng.choice(LINES)), int(rng.choice(DEPTHS)), int(rng.integers(1, 3))
        m = int(rng.integers(1, 17))
        a = rng.standard_normal((batch, n, k)).astype(numpy_dtype(dtype))
        b = rng.standard_normal((batch, m, k)).astype(numpy_dtype(dtype))
        left, right = stored(rng, a, is_aligned), stored(rng, b, is_aligned)
        is_row_major = bool(rng.integers(2))
        output = Output(dtype, batch * m * n)
        run(
            device,
            module,
            f"{entry}_{dtype}",
            left[0],
            right[0],
            output.buffer,
            n,
            m,
            k,
            *left[1:],
            *right[1:],
            m * n,
            *((m, 1) if is_row_major else (1, n)),
            grid=(-(-n // lines), -(-m // 8), batch),
            block=(32, lines),
        )
        wide = a.astype(np.float64), b.astype(np.float64)
        exact = wide[0] @ wide[1].swapaxes(1, 2)
        magnitude = np.abs(wide[0]) @ np.abs(wide[1]).swapaxes(1, 2)
        if not is_row_major:
            exact, magnitude = exact.swapaxes(1, 2), magnitude.swapaxes(1, 2)
        allowed = HALF_ULP[dtype] * np.abs(exact) + SUM.get(dtype, 2.0**-20) * magnitude
        got = output.to_numpy().astype(np.float64).reshape(exact.shape)
        worst = np.abs(got - exact) / (allowed + 2.0**-24)
        assert (worst <= 1).all(), f"m={m} n={n} k={k}: {float(worst.max())}"


@pytest.mark.entries
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
def test_lines_by_vectors(device: Device, rng: np.random.Generator, dtype: str) -> None:
    check(device, rng, "matmul", "matmul_vectors", dtype, 8)


@pytest.mark.entries
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_lines_by_vectors_on_tensor_cores(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    if device.backend != "cuda":
        pytest.skip("tensor cores are NVIDIA's")
    check(device, rng, "matmul_vectors_tensor", "matmul_vectors_tensor", dtype, 16)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_few_rows_or_columns_read_the_matrix_once(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    """A product of a weight and 1 to 16 rows or columns uses one of these kernels."""
    rows = int(rng.integers(1, 17))

    def made(*shape: int) -> ubridge.DeviceTensor:
        return ubridge.asarray(rng.standard_normal(shape, np.float32)).astype(dtype)

    x, weight = made(rows, 48), made(40, 48)
    wide = x.to_numpy().astype(np.float64), weight.to_numpy().astype(np.float64)
    expected = wide[0] @ wide[1].T
    for one, other, exact in ((x, weight.mT, expected), (weight, x.mT, expected.T)):
        kernel = ubridge.matmul_choice(one, other).kernel
        if device.backend != "host":
            is_tensor = device.backend == "cuda" and dtype == "f16"
            assert kernel == ("tensor_vectors" if is_tensor else "vectors")
        got = ubridge.matmul(one, other).to_numpy().astype(np.float64)
        allowed = HALF_ULP[dtype] * np.abs(exact) + 2.0**-20 * 48
        assert (np.abs(got - exact) <= allowed).all()
