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


def test_blocks_that_share_keys_change_no_bit(device: Device, rng: np.random.Generator) -> None:
    """A launch of few tokens splits the keys of a token; a launch of many tokens does not."""
    row = row_of(device.backend)
    row.require_images()
    many = 4 * device.limits.processors
    for dtype in ("f32", "f16", "bf16", "f64"):
        if not row.has(PAGED_ATTENTION, dtype, None):
            continue
        given = Texts(device, rng, dtype, [int(one) for one in rng.integers(257, 900, 2)])
        given.window = int(rng.choice([0, 3, 300]))
        tokens = [
            (text, int(rng.integers(given.lengths[text])))
            for text in (int(one) for one in rng.integers(0, 2, 3))
        ]
        # Each token of the second launch repeats a token of the first.
        together = given.attended(7, tokens * -(-many // len(tokens)))
        for token, whole in zip(tokens, together[: len(tokens)], strict=True):
            np.testing.assert_array_equal(given.attended(7, [token]), [whole])


@dataclass
class Tree:
    """A text and drafted tokens behind it, each a child of the text's last token or of another."""

    rng: np.random.Generator
    length: int
    nodes: int

    def __post_init__(self) -> None:
        self.parents = [int(self.rng.integers(-1, one)) for one in range(self.nodes)]

    def path(self, node: int) -> list[int]:
        """Return the places of the tokens that a node sees, with its own."""
        own = []
        while node >= 0:
            own.append(self.length + node)
            node = self.parents[node]
        return [*range(self.length), *reversed(own)]

    def ancestors(self) -> Ids:
        """Return the nodes' bits for `paged_attention`."""
        bits = []
        for node in range(self.nodes):
            at = self.length + node
            hidden = set(range(at + 1)) - set(self.path(node))
            bits.append(sum(1 << at - place for place in hidden))
        return (~np.array(bits, np.uint64)).view(np.int64)


@pytest.mark.parametrize("window", [0, 2, 5, 300])
def test_nodes_of_a_tree_get_the_results_of_their_paths(
    device: Device, rng: np.random.Generator, window: int
) -> None:
    """The text, its windows and ALiBi are the same as in a separate run of each path."""
    row_of(device.backend).require_images()
    for _ in range(rounds(1, 20)):
        assert_paths_alone_are_equal(device, rng, window)


def assert_paths_alone_are_equal(device: Device, rng: np.random.Generator, window: int) -> None:
    tree = Tree(rng, int(rng.integers(1, 300)), int(rng.integers(2, 65)))
    count, heads, width = tree.length + tree.nodes, 2, 8
    query, keys, values = (
        rng.standard_normal((count, heads, width)).astype("f4") for _ in range(3)
    )
    size = 16
    pages = -(-count // size)
    bias = rng.standard_normal((heads, pages * size)).astype("f4")
    sinks = rng.standard_normal(heads).astype("f4")
    first = int(rng.integers(0, 4))

    def attended(places: list[int], own: list[int], bits: Ids | None) -> Array:
        pools = []
        for one in (keys, values):
            pool = np.zeros((pages * size, heads, width), "f4")
            pool[: len(places)] = one[places]
            pools.append(pool.reshape(pages, size, heads, width))
        given = [query[[places[one] for one in own]], *pools]
        tables = np.arange(pages)[None]
        numbers = [tables, np.zeros(len(own), np.int64), np.array(own)]
        return ub.paged_attention(
            *(ub.asarray(one, device=device) for one in (*given, *numbers)),
            window=window,
            bias=ub.asarray(bias, device=device),
            sinks=ub.asarray(sinks, device=device),
            sink_tokens=first,
            ancestors=None if bits is None else ub.asarray(bits, device=device),
        ).to_numpy()

    nodes = [tree.length + one for one in range(tree.nodes)]
    together = attended(list(range(count)), nodes, tree.ancestors())
    for node in rng.permutation(tree.nodes)[:3]:
        path = tree.path(int(node))
        alone = attended(path, [len(path) - 1], None)[0]
        # Both sum the same products, at most one rounding each in another order.
        bound = 4 * (len(path) + width) * 2.0**-24 * (1 + abs(values).max())
        np.testing.assert_allclose(together[int(node)], alone, rtol=0, atol=bound)


def test_a_hidden_key_may_have_any_value(device: Device, rng: np.random.Generator) -> None:
    """Neither a hidden node nor a key between sinks and window adds a NaN."""
    row_of(device.backend).require_images()
    keys = rng.standard_normal((1, 16, 1, 8)).astype("f4")
    keys[0, [5, 6, 7, 13]] = np.nan
    given = [rng.standard_normal((1, 1, 8)), keys, keys]
    numbers = [[[0]], [0], [15]]
    got = ub.paged_attention(
        *(ub.asarray(np.asarray(one, "f4"), device=device) for one in given),
        *(ub.asarray(np.asarray(one, np.int64), device=device) for one in numbers),
        window=6,
        sink_tokens=5,
        ancestors=ub.asarray(np.array([~(1 << 2)], np.int64), device=device),
    )
    assert np.isfinite(got.to_numpy()).all()


def test_pages_give_the_bits_of_a_contiguous_cache(host: Device, rng: np.random.Generator) -> None:
    """Compare f64: for other dtypes, the host's kernels for caches add in another order."""
    given = Texts(host, rng, "f64", [int(one) for one in rng.integers(2, 600, 2)])
    for text, length in enumerate(given.lengths):
        got = given.attended(5, [(text, at) for at in range(length)])
        np.testing.assert_array_equal(got, given.cached(text))


def kept(pages: ub.DeviceTensor) -> npt.NDArray[np.float64]:
    """Return the numbers in 8-bit pages: each element times its row's scale."""
    rows = pages.to_numpy()
    scales = np.ascontiguousarray(rows[..., -4:]).view(np.float32)
    return rows[..., :-4].astype(np.float64) * scales


@pytest.mark.parametrize("pages", ["i8", "f8e4m3"])
def test_attention_over_pages_of_8_bits_is_attention_over_their_numbers(
    device: Device, rng: np.random.Generator, pages: str
) -> None:
    row_of(device.backend).require_images()
    for dtype, error in (("f32", 1e-5), ("f16", 2e-3), ("bf16", 1.6e-2)):
        sequences, kv_heads, of_each, size = (int(one) for one in rng.integers(1, 4, 4))
        heads, width = kv_heads * int(rng.integers(1, 3)), 4 * int(rng.integers(1, 4))
        count = sequences * of_each
        made = []
        for _ in range(2):
            x = rng.standard_normal((count * size, kv_heads, width)).astype(numpy_dtype(dtype))
            pool = ub.zeros((count, size, kv_heads, width + 4), pages, device=device)
            slots = np.arange(count * size, dtype=np.int64)
            made.append(
                ub.paged_append(pool, *(ub.from_numpy(one, device=device) for one in (x, slots)))
            )
        tables = rng.permutation(count).reshape(sequences, of_each).astype(np.int64)
        own = rng.integers(0, sequences, 4)
        at = rng.integers(-1, of_each * size, 4)
        query = rng.standard_normal((4, heads, width)).astype(numpy_dtype(dtype))
        got = ub.paged_attention(
            ub.from_numpy(query, device=device),
            *made,
            *(ub.from_numpy(one.astype(np.int64), device=device) for one in (tables, own, at)),
        ).to_numpy()
        keys, values = (
            np.repeat(
                kept(one)[tables].reshape(sequences, -1, kv_heads, width), heads // kv_heads, 2
            )
            for one in made
        )
        for token, (text, place) in enumerate(zip(own, at, strict=True)):
            k, v = keys[text, : place + 1], values[text, : place + 1]
            scores = np.einsum("hw,khw->hk", query[token].astype(np.float64), k) * width**-0.5
            shares = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
            shares /= np.maximum(shares.sum(-1, keepdims=True), np.finfo(np.float64).tiny)
            exact = np.einsum("hk,khw->hw", shares, v)
            largest = abs(v).max(initial=1)
            bound = error * largest * (1 + abs(scores).max(initial=0))
            assert abs(got[token].astype(np.float64) - exact).max() <= bound


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
    # Position -1 is no token: the kernel reads neither its sequence nor its table.
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
    with pytest.raises(ArgumentValueError, match=r"bias: expected f32 \(1, 4\), got f32 \(1, 2\)"):
        ub.paged_attention(query, pool, pool, table, one, one, bias=query[0, :, :2])
    with pytest.raises(ArgumentValueError, match=r"sinks: expected f32 \(1,\), got f32 \(2,\)"):
        ub.paged_attention(query, pool, pool, table, one, one, sinks=query[0, 0, :2])
    with pytest.raises(ArgumentValueError, match=r"ancestors: expected i64 \(1,\), got u32 \(1,\)"):
        ub.paged_attention(query, pool, pool, table, one, one, ancestors=narrow)
    with pytest.raises(ArgumentValueError, match=r"sink_tokens: expected 0 to 2\*\*63 - 1"):
        ub.paged_attention(query, pool, pool, table, one, one, sink_tokens=-1)
    with pytest.raises(ArgumentValueError, match="tables for fewer than"):
        wide = ub.zeros((1, 1 << 16, 1, 4), "f16", device=host)
        tables = ub.zeros((1, 1 << 15), "i64", device=host)
        ub.paged_attention(query.astype("f16"), wide, wide, tables, one, one)
    with pytest.raises(ArgumentValueError, match="a slot for each of 1 tokens"):
        ub.paged_append(pool, query, table[0])
    with pytest.raises(ArgumentValueError, match="expected a pool of"):
        ub.paged_append(pool[0], query, one)
    with pytest.raises(ArgumentTypeError, match="expected slots of i64, got u32"):
        ub.paged_append(pool, query, narrow)
    with pytest.raises(ArgumentTypeError, match="source of the pool's dtype f32, or of bf16, f16"):
        ub.paged_append(pool, query.astype("f16"), one)
    with pytest.raises(ArgumentTypeError, match="for a pool of i8 or f8e4m3, got f64"):
        ub.paged_append(pool.astype("i8"), query.astype("f64"), one)
    with pytest.raises(ArgumentValueError, match=r"a pool of .*, got \(3, 2, 1, 4\) and"):
        ub.paged_append(pool.astype("i8"), query, one)
    with pytest.raises(ArgumentValueError, match="a multiple of 4 for pages of i8, got 3"):
        ub.paged_append(ub.zeros((3, 2, 1, 7), "i8", device=host), query[:, :, :3], one)
    with pytest.raises(ArgumentValueError, match="expected one width of at most 256"):
        ub.paged_attention(query, *[pool.astype("i8")] * 2, table, one, one)
    with pytest.raises(ArgumentTypeError, match="expected one dtype, got f64, i8 and i8"):
        wide = ub.zeros((3, 2, 1, 8), "i8", device=host)
        ub.paged_attention(query.astype("f64"), wide, wide, table, one, one)
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
