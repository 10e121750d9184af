"""Engram: hashed n-gram embeddings, which a layer adds to its hidden states.

The equations come from DeepSeek's Engram (2026). The n tokens up to a position are hashed to rows
of one table, several for each n. Gates weigh the rows by the hidden state, and a short convolution
mixes neighboring positions. The table stays in the memory of the host, or in a mapped file; only
the rows of a text reach the device::

    hashes = EngramHashes(EngramConfig(), *compressed(pieces))
    layer = Engram(hashes, 1, table, weights)
    rows = layer.fetch(tokens)            # reads rows while earlier layers run
    hidden, state = layer(hidden, rows)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.closing import Closing
from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from uhal.errors import ArgumentTypeError

Ids: TypeAlias = npt.NDArray[np.int64]
Tensor: TypeAlias = ub.DeviceTensor

_SPACES = re.compile(r"[ \t\r\n]+")
_LAYER_SEED = 10007
_DILATION = 3
_NORM_EPSILON = float(np.finfo(np.float32).eps)
"""Epsilon of the norms of keys and queries."""
_CONVOLUTION_EPSILON = 1e-5
_LEAST_SCORE = 1e-6


@dataclass(frozen=True)
class EngramConfig:
    """Sizes of an Engram; the defaults are the paper's."""

    vocabularies: tuple[int, ...] = (646400, 646400)
    """Least number of rows of a head for n = 2, 3 and so on."""
    heads: int = 8
    """Rows of each n."""
    width: int = 64
    """Elements of a row."""
    layers: tuple[int, ...] = (1, 15)
    """The layers with an Engram."""
    pad: int = 2
    """The token before a text's first."""
    seed: int = 0
    kernel: int = 4
    """Number of positions, three apart, that the convolution adds up."""

    @property
    def longest(self) -> int:
        """Tokens of the longest n-gram."""
        return len(self.vocabularies) + 1


def compressed(pieces: Sequence[str | None]) -> tuple[Ids, int]:
    """Return the compressed id of each token, and the number of compressed ids.

    `pieces` has each token's text, None or a text with U+FFFD for bytes that are no text. Tokens
    whose texts differ only in case, accents, forms of characters or spaces share an id.
    """
    found: dict[tuple[bool, object], int] = {}
    ids = np.empty(len(pieces), np.int64)
    for token, piece in enumerate(pieces):
        is_text = piece is not None and "\N{REPLACEMENT CHARACTER}" not in piece
        key = (
            (True, _normal(piece or "")) if is_text else (False, token if piece is None else piece)
        )
        ids[token] = found.setdefault(key, len(found))
    return ids, len(found)


def _normal(piece: str) -> str:
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", piece))
    text = "".join(one for one in text if not unicodedata.category(one).startswith("M"))
    text = _SPACES.sub(" ", text.lower())
    return (text if text == " " else text.strip()) or piece


