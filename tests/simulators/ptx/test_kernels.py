"""Whole kernels, compiled by nvcc (kernels.cu), against numpy; and faults of a device."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from simulators.ptx.launch import LaunchError, Module
from tests.simulators.ptx.conftest import HERE

TEXT = (HERE / "kernels.ptx").read_text()


@pytest.fixture(scope="module", params=["off", "on", "strict"])
def module(request: pytest.FixtureRequest) -> Module:
    return Module(TEXT, request.param)


def at(array: np.ndarray) -> np.ndarray:
    return array


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 20_000])
def test_sums_of_blocks(module: Module, rng: np.random.Generator, seed: int, n: int) -> None:
    x = rng.normal(size=n).astype("f4")
    blocks = -(-n // 256)
    sums = np.full(blocks, np.nan, "f4")
    module.kernel("block_sum").launch([blocks], [256], [at(x), at(sums), n], seed=seed)
    padded = np.zeros(blocks * 256)
    padded[:n] = x
    np.testing.assert_allclose(sums, padded.reshape(blocks, 256).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 33, 256, 1000, 1024])
def test_scan_in_dynamic_shared_memory(
    module: Module, rng: np.random.Generator, seed: int, n: int
) -> None:
    x = rng.integers(-100, 100, n, dtype="i4")
    y = np.zeros(n, "i4")
    module.kernel("scan").launch([1], [n], [at(x), at(y)], shared=8 * n, seed=seed)
    np.testing.assert_array_equal(y, np.cumsum(x))


def test_histogram(module: Module, rng: np.random.Generator, seed: int) -> None:
    x = rng.integers(0, 256, 50_000, dtype="u1")
    bins = np.zeros(256, "u4")
    module.kernel("histogram").launch([13], [96], [at(x), at(bins), x.size], seed=seed, workers=4)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def test_atomics(module: Module, seed: int) -> None:
    t = np.arange(256, dtype=np.int64)
    w = np.array([5, 5, 5, 5, -1, 0, 0], "i4")
    u = np.array([0, 3, 0, 7], "u4")
    wide = np.array([1, 1 << 63], "u8")
    f, d, h = np.zeros(1, "f4"), np.zeros(1, "f8"), np.zeros(2, "f2")
    module.kernel("atomics").launch(
        [8], [32], [at(w), at(u), at(wide), at(f), at(d), at(h)], seed=seed, workers=3
    )
    total = int(t.sum())
    xored = int(np.bitwise_xor.reduce(t))
    assert w.tolist() == [5 + total, 5 - total, 50 - 255, 205, 0, 0xFFFF, xored]
    assert u[0] == 256 % 7
    assert u[2] == int((t * 3_000_000_000 % (1 << 32)).max())
    counter = 3
    for _ in range(256):
        counter = 6 if counter == 0 or counter > 6 else counter - 1
    assert u[1] == counter
    assert u[3] == 7 + total
    assert wide.tolist() == [1 + (total << 32), 1000 - 255]
    assert (f[0], d[0]) == (128.0, 64.0)
    assert h.tolist() == [256.0, 512.0]


def test_a_lock_within_a_warp(module: Module, seed: int) -> None:
    mutex, count = np.zeros(1, "i4"), np.zeros(1, "i4")
    module.kernel("lock").launch([4], [64], [at(mutex), at(count)], seed=seed, workers=2)
    assert (mutex[0], count[0]) == (0, 256)


@pytest.mark.parametrize("order", range(8))
def test_a_thread_may_wait_for_another(module: Module, order: int) -> None:
    flag, out = np.zeros(1, "i4"), np.zeros(65, "i4")
    module.kernel("handshake").launch([1], [64], [at(flag), at(out)], seed=order)
    assert out.tolist() == [42] * 65


def test_loops_that_threads_leave_at_different_times(
    module: Module, rng: np.random.Generator, seed: int
) -> None:
    x = rng.integers(1, 10_000, 128, dtype="u4")
    steps = np.zeros(128, "u4")
    module.kernel("collatz").launch([2], [64], [at(x), at(steps)], seed=seed)

    def length(value: int) -> int:
        count = 0
        while value != 1:
            value = 3 * value + 1 if value % 2 else value // 2
            count += 1
        return count

    longest = np.array([length(int(one)) for one in x]).reshape(4, 32).max(1)
    np.testing.assert_array_equal(steps, np.repeat(longest, 32))


def test_what_a_warp_answers(module: Module, rng: np.random.Generator, seed: int) -> None:
    x = rng.integers(0, 40, 96, dtype="u4")
    out = np.zeros((96, 12), "u4")
    module.kernel("warps").launch([1], [96], [at(x), at(out)], seed=seed)
    for start in range(0, 96, 32):
        v = [int(one) for one in x[start : start + 32]]
        ballot = sum((one & 1) << lane for lane, one in enumerate(v))
        block_answers = int((x & 1).sum()) * 4 + 2 * (7 in x.tolist()) + 1
        for lane in range(32):
            any_all = (7 in v) + 2
            same = sum((one == v[lane]) << other for other, one in enumerate(v))
            alike = len(set(v)) == 1
            segment = lane // 8 * 8
            up = v[lane - 3] if lane % 16 >= 3 else v[lane]
            expected = [
                ballot,
                any_all,
                same,
                0xFFFFFFFF if alike else 0,
                int(alike),
                sum(v),
                (min(v) - 50) & 0xFFFFFFFF,
                v[segment + v[lane] % 8],
                up,
            ]
            got = [int(one) for one in out[start + lane]]
            assert got[:9] == expected
            if v[lane] & 1:
                assert got[9] == ballot
                assert got[10] == sum(one > 20 for one in v if one & 1)
            assert got[11] == block_answers


def test_calls_and_variables(module: Module, rng: np.random.Generator, seed: int) -> None:
    x = rng.normal(size=64)
    y = np.zeros(128)
    fresh = Module(TEXT)
    fresh.kernel("calls").launch([1], [64], [at(x), at(y)], seed=seed)
    for t in range(64):
        local = {(i * 7 + t) % 16: i for i in range(16)}
        expected = (
            x[t] ** (t % 6) + np.float32(x[3]) + -0.0 + [0.5, -2.0, 8.0][0] + local[t * 3 % 16]
        )
        assert y[t] == pytest.approx(expected, rel=1e-6)
    assert y[64:].tolist() == [3, 5] * 32
    counters = np.ctypeslib.as_array(
        (__import__("ctypes").c_int * 4).from_address(fresh.address("counters"))
    )
    assert counters.tolist() == [1, 3, 5, 7]


def test_vectors(module: Module, rng: np.random.Generator) -> None:
    x = rng.normal(size=(32, 4)).astype("f4")
    b = rng.integers(0, 256, (32, 4), dtype="u1")
    y, s = np.zeros((32, 2)), np.zeros((32, 2), "u2")
    module.kernel("vectors").launch([1], [32], [at(x), at(y), at(b), at(s)])
    np.testing.assert_array_equal(y, np.stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3]], 1))
    wide = b.astype("u2")
    np.testing.assert_array_equal(
        s, np.stack([wide[:, 0] + wide[:, 1], wide[:, 2] * wide[:, 3]], 1)
    )


def test_narrow_floats(module: Module, rng: np.random.Generator) -> None:
    import ml_dtypes

    a = rng.normal(size=64).astype("f2")
    b = rng.normal(size=64).astype(ml_dtypes.bfloat16)
    c, d, e = np.zeros(64, "f2"), np.zeros(64, ml_dtypes.bfloat16), np.zeros(64, "f4")
    module.kernel("halves").launch([1], [64], [at(a), at(b), at(c), at(d), at(e)])
    wide = a.astype("f8")
    np.testing.assert_allclose(c.astype("f8"), wide * wide + 0.5 + np.exp(wide), rtol=4e-3)
    np.testing.assert_array_equal(d, (b + ml_dtypes.bfloat16(1.5)) * b)
    np.testing.assert_array_equal(e, a.astype("f4") * b.astype("f4"))


def test_cuda_s_mathematics(module: Module, rng: np.random.Generator) -> None:
    x = (rng.normal(size=64) * 3).astype("f4")
    p = rng.normal(size=64) * 3
    y, q = np.zeros((64, 8), "f4"), np.zeros((64, 4))
    module.kernel("mathematics").launch([1], [64], [at(x), at(y), at(p), at(q)])
    w = x.astype("f8")
    erf = np.array([math.erf(one) for one in w])
    size = np.abs(w)
    expected = [np.exp(w), np.log(size), np.sin(w), np.tanh(w), erf, size**1.7, size**-0.5]
    np.testing.assert_allclose(y[:, :7], np.stack(expected, 1), rtol=3e-6, atol=1e-6)
    np.testing.assert_array_equal(y[:, 7], np.fmod(x, np.float32(0.7)))
    doubles = [np.exp(p), np.log(np.abs(p)), np.cos(p), p / (1 + p * p)]
    np.testing.assert_allclose(q, np.stack(doubles, 1), rtol=1e-14, atol=1e-15)


def test_tensor_instruction(module: Module, rng: np.random.Generator, seed: int) -> None:
    a = rng.normal(size=(16, 16)).astype("f2")
    b = rng.normal(size=(16, 8)).astype("f2")
    c = np.zeros((16, 8), "f4")
    module.kernel("tensor").launch([1], [32], [at(a), at(b), at(c)], seed=seed)
    np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-4)


def test_indexed_branches(module: Module, rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, 67, dtype="i4")
    y = np.zeros(64, "i4")
    module.kernel("choose").launch([1], [64], [at(x), at(y)])
    for t in range(64):
        v = [int(one) for one in x[t : t + 4]]
        choices = [10, v[1] * 3, v[0] - v[2], 77, v[1] ^ 5, -v[1], v[3] << 2]
        assert y[t] == (choices[v[0]] if v[0] < 7 else -1)


def test_printing() -> None:
    script = (
        "import numpy as np\n"
        "from simulators.ptx.launch import Module\n"
        f"text = open({str(HERE / 'kernels.ptx')!r}).read()\n"
        "x = np.array([1.5, -2.25], 'f4')\n"
        "Module(text).kernel('say').launch([1], [2], [x])\n"
    )
    root = HERE.parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0  1.50 word 1099511627776 z%\n1 -2.25 word 1099511627776 z%\n"


# -- faults of a device ----------------------------------------------------------------------------


def test_a_missing_barrier_shows(rng: np.random.Generator) -> None:
    """Threads that never wait run in order, so half of them read unwritten elements."""
    x = rng.integers(1, 1 << 30, 256, dtype="i4")
    y = np.zeros(256, "i4")
    Module(TEXT).kernel("missing_barrier").launch([1], [256], [at(x), at(y)])
    assert not np.array_equal(y, x[::-1])
    with pytest.raises(LaunchError, match="which no thread of the block has written"):
        Module(TEXT, "strict").kernel("missing_barrier").launch([1], [256], [at(x), at(y)])


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize(
    ("kernel", "threads", "outcome", "words"),
    [
        ("endless", 32, "timeout", "still running after 300 ms: an endless loop"),
        ("endless_quietly", 1, "timeout", "block (0, 0, 0)"),
        ("divergent_barrier", 32, "divergent barrier", "of the same warp"),
        ("lonely_shuffle", 32, "deadlock", "shfl.sync of line"),
        ("wild_store", 1, "illegal address", "block (0, 0, 0)"),
        ("stopped", 4, "trap", "thread (3, 0, 0) trapped in line"),
    ],
)
def test_faults(module: Module, kernel: str, threads: int, outcome: str, words: str) -> None:
    x = np.arange(64, dtype="i4")
    x[0] = 0
    with pytest.raises(LaunchError) as caught:
        module.kernel(kernel).launch([1], [threads], [at(x)], milliseconds=300)
    assert caught.value.outcome == outcome
    assert words in caught.value.message
    assert "(seed " in str(caught.value)


def test_a_fault_leaves_the_process_usable(module: Module) -> None:
    x = np.zeros(64, "i4")
    for _ in range(3):
        with pytest.raises(LaunchError):
            module.kernel("wild_store").launch([500], [64], [at(x)], workers=3)
    y = np.zeros(4, "i4")
    ones = np.ones(4, "i4")
    module.kernel("scan").launch([1], [4], [at(ones), at(y)], shared=32)
    assert y.tolist() == [1, 2, 3, 4]
