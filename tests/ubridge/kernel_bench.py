"""Launches kernels of `ubridge/kernels` on a device and checks their outputs.

Arrays have all layouts that kernels support, outputs are poisoned and guarded, and every input is
drawn from the test's generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge
from tests.launched_entries import ENTRIES, LAUNCHED
from uhal import Device, DeviceBuffer, launch
from uhal.dtypes import as_dtype

Array = npt.NDArray[Any]

HALVES = ("f16", "bf16", "f8e4m3")
FLOATS = ("f32", "f64", "f16", "bf16", "f8e4m3")
INTEGERS = ("u8", "u32", "i16", "i32", "i64")
LAYOUTS = ("contiguous", "offset", "transposed", "broadcast", "stepped", "one", "empty", "prime")

GUARDS = itertools.cycle((64, 67))
"""Guard elements before and after a result; with 67 the result is not aligned."""
MOST_THREADS = 1 << 16
"""Limit of rows times threads per row, for kernels with barriers in each row."""
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, np.nan, np.inf, -np.inf)


def numpy_dtype(name: str) -> np.dtype[Any]:
    return as_dtype(name).dtype


def random_values(
    rng: np.random.Generator, name: str, count: int, *, special: bool = True
) -> Array:
    """Return random numbers over a type's whole range; `special` adds NaN, infinities and zeros."""
    kind = as_dtype(name)
    if kind.kind in ("int", "uint"):
        assert kind.min is not None and kind.max is not None
        whole = rng.integers(kind.min, kind.max, count, numpy_dtype(name), endpoint=True)
        small = rng.integers(0, 4, count).astype(numpy_dtype(name))
        return np.where(rng.random(count) < 0.3, small, whole)
    values = rng.standard_normal(count) * np.exp(rng.uniform(-3, 3, count))
    if special and count:
        indices = rng.integers(0, count, min(count, len(SPECIAL)))
        values[indices] = rng.choice(SPECIAL, indices.size)
    return values.astype(numpy_dtype(name))


