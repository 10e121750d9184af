"""Attention over pages: neither the pages nor the other tokens change a bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.kernel_bench import numpy_dtype
from tests.ubridge.op_rows import row_of
from ubridge.definitions.attention import PAGED_ATTENTION
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")
Array = npt.NDArray[np.generic]
Ids = npt.NDArray[np.int64]


@dataclass
class Texts:
    """Random texts and their queries, keys and values, (tokens, heads, width) each."""

    device: Device
    rng: np.random.Generator
    dtype: str
    lengths: list[int]

    def __post_init__(self) -> None:
        rng = self.rng
        self.kv_heads, self.width = (int(one) for one in rng.integers(1, 3, 2) * [1, 8])
        self.heads = self.kv_heads * int(rng.integers(1, 3))
        self.window, self.cap = int(rng.choice([0, 3])), float(rng.choice([0.0, 4.0]))
        self.queries, self.keys, self.values = (
            [self._drawn(length, heads) for length in self.lengths]
            for heads in (self.heads, self.kv_heads, self.kv_heads)
        )

    def _drawn(self, length: int, heads: int) -> Array:
        drawn = self.rng.standard_normal((length, heads, self.width))
        return drawn.astype(numpy_dtype(self.dtype))

    def attended(self, page_size: int, tokens: list[tuple[int, int]]) -> list[Array]:
        """Return the results of (text, position)s, from random pages with NaN elsewhere."""
        pages = [-(-length // page_size) for length in self.lengths]
        spare = int(self.rng.integers(1, 4))
        ids = self.rng.permutation(sum(pages) + spare)[: sum(pages)].astype(np.int64)
        # Entries behind the end of a text are not read.
        tables = np.full((len(pages), max(pages)), -7, np.int64)
        slots = np.zeros(0, np.int64)
        for row, (length, own) in enumerate(
            zip(self.lengths, np.split(ids, np.cumsum(pages)[:-1]), strict=True)
        ):
            tables[row, : len(own)] = own
            at = np.arange(length)
            slots = np.concatenate([slots, own[at // page_size] * page_size + at % page_size])
        pool = np.full(
            (sum(pages) + spare, page_size, self.kv_heads, self.width),
            np.nan,
            numpy_dtype(self.dtype),
        )
        written = [
            ub.paged_append(self._on(pool), self._on(np.concatenate(one)), self._on(slots))
            for one in (self.keys, self.values)
        ]
        query = np.stack([self.queries[text][at] for text, at in tokens])
        own, at = np.array(tokens, np.int64).T
        got = ub.paged_attention(
            self._on(query),
            *written,
            self._on(tables),
            self._on(own),
            self._on(at),
            window=self.window,
            cap=self.cap,
        )
        return list(got.to_numpy())

    def cached(self, text: int) -> Array:
        """Return the results of a whole text from a contiguous cache."""
        keys, values = (
            self._on(np.ascontiguousarray(one[text].swapaxes(0, 1)))
            for one in (self.keys, self.values)
        )
        return ub.cached_attention(
            self._on(self.queries[text]),
            keys,
            values,
            self._on(np.zeros(1, np.int64)),
            window=self.window,
            cap=self.cap,
        ).to_numpy()

    def _on(self, array: Array) -> ub.DeviceTensor:
        return ub.from_numpy(np.ascontiguousarray(array), device=self.device)


def texts(device: Device, rng: np.random.Generator) -> Texts:
    row = row_of(device.backend)
    row.require_images()
    dtypes = [one for one in ("f32", "f16", "bf16", "f64") if row.has(PAGED_ATTENTION, one, None)]
    lengths = [int(one) for one in rng.integers(1, 40, int(rng.integers(1, 4)))]
    if device.backend == "host":
        # More than 256 keys are processed in parts.
        lengths.append(int(rng.integers(257, 600)))
    return Texts(device, rng, str(rng.choice(dtypes)), lengths)


def test_pages_and_other_tokens_change_no_bit(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(2, 20)):
        given = texts(device, rng)
        all_tokens = [(row, at) for row, end in enumerate(given.lengths) for at in range(end)]
        some = [all_tokens[one] for one in rng.permutation(len(all_tokens))[:12]]
        # In one page for each text, keys and values are contiguous.
        whole = given.attended(max(given.lengths), some)
        for page_size in (1, int(rng.integers(2, 20))):
            np.testing.assert_array_equal(given.attended(page_size, some), whole)
        order = rng.permutation(len(some))
        mixed = given.attended(4, [some[one] for one in order])
        np.testing.assert_array_equal(mixed, [whole[one] for one in order])
        alone = given.attended(4, some[:1])
        np.testing.assert_array_equal(alone, whole[:1])


def test_pages_give_the_bits_of_a_contiguous_cache(host: Device, rng: np.random.Generator) -> None:
    """Of f64: other dtypes of the host's caches have kernels with another order of sums."""
    given = Texts(host, rng, "f64", [int(one) for one in rng.integers(2, 600, 2)])
    for text, length in enumerate(given.lengths):
        got = given.attended(5, [(text, at) for at in range(length)])
        np.testing.assert_array_equal(got, given.cached(text))


