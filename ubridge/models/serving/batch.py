"""`PagedModel`: a model's layers over pages, for tokens of several sequences at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.models.body import Tables, Tensor
from ubridge.models.decoder import Decoder
from ubridge.models.paging import PageCopy, PagedCache, PagedSequence
from ubridge.models.step import Captured
from uhal import DType
from uhal.dtypes import i64

Numbers = npt.NDArray[np.int64]
_OF_TOKEN = 4
"""Numbers of a token: id, position, slot, row of its sequence in the tables."""
_NO_TOKEN = np.array([[0], [-1], [-1], [0]])
"""The numbers of a row without a token."""


@dataclass(frozen=True)
class PagedChunk:
    """Tokens of several sequences that go through the layers at once; all numbers are i64."""

    tokens: Tensor
    """Ids, (tokens,)."""
    at: Tensor
    """Positions, -1 for a row without a token."""
    slots: Tensor
    """Places of keys and values in the pools, -1 for none."""
    sequences: Tensor
    """Rows of `pages`."""
    pages: Tensor
    """Pages of each sequence, (sequences, pages)."""
    tables: Tables
    """Cosines and sines of each token's own position, and ALiBi's bias of all positions."""
    zero: Tensor
    """The number 0: the first token's angles are in the first row of the tables."""

    @property
    def positions(self) -> Tensor:
        """The positions of the tokens, 0 for a row without a token."""
        return ub.maximum(self.at, self.zero)

    def rotated(self, x: Tensor, interleaved: bool) -> Tensor:
        """Return (tokens, heads, width) rotated by the angles of the positions."""
        cos, sin = self.tables.cos, self.tables.sin
        if cos is None or sin is None:
            return x
        return ub.rope_at(x, cos, sin, self.zero, interleaved=interleaved)

    def attended(
        self,
        state: Mapping[str, Tensor],
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int,
        cap: float,
    ) -> Tensor:
        """Write keys and values to the pools; return the attention of the queries."""
        keys, values = (
            ub.paged_append(state[f"{layer}.{part}"], new, self.slots)
            for part, new in (("keys", key), ("values", value))
        )
        return ub.paged_attention(
            query,
            keys,
            values,
            self.pages,
            self.sequences,
            self.at,
            scale=scale,
            window=window,
            cap=cap,
            bias=self.tables.bias,
        )


