"""Kernels that NVRTC, clang and Triton translated (tests/data/ptx), executed against numpy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from simulators.ptx.launch import Module
from tests.simulators.ptx.conftest import HERE

DATA = HERE.parents[1] / "data" / "ptx"
LAUNCHES = json.loads((DATA / "triton" / "launches.json").read_text())
CUDA = [f"{compiler}/sm_{sm}" for compiler in ("nvrtc", "clang") for sm in (80, 90)]


@pytest.fixture(scope="module", params=CUDA)
def cuda(request: pytest.FixtureRequest) -> Module:
    return Module((DATA / f"{request.param}.ptx").read_text(), "strict")


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    total: np.ndarray = raised / raised.sum(-1, keepdims=True)
    return total


def normalized(x: np.ndarray) -> np.ndarray:
    away = x - x.mean(-1, keepdims=True)
    result: np.ndarray = away / np.sqrt((away * away).mean(-1, keepdims=True) + 1e-5)
    return result


@pytest.mark.parametrize("columns", [1, 255, 1000])
def test_sums_of_rows(cuda: Module, rng: np.random.Generator, seed: int, columns: int) -> None:
    x, y = rng.normal(size=(5, columns)).astype("f4"), np.full(5, np.nan, "f4")
    cuda.kernel("row_sum").launch([5], [256], [x, y, columns], seed=seed)
    np.testing.assert_allclose(y, x.astype("f8").sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("columns", [1, 100, 777])
def test_softmax(cuda: Module, rng: np.random.Generator, seed: int, columns: int) -> None:
    x = (rng.normal(size=(3, columns)) * 5).astype("f4")
    y = np.full_like(x, np.nan)
    cuda.kernel("softmax").launch([3], [256], [x, y, columns], seed=seed)
    np.testing.assert_allclose(y, softmax(x.astype("f8")), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (45, 33)])
def test_transposition(
    cuda: Module, rng: np.random.Generator, seed: int, shape: tuple[int, int]
) -> None:
    x, y = rng.normal(size=shape), np.full(shape[::-1], np.nan)
    grid = [-(-shape[1] // 16), -(-shape[0] // 16)]
    cuda.kernel("transpose").launch(grid, [16, 16], [x, y, *shape], seed=seed)
    np.testing.assert_array_equal(y, x.T)


def test_scalar_products(cuda: Module, rng: np.random.Generator, seed: int) -> None:
    n = 10_000
    x, z = (rng.normal(size=n).astype("f4") for _ in range(2))
    total = np.zeros(1, "f4")
    cuda.kernel("dot").launch([7], [64], [x, z, total, n // 4], seed=seed, workers=2)
    np.testing.assert_allclose(total, [x.astype("f8") @ z.astype("f8")], rtol=1e-3, atol=1e-2)


def test_digits_in_local_memory(cuda: Module, rng: np.random.Generator) -> None:
    x = rng.integers(0, 1 << 64, 100, dtype="u8")
    y = np.zeros_like(x)
    cuda.kernel("digits").launch([2], [64], [x, y, x.size])
    for value, packed in zip(x, y, strict=True):
        counts = [str(value).count(digit) for digit in "0123456789"]
        assert [int(packed) >> 5 * (9 - digit) & 31 for digit in range(10)] == counts


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("kind", range(6))
def test_normalization(cuda: Module, rng: np.random.Generator, seed: int, kind: int) -> None:
    x = (rng.normal(size=(2, 300)) * 3 + 1).astype("f4")
    y = np.full_like(x, np.nan)
    cuda.kernel("normalize").launch([2], [256], [x, y, 300, kind], seed=seed)
    value = normalized(x.astype("f8"))
    ways = [value, np.maximum(value, 0), value * value, -value, np.trunc(value), 0 * value]
    # Skip values close to an integer: their last bit decides the truncated result.
    sure = np.abs(value - np.round(value)) > 1e-4 if kind == 4 else np.ones_like(value, bool)
    np.testing.assert_allclose(y[sure], ways[kind][sure], rtol=1e-3, atol=1e-4)


# -- Triton ----------------------------------------------------------------------------------------


def variants(name: str) -> Any:
    found = [one for one in LAUNCHES if one.rpartition("_sm_")[0] == name]
    assert found
    return pytest.mark.parametrize("variant", found)


def run(variant: str, grid: list[int], arguments: list[Any], seed: int) -> None:
    """Launch as Triton does: behind its arguments come two pointers to scratch memory."""
    how = LAUNCHES[variant]
    kernel = Module((DATA / "triton" / f"{variant}.ptx").read_text(), "strict").kernel(
        how["kernel"]
    )
    given = [*arguments, *[0] * (len(kernel.slots) - len(arguments))]
    kernel.launch(grid, [how["threads"]], given, shared=how["shared"], seed=seed, workers=2)


@variants("row_sum")
def test_triton_sums(rng: np.random.Generator, seed: int, variant: str) -> None:
    x, y = rng.normal(size=(3, 1300)).astype("f4"), np.full(3, np.nan, "f4")
    run(variant, [3], [x, y, 1300], seed)
    np.testing.assert_allclose(y, x.astype("f8").sum(1), rtol=1e-4, atol=1e-4)


@variants("softmax")
def test_triton_softmax(rng: np.random.Generator, seed: int, variant: str) -> None:
    x = (rng.normal(size=(3, 801)) * 4).astype("f4")
    y = np.full_like(x, np.nan)
    run(variant, [3], [x, y, 801], seed)
    np.testing.assert_allclose(y, softmax(x.astype("f8")), rtol=1e-4, atol=1e-7)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_triton_products(rng: np.random.Generator, seed: int, kind: str) -> None:
    import ml_dtypes

    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}[kind]
    m, n, k = 70, 48, 80
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    c = np.full((m, n), np.nan, "f4")
    tile = 64 if kind == "bf16" else 32
    grid = [-(-m // tile), -(-n // tile)]
    run(f"matmul_{kind}_sm_80", grid, [a, b, c, m, n, k], seed)
    tolerance = 2e-2 if kind == "tf32" else 1e-3
    np.testing.assert_allclose(
        c, a.astype("f8") @ b.astype("f8"), rtol=tolerance, atol=10 * tolerance
    )


@pytest.mark.drawn(1)
@variants("matmul_s8")
def test_triton_matmul_of_bytes(rng: np.random.Generator, seed: int, variant: str) -> None:
    m, n, k = 45, 70, 50
    a, b = rng.integers(-128, 128, (m, k), dtype="i1"), rng.integers(-128, 128, (k, n), dtype="i1")
    c = np.full((m, n), -1, "i4")
    run(variant, [2, 3], [a, b, c, m, n, k], seed)
    np.testing.assert_array_equal(c, a.astype("i4") @ b.astype("i4"))


@pytest.mark.drawn(1)
@variants("prefix_sum")
def test_triton_scan(rng: np.random.Generator, seed: int, variant: str) -> None:
    x, y = rng.integers(-1000, 1000, 1024, dtype="i4"), np.zeros(1024, "i4")
    run(variant, [1], [x, y], seed)
    np.testing.assert_array_equal(y, np.cumsum(x))


@variants("sort")
def test_triton_sort(rng: np.random.Generator, seed: int, variant: str) -> None:
    x, y = rng.integers(-1 << 31, 1 << 31, 256, dtype="i4"), np.zeros(256, "i4")
    run(variant, [1], [x, y], seed)
    np.testing.assert_array_equal(y, np.sort(x))


@variants("histogram")
def test_triton_atomics(rng: np.random.Generator, seed: int, variant: str) -> None:
    x, y = rng.integers(0, 20, 3000, dtype="i4"), np.zeros(20, "i4")
    run(variant, [12], [x, y, x.size], seed)
    np.testing.assert_array_equal(y, np.bincount(x, minlength=20))


@pytest.mark.parametrize("variant", [one for one in LAUNCHES if one.startswith("layer_norm")])
def test_triton_layer_norm(rng: np.random.Generator, seed: int, variant: str) -> None:
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if "bf16" in variant else np.float16
    x = (rng.normal(size=(2, 400)) * 2 + 3).astype(dtype)
    y = np.zeros_like(x)
    run(variant, [2], [x, y, 400], seed)
    tolerance = 1e-2 if "bf16" in variant else 2e-3
    np.testing.assert_allclose(
        y.astype("f8"), normalized(x.astype("f8")), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(
    ("variant", "source", "result"),
    [("to_e4m3_sm_90", "float32", "float8_e4m3fn"), ("to_e5m2_sm_90", "float16", "float8_e5m2")],
)
def test_triton_eight_bits(
    rng: np.random.Generator, seed: int, variant: str, source: str, result: str
) -> None:
    import ml_dtypes

    x = (rng.normal(size=1000) * 10.0 ** rng.integers(-3, 2, 1000)).astype(source)
    y = np.zeros(1000, "u1")
    run(variant, [4], [x, y, 1000], seed)
    expected = x.astype(getattr(ml_dtypes, result))
    np.testing.assert_array_equal(y, expected.view("u1"))


@variants("transpose")
def test_triton_transposition(rng: np.random.Generator, seed: int, variant: str) -> None:
    x = rng.normal(size=(50, 39)).astype("f2")
    y = np.zeros((39, 50), "f2")
    run(variant, [2, 2], [x, y, 50, 39], seed)
    np.testing.assert_array_equal(y, x.T)