def test_ids_out_of_bounds_are_index_errors(device: Device) -> None:
    row_of(device.backend).require_images()
    pool = ub.zeros((3, 2, 1, 4), device=device)
    query = ub.ones((1, 1, 4), device=device)

    def at(*numbers: int) -> ub.DeviceTensor:
        return ub.asarray(np.array(numbers, np.int64), device=device)

    for wrong in (6, -2, 1 << 40):
        with pytest.raises(IndexError, match="paged_append"):
            ub.paged_append(pool, query, at(wrong)).to_numpy()
    ub.paged_append(pool, query, at(-1))
    assert not pool.to_numpy().any()
    for table, sequence, position in (
        ((3, 0), 0, 0),
        ((0, -1), 0, 3),
        ((0, 1), 1, 0),
        ((0, 1), -1, 0),
        ((0, 1), 0, 4),
    ):
        with pytest.raises(IndexError, match="paged"):
            tables = at(*table).reshape(1, 2)
            ub.paged_attention(query, pool, pool, tables, at(sequence), at(position)).to_numpy()
    # No token: neither its sequence nor its table is read.
    tables = at(9, 9).reshape(1, 2)
    assert not ub.paged_attention(query, pool, pool, tables, at(5), at(-1)).to_numpy().any()


def test_operands_that_do_not_fit_are_refused(host: Device) -> None:
    pool, query = ub.zeros((3, 2, 1, 4), device=host), ub.ones((1, 1, 4), device=host)
    table = ub.asarray(np.zeros((1, 2), np.int64), device=host)
    one = ub.asarray(np.zeros(1, np.int64), device=host)
    narrow = one.astype("u32")
    with pytest.raises(ArgumentValueError, match=r"queries of \(tokens, heads, width\), keys and"):
        ub.paged_attention(query, pool[0], pool[0], table, one, one)
    with pytest.raises(ArgumentValueError, match="multiple of the kv heads"):
        ub.paged_attention(query, *[pool.reshape(3, 1, 2, 4)] * 2, table, one, one)
    with pytest.raises(ArgumentValueError, match="a position for each of 1 tokens"):
        ub.paged_attention(query, pool, pool, table, one, table[0])
    with pytest.raises(ArgumentTypeError, match="expected one dtype, got f32, f16 and f16"):
        ub.paged_attention(query, *[pool.astype("f16")] * 2, table, one, one)
    with pytest.raises(ArgumentTypeError, match="expected tables, sequences and positions of i64"):
        ub.paged_attention(query, pool, pool, table, narrow, one)
    with pytest.raises(ArgumentValueError, match=r"expected a bias of f32 \(1, 4\)"):
        ub.paged_attention(query, pool, pool, table, one, one, bias=query[0, :, :2])
    with pytest.raises(ArgumentValueError, match="tables for fewer than"):
        wide = ub.zeros((1, 1 << 16, 1, 4), "f16", device=host)
        tables = ub.zeros((1, 1 << 15), "i64", device=host)
        ub.paged_attention(query.astype("f16"), wide, wide, tables, one, one)
    with pytest.raises(ArgumentValueError, match="a slot for each of 1 tokens"):
        ub.paged_append(pool, query, table[0])
    with pytest.raises(ArgumentValueError, match="expected a pool of"):
        ub.paged_append(pool[0], query, one)
    with pytest.raises(ArgumentTypeError, match="slots of i64, got f32 and u32"):
        ub.paged_append(pool, query, narrow)
    with pytest.raises(ArgumentValueError, match="contiguous pool"):
        ub.paged_append(pool[:, ::2], query, one)


def test_gcus_refuse_pages(simulated: Callable[[str], None]) -> None:
    simulated("tops-sim")
    with Device(0, backend="tops") as device:
        pool, query = ub.zeros((3, 2, 1, 4), device=device), ub.ones((1, 1, 4), device=device)
        one = ub.asarray(np.zeros(1, np.int64), device=device)
        with pytest.raises(NotSupportedError, match="paged_append"):
            ub.paged_append(pool, query, one)
        with pytest.raises(NotSupportedError, match="paged_attention"):
            ub.paged_attention(query, pool, pool, one.reshape(1, 1), one, one)
