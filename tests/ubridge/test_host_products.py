"""Products of matrices on the host, by a BLAS if available, else by ubridge's own kernel."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.children import check_child, run_child
from tests.requirements import needed
from tests.sampling import rounds
from tests.ubridge.operands import Array
from ubridge import DeviceTensor
from ubridge.core.lowering import Steps
from ubridge.prepare.matmul import blas_products, host_blas, packed_products
from uhal import Api, Device, Stream
from uhal.errors import OutOfMemoryError
from uhal.images import cpu_level

HALF_STEP = {"f64": 1.2e-16, "f32": 6e-8, "f16": 4.9e-4, "bf16": 3.9e-3}

needs_blas = needed(importlib.util.find_spec(host_blas.WHEEL), "scipy-openblas32 is not installed")


@pytest.fixture(autouse=True)
def on_host(host: Device) -> Iterator[Device]:
    yield host


def poisoned(x: DeviceTensor, y: DeviceTensor, shape: tuple[int, ...]) -> Array:
    """The product, written over NaNs."""
    out = ubridge.full(shape, np.nan, dtype=x.dtype)
    assert ubridge.matmul(x, y, out=out) is out
    return out.to_numpy()


def assert_product(got: Array, x: Array, y: Array, dtype: str, told: str) -> None:
    """Check within the rounding of k additions in the accumulator's type, and of the result."""
    wide = x.astype(np.float64), y.astype(np.float64)
    exact = np.matmul(*wide)
    magnitude = np.matmul(*map(np.abs, wide))
    added = HALF_STEP["f64" if dtype == "f64" else "f32"] * (x.shape[-1] + 2)
    # The smallest step of f16: small results are rounded to multiples of it.
    floor = 2.0**-25 if dtype == "f16" else 0.0
    bound = 1.01 * HALF_STEP[dtype] * np.abs(exact) + added * magnitude + floor
    difference = np.abs(got.astype(np.float64) - exact)
    assert (difference <= bound).all(), (told, float(difference.max(initial=0)))


def drawn_shapes(rng: np.random.Generator) -> tuple[int, int, int]:
    lengths = [1, 2, 3, 31, 32, 33, 64, 65, 130, 257]
    m, n, k = (int(length) for length in rng.choice(lengths, 3))
    return m, n, k


def matrices(
    rng: np.random.Generator, batch: tuple[int, ...], rows: int, columns: int, dtype: str
) -> tuple[DeviceTensor, Array, str]:
    """Return matrices in random forms, some of which a BLAS does not support."""

    def made(*shape: int) -> DeviceTensor:
        return ubridge.from_numpy(rng.standard_normal(shape)).astype(dtype)

    form = str(rng.choice(["rows", "columns", "padded", "stepped", "repeated", "one for all"]))
    if form == "columns":
        x = made(*batch, columns, rows).mT
    elif form == "padded":
        x = made(*batch, rows + 3, columns + 5)[..., 1:-2, 2:-3]
    elif form == "stepped":
        x = made(*batch, 2 * rows, 3 * columns)[..., ::2, ::3]
    elif form == "repeated":
        x = made(*batch, 1, columns).broadcast_to((*batch, rows, columns))
    elif form == "one for all":
        x = made(rows, columns).broadcast_to((*batch, rows, columns))
    else:
        x = made(*batch, rows, columns)
    return x, x.to_numpy(), form


