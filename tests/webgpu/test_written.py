"""Kernels that are written in WGSL beside an image, in place of their translations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from opencl_backend import compile as opencl_compile
from tests.requirements import missing
from tests.sampling import rounds
from tests.webgpu.kernels import FOLDER, module
from ubridge.device.index_faults import IndexFaults
from uhal import Device, DeviceBuffer, Function, Module, Stream, as_dtype
from uhal.errors import InvalidImageError, LibraryNotFoundError, NotFoundError
from webgpu_backend._written import SUFFIX, written_beside

SOURCE = """
#include <uhal/kernel.h>
KERNEL(widened, (const f16 *x, f32 *out, u64 n)) { GRID_STRIDE(i, n) { out[i] = 0; } }
KERNEL(narrowed, (const f32 *x, f16 *out, u64 n)) { GRID_STRIDE(i, n) { out[i] = f16(0); } }
KERNEL(brains, (const f32 *x, bf16 *out, u64 n)) { GRID_STRIDE(i, n) { out[i] = bf16(0); } }
"""
LOOP = """
@compute @workgroup_size(block_x, block_y, block_z)
fn kernel(@builtin(global_invocation_id) id: vec3<u32>) {
  for (var i = id.x; i < n(); i += P.w[0].x * block_x) { step(i); }
}
"""
TEMPLATES = """
//! kernel widened: const f16* x, f32* out, u64 n
//! with loop.wgsl
fn step(i: u32) { out_store(i, x_pair(i & ~1u)[i & 1u]); }
//! kernel narrowed: const f32* x, f16* out, u64 n
//! kernel brains: const f32* x, bf16* out, u64 n
//! with loop.wgsl
fn step(i: u32) { out_store(i, x_load(i)); }
"""
Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An image with templates beside it."""
    found = tmp_path / "kernels.spv"
    try:
        found.write_bytes(opencl_compile.kernels(SOURCE))
    except LibraryNotFoundError as reason:
        missing(str(reason))
    found.with_name(found.name + SUFFIX).write_text(TEMPLATES)
    found.with_name("loop.wgsl").write_text(LOOP)
    return found


def launched(function: Function, x: Array, poisoned: Array) -> Array:
    out = DeviceBuffer.from_numpy(poisoned)
    function[8, 64](DeviceBuffer.from_numpy(x), out, x.size)
    found: Array = out.to_numpy()
    return found


def test_every_half_is_read_and_written(device: Device, path: Path) -> None:
    every = np.arange(1 << 16, dtype="u2").view("f2")
    kernels = Module.from_file(path)
    wide = launched(kernels.get_function("widened"), every, np.full(1 << 16, 7, "f4"))
    np.testing.assert_array_equal(wide, every.astype("f4"))
    assert (np.signbit(wide) == np.signbit(every))[~np.isnan(every)].all()
    back = launched(kernels.get_function("narrowed"), wide, np.full(1 << 16, 7, "f2"))
    np.testing.assert_array_equal(back, every)


def test_numbers_are_rounded_once(device: Device, path: Path, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(5000) * 10.0 ** rng.integers(-9, 6, 5000)).astype("f4")
    x[:3] = np.inf, -np.inf, np.nan
    for name, dtype in (("narrowed", "f16"), ("brains", "bf16")):
        numpy_dtype = as_dtype(dtype).dtype
        got = launched(
            Module.from_file(path).get_function(name), x, np.full(5000, 7).astype(numpy_dtype)
        )
        with np.errstate(over="ignore"):
            expected = x.astype(numpy_dtype).astype("f4")
        np.testing.assert_array_equal(got.astype("f4"), expected)


def test_other_parameters_than_the_images_are_refused(device: Device, path: Path) -> None:
    beside = path.with_name(path.name + SUFFIX)
    beside.write_text(TEMPLATES.replace("widened: const f16* x, f32* out, u64 n", "widened: u64 n"))
    with pytest.raises(InvalidImageError, match=r"the image's parameters .* got \(u64 n"):
        Module.from_file(path).get_function("widened")


