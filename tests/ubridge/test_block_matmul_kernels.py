"""Products of weight blocks and 8-bit vectors, at each instruction level that this CPU runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge
from tests import host_kernels
from tests.sampling import SOAK, rounds
from tests.ubridge.activation_data import rounded_to_8_bits
from tests.ubridge.block_data import elements, random_blocks
from tests.ubridge.kernel_bench import Output, numpy_dtype, run
from ubridge.core.block_formats import FORMATS, activation_bytes
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import KERNELS
from uhal import Device, DeviceBuffer, Function, Module
from uhal.images import cpu_level

Array = npt.NDArray[Any]

MODULE = "block_matmul"
HALF_STEP = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
FAST = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
    *("iq4_nl", "iq4_xs", "mxfp4"),
)
BUILT = cpu_level.best_level(MODULE).name
OLDER = [level.name for level in cpu_level.usable_levels(MODULE) if level.name != BUILT]


def library(level: str) -> bytes:
    """Return the built library, or compile the same source for another level."""
    if level == BUILT:
        path: Path = KERNELS / "host" / level / f"{MODULE}.so"
        return path.read_bytes()
    told = next(one for one in cpu_level.usable_levels(MODULE) if one.name == level)
    march = () if told.march is None else (f"-march={told.march}",)
    source = f'#include "{KERNELS / MODULE}.cpp"\n'
    # Use passes of four rows, as on machines with few CPUs, and of one row for the rest. At -O1
    # some 64-byte vectors are arguments, and GCC notes that this ABI changed.
    options = (*told.options, "-DLOOKS_FAR=1", "-O1", "-Wno-psabi")
    return host_kernels.build(source, *march, *options, f"-I{KERNELS}")


def activations(quantize: Function, x: Array, run_of: int) -> DeviceBuffer:
    """Quantize vectors into memory with other contents; check and return the kernel's output."""
    vectors, columns = x.shape
    output = Output("u8", vectors * activation_bytes(columns))
    quantize[(min(vectors, 2),), 1](
        DeviceBuffer.from_numpy(np.ascontiguousarray(x).ravel()), output.buffer, vectors, columns
    )
    made = output.to_numpy().reshape(vectors, -1)
    filled = -(-columns // 64) * 64
    integers = made[:, :filled].view(np.int8).astype(np.float64)
    sides = made[:, filled:].copy()
    if run_of == 32:
        scales = sides.view(np.float32)[:, ::2]
        sums = sides.view(np.int16).reshape(vectors, -1, 4)[:, :, 2:].reshape(vectors, -1)
    else:
        scales = sides.view(np.float32).reshape(vectors, -1, 16)[:, :, 12]
        halves = sides.view(np.int16).reshape(vectors, -1, 32)
        sums = halves[:, :, :16].reshape(vectors, -1)
        both = sums.reshape(vectors, -1, 2).sum(2)
        np.testing.assert_array_equal(halves[:, :, 16:24].reshape(vectors, -1), both)
    np.testing.assert_array_equal(integers.reshape(vectors, -1, 16).sum(2), sums)
    assert (integers[:, columns:] == 0).all()
    got = integers * np.repeat(scales, run_of, 1)[:, :filled]
    expected = rounded_to_8_bits(x, run_of)
    np.testing.assert_allclose(got[:, :columns], expected, rtol=1e-6, atol=0)
    return output.buffer


def check_product(
    rng: np.random.Generator, functions: Any, name: str, x_dtype: str, out_dtype: str
) -> None:
    told = FORMATS[name]
    rows, lines = int(rng.integers(1, 80)), int(rng.integers(1, 9))
    vectors = int(rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 9, 13, 16, 19]))
    columns = lines * told.elements
    x = rng.standard_normal((vectors, columns)) * np.exp(rng.uniform(-3, 3, (vectors, columns)))
    x = x.astype(numpy_dtype(x_dtype))
    run_of = told.activations
    given = activations(functions(f"activations_{run_of}_{x_dtype}"), x, run_of)
    blocks = random_blocks(rng, name, rows * lines)
    output = Output(out_dtype, vectors * rows)
    product = functions(f"product_{name}_{out_dtype}")
    # The weight ends with its buffer, at an unaligned address.
    memory = DeviceBuffer.from_numpy(np.concatenate([np.zeros(4, np.uint8), blocks.ravel()]))
    few = int(rng.integers(0, 20))
    sizes = (rows, columns, vectors, few)
    product[(int(rng.integers(1, 4)),), 1](memory[4:], given, output.buffer, *sizes)
    if vectors <= few:
        one, alone = int(rng.integers(0, vectors)), Output(out_dtype, rows)
        its = given[one * activation_bytes(columns) : (one + 1) * activation_bytes(columns)]
        product[(1,), 1](memory[4:], its, alone.buffer, rows, columns, 1, few)
        together = output.to_numpy().reshape(vectors, rows)[one]
        np.testing.assert_array_equal(together, alone.to_numpy(), err_msg=f"{name} {sizes}")
    weight = elements(blocks, name).astype(np.float64).reshape(rows, columns)
    taken = rounded_to_8_bits(x, run_of)
    exact = taken @ weight.T
    # Sums of integers are exact; with a minimum, the difference of two such sums is scaled.
    magnitude = np.abs(taken) @ np.abs(weight).T + 16 * np.abs(taken).sum(1, keepdims=True)
    got = output.to_numpy().reshape(vectors, rows).astype(np.float64)
    with np.errstate(over="ignore"):
        limited = exact.astype(numpy_dtype(out_dtype)).astype(np.float64)
    error = np.where(limited == got, 0, np.abs(got - exact))
    bound = 1.01 * HALF_STEP[out_dtype] * np.abs(exact) + 2.0**-22 * magnitude + 2.0**-25
    assert (error <= bound).all(), (name, rows, columns, vectors, float((error / bound).max()))