@dataclass(frozen=True)
class Strided:
    """An array in a flat device buffer, and the same array for numpy."""

    storage: Array
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements."""

    @property
    def values(self) -> Array:
        size = self.storage.itemsize
        return np.lib.stride_tricks.as_strided(
            self.storage[self.offset :], self.shape, [stride * size for stride in self.strides]
        )

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape))

    def buffer(self) -> DeviceBuffer:
        return DeviceBuffer.from_numpy(self.storage)[self.offset :]

    def is_contiguous(self) -> bool:
        expected = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != expected:
                return False
            expected *= length
        return True


def strided(
    rng: np.random.Generator,
    dtype: str,
    layout: str,
    shape: tuple[int, ...] | None = None,
    *,
    special: bool = True,
) -> Strided:
    """Return a random array; without a `shape`, the shape is random; `layout` is from `LAYOUTS`."""
    if shape is None:
        shape = random_shape(rng, layout)
    rank = len(shape)
    offset = 0 if layout == "contiguous" else int(rng.integers(0, 5))
    order = list(range(rank))
    if layout == "transposed":
        order = [int(axis) for axis in rng.permutation(rank)]
    step = 3 if layout == "stepped" else 1
    strides = [0] * rank
    extent = step
    for axis in reversed(order):
        if layout == "broadcast" and axis % 2 == 0:
            continue
        strides[axis] = extent
        extent *= max(shape[axis], 1) + (layout == "offset")
    if layout == "contiguous":
        offset = 0
    storage = random_values(rng, dtype, offset + extent + 1, special=special)
    return Strided(storage, offset, shape, tuple(strides))


def random_shape(rng: np.random.Generator, layout: str) -> tuple[int, ...]:
    if layout == "one":
        return (1,) * int(rng.integers(0, 3))
    if layout == "empty":
        return (int(rng.integers(1, 4)), 0, 2)
    if layout == "prime":
        return (int(rng.choice([2, 3, 5, 7, 1021, 2053])),)
    lengths = [1, 2, 3, 5, 8, 17, 33]
    rank = int(rng.integers(1, 5))
    shape = [int(length) for length in rng.choice(lengths, rank)]
    return tuple(shape) if rank < 2 else (*shape[:-1], int(rng.choice([1, 4, 31, 300])))


class Output:
    """A poisoned result with guards on both sides that no kernel may touch."""

    def __init__(self, dtype: str, count: int) -> None:
        self.dtype = numpy_dtype(dtype)
        self.count = count
        self.guard = next(GUARDS)
        poison = np.full((count + 2 * self.guard) * self.dtype.itemsize, 0xA5, np.uint8)
        self.whole = DeviceBuffer.from_numpy(poison.view(self.dtype))
        self.buffer = self.whole[self.guard : self.guard + count]

    @classmethod
    def holding(cls, dtype: str, values: Array) -> Output:
        output = cls(dtype, values.size)
        if values.size:
            output.buffer.copy_from(np.ascontiguousarray(values.ravel()))
        return output

    def to_numpy(self) -> Array:
        values = self.whole.to_numpy()
        raw = values.view(np.uint8).reshape(-1, self.dtype.itemsize)
        outside = np.concatenate([raw[: self.guard], raw[self.guard + self.count :]])
        assert (outside == 0xA5).all(), "written outside the result"
        return values[self.guard : self.guard + self.count]


def words(*parts: Iterable[int]) -> DeviceBuffer:
    """An info array: dims, then strides of each operand."""
    flat = [word for part in parts for word in part]
    return DeviceBuffer.from_numpy(np.array(flat or [0], np.uint64))


def scalar(dtype: str, value: float | int) -> Any:
    return numpy_dtype(dtype).type(value)


def run(
    device: Device,
    module: str,
    entry: str,
    *args: Any,
    grid: tuple[int, ...] | int = 3,
    block: tuple[int, ...] | int = 64,
    shared: int = 0,
) -> None:
    loaded = ubridge.load_module(module, device=device)
    function = loaded.get_function(entry)
    ENTRIES[module] = loaded.kernels
    LAUNCHED[device.backend][module].add(entry)
    grid = grid if isinstance(grid, tuple) else (grid,)
    block = block if isinstance(block, tuple) else (block,)
    launch(function, grid=grid, block=block, args=args, shared=shared)


def ulp(dtype: str, values: Array) -> Array:
    """Return the distance of neighboring values of a float type at `values`."""
    info = np.finfo(numpy_dtype(dtype)) if dtype not in ("bf16", "f8e4m3") else None
    bits, lowest = {"bf16": (7, -126), "f8e4m3": (3, -6)}.get(dtype, (0, 0))
    if info is not None:
        bits, lowest = int(info.nmant), int(info.minexp)
    exponent = np.frexp(np.abs(values.astype(np.float64)))[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, lowest) - bits)


def assert_within(got: Array, expected: Array, dtype: str, ulps: float, floor: float = 0.0) -> None:
    """Assert the same NaNs and infinities, and the rest within `ulps` or `floor` of `expected`."""
    wide = got.astype(expected.dtype).reshape(expected.shape)
    with np.errstate(all="ignore"):
        rounded = expected.astype(numpy_dtype(dtype)).astype(expected.dtype)
        np.testing.assert_array_equal(np.isnan(wide), np.isnan(expected))
        # Near the largest value, either neighbor is correct.
        infinite = np.isinf(rounded) & np.isinf(wide)
        np.testing.assert_array_equal(wide[infinite], rounded[infinite])
        rest = ~infinite & ~np.isnan(expected)
        allowed = np.maximum(ulps * ulp(dtype, np.asarray(expected[rest])), floor)
        error = np.abs(wide[rest] - expected[rest])
    worst = int(np.argmax(error / allowed)) if error.size else 0
    assert (error <= allowed).all(), (
        f"got {wide[rest][worst]!r}, expected {expected[rest][worst]!r}: "
        f"{float(error[worst] / allowed[worst]) * ulps} ulp"
    )


def assert_same(got: Array, expected: Array) -> None:
    """Assert equal values; a NaN equals a NaN of any bits."""
    expected = expected.ravel()
    assert got.dtype == expected.dtype and got.shape == expected.shape
    same = (got == expected) | ((got != got) & (expected != expected))
    wrong = np.flatnonzero(~same)[:5]
    assert same.all(), f"at {wrong}: got {got[wrong]}, expected {expected[wrong]}"


def row_block(rng: np.random.Generator, rows: int = 1) -> tuple[int, ...]:
    """Return a random block shape for a kernel that takes rows: Candle's shape or another size.

    Many rows get small blocks, because barriers are slow on a simulated device.
    """
    blocks = [(1,), (7,), (1, 32), (32,), (200,), (256,), (1024,)]
    bearable = [block for block in blocks if rows * int(np.prod(block)) <= MOST_THREADS]
    return blocks[int(rng.integers(max(len(bearable), 1)))]


def random_geometry(rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    grid = tuple(int(size) for size in rng.integers(1, 4, 3))
    block = tuple(int(size) for size in rng.integers(1, 9, 3))
    return {"grid": grid, "block": block}
