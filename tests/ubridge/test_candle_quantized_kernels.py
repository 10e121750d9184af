"""The 142 entries of Candle's module `quantized`, launched with Candle's geometries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.block_data import Array, elements, random_blocks
from tests.ubridge.kernel_bench import Output, assert_same, numpy_dtype, random_values, run
from ubridge.quantized import FORMATS
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

MODULE = "quantized"
BY_BLOCKS = ("q4_0", "q4_1", "q8_0")
BY_COUNT = ("q5_0", "q5_1")
OF_256 = ("q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
MULTIPLIED = (*BY_BLOCKS, *BY_COUNT, *OF_256)
TILES = {
    **dict.fromkeys(("q4_0", "q4_1", "q2_K", "q4_K", "q5_K"), (128, 64)),
    **dict.fromkeys(("q5_0", "q5_1", "q8_0"), (64, 128)),
    **{"q3_K": (128, 128), "q6_K": (64, 64)},
}
"""Numbers of rows and vectors that a block of `mul_mat_*` processes."""
KEPT_BY_VECTORS = ("q4_0", "q4_1", "q5_0", "q5_1")
KEPT_BY_MATRICES = ("q4_0", "q4_1", "q5_1", "q4_K", "q5_K")
"""Formats with a minimum or offset; kernels multiply this value by the sums in y's blocks."""


