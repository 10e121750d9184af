"""The project's own kernels, from the bytes that are shipped, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from simulators.ptx.launch import Module
from tests.shipped_ptx import shipped_ptx


def module(name: str) -> Module:
    return Module(shipped_ptx(name).decode())


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (70, 33, 51), (64, 64, 64), (5, 0, 4)])
@pytest.mark.parametrize("block", [1, 32, 100])
def test_matrix_product(
    rng: np.random.Generator, seed: int, shape: tuple[int, int, int], block: int
) -> None:
    m, k, n = shape
    a, b = rng.normal(size=(m, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    out = np.full((m, n), np.nan, "f4")
    arguments = [one for one in (a, b, out)]
    kernel = module("batch_matmul_legacy").kernel("batch_matmul_legacy")
    kernel.launch([3], [block], [*arguments, m, k, n], seed=seed)
    np.testing.assert_allclose(out, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(1, 1, 1, 1), (9, 7, 3, 2), (40, 33, 5, 5)])
def test_convolution(rng: np.random.Generator, size: tuple[int, int, int, int]) -> None:
    width, height, kw, kh = size
    x, w = rng.normal(size=(height, width)).astype("f4"), rng.normal(size=(kh, kw)).astype("f4")
    out = np.full((height - kh + 1, width - kw + 1), np.nan, "f4")
    arguments = [one for one in (x, w, out)]
    module("convolution").kernel("convolution").launch([2], [64], [*arguments, *size])
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (kh, kw))
    np.testing.assert_allclose(out, (windows * w).sum((2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", range(5))
def test_activation(rng: np.random.Generator, kind: int) -> None:
    x = (rng.normal(size=1003) * 4).astype("f4")
    x[:6] = [0.0, -0.0, np.inf, np.nan, 100.0, -100.0]
    y = x.copy()
    module("activation").kernel("activationf32").launch([4], [64], [y, 17, 59, kind])
    w = x.astype("f8")
    with np.errstate(all="ignore"):
        inner = np.sqrt(2 / np.pi) * (w + 0.044715 * w**3)
        expected = [
            np.where(w < 0, 0, w),
            0.5 * w * (1 + np.tanh(inner)),
            np.where(w < 0, 0.1 * w, w),
            np.tanh(w),
            np.full_like(w, np.nan),
        ][kind]
    np.testing.assert_allclose(y, expected, rtol=3e-6, atol=1e-6)
