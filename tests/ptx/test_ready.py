"""Every ready kernel against a reference in higher precision, with random shapes and types."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.ptx.conftest import Array, Launch
from tests.ptx.ptxas import compiled, needs_ptxas, targets
from tests.ptx.test_values import numpy_type
from uhal import ptx
from uhal.ptx import Kernel, Type, f32, ready

FOLDER = Path(ready.__file__).parent
TYPES = (ptx.f16, ptx.bf16, f32)
MOST_LINES = 60


def drawn(rng: np.random.Generator, of: Type, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(numpy_type(of))


def poisoned(of: Type, *shape: int) -> Array:
    return np.full(shape, np.nan, numpy_type(of))


def close(got: Array, expected: Array, of: Type, scale: float = 1) -> None:
    bits = {"f16": 10, "bf16": 7, "f32": 19}[of.name]
    tolerance = scale * 2.0**-bits
    np.testing.assert_allclose(got.astype("f8"), expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=TYPES, ids=lambda of: of.name)
def of(request: pytest.FixtureRequest) -> Type:
    kind: Type = request.param
    return kind


@pytest.mark.drawn(1)
def test_saxpy(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    n = int(rng.integers(1, 3000))
    x, y = drawn(rng, of, n), drawn(rng, of, n)
    _, got = launch(ready.saxpy(of), n, 1.25, x, y, grid=3, block=64)
    close(got, 1.25 * x.astype("f8") + y.astype("f8"), of, 4)


@pytest.mark.drawn(1)
def test_reduction(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    n = int(rng.integers(1, 5000))
    x = drawn(rng, of, n)
    _, got = launch(ready.reduce_sum(of), n, x, np.zeros(1, "f4"), grid=3, block=256)
    close(got[0], x.astype("f8").sum(), f32, 50)


@pytest.mark.drawn(1)
def test_softmax(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    rows, columns = (int(one) for one in rng.integers(1, 300, 2))
    x = drawn(rng, of, rows % 7 + 1, columns)
    got = launch(
        ready.softmax(of), columns, x.ravel(), poisoned(of, x.size), grid=len(x), block=128
    )
    wide = x.astype("f8")
    powers = np.exp(wide - wide.max(1, keepdims=True))
    close(got[1].reshape(x.shape), powers / powers.sum(1, keepdims=True), of)


@pytest.mark.drawn(1)
def test_rms_norm(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    rows, columns = int(rng.integers(1, 6)), int(rng.integers(1, 500))
    x, weight = drawn(rng, of, rows, columns), drawn(rng, of, columns)
    kernel = ready.rms_norm(of)
    out = poisoned(of, x.size)
    got = launch(kernel, columns, 1e-5, x.ravel(), weight, out, grid=rows, block=128)
    wide = x.astype("f8")
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * weight.astype("f8")
    close(got[-1].reshape(x.shape), expected, of, 8)


@pytest.mark.drawn(1)
def test_gemm(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    m, n, k = (int(one) for one in rng.integers(1, 50, 3))
    a, b = drawn(rng, of, m, k), drawn(rng, of, k, n)
    grid = (-(-n // 16), -(-m // 16))
    kernel, out = ready.gemm(of), poisoned(of, m * n)
    got = launch(kernel, m, n, k, a.ravel(), b.ravel(), out, grid=grid, block=(16, 16))
    close(got[-1].reshape(m, n), a.astype("f8") @ b.astype("f8"), of, 16)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("of", TYPES[:2], ids=lambda of: of.name)
def test_tensor_gemm(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    m, n, k = int(rng.integers(1, 140)), 2 * int(rng.integers(1, 70)), 8 * int(rng.integers(1, 20))
    a, b = drawn(rng, of, m, k), drawn(rng, of, n, k)
    grid = (-(-n // 64), -(-m // 64))
    kernel, out = ready.tensor_gemm(of), poisoned(f32, m * n)
    got = launch(kernel, m, n, k, a.ravel(), b.ravel(), out, grid=grid, block=128)
    close(got[-1].reshape(m, n), a.astype("f8") @ b.astype("f8").T, f32, 64)


def q4k_block(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a super-block's bytes and its 256 weights, by GGUF's description of Q4_K."""
    d, least = rng.uniform(0.01, 0.1, 2).astype("f2")
    scales, minimums = rng.integers(0, 64, (2, 8))
    quants = rng.integers(0, 16, (8, 32))
    packed = np.zeros(12, "u1")
    packed[:4] = scales[:4] | (scales[4:] >> 4) << 6
    packed[4:8] = minimums[:4] | (minimums[4:] >> 4) << 6
    packed[8:] = (scales[4:] & 15) | (minimums[4:] & 15) << 4
    nibbles = (quants[::2] | quants[1::2] << 4).astype("u1")
    data = np.concatenate([np.array([d, least]).view("u1"), packed, nibbles.ravel()])
    weights = float(d) * scales[:, None] * quants - float(least) * minimums[:, None]
    return data, weights.ravel()