def test_a_report_needs_the_modules_record(device: Device, path: Path) -> None:
    text = TEMPLATES.replace("f32* out, u64 n\n", "f32* out, u64 n\n//! reports\n", 1)
    path.with_name(path.name + SUFFIX).write_text(text)
    with pytest.raises(NotFoundError, match="uhal_fault"):
        Module.from_file(path).get_function("widened")


@pytest.mark.parametrize(
    "line", ["//! kernels x", "//! need half", "//! with none.wgsl", "//! with ../loop.wgsl"]
)
def test_an_unknown_line_is_named(device: Device, path: Path, line: str) -> None:
    path.with_name(path.name + SUFFIX).write_text(f"{TEMPLATES}{line}\n")
    with pytest.raises(InvalidImageError, match=f"got '{line}'"):
        Module.from_file(path)


def test_committed_templates_have_their_images_parameters() -> None:
    files = sorted(FOLDER.glob(f"*.gz{SUFFIX}"))
    assert files
    for file in files:
        image = file.with_name(file.name.removesuffix(SUFFIX))
        signatures = module(image.name.partition(".")[0])[0].signatures
        for name, written in written_beside(image).items():
            for immediate_bytes in (0, 256):
                found = written.translation(signatures[name], immediate_bytes)
                assert found.has_uniform == (immediate_bytes == 0)