class EngramHashes:
    """Rows of the table for each n-gram of a text. Threads may share it."""

    def __init__(self, config: EngramConfig, ids: Ids, vocabulary: int) -> None:
        """Take `compressed` ids of all tokens, and their number.

        Raises `ArgumentValueError` for a configuration without rows, heads or layers.
        """
        sizes = [whole_number("EngramConfig, vocabularies", one, 2) for one in config.vocabularies]
        heads = whole_number("EngramConfig, heads", config.heads, 1)
        require(sizes, "EngramConfig, vocabularies: expected at least one size, got none")
        require(config.layers, "EngramConfig, layers: expected at least one layer, got none")
        self.config = config
        self._ids = np.asarray(ids, np.int64)
        self._pad = int(self._ids[config.pad])
        highest = max(1, np.iinfo(np.int64).max // vocabulary // 2)
        self._multipliers: dict[int, Ids] = {}
        self.primes: dict[int, npt.NDArray[np.int64]] = {}
        """Numbers of rows by layer, (numbers of tokens, heads)."""
        used: set[int] = set()
        for layer in config.layers:
            draws = np.random.default_rng(config.seed + _LAYER_SEED * layer)
            self._multipliers[layer] = 2 * draws.integers(0, highest, config.longest) + 1
            self.primes[layer] = np.array([_primes(one, heads, used) for one in sizes])

    def multipliers(self, layer: int) -> Ids:
        """Return the factors of a layer's tokens: the last token's, the one before, and so on."""
        return np.array(self._multipliers[layer])

    def rows_of_table(self, layer: int) -> int:
        """Return the number of rows of a layer's table."""
        return int(self.primes[layer].sum())

    def hashes(self, layer: int, tokens: Sequence[int], before: Sequence[int] = ()) -> Ids:
        """Return the hash of each n-gram that ends at a token, (tokens, rows of a token).

        `before` holds the preceding tokens; only the last `longest` - 1 matter. Negative tokens
        have no text and stay unchanged.
        """
        config = self.config
        given = np.asarray([*before, *tokens], np.int64)
        most = self._ids.size
        require(
            not given.size or int(given.max()) < most,
            f"Engram: expected tokens below {most}, got {given.max() if given.size else 0}",
        )
        ids = np.where(given < 0, given, self._ids[np.maximum(given, 0)])
        reach = config.longest - 1
        ids = np.concatenate([np.full(reach, self._pad), ids])
        count = len(tokens)
        found: list[Ids] = []
        mixed = np.zeros(count, np.int64)
        for back, factor in enumerate(self._multipliers[layer]):
            end = ids.size - back
            with np.errstate(over="ignore"):
                mixed = mixed ^ ids[end - count : end] * factor
            if back:
                found.append(mixed[:, None] % self.primes[layer][back - 1])
        return np.concatenate(found, 1)

    def rows(self, layer: int, tokens: Sequence[int], before: Sequence[int] = ()) -> Ids:
        """Return the row of each hash in the layer's table; heads lie one after the other."""
        sizes = self.primes[layer].reshape(-1)
        return self.hashes(layer, tokens, before) + (np.cumsum(sizes) - sizes)


def _primes(least: int, count: int, used: set[int]) -> list[int]:
    """Return the smallest unused primes from `least` on, and mark them as used."""
    found: list[int] = []
    number = least
    while len(found) < count:
        if number not in used and all(number % one for one in range(2, int(number**0.5) + 1)):
            found.append(number)
            used.add(number)
        number += 1
    return found


@dataclass(frozen=True)
class EngramState:
    """The end of a text, which the next tokens need."""

    tokens: tuple[int, ...]
    """The last tokens: one fewer than in the longest n-gram."""
    columns: Tensor | None
    """The convolution's last positions, (positions, streams * hidden); None for zeros."""


@dataclass(frozen=True)
class EngramRows:
    """Rows of a table that a thread reads. Made by `Engram.fetch`."""

    tokens: tuple[int, ...]
    state: EngramState
    pending: Future[npt.NDArray[np.float32]]


class Engram(Closing):
    """One layer's Engram. One thread at a time may use it.

    `weights` are f32 tensors: `key.weight` (streams, hidden, elements), `key.bias`, `value.weight`
    (hidden, elements), `value.bias`, `key_norm`, `query_norm` and `convolution_norm` (streams,
    hidden), and `convolution` (streams * hidden, kernel). `elements` is the number of elements in
    all rows of a token. The table is f32 (rows, width), an array of numpy or a memory map.
    """

    def __init__(
        self,
        hashes: EngramHashes,
        layer: int,
        table: npt.NDArray[np.float32],
        weights: Mapping[str, Tensor],
    ) -> None:
        """Take a table and weights.

        Raises `ArgumentTypeError` or `ArgumentValueError` if their shapes do not fit.
        """
        config = hashes.config
        require(
            layer in config.layers, f"Engram, layer: expected one of {config.layers}, got {layer}"
        )
        shape = (hashes.rows_of_table(layer), config.width)
        if table.dtype != np.float32 or table.shape != shape:
            raise ArgumentTypeError(
                f"Engram, table: expected f32 {shape}, got {table.dtype} {table.shape}"
            )
        self._hashes, self._layer, self._table = hashes, layer, table
        self._weights = weights
        self.streams, self.hidden = weights["key_norm"].shape
        each = config.width * config.heads * len(config.vocabularies)
        expected = {
            "key.weight": (self.streams, self.hidden, each),
            "key.bias": (self.streams, self.hidden),
            "value.weight": (self.hidden, each),
            "value.bias": (self.hidden,),
            "key_norm": (self.streams, self.hidden),
            "query_norm": (self.streams, self.hidden),
            "convolution_norm": (self.streams, self.hidden),
            "convolution": (self.streams * self.hidden, config.kernel),
        }
        for name, of_weight in expected.items():
            got = weights[name].shape if name in weights else None
            require(got == of_weight, f"Engram, weights: expected {name} of {of_weight}, got {got}")
        self._reader = ThreadPoolExecutor(1, "engram")

    def fetch(self, tokens: Sequence[int], state: EngramState | None = None) -> EngramRows:
        """Begin to read the rows of tokens that follow a state, on a thread of the layer."""
        state = EngramState((), None) if state is None else state
        rows = self._hashes.rows(self._layer, tokens, state.tokens)
        pending = self._reader.submit(self._table.__getitem__, rows)
        return EngramRows(tuple(tokens), state, pending)

    def __call__(self, hidden: Tensor, rows: EngramRows) -> tuple[Tensor, EngramState]:
        """Return hidden states plus the Engram's, and the state behind the tokens.

        `hidden` is f32 (tokens, streams, hidden), for the tokens that `rows` were fetched for. The
        call waits for the rows.
        """
        count, config = len(rows.tokens), self._hashes.config
        shape = (count, self.streams, self.hidden)
        require(hidden.shape == shape, f"Engram: expected hidden of {shape}, got {hidden.shape}")
        w = self._weights
        read = ub.from_numpy(rows.pending.result().reshape(count, -1), device=hidden.device)
        value = ub.linear(read, w["value.weight"], w["value.bias"])
        gated, normed = [], []
        for stream in range(self.streams):
            key = ub.linear(read, w["key.weight"][stream], w["key.bias"][stream])
            key = ub.rms_norm(key, w["key_norm"][stream], _NORM_EPSILON)
            query = hidden[:, stream].contiguous()
            query = ub.rms_norm(query, w["query_norm"][stream], _NORM_EPSILON)
            score = ub.sum(key * query, 1, keepdims=True) / self.hidden**0.5
            bounded = ub.sqrt(ub.maximum(ub.abs(score), _LEAST_SCORE))
            own = ub.sigmoid(ub.sign(score) * bounded) * value
            gated.append(own)
            normed.append(ub.rms_norm(own, w["convolution_norm"][stream], _CONVOLUTION_EPSILON))
        columns, kept = self._padded(ub.concatenate(normed, 1), rows.state.columns)
        mixed = columns[:count] * w["convolution"][:, 0]
        for tap in range(1, config.kernel):
            first = tap * _DILATION
            mixed = mixed + columns[first : first + count] * w["convolution"][:, tap]
        added = ub.stack(gated, 1) + ub.silu(mixed).reshape(shape)
        last = (*rows.state.tokens, *rows.tokens)[1 - config.longest :]
        return hidden + added, EngramState(last, kept)

    def _padded(self, columns: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return earlier and new columns joined, and the last for later tokens."""
        reach = (self._hashes.config.kernel - 1) * _DILATION
        if before is None:
            before = ub.zeros((reach, columns.shape[1]), columns.dtype, device=columns.device)
        padded = ub.concatenate([before, columns], 0)
        return padded, padded[padded.shape[0] - reach :].contiguous()

    def close(self) -> None:
        """End the thread that reads rows. A second call does nothing."""
        self._reader.shutdown()