@pytest.mark.parametrize("name", FORMATS)
def test_every_entry(host: Device, rng: np.random.Generator, name: str) -> None:
    def noted(entry: str) -> Any:
        class Launched:
            def __getitem__(self, geometry: Any) -> Any:
                return lambda *args: run(
                    host, MODULE, entry, *args, grid=geometry[0], block=geometry[1]
                )

        return Launched()

    for x_dtype, out_dtype in (("f32", "f16"), ("f16", "bf16"), ("bf16", "f32")):
        check_product(rng, noted, name, x_dtype, out_dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_every_entry_by_ids(host: Device, rng: np.random.Generator, name: str) -> None:
    """An id out of bounds is raised and gives 0; rows are in the order of the products."""
    # The executor gives the module memory for reports.
    DeviceExecutor.of(host).get_or_load_func(f"indexed_{name}", MODULE)
    told = FORMATS[name]
    count, rows, lines = (int(rng.integers(1, most)) for most in (5, 80, 4))
    vectors, sharing = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    columns, products = lines * told.elements, vectors * sharing
    x = rng.standard_normal((vectors, columns)).astype(np.float32)
    made = Output("u8", vectors * activation_bytes(columns))
    given = (DeviceBuffer.from_numpy(x.ravel()), made.buffer, vectors, columns)
    run(host, MODULE, f"activations_{told.activations}_f32", *given, grid=min(vectors, 2), block=1)
    blocks = random_blocks(rng, name, count * rows * lines)
    ids = rng.integers(0, count, products).astype(np.uint32)
    ids[rng.random(products) < 0.2] = rng.choice([count, 2**32 - 1])
    output = Output("f32", products * rows)
    memory = (DeviceBuffer.from_numpy(one) for one in (blocks.ravel(), made.to_numpy(), ids))
    sizes = (count, rows, columns, products, sharing, int(rng.integers(0, 6)))
    grid = int(rng.integers(1, 4))
    run(host, MODULE, f"indexed_{name}", *memory, output.buffer, *sizes, grid=grid, block=1)
    if (ids >= count).any():
        with pytest.raises(IndexError, match=f"out of bounds for axis with size {count}"):
            output.to_numpy()
    weights = elements(blocks, name).astype(np.float64).reshape(count, rows, columns)
    taken = np.repeat(rounded_to_8_bits(x, told.activations), sharing, 0)
    is_one = ids < count
    chosen = np.where(is_one[:, None, None], weights[np.where(is_one, ids, 0)], 0)
    exact = np.einsum("prc,pc->pr", chosen, taken)
    magnitude = np.einsum("prc,pc->pr", np.abs(chosen), np.abs(taken))
    magnitude += 16 * np.abs(taken).sum(1, keepdims=True)
    error = np.abs(output.to_numpy().reshape(products, rows).astype(np.float64) - exact)
    bound = HALF_STEP["f32"] * np.abs(exact) + 2.0**-22 * magnitude
    assert (error[is_one] <= bound[is_one]).all(), (name, float((error / bound).max()))
    assert (error[~is_one] == 0).all()


@pytest.mark.parametrize("level", [BUILT, *OLDER])
def test_every_level(host: Device, rng: np.random.Generator, seed: int, level: str) -> None:
    if not SOAK and level != BUILT and level != OLDER[seed % len(OLDER)]:
        pytest.skip("one of the levels that were not built is drawn")
    module = Module.from_bytes(library(level), device=host)
    for name in FORMATS:
        for _ in range(rounds(6 if name in FAST else 2, 60)):
            check_product(rng, module.get_function, name, "f32", "f32")


@pytest.mark.parametrize("run_of", [32, 256])
def test_unusual_vectors(host: Device, rng: np.random.Generator, run_of: int) -> None:
    module = Module.from_bytes(library(BUILT), device=host)
    quantize = module.get_function(f"activations_{run_of}_f32")
    x = rng.standard_normal((7, 2 * run_of)).astype(np.float32)
    x[0] = 0
    x[1] *= 1e-30
    x[2] *= 1e35
    x[3] = np.where(rng.random(x[3].shape) < 0.5, -3.5, 3.5)  # equal magnitudes
    x[4] = np.float32(0.5) * np.arange(-run_of, run_of)
    x[5, 1:] = 0
    x[6] = np.abs(x[6])
    activations(quantize, x, run_of)
    name = "q8_0" if run_of == 32 else "q6_K"
    blocks = random_blocks(rng, name, 2 * 2)
    for bad in (np.inf, -np.inf, np.nan):
        spoiled = rng.standard_normal((1, 2 * run_of)).astype(np.float32)
        spoiled[0, int(rng.integers(0, 2 * run_of))] = bad
        output = Output("u8", activation_bytes(2 * run_of))
        quantize[(1,), 1](DeviceBuffer.from_numpy(spoiled.ravel()), output.buffer, 1, 2 * run_of)
        out = Output("f32", 2)
        product = module.get_function(f"product_{name}_f32")
        weight = DeviceBuffer.from_numpy(blocks.ravel())
        product[(1,), 1](weight, output.buffer, out.buffer, 2, 2 * run_of, 1, 3)
        assert np.isnan(out.to_numpy()).all(), bad


@pytest.mark.parametrize("name", ["q4_0", "q4_K"])
@pytest.mark.parametrize("vectors", [2, 5])
def test_nothing_is_zero(host: Device, name: str, vectors: int) -> None:
    weight = ubridge.QuantizedWeight.from_numpy(np.ones((3, 0)), name)
    got = ubridge.quantized_matmul(ubridge.zeros((vectors, 0)), weight, activations="q8")
    np.testing.assert_array_equal(got.to_numpy(), np.zeros((vectors, 3)))