class PagedModel:
    """A model's layers with pools of pages. One thread at a time may use it.

    The results of a token do not depend on the rest of the batch, to the bit. Small batches are
    captured, twice for each power of two of tokens, and replayed.
    """

    def __init__(
        self,
        body: Decoder,
        cache: PagedCache,
        sequences: int,
        context: int,
        dtype: DType | None = None,
    ) -> None:
        """Allocate the pools of a cache, for batches of at most `sequences` sequences.

        The pools keep keys and values in `dtype`, by default the dtype of the activations.
        """
        self._body = body.batch_invariant()
        self.cache = cache
        """The bookkeeping of the pages."""
        self.capacity = min(context, cache.pages * cache.page_size)
        """The most tokens of a sequence."""
        self.vocabulary = body.vocabulary
        """Number of tokens in the vocabulary."""
        self._sequences = sequences
        self._width = -(-self.capacity // cache.page_size)
        self.pools = body.pools(cache.pages, cache.page_size, dtype)
        """Keys and values, by layer and part: (pages, page size, kv heads, width)."""
        self._tables = body.tables(self._width * cache.page_size)
        self._table = np.zeros((sequences, self._width), np.int64)
        self._noted = [-1] * sequences
        """The version of the sequence whose pages are in each row of the table."""
        self._zero = ub.zeros(1, i64, device=body.device)
        self._plans: dict[int, tuple[Tensor, Tensor, Captured]] = {}
        """Numbers, hidden states and plan of each number of rows."""
        self._hidden = self._zero

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """Copy pages of all layers, in order."""
        for source, target in copies:
            for pool in self.pools.values():
                pool[target : target + 1].copy_from(pool[source : source + 1])

    def logits(self, parts: Sequence[tuple[PagedSequence, int]], wanted: Sequence[int]) -> Tensor:
        """Read the tokens of sequences from positions on; return logits of the wanted rows.

        The rows of the batch are the tokens of the first sequence, then of the second, and so on.
        The result is f32, (wanted rows, vocabulary), valid until the next call.
        """
        count = sum(sequence.length - first for sequence, first in parts)
        is_few = count <= self._sequences
        # Few numbers of rows, because each plan has its own copy of the activations.
        quarter = max(1, (1 << (count - 1).bit_length()) // 4) if is_few else 1
        rows = -(-count // quarter) * quarter
        return self.read(self._numbers(parts, rows), wanted, is_few)

    def read(self, numbers: Numbers, wanted: Sequence[int], is_few: bool) -> Tensor:
        """Run a batch, given the numbers of all rows, then the pages of all sequences.

        A batch of few rows is captured and replayed. The result is the result of `logits`.
        """
        rows = (numbers.size - self._table.size) // _OF_TOKEN
        if not is_few:
            self._hidden = x = self._body(self._chunk(self._on_device(numbers), rows), self.pools)
            if not wanted:
                return x[:0]
            return self._body.logits(ub.take(x, np.asarray(wanted, np.int64)))
        if rows not in self._plans:
            given = self._on_device(numbers)
            plan = Captured(self._body.device, lambda _: self._run(given, rows))
            self._plans[rows] = given, self._hidden, plan
        else:
            given, self._hidden, plan = self._plans[rows]
            given.buffer.copy_from(numbers)
            plan.replay()
        found = plan.result
        if list(wanted) == list(range(len(wanted))):
            return found[: len(wanted)]
        return ub.take(found, np.asarray(wanted, np.int64))

    def hidden(self, row: int) -> Tensor:
        """Return the hidden state of a row of the last batch, (E,), valid until the next batch."""
        return self._hidden[row]

    def close(self) -> None:
        """Wait for pending work and free the pools."""
        for _, _, plan in self._plans.values():
            plan.close()
        self._plans = {}
        self._hidden = self._zero
        self.pools = {}

    def _run(self, given: Tensor, rows: int) -> Tensor:
        # The plan keeps this result, so that no other result takes its memory.
        self._hidden = self._body(self._chunk(given, rows), self.pools)
        return self._body.logits(self._hidden)

    def _numbers(self, parts: Sequence[tuple[PagedSequence, int]], rows: int) -> Numbers:
        """The numbers of all rows, then the pages of all sequences."""
        size = self.cache.page_size
        ids: list[int] = []
        at: list[int] = []
        slots: list[int] = []
        row: list[int] = []
        for index, (sequence, first) in enumerate(parts):
            if self._noted[index] != sequence.version:
                self._noted[index] = sequence.version
                self._table[index, : len(sequence.pages)] = sequence.pages
            if len(sequence.tokens) == first + 1:
                ids.append(sequence.tokens[first])
                at.append(first)
                slots.append(sequence.pages[-1] * size + first % size)
                row.append(index)
            else:
                count = sequence.length - first
                ids += sequence.tokens[first:]
                at += range(first, sequence.length)
                slots += sequence.slots(first, count)
                row += [index] * count
        numbers = np.empty(_OF_TOKEN * rows + self._table.size, np.int64)
        of_tokens = numbers[: _OF_TOKEN * rows].reshape(_OF_TOKEN, rows)
        of_tokens[:, : len(ids)] = (ids, at, slots, row)
        of_tokens[:, len(ids) :] = _NO_TOKEN
        numbers[_OF_TOKEN * rows :] = self._table.reshape(-1)
        return numbers

    def _on_device(self, numbers: Numbers) -> Tensor:
        return ub.from_numpy(numbers, device=self._body.device)

    def _chunk(self, given: Tensor, rows: int) -> PagedChunk:
        ids, at, slots, row = (given[one * rows : (one + 1) * rows] for one in range(_OF_TOKEN))
        pages = given[_OF_TOKEN * rows :].reshape(self._sequences, self._width)
        tables = self._tables
        if tables.cos is not None and tables.sin is not None:
            positions = ub.maximum(at, self._zero)
            tables = Tables(*(ub.take(one, positions) for one in (tables.cos, tables.sin)))
        return PagedChunk(ids, at, slots, row, pages, tables, self._zero)