@needs_blas
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_products_of_every_form(
    dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use the smallest pieces, so that each product is split between threads.
    monkeypatch.setattr(blas_products, "_PIECE", 1)
    monkeypatch.setattr(packed_products, "_PIECE", 1)
    blas_products._pieces.cache_clear()
    packed_products.product_pieces.cache_clear()
    for _ in range(rounds(40, 1000)):
        m, n, k = drawn_shapes(rng)
        batch = tuple(int(length) for length in rng.integers(1, 4, int(rng.integers(0, 3))))
        x, left, one = matrices(rng, batch, m, k, dtype)
        y, right, other = matrices(rng, batch, k, n, dtype)
        choice = ubridge.matmul_choice(x, y)
        passed_over = dict(choice.passed_over).get("blas", "")
        is_blas = dtype in ("f32", "f64") and "below this CPU's vectors" not in passed_over
        assert choice.kernel == ("blas" if is_blas else "packed")
        got = poisoned(x, y, (*batch, m, n))
        assert_product(got, left, right, dtype, f"{batch} {(m, n, k)} {one} {other}")
    blas_products._pieces.cache_clear()
    packed_products.product_pieces.cache_clear()


def test_a_level_with_more_instructions_has_the_number_of_its_vectors() -> None:
    """Large products compare the number with the BLAS's, on every kind of CPU."""
    for level in itertools.chain.from_iterable(cpu_level.ALL_LEVELS.values()):
        named = re.match(r"x86-64-v(\d)", level.name)
        assert level.number == (int(named[1]) if named else 0), level.name
    assert cpu_level.GENERIC.number == 0


@needs_blas
def test_a_large_product_runs_on_this_cpu() -> None:
    x = ubridge.ones((128, 128))
    assert ((x @ x).to_numpy() == 128).all()


@needs_blas
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_matrices_by_vectors(
    dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrices of every form, on either side and in pieces, use a function for vectors."""
    module = blas_products if dtype in ("f32", "f64") else packed_products
    pieces = getattr(module, "_pieces", None) or packed_products.product_pieces
    monkeypatch.setattr(module, "_PIECE", 1)
    taken: set[str] = set()
    launch_entry = Steps.launch_entry

    def noted(self: Steps, folder: str, entry: str, *others: Any, **named: Any) -> None:
        if folder in ("blas", "matvec", "matmul_packed"):
            taken.add(entry)
        launch_entry(self, folder, entry, *others, **named)

    monkeypatch.setattr(Steps, "launch_entry", noted)
    pieces.cache_clear()
    for _ in range(rounds(40, 1000)):
        m, n, k = drawn_shapes(rng)
        m, n = (m, 1) if rng.integers(2) else (1, n)
        batch = tuple(int(length) for length in rng.integers(1, 4, int(rng.integers(0, 3))))
        x, left, one = matrices(rng, batch, m, k, dtype)
        y, right, other = matrices(rng, batch, k, n, dtype)
        got = poisoned(x, y, (*batch, m, n))
        assert_product(got, left, right, dtype, f"{batch} {(m, n, k)} {one} {other}")
    pieces.cache_clear()
    assert taken == {f"blas_matvec_{dtype}" if module is blas_products else f"matvec_{dtype}"}


@needs_blas
def test_vectors_of_one_axis_with_nan_and_infinity(rng: np.random.Generator) -> None:
    x, y, z = (rng.standard_normal(shape) for shape in ((70, 80), 80, 70))
    x[3, 4], x[5, 6], y[7] = np.nan, np.inf, 0
    matrix = ubridge.from_numpy(x)
    for got, expected in (
        (matrix @ ubridge.from_numpy(y), x @ y),
        (ubridge.from_numpy(z) @ matrix, z @ x),
    ):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.to_numpy(), expected, rtol=1e-11, atol=1e-12)


@needs_blas
def test_more_products_than_a_grid_has_layers(rng: np.random.Generator) -> None:
    count = 65535 + 7
    x, y = rng.standard_normal((count, 2, 3)), rng.standard_normal((count, 3, 1))
    got = poisoned(ubridge.from_numpy(x), ubridge.from_numpy(y), (count, 2, 1))
    assert_product(got, x, y, "f64", "many")


@needs_blas
def test_nan_infinity_and_what_out_held(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((70, 80)), rng.standard_normal((80, 90))
    x[3, 4], x[5, 6] = np.nan, np.inf
    got = poisoned(ubridge.from_numpy(x), ubridge.from_numpy(y), (70, 90))
    assert np.isnan(got[3]).all() and np.isinf(got[5]).all()
    rest = [row for row in range(70) if row not in (3, 5)]
    assert_product(got[rest], x[rest], y, "f64", "rest")


@needs_blas
def test_products_keep_the_order_of_their_stream(rng: np.random.Generator) -> None:
    """Each product needs the previous product, and the host does not wait in between."""
    n, stream = 150, Stream()
    turn = np.linalg.qr(rng.standard_normal((n, n)))[0]
    x = y = ubridge.from_numpy(turn, stream=stream)
    exact = turn
    for _ in range(20):
        y = ubridge.multiply(ubridge.matmul(x, y, stream=stream), 0.5, stream=stream)
        exact = turn @ exact * 0.5
    stream.synchronize()
    np.testing.assert_allclose(y.to_numpy(), exact, rtol=1e-9, atol=1e-12 * 0.5**20)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_of_every_small_shape(dtype: str, rng: np.random.Generator) -> None:
    for m, n, k in itertools.product((1, 2, 7), (1, 3, 8), (1, 2, 5)):
        x, left, one = matrices(rng, (), m, k, dtype)
        y, right, other = matrices(rng, (), k, n, dtype)
        assert ubridge.matmul_choice(x, y).kernel == "packed"
        assert_product(poisoned(x, y, (m, n)), left, right, dtype, f"{(m, n, k)} {one} {other}")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_in_several_parts(dtype: str, rng: np.random.Generator) -> None:
    """Each axis is longer than the kernel's tiles, and no multiple of its steps."""
    for _ in range(rounds(3, 30)):
        m, n, k = (int(length) for length in rng.integers((257, 257, 385), (330, 330, 900)))
        x, left, one = matrices(rng, (), m, k, dtype)
        y, right, other = matrices(rng, (), k, n, dtype)
        assert_product(poisoned(x, y, (m, n)), left, right, dtype, f"{(m, n, k)} {one} {other}")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_that_are_nan_or_infinite(dtype: str, rng: np.random.Generator) -> None:
    for m, n in ((70, 90), (70, 1), (1, 90)):
        x, y = rng.standard_normal((m, 81)), rng.standard_normal((81, n))
        x[0, 4], y[4] = np.inf, np.abs(y[4]) + 0.5
        if m > 1:
            x[3, 80] = np.nan
        left, right = (ubridge.from_numpy(one).astype(dtype) for one in (x, y))
        got = poisoned(left, right, (m, n)).astype(np.float64)
        assert (got[0] == np.inf).all()
        assert m == 1 or np.isnan(got[3]).all()
        rest = [row for row in range(m) if row not in (0, 3)]
        held = left.to_numpy()[rest], right.to_numpy()
        assert_product(got[rest], *held, dtype, "rest")


@needs_blas
@pytest.mark.parametrize("core", ["Haswell", "SapphireRapids"])
def test_a_blas_below_the_vectors_of_the_cpu_leaves_large_products(
    core: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instruction level of OpenBLAS's kernels decides, even if the CPU's level is higher."""
    found = replace(host_blas.find_blas(), core=core)
    monkeypatch.setattr(blas_products, "find_blas", lambda: found)
    monkeypatch.setattr(packed_products.PackedProducts, "level", 4)
    is_behind = core == "Haswell"
    for dtype, m, n, k in (
        ("f32", 130, 130, 130),
        ("f32", 20, 30, 40),
        ("f32", 1, 2000, 2000),
        ("f64", 130, 130, 130),
    ):
        x, left, _ = matrices(rng, (), m, k, dtype)
        y, right, _ = matrices(rng, (), k, n, dtype)
        choice = ubridge.matmul_choice(x, y)
        is_packed = is_behind and (dtype, m) == ("f32", 130)
        assert choice.kernel == ("packed" if is_packed else "blas")
        if is_packed:
            assert "its kernels for Haswell here" in dict(choice.passed_over)["blas"]
        assert_product(poisoned(x, y, (m, n)), left, right, dtype, f"{dtype} {(m, n, k)}")


def test_without_a_blas_the_kernel_multiplies(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_blas, "_wheel_libraries", list)
    monkeypatch.delenv(host_blas.VARIABLE, raising=False)
    host_blas.find_blas.cache_clear()
    try:
        for dtype in ("f32", "f64", "f16", "bf16"):
            x, left, one = matrices(rng, (2,), 33, 65, dtype)
            y, right, other = matrices(rng, (2,), 65, 70, dtype)
            choice = ubridge.matmul_choice(x, y)
            # Numbers of 64 bits are not packed.
            assert choice.kernel == ("tiled" if dtype == "f64" else "packed")
            passed_over = dict(choice.passed_over)["blas"]
            wheel = "pip install scipy-openblas32" if dtype in ("f32", "f64") else "for f32 and f64"
            assert wheel in passed_over
            got = poisoned(x, y, (2, 33, 70))
            assert_product(got, left, right, dtype, f"{one} {other}")
    finally:
        host_blas.find_blas.cache_clear()


def multiplied() -> None:
    with Device(0, backend="host"):
        x = ubridge.ones((40, 40))
        assert ((x @ x).to_numpy() == 40).all()
        print(ubridge.matmul_choice(x, x).reason)


def imported() -> None:
    import sys

    import ubridge  # noqa: F401

    print(host_blas.WHEEL in sys.modules, host_blas.find_blas.cache_info().currsize)


@needs_blas
def test_the_wheel_is_found_at_the_first_product() -> None:
    assert check_child(imported).split() == ["False", "0"]
    assert "libscipy_openblas" in check_child(multiplied)
    for threads in ("1", "3"):
        check_child(multiplied, environment={"UHAL_HOST_THREADS": threads})


@needs_blas
def test_the_variable_names_the_library() -> None:
    (library,) = host_blas._wheel_libraries()
    assert library in check_child(multiplied, environment={host_blas.VARIABLE: library})
    # A missing file and an unrelated library are both errors.
    for wrong, said in (("/nowhere/libblas.so", "nowhere"), ("libm.so.6", "has no cblas_sgemm")):
        result = run_child(multiplied, environment={host_blas.VARIABLE: wrong})
        assert "LibraryNotFoundError" in result.stderr and said in result.stderr
        assert host_blas.VARIABLE in result.stderr


def check_products_with_little_room(seed: int, is_chosen: bool) -> None:
    """With 40 MiB left, ubridge's kernel multiplies; OpenBLAS is used if it was chosen before."""
    import resource
    from pathlib import Path

    Api.quick_init(0, "host")
    values = np.random.default_rng(seed).standard_normal((300, 300))
    x = ubridge.asarray(values)
    expected = values @ values
    np.testing.assert_array_equal((x + x).to_numpy(), values * 2)
    if is_chosen:
        assert host_blas.find_blas().gemm
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), before[1]))
    if is_chosen:
        with pytest.raises(OutOfMemoryError, match="blas_matmul_f64"):
            (x @ x).to_numpy()
        resource.setrlimit(resource.RLIMIT_AS, before)
    np.testing.assert_allclose((x @ x).to_numpy(), expected, 1e-9, 1e-9)
    np.testing.assert_array_equal((x + x).to_numpy(), values * 2)
    assert bool(host_blas.find_blas().gemm) is is_chosen


@pytest.mark.drawn(1)
@needs_blas
@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited and read there")
@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_product_without_room_for_the_blas_does_not_end_the_process(
    is_chosen: bool, seed: int
) -> None:
    environment = {"UHAL_HOST_THREADS": "1"}
    check_child(check_products_with_little_room, seed, is_chosen, environment=environment)