def test_q4k_gemv(launch: Launch, rng: np.random.Generator) -> None:
    rows, blocks = int(rng.integers(1, 12)), int(rng.integers(1, 9))
    made = [[q4k_block(rng) for _ in range(blocks)] for _ in range(rows)]
    data = np.concatenate([one[0] for row in made for one in row])
    weights = np.array([np.concatenate([one[1] for one in row]) for row in made])
    k = 256 * blocks
    x = rng.integers(-127, 128, k).astype("i1")
    scales = rng.uniform(0.01, 0.02, k // 32).astype("f4")
    kernel, out = ready.q4k_gemv(), poisoned(f32, rows)
    grid = -(-rows // 4)
    got = launch(kernel, rows, k, data.view("u4"), x.view("i4"), scales, out, grid=grid, block=128)
    values = x * np.repeat(scales.astype("f8"), 32)
    error = np.abs(weights) @ np.abs(values) * 2.0**-18
    assert (np.abs(got[-1] - weights @ values) <= error).all()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("of", TYPES[:2], ids=lambda of: of.name)
def test_swiglu_gemv(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    rows, k = int(rng.integers(1, 20)), 8 * int(rng.integers(1, 60))
    gate, up = drawn(rng, of, rows, k), drawn(rng, of, rows, k)
    x = (drawn(rng, of, k).astype("f4") / np.sqrt(k)).astype(numpy_type(of))
    words = [one.ravel().view("u4") for one in (gate, up, x)]
    kernel, out = ready.swiglu_gemv(of), poisoned(of, rows)
    got = launch(kernel, rows, k, *words, out, grid=-(-rows // 4), block=128)
    gated, upped = (one.astype("f8") @ x.astype("f8") for one in (gate, up))
    close(got[-1], gated / (1 + np.exp(-gated)) * upped, of, 8)


@pytest.mark.drawn(1)
def test_rope(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    tokens, heads, half = (int(one) for one in rng.integers(1, 9, 3))
    angles = rng.uniform(-3, 3, (tokens, half))
    cos, sin = np.cos(angles).astype("f4"), np.sin(angles).astype("f4")
    x = drawn(rng, of, tokens, heads, 2 * half)
    count = tokens * heads * half
    given = (tokens, heads, 2 * half, cos.ravel(), sin.ravel(), x.ravel(), poisoned(of, x.size))
    got = launch(ready.rope(of), *given, grid=-(-count // 64), block=64)
    first, second = np.split(x.astype("f8"), 2, axis=2)
    c, s = (one.astype("f8")[:, None, :] for one in (cos, sin))
    expected = np.concatenate([first * c - second * s, first * s + second * c], 2)
    close(got[-1].reshape(x.shape), expected, of, 8)


@pytest.mark.drawn(1)
def test_attention(of: Type, launch: Launch, rng: np.random.Generator) -> None:
    width, group = 32 * int(rng.integers(1, 5)), int(rng.integers(1, 3))
    kv_heads, queries = int(rng.integers(1, 3)), int(rng.integers(1, 40))
    heads, keys = kv_heads * group, queries + int(rng.integers(0, 40))
    q = drawn(rng, of, heads, queries, width)
    k, v = drawn(rng, of, kv_heads, keys, width), drawn(rng, of, kv_heads, keys, width)
    scale = width**-0.5
    given = (queries, keys, group, scale, q.ravel(), k.ravel(), v.ravel(), poisoned(of, q.size))
    got = launch(ready.attention(of, width), *given, grid=(-(-queries // 16), heads), block=128)
    wide_k, wide_v = (np.repeat(one.astype("f8"), group, 0) for one in (k, v))
    scores = q.astype("f8") @ wide_k.swapaxes(1, 2) * scale
    scores[:, ~np.tri(queries, keys, keys - queries, dtype=bool)] = -np.inf
    powers = np.exp(scores - scores.max(2, keepdims=True))
    expected = powers / powers.sum(2, keepdims=True) @ wide_v
    close(got[-1].reshape(q.shape), expected, of, 16)


# -- all of them ----------------------------------------------------------------------------------

MAKERS: dict[str, Callable[..., Kernel]] = {name: getattr(ready, name) for name in ready.__all__}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_ready_kernel_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES


def test_every_ready_kernel_has_a_test() -> None:
    text = Path(__file__).read_text("utf-8")
    assert all(f"ready.{name}(" in text for name in MAKERS)


@needs_ptxas
@pytest.mark.parametrize("name", MAKERS)
def test_ptxas_takes_it_from_its_first_target_to_sm_100(
    name: str, tmp_path: Path, seed: int
) -> None:
    text = MAKERS[name]().ptx
    first = int(text.partition(".target sm_")[2].split()[0])
    assert first == (80 if name == "tensor_gemm" else 75)
    for target in targets(first, random.Random(seed)):
        done = compiled(text, target, tmp_path)
        assert done.returncode == 0, f"{target}: {done.stderr}"