def buffer(blocks: Array) -> DeviceBuffer:
    return DeviceBuffer.from_numpy(np.ascontiguousarray(blocks).view(np.uint8).ravel())


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", (*MULTIPLIED, "q8_K"))
def test_elements(device: Device, rng: np.random.Generator, name: str, dtype: str) -> None:
    count = int(rng.integers(1, 20))
    blocks = random_blocks(rng, name, count, "any" if name != "q8_K" else "ordinary")
    expected = elements(blocks, name).ravel()
    output = Output(dtype, expected.size)
    grid, block = -(-expected.size // 256), 64
    numbers: tuple[int, ...] = ()
    if name in BY_BLOCKS:
        numbers, block = (count,), 32
    elif name in BY_COUNT:
        numbers, grid, block = (expected.size,), -(-expected.size // 512), 256
    elif name in ("q4_K", "q8_K"):
        block = 32
    run(
        device,
        MODULE,
        f"dequantize_block_{name}_{dtype}",
        buffer(blocks),
        output.buffer,
        *numbers,
        grid=grid,
        block=block,
    )
    with np.errstate(over="ignore"):
        assert_same(output.to_numpy(), expected.astype(numpy_dtype(dtype)))


@pytest.mark.parametrize("name", (*MULTIPLIED, "f32", "f16", "bf16"))
def test_rows(device: Device, rng: np.random.Generator, name: str) -> None:
    rows, count = 9, int(rng.integers(1, 6))
    if name in FORMATS:
        columns = FORMATS[name].elements * int(rng.integers(1, 4))
        row_bytes = FORMATS[name].row_bytes(columns)
        blocks = random_blocks(rng, name, rows * columns // FORMATS[name].elements)
        table, raw = elements(blocks, name).reshape(rows, columns), blocks
    else:
        columns = int(rng.integers(1, 700))
        raw = random_values(rng, name, rows * columns)
        table, row_bytes = raw.astype(np.float32).reshape(rows, columns), columns * raw.itemsize
    ids = rng.integers(0, rows, count).astype(np.uint32)
    output = Output("f32", count * columns)
    in_k = name in OF_256
    grid = (count, -(-columns // 256) if in_k or name not in FORMATS else -(-columns // 512))
    block = 256 if not in_k else 32 if name == "q4_K" else 64
    run(
        device,
        MODULE,
        f"get_rows_{name}",
        buffer(raw),
        DeviceBuffer.from_numpy(ids),
        output.buffer,
        columns,
        row_bytes,
        grid=grid,
        block=block,
    )
    assert_same(output.to_numpy(), table[ids].ravel())


@pytest.mark.parametrize("name", MULTIPLIED)
def test_products_with_f32(device: Device, rng: np.random.Generator, name: str) -> None:
    rows, columns = int(rng.integers(1, 12)), FORMATS[name].elements * int(rng.integers(1, 5))
    blocks = random_blocks(rng, name, rows * columns // FORMATS[name].elements)
    y = rng.standard_normal(columns).astype(np.float32)
    output = Output("f32", rows)
    spelled = f"{name}_cuda" if name not in OF_256 else name.lower()
    numbers = (columns,) if name == "q5_K" else (columns, rows)
    run(
        device,
        MODULE,
        f"dequantize_mul_mat_vec_{spelled}",
        buffer(blocks),
        DeviceBuffer.from_numpy(y),
        output.buffer,
        *numbers,
        grid=rows,
        block=(32, 1),
    )
    weight = elements(blocks, name).astype(np.float64).reshape(rows, columns)
    near(output.to_numpy(), weight @ y, abs(weight) @ abs(y) + 16 * abs(y).sum())


def near(got: Array, exact: Array, magnitude: Array) -> None:
    """Check results with f32 rounding of each product and each sum."""
    error = np.abs(got.reshape(exact.shape) - exact)
    assert (error <= 2.0**-20 * magnitude).all(), float((error / magnitude).max())


def test_quantize_q8_1(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(3, 30)):
        rows, columns = int(rng.integers(1, 4)), 32 * int(rng.integers(1, 40))
        padded = -(-columns // 512) * 512
        x = random_values(rng, "f32", rows * columns, special=False).reshape(rows, columns)
        x[0, :32] = 0
        output = Output("u32", rows * padded // 32 * 9)
        run(
            device,
            MODULE,
            "quantize_q8_1",
            DeviceBuffer.from_numpy(x),
            output.buffer,
            columns,
            padded,
            grid=(-(-padded // 256), rows),
            block=256,
        )
        made = output.to_numpy().view(np.uint8).reshape(rows, padded // 32, 36)
        whole = np.zeros((rows, padded), np.float32)
        whole[:, :columns] = x
        groups = whole.reshape(rows, -1, 32)
        scales = (abs(groups).max(2) / np.float32(127)).astype(np.float32)
        assert_same(made[..., :2].copy().view(np.float16).ravel(), scales.astype(np.float16))
        with np.errstate(all="ignore"):
            quotients = np.where(scales[..., None] == 0, 0, groups / scales[..., None])
        away = np.trunc(quotients + np.copysign(np.float32(0.5), quotients))
        got = made[..., 4:].view(np.int8)
        # GPU division may be off by the last bit, so integers differ only near exact halves.
        assert (abs(got - quotients) <= 0.5 + 2**-16).all()
        halfway = abs(abs(quotients - np.trunc(quotients)) - 0.5) <= 2**-16
        np.testing.assert_array_equal(got[~halfway], away[~halfway])
        sums = groups.astype(np.float64).sum(2)
        kept = made[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float64)
        assert (abs(kept - sums) <= 2**-10 * abs(sums) + 2**-18 * abs(groups).sum(2)).all()


@dataclass(frozen=True)
class Vectors:
    """Padded vectors of Q8_1 blocks whose stored sums differ from the sums of their integers."""

    blocks: Array
    columns: int

    @classmethod
    def drawn(cls, rng: np.random.Generator, count: int, columns: int) -> Vectors:
        padded = -(-columns // 512) * 512
        blocks = random_blocks(rng, "q8_1", count * padded // 32).reshape(count, -1, 36)
        blocks[:, columns // 32 :] = 0
        return cls(blocks, columns)

    @property
    def padded(self) -> int:
        return self.blocks.shape[1] * 32

    @property
    def values(self) -> Array:
        wide = elements(self.blocks.reshape(-1, 36), "q8_1").astype(np.float64)
        return wide.reshape(len(self.blocks), -1)[:, : self.columns]

    @property
    def excess(self) -> Array:
        """Difference between the stored and the true sum of each 32 elements."""
        kept = self.blocks[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float64)
        own = self.values.reshape(len(self.blocks), -1, 32).sum(2)
        return kept[:, : self.columns // 32] - own


@dataclass(frozen=True)
class Weight:
    """Weights of blocks: one matrix, or several."""

    name: str
    blocks: Array
    values: Array

    @classmethod
    def drawn(cls, rng: np.random.Generator, name: str, *shape: int) -> Weight:
        blocks = random_blocks(rng, name, int(np.prod(shape)) // FORMATS[name].elements)
        return cls(name, blocks, elements(blocks, name).astype(np.float64).reshape(shape))

    @property
    def lowered(self) -> Array:
        """Amount subtracted from each of 32 elements: the minimum, and scale times offset."""

        def half(at: int) -> Array:
            return self.blocks[:, at : at + 2].copy().view(np.float16).astype(np.float64)

        if self.name in ("q4_0", "q5_0"):
            each = half(0) * {"q4_0": 8, "q5_0": 16}[self.name]
        elif self.name in ("q4_1", "q5_1"):
            each = -half(2)
        else:
            levels = self.blocks[:, 4:16].astype(int)
            first, lower = levels[:, 4:8] & 63, levels[:, 8:12] >> 4
            minimums = np.concatenate([first, lower | levels[:, 4:8] >> 6 << 4], 1)
            each = half(2) * minimums
        return each.reshape(*self.values.shape[:-1], -1)


def product(weight: Weight, vectors: Vectors, kept: bool) -> tuple[Array, Array]:
    """The exact product (vectors, rows), and the sum of the magnitudes of its terms."""
    exact = vectors.values @ weight.values.T
    magnitude = abs(vectors.values) @ abs(weight.values).T
    magnitude += 16 * abs(vectors.values).sum(1, keepdims=True) * abs(weight.values).max()
    if kept:
        exact = exact - vectors.excess @ weight.lowered.T
        magnitude += abs(vectors.excess) @ abs(weight.lowered).T
    return exact, magnitude


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("name", MULTIPLIED)
def test_products_with_vectors_of_q8_1(
    device: Device, rng: np.random.Generator, name: str, count: int
) -> None:
    rows, columns = int(rng.integers(1, 8)), 256 * int(rng.integers(1, 6))
    weight, vectors = Weight.drawn(rng, name, rows, columns), Vectors.drawn(rng, count, columns)
    spare = int(rng.integers(0, 3))
    output = Output("f32", count * (rows + spare))
    run(
        device,
        MODULE,
        f"mul_mat_vec_{name}_q8_1_cuda{count}",
        buffer(weight.blocks),
        buffer(vectors.blocks),
        output.buffer,
        columns,
        rows,
        vectors.padded,
        rows + spare,
        grid=rows if count == 1 else -(-rows // 2),
        block=(32, 4 if count < 5 else 2),
    )
    got = output.to_numpy().reshape(count, rows + spare)
    assert (got[:, rows:].view(np.uint32) == 0xA5A5A5A5).all()
    near(got[:, :rows], *product(weight, vectors, name in KEPT_BY_VECTORS))


@pytest.mark.entries(drawn=1)  # they take long to translate
@pytest.mark.parametrize("name", MULTIPLIED)
def test_products_with_matrices_of_q8_1(
    device: Device, rng: np.random.Generator, name: str
) -> None:
    tall, wide = TILES[name]
    rows, count = int(rng.integers(1, 2 * tall)), int(rng.integers(1, wide + 5))
    check_matrix_product(device, rng, name, rows, count, 256 * int(rng.integers(1, 3)))


def check_matrix_product(
    device: Device, rng: np.random.Generator, name: str, rows: int, count: int, columns: int
) -> None:
    tall, wide = TILES[name]
    weight, vectors = Weight.drawn(rng, name, rows, columns), Vectors.drawn(rng, count, columns)
    output = Output("f32", count * rows)
    run(
        device,
        MODULE,
        f"mul_mat_{name}",
        buffer(weight.blocks),
        buffer(vectors.blocks),
        output.buffer,
        columns,
        rows,
        count,
        vectors.padded,
        rows,
        grid=(-(-rows // tall), -(-count // wide)),
        block=(32, 4),
    )
    near(
        output.to_numpy().reshape(count, rows),
        *product(weight, vectors, name in KEPT_BY_MATRICES),
    )


@pytest.mark.parametrize("each", [False, True], ids=["one input per token", "one input per expert"])
@pytest.mark.parametrize("name", ("q8_0", *OF_256))
def test_experts(device: Device, rng: np.random.Generator, name: str, each: bool) -> None:
    experts, rows, columns = 5, int(rng.integers(1, 6)), 256 * int(rng.integers(1, 4))
    batch, chosen = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    weight = Weight.drawn(rng, name, experts, rows, columns)
    vectors = Vectors.drawn(rng, batch * chosen if each else batch, columns)
    ids = rng.integers(0, experts, (batch, chosen)).astype(np.uint32)
    output = Output("f32", batch * chosen * rows)
    spelled = name.replace("_K", "k")
    run(
        device,
        MODULE,
        f"indexed_moe_forward_{spelled}_q8_1",
        buffer(weight.blocks),
        buffer(vectors.blocks),
        DeviceBuffer.from_numpy(ids.ravel()),
        output.buffer,
        rows,
        columns,
        batch,
        chosen,
        vectors.padded,
        chosen if each and chosen > 1 else 2 if each else 1,
        grid=(rows, batch, chosen),
        block=(32, 4),
    )
    got = output.to_numpy().reshape(batch, chosen, rows)
    for token in range(batch):
        for choice in range(chosen):
            x = vectors.values[token * chosen + choice if each else token]
            matrix = weight.values[ids[token, choice]]
            near(
                got[token, choice],
                matrix @ x,
                abs(matrix) @ abs(x) + 16 * abs(x).sum() * abs(matrix).max(),
            )
