"""Kernels that pack operands, at each instruction level of this CPU, against double precision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from tests import host_kernels
from tests.children import check_child, run_child
from tests.sampling import rounds
from ubridge.device.images import KERNELS
from uhal import Device, DeviceBuffer, Module
from uhal.dtypes import as_dtype
from uhal.images import cpu_level

Array = npt.NDArray[np.float64]

DATA = Path(__file__).resolve().parents[1] / "data"
HALF_STEP = {"f16": 4.9e-4, "bf16": 3.9e-3, "f32": 6e-8}
BY_HAND = "amx by hand"

pytestmark = pytest.mark.skipif(
    cpu_level._machine() != "x86_64", reason="levels of x86-64 are compared"
)


def levels(module: str) -> list[str]:
    """Levels that this CPU runs, best first."""
    return [level.name for level in cpu_level.usable_levels(module) if level.march]


def image(module: str, level: str) -> bytes:
    """Return the built library, or compile the same source for another level."""
    if level == cpu_level.best_level(module).name:
        return (KERNELS / "host" / level / f"{module}.so").read_bytes()
    if level == BY_HAND:
        if not cpu_level.cpu_flags() >= cpu_level._V4:
            pytest.skip("the CPU has no AVX-512")
        # Compile with the level's vectors, and with the matrix tiles in plain C++.
        bf16 = ("-mavx512bf16",) if "avx512_bf16" in cpu_level.cpu_flags() else ()
        flags = ("-march=x86-64-v4", *bf16, "-D__AMX_BF16__=1")
        flags = (*flags, "-include", str(DATA / "amx_by_hand.h"))
        if not bf16:
            pytest.skip("the CPU has no instructions for bf16")
    else:
        told = next(one for one in cpu_level.usable_levels(module) if one.name == level)
        # Use passes of four lines, as on machines with few CPUs, and shorter passes for the rest.
        flags = (f"-march={told.march}", *told.options, "-DLOOKS_FAR=1")
    source = f'#include "{KERNELS / module}.cpp"\n'
    return host_kernels.build(source, *flags, "-O1", f"-I{KERNELS}")


@dataclass(frozen=True)
class Held:
    """Matrices in memory with any strides; the gaps contain NaN."""

    buffer: DeviceBuffer
    values: Array
    steps: tuple[int, int, int]


def held(rng: np.random.Generator, batch: int, rows: int, columns: int, dtype: str) -> Held:
    """Return random matrices: contiguous along rows, columns or neither; padded; shared or one per
    batch."""
    form = str(rng.choice(["rows", "columns", "neither"]))
    pad = int(rng.integers(0, 3))
    if form == "rows":
        steps = (columns + pad, 1)
    elif form == "columns":
        steps = (1, rows + pad)
    else:
        steps = (2 * columns + pad, 2)
    size = rows * columns * 2 + (rows + columns) * (pad + 2)
    shared = bool(rng.integers(2))
    memory = np.full((batch, size), np.nan)
    first = np.add.outer(steps[0] * np.arange(rows), steps[1] * np.arange(columns))
    memory[:, first] = rng.standard_normal((batch, rows, columns))
    if shared:
        memory[1:] = memory[:1]
    stored = memory.astype(as_dtype(dtype).dtype)
    values = stored[:, first].astype(np.float64)
    buffer = DeviceBuffer.from_numpy(stored.reshape(-1))
    return Held(buffer, values, (0 if shared else size, *steps))


def assert_close(got: Array, x: Array, y: Array, dtype: str, told: str) -> None:
    exact, magnitude = np.matmul(x, y), np.matmul(np.abs(x), np.abs(y))
    bound = 1.01 * HALF_STEP[dtype] * np.abs(exact) + 6e-8 * (x.shape[-1] + 2) * magnitude + 2**-25
    difference = np.abs(got - exact)
    assert (difference <= bound).all(), (told, float(np.nanmax(difference, initial=0)))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("level", [*levels("matmul_packed"), BY_HAND])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_products_at_every_level(
    host: Device, rng: np.random.Generator, level: str, dtype: str
) -> None:
    module = Module.from_bytes(image("matmul_packed", level), device=host)
    kernel = module.get_function(f"matmul_packed_{dtype}")
    for turn in range(rounds(12, 200)):
        longest = 300 if turn % 4 == 0 else 70
        batch, m, n, k = (int(one) for one in rng.integers(1, (3, longest, longest, 2 * longest)))
        x, y = held(rng, batch, m, k, dtype), held(rng, batch, k, n, dtype)
        out = ubridge.full((batch, m, n), np.nan, dtype=dtype)
        grid = (*(int(one) for one in rng.integers(1, 4, 2)), batch)
        kernel[grid, 1](x.buffer, y.buffer, out.buffer, m, n, k, *x.steps, *y.steps)
        told = f"{(batch, m, n, k)} {x.steps} {y.steps} {grid}"
        assert_close(out.to_numpy().astype(np.float64), x.values, y.values, dtype, told)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("level", levels("attention_packed"))
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_vectors_at_every_level(
    host: Device, rng: np.random.Generator, level: str, dtype: str
) -> None:
    module = Module.from_bytes(image("matvec", level), device=host)
    kernel = module.get_function(f"matvec_{dtype}")
    for turn in range(rounds(12, 200)):
        longest = 2500 if turn % 4 == 0 else 70
        batch, m, k = (int(one) for one in rng.integers(1, (3, longest, longest // 2)))
        x, v = held(rng, batch, m, k, dtype), held(rng, batch, k, 1, dtype)
        out = ubridge.full((batch, m, 1), np.nan, dtype=dtype)
        grid = (int(rng.integers(1, 4)), 1, batch)
        kernel[grid, 1](x.buffer, v.buffer, out.buffer, m, k, *x.steps, *v.steps[:2])
        told = f"{(batch, m, k)} {x.steps} {v.steps} {grid}"
        assert_close(out.to_numpy().astype(np.float64), x.values, v.values, dtype, told)


def test_a_product_of_nothing_is_zero(host: Device) -> None:
    for dtype in ("bf16", "f16"):
        x, y = (ubridge.zeros(shape, dtype=dtype) for shape in ((40, 0), (0, 50)))
        assert (ubridge.matmul(x, y).to_numpy() == 0).all()


def chosen() -> None:
    with Device(0, backend="host"):
        x = ubridge.ones((48, 48)).astype("bf16")
        assert ((x @ x).to_numpy() == 48).all()
        print(ubridge.matmul_choice(x, x))


def test_the_variable_limits_the_level() -> None:
    best = cpu_level.best_level("matmul_packed").name
    assert f"matmul_packed for {best}" in check_child(chosen)
    common = cpu_level.best_level().name
    said = check_child(chosen, environment={cpu_level.LIMIT: common})
    if best == common:
        assert f"matmul_packed for {common};" in said
    else:
        # A checkout builds a module for one level.
        assert f"matmul_packed for {best}: {cpu_level.LIMIT}={common};" in said
        assert f"matmul_packed for {common}: not built;" in said
    wrong = run_child(chosen, environment={cpu_level.LIMIT: "fastest"})
    assert f"{cpu_level.LIMIT}: expected one of " in wrong.stderr
    assert f"{common}, " in wrong.stderr and "got 'fastest'" in wrong.stderr