# -- products of language models -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_a_matrix_times_few_vectors(device: Device, rng: np.random.Generator, dtype: str) -> None:
    kernel = Module.from_file(FOLDER / "matmul.spv.gz").get_function(f"matmul_vectors_{dtype}")
    numpy_dtype = as_dtype(dtype).dtype
    for _ in range(rounds(4, 100)):
        n, m, k = (int(rng.integers(1, most)) for most in (40, 18, 600))
        start, odd = (int(one) for one in rng.integers(0, 2, 2))
        lines = rng.standard_normal((2, n, k + odd)).astype(numpy_dtype)
        vectors = rng.standard_normal((2, m, k)).astype(numpy_dtype)
        buffers = [
            DeviceBuffer.from_numpy(np.concatenate([np.zeros(start, numpy_dtype), one.ravel()]))
            for one in (lines, vectors)
        ]
        out = DeviceBuffer.from_numpy(np.full(2 * m * n + 2, np.nan).astype(numpy_dtype))
        sizes = (n, m, k, n * (k + odd), k + odd, m * k, k, m * n, 1, n)
        kernel[(-(-n // 8), -(-m // 8), 2), (32, 8)](
            buffers[0][start:], buffers[1][start:], out[1:-1], *sizes
        )
        got = out.to_numpy().astype("f8")
        assert np.isnan(got[[0, -1]]).all()
        wide = [vectors.astype("f8"), lines[..., :k].astype("f8").swapaxes(1, 2)]
        exact = wide[0] @ wide[1]
        magnitude = abs(wide[0]) @ abs(wide[1])
        rounding = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[dtype]
        bound = rounding * abs(exact) + 2.0**-24 * (abs(exact) + k * magnitude) + 2.0**-25
        assert (abs(got[1:-1].reshape(exact.shape) - exact) <= bound).all(), sizes


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_a_product_of_matrices(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """Products of batches, with rows and columns in any order, by blocks of many sizes."""
    kernel = Module.from_file(FOLDER / "matmul.spv.gz").get_function(f"matmul_{dtype}")
    numpy_dtype = as_dtype(dtype).dtype
    # Mesa's lavapipe ends the loops of a work-item after 65,535 rounds in all: no smaller blocks.
    for threads in (256, int(rng.integers(16, 257)), *rng.integers(16, 257, rounds(0, 30))):
        m, n, k = (int(rng.integers(1, 150)) for _ in range(3))
        turned = rng.integers(0, 2, 2)
        a, b = (rng.standard_normal((2, *shape)).astype(numpy_dtype) for shape in ((m, k), (k, n)))
        buffers = [
            DeviceBuffer.from_numpy(np.ascontiguousarray(one.swapaxes(1, 2) if is_turned else one))
            for one, is_turned in ((a, turned[0]), (b, turned[1]))
        ]
        out = DeviceBuffer.from_numpy(np.full(2 * m * n + 2, np.nan).astype(numpy_dtype))
        a_steps = (1, m) if turned[0] else (k, 1)
        b_steps = (1, k) if turned[1] else (n, 1)
        sizes = (m, n, k, m * k, *a_steps, k * n, *b_steps, m * n)
        kernel[(-(-n // 64), -(-m // 64), 2), int(threads)](*buffers, out[1:-1], *sizes)
        got = out.to_numpy().astype("f8")
        assert np.isnan(got[[0, -1]]).all()
        exact = a.astype("f8") @ b.astype("f8")
        magnitude = abs(a.astype("f8")) @ abs(b.astype("f8"))
        rounding = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[dtype]
        bound = rounding * abs(exact) + 2 * (k + 1) * 2.0**-24 * magnitude + 2.0**-25
        assert (abs(got[1:-1].reshape(exact.shape) - exact) <= bound).all(), (threads, sizes)


class Blocks:
    """Rows of a format of ggml, and a vector of Q8_1."""

    def __init__(self, rng: np.random.Generator, format: str, rows: int, columns: int) -> None:
        make = {"q4_K": self.q4_k, "q8_0": self.q8_0}[format]
        self.bytes, self.numbers = make(rng, rows, columns)
        quants = rng.integers(-128, 128, (columns // 32, 32), "i1")
        scales = rng.uniform(0.1, 1, (columns // 32, 1)).astype("f2")
        sums = (scales.astype("f4") * quants.sum(1, keepdims=True)).astype("f2")
        parts = [one.view("u1") for one in (scales, sums, quants)]
        self.vector_bytes = np.concatenate(parts, 1).ravel()
        self.vector = (scales.astype("f8") * quants).ravel()

    @staticmethod
    def q8_0(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
        quants = rng.integers(-128, 128, (rows, columns // 32, 32), "i1")
        scales = rng.uniform(0.1, 1, (rows, columns // 32, 1)).astype("f2")
        packed = np.concatenate([scales.view("u1"), quants.view("u1")], 2)
        return packed.ravel(), (scales.astype("f8") * quants).reshape(rows, columns)

    @staticmethod
    def q4_k(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array]:
        each = (rows, columns // 256)
        both = rng.uniform(0.1, 1, (*each, 2)).astype("f2")
        scales, minimums = (rng.integers(0, 64, (*each, 8), "u1") for _ in range(2))
        quants = rng.integers(0, 16, (*each, 8, 32), "u1")
        packed = [
            scales[..., :4] | (scales[..., 4:] >> 4 << 6),
            minimums[..., :4] | (minimums[..., 4:] >> 4 << 6),
            (scales[..., 4:] & 15) | (minimums[..., 4:] & 15) << 4,
        ]
        nibbles = quants[..., ::2, :] | quants[..., 1::2, :] << 4
        parts = [both.view("u1"), *packed, nibbles.reshape(*each, 128)]
        d, minimum = (both[..., at, None].astype("f8") for at in (0, 1))
        numbers = (d * scales)[..., None] * quants - (minimum * minimums)[..., None]
        return np.concatenate(parts, 2).ravel(), numbers.reshape(rows, columns)


@pytest.mark.parametrize("format", ["q4_K", "q8_0"])
def test_a_row_of_blocks_times_a_vector(
    device: Device, rng: np.random.Generator, format: str
) -> None:
    """Also captured: a replay has the same bits as the launch."""
    module_of_blocks = Module.from_file(FOLDER / "quantized.spv.gz")
    kernel = module_of_blocks.get_function(f"mul_mat_vec_{format}_q8_1_cuda1")
    for _ in range(rounds(3, 50)):
        rows, columns = int(rng.integers(1, 20)), 256 * int(rng.integers(1, 6))
        blocks = Blocks(rng, format, rows, columns)
        vx, vy = (DeviceBuffer.from_numpy(one) for one in (blocks.bytes, blocks.vector_bytes))
        out = DeviceBuffer.from_numpy(np.full(rows + 1, np.nan, "f4"))
        with Stream() as stream:
            arguments = (vx, vy, out[:rows], columns, rows, columns, rows)
            # A block more than there are rows.
            kernel[rows + 1, (32, 4), 0, stream](*arguments)
            got = out.to_numpy(stream=stream)
            with stream.capture() as plan:
                kernel[rows + 1, (32, 4), 0, stream](*arguments)
            out[:rows].copy_from(np.full(rows, np.nan, "f4"), stream=stream)
            plan.replay(stream)
            np.testing.assert_array_equal(out.to_numpy(stream=stream), got)
            plan.close()
        exact = blocks.numbers @ blocks.vector
        # Rounded: scales, both products of a term, and each sum of a term.
        magnitude = (abs(blocks.numbers) + 126) @ abs(blocks.vector)
        assert np.isnan(got[-1])
        bound = (columns / 4 + 8) * 2.0**-24 * magnitude
        assert (abs(got[:-1] - exact) <= bound).all()


# -- attention of language models ------------------------------------------------------------------


def behind(start: int, *arrays: Array) -> list[DeviceBuffer]:
    """Arrays on the device that begin `start` elements behind the start of their buffers."""
    return [
        DeviceBuffer.from_numpy(
            np.concatenate([np.full(start, np.nan).astype(one.dtype), one.ravel()])
        )[start:]
        for one in arrays
    ]


def within(out: DeviceBuffer, shape: tuple[int, ...]) -> Doubles:
    """Return the results between two elements that must still be NaN."""
    got: Doubles = out.to_numpy().astype("f8")
    assert np.isnan(got[[0, -1]]).all()
    return got[1:-1].reshape(shape)


class Cached:
    """Queries over caches with room behind the last key, and their exact attention."""

    def __init__(self, rng: np.random.Generator, dtype: str) -> None:
        self.dtype, self.numpy_dtype = dtype, as_dtype(dtype).dtype
        self.kv_heads, group, self.tokens = (int(rng.integers(1, 4)) for _ in range(3))
        self.heads = self.kv_heads * group
        self.width = int(rng.integers(1, 140))
        self.capacity = int(rng.integers(self.tokens, 900))
        self.position = int(rng.integers(0, self.capacity - self.tokens + 1))
        self.window = int(rng.integers(0, self.capacity)) if rng.integers(2) else 0
        self.cap = float(rng.uniform(1, 9)) if rng.integers(2) else 0.0
        self.scale = float(rng.uniform(0.05, 0.4))
        cache = (self.kv_heads, self.capacity, self.width)
        self.query, self.keys, self.values = (
            rng.standard_normal(shape).astype(self.numpy_dtype)
            for shape in ((self.tokens, self.heads, self.width), cache, cache)
        )
        has_bias = bool(rng.integers(2))
        shape = (self.heads, self.capacity)
        self.bias = rng.standard_normal(shape).astype("f4") if has_bias else None

    def launched(self, splits: int, split: int, start: int, threads: int = 128) -> Doubles:
        """Return the results of the kernel, with the parts of a query merged.

        Arrays begin `start` elements behind the start of their buffers.
        """
        module_of_attention = Module.from_file(FOLDER / "attention.spv.gz")
        q, k, v = behind(start, self.query, self.keys, self.values)
        bias = None if self.bias is None else DeviceBuffer.from_numpy(self.bias.ravel())
        position = DeviceBuffer.from_numpy(np.array([self.position], "i8"))
        out = DeviceBuffer.from_numpy(np.full(self.query.size + 2, np.nan).astype(self.numpy_dtype))
        rows = self.tokens * self.heads
        part = (self.width + 9) // 8 * 8
        parts = DeviceBuffer.from_numpy(np.full(rows * splits * part, np.nan, "f4"))
        sizes = (self.heads, self.kv_heads, self.width, self.capacity, self.window, split)
        module_of_attention.get_function(f"sdpa_cached_{self.dtype}")[(rows, splits), threads](
            *(q, k, v, bias, position, out[1:-1], parts if splits > 1 else None),
            *(*sizes, self.scale, self.cap),
        )
        if splits > 1:
            sizes = (self.heads, self.width, self.capacity, self.window, split, splits)
            merge = module_of_attention.get_function(f"sdpa_merge_{self.dtype}")
            merge[rows, 64](parts, position, out[1:-1], *sizes)
        return within(out, self.query.shape)

    def exact(self) -> tuple[Doubles, Doubles]:
        """Return the exact results, and the bound of their errors."""
        found, bounds = np.empty((2, *self.query.shape))
        last_place = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[self.dtype]
        for token, head in np.ndindex(self.tokens, self.heads):
            end = self.position + token + 1
            seen = slice(max(end - self.window, 0) if self.window else 0, end)
            kv = head // (self.heads // self.kv_heads)
            query, keys, values = (
                one.astype("f8")
                for one in (self.query[token, head], self.keys[kv, seen], self.values[kv, seen])
            )
            scores = keys @ query * self.scale
            if self.cap:
                scores = self.cap * np.tanh(scores / self.cap)
            # Rounded: each product and sum, the scale, and the tangent with its quotient.
            error = (self.width + 4) * 2.0**-24 * (abs(keys) @ abs(query)) * self.scale
            error += 16 * 2.0**-24 * self.cap
            if self.bias is not None:
                scores = scores + self.bias[head, seen]
            error += 2.0**-24 * (abs(scores) + abs(scores).max())
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            found[token, head] = weights @ values
            # An exponential, its part in both sums, and the joints of runs.
            relative = 2 * (error.max() + (len(scores) + 32) * 2.0**-24)
            magnitude = weights @ abs(values)
            bounds[token, head] = 2 * relative * magnitude + last_place * abs(found[token, head])
        return found, bounds + 2.0**-24


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_attention_over_a_cache(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """Attention of whole queries, and of queries whose keys several blocks share."""
    for _ in range(rounds(3, 50)):
        cached = Cached(rng, dtype)
        expected, bound = cached.exact()
        for splits, split in ((1, 256), (-(-cached.capacity // 256), 256)):
            got = cached.launched(splits, split, int(rng.integers(2)))
            assert (abs(got - expected) <= bound).all(), vars(cached)
    # The last launch shares the keys by 256: few rounds for a work-item.
    few = cached.launched(splits, split, 0, int(rng.integers(4, 64)))
    np.testing.assert_array_equal(few, got)


def test_attention_over_a_cache_keeps_numbers_that_are_none(
    device: Device, rng: np.random.Generator
) -> None:
    """A NaN behind the seen keys changes nothing, a seen NaN reaches each result."""
    cached = Cached(rng, "f16")
    expected = cached.launched(1, 256, 0)
    cached.keys[:, cached.position + cached.tokens :] = np.nan
    cached.values[:, cached.position + cached.tokens :] = np.nan
    np.testing.assert_array_equal(cached.launched(1, 256, 0), expected)
    cached.keys[:, cached.position] = np.nan
    assert np.isnan(cached.launched(1, 256, 0)[0]).all()
    cached.position = -5
    assert (cached.launched(1, 256, 0)[0] == 0).all()


class Paged:
    """Tokens over pages of several texts, and their exact attention.

    Places without a key are NaN. Drafts see some of the keys before them.
    """

    def __init__(self, rng: np.random.Generator, dtype: str) -> None:
        self.dtype, self.numpy_dtype = dtype, as_dtype(dtype).dtype
        self.kv_heads, group, self.texts, self.page_size = (
            int(one) for one in rng.integers(1, (4, 4, 4, 20))
        )
        self.heads = self.kv_heads * group
        self.width = int(rng.integers(1, 140))
        self.table_pages = -(-int(rng.integers(1, 700)) // self.page_size)
        self.capacity = self.table_pages * self.page_size
        self.window = int(rng.integers(1, self.capacity + 1)) if rng.integers(2) else 0
        # As if there were no end, for a number of more than 32 bits.
        self.sink_tokens = int(rng.choice([0, 3, 1 << 32]))
        self.cap = float(rng.uniform(1, 9)) if rng.integers(2) else 0.0
        self.scale = float(rng.uniform(0.05, 0.4))
        self.pages = self.texts * self.table_pages
        self.tables = rng.permutation(self.pages).reshape(self.texts, -1)
        self.sequences = rng.integers(0, self.texts, 4)
        self.positions = rng.integers(0, self.capacity, 4)
        self.positions[0] = self.capacity - 1
        self.positions[1] = -1
        self.sequences[1] = 99
        # The lowest bit is for the token itself.
        bits = rng.integers(0, 1 << 63, 4, np.uint64) << np.uint64(1) | np.uint64(1)
        self.ancestors = bits.view("i8") if rng.integers(2) else None
        self.query = self._numbers(rng, (4, self.heads, self.width))
        pool = (self.pages, self.page_size, self.kv_heads, self.width)
        self.keys, self.values = self._numbers(rng, pool), self._numbers(rng, pool)
        for text, table in enumerate(self.tables):
            end = int(max([0, *(self.positions[self.sequences == text] + 1)]))
            free = np.arange(end, self.capacity)
            for one in (self.keys, self.values):
                one[table[free // self.page_size], free % self.page_size] = np.nan
        bias = rng.standard_normal((self.heads, self.capacity)).astype("f4")
        self.bias = bias if rng.integers(2) else None
        self.sinks = rng.standard_normal(self.heads).astype("f4") if rng.integers(2) else None

    def _numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        found: Array = rng.standard_normal(shape).astype(self.numpy_dtype)
        return found

    def launched(self, module_of_pages: Module, splits: int, threads: int, start: int) -> Doubles:
        """Return the results of the kernel, with the parts of a query merged.

        Arrays begin `start` elements behind the start of their buffers.
        """
        numbers = behind(start, self.query, self.keys, self.values)
        tables, sequences, positions, ancestors, bias, sinks = (
            None if one is None else DeviceBuffer.from_numpy(one.ravel())
            for one in (
                *(self.tables, self.sequences, self.positions),
                *(self.ancestors, self.bias, self.sinks),
            )
        )
        out = DeviceBuffer.from_numpy(np.full(self.query.size + 2, np.nan).astype(self.numpy_dtype))
        rows = len(self.positions) * self.heads
        part = (self.width + 9) // 8 * 8
        parts = DeviceBuffer.from_numpy(np.full(rows * splits * part, np.nan, "f4"))
        module_of_pages.get_function(f"sdpa_paged_{self.dtype}")[(rows, splits), threads](
            *(*numbers, tables, sequences, positions, ancestors, bias, sinks),
            *(out[1:-1], parts if splits > 1 else None),
            *(self.heads, self.kv_heads, self.width, self.pages, self.page_size, self.texts),
            *(self.table_pages, self.window, self.sink_tokens, self.scale, self.cap),
        )
        if splits > 1:
            module_of_pages.get_function(f"sdpa_paged_merge_{self.dtype}")[rows, 64](
                *(parts, sequences, positions, ancestors, sinks, out[1:-1]),
                *(self.heads, self.width, self.texts, self.capacity),
                *(self.window, self.sink_tokens, splits),
            )
        return within(out, self.query.shape)

    def exact(self) -> tuple[Doubles, Doubles]:
        """Return the exact results, and the bound of their errors."""
        found, bounds = np.zeros((2, *self.query.shape))
        last_place = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[self.dtype]
        for token, head in np.ndindex(*self.query.shape[:2]):
            own = int(self.positions[token])
            if own < 0:
                continue
            mask = -1 if self.ancestors is None else int(self.ancestors[token])
            shown = [at for at in range(own + 1) if own - at > 63 or mask >> (own - at) & 1]
            seen = np.array(shown[-self.window :])
            sinks = [at for at in shown if at < min(self.sink_tokens, seen[0])]
            # A window begins at its first key; keys before it that are shown can be sinks.
            seen = np.array([*sinks, *seen])
            pages, places = self.tables[self.sequences[token], seen // self.page_size], seen
            kv = head // (self.heads // self.kv_heads)
            keys, values = (
                one[pages, places % self.page_size, kv].astype("f8")
                for one in (self.keys, self.values)
            )
            query = self.query[token, head].astype("f8")
            scores = keys @ query * self.scale
            if self.cap:
                scores = self.cap * np.tanh(scores / self.cap)
            # Rounded as over a cache.
            error = (self.width + 4) * 2.0**-24 * (abs(keys) @ abs(query)) * self.scale
            error += 16 * 2.0**-24 * self.cap
            if self.bias is not None:
                scores = scores + self.bias[head, np.searchsorted(shown, seen)]
            sink = -np.inf if self.sinks is None else float(self.sinks[head])
            largest = max(scores.max(), sink)
            magnitude = max(abs(scores).max(), 0.0 if self.sinks is None else abs(sink))
            error += 2.0**-24 * (abs(scores) + magnitude)
            weights = np.exp(scores - largest)
            weights /= weights.sum() + np.exp(sink - largest)
            found[token, head] = weights @ values
            relative = 2 * (error.max() + (len(scores) + 32) * 2.0**-24)
            bounds[token, head] = 2 * relative * (weights @ abs(values))
            bounds[token, head] += last_place * abs(found[token, head]) + 2.0**-24
        return found, bounds


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_attention_over_pages(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """By blocks of any size; blocks that share the keys of a token change no bit."""
    module_of_pages = Module.from_file(FOLDER / "pages.spv.gz")
    for _ in range(rounds(3, 50)):
        paged = Paged(rng, dtype)
        expected, bound = paged.exact()
        whole = paged.launched(module_of_pages, 1, 128, int(rng.integers(2)))
        assert (abs(whole - expected) <= bound).all(), vars(paged)
    splits = -(-paged.capacity // 256)
    # A merge of one part would need a part, which a single block does not leave.
    for threads in (128, int(rng.integers(4, 257))):
        shared = paged.launched(module_of_pages, max(splits, 2), threads, 0)
        np.testing.assert_array_equal(shared, whole)


def test_wrong_numbers_of_pages_are_reported(device: Device, rng: np.random.Generator) -> None:
    module_of_pages = Module.from_file(FOLDER / "pages.spv.gz")
    paged = Paged(rng, "f32")
    capacity, texts, pages = paged.capacity, paged.texts, paged.pages
    page = int(rng.integers(paged.table_pages))
    paged.window = 0
    paged.positions[:] = -1, capacity - 1, -1, -1
    paged.sequences[1] = text = int(rng.integers(texts))
    paged.ancestors = None
    usual = [paged.tables.copy(), paged.sequences.copy(), paged.positions.copy()]
    faults = IndexFaults(device)
    try:
        for is_attached in (False, True):
            if is_attached:
                faults.attach(module_of_pages)
            for array, at, wrong, bound, position in (
                (paged.tables, (text, page), pages, pages, page),
                (paged.tables, (text, page), -1, pages, page),
                (paged.tables, (text, page), 1 << 40, pages, page),
                (paged.sequences, 1, texts, texts, 1),
                (paged.sequences, 1, -5, texts, 1),
                (paged.positions, 1, capacity, capacity, 1),
                (paged.positions, 1, 1 << 32, capacity, 1),
            ):
                array[at] = wrong
                if is_attached:
                    told = f"index {wrong} .* size {bound} .position {position} .*sdpa_paged_f32"
                    with pytest.raises(IndexError, match=told):
                        paged.launched(module_of_pages, 1, 128, 0)
                else:
                    paged.launched(module_of_pages, 1, 128, 0)
                paged.tables[...], paged.sequences[...], paged.positions[...] = usual
            # Nothing is left of a report.
            paged.launched(module_of_pages, 1, 128, 0)
    finally:
        faults.close()
