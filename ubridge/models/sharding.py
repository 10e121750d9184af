"""Decoders split among the ranks of a group: heads of attention, and the inner layer of MLPs.

A rank's decoder is the usual decoder, of a design with the rank's share of heads and of F. A rank
holds the rows of q, k, v, gate, up and head that belong to its share, and the columns of output and
down. After output and after down, the ranks add their results. Everything else is on every rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.models.architecture import Architecture
from ubridge.models.body import Part, Tables, Tensor, products
from ubridge.models.decoder import Decoder
from ubridge.models.positions import alibi_bias
from uhal import DType
from uhal.collectives import Communicator
from uhal.errors import ArgumentValueError

Range = tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """Ranges of an axis of a part."""

    axis: int
    """0, or counted from the end: -2 (rows, also of one expert's matrix) or -1 (columns)."""
    ranges: tuple[Range, ...]

    @property
    def is_run_of_rows(self) -> bool:
        """Whether the ranges are adjacent in memory."""
        return self.axis == 0 and len(self.ranges) == 1

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the ranges of a part, one after the other."""
        lengths = list(whole)
        lengths[self.axis] = sum(stop - start for start, stop in self.ranges)
        return tuple(lengths)


class Share:
    """A rank's share of a decoder."""

    def __init__(
        self, whole: Architecture, rank: int, ranks: int, unit: int = 1, expert_unit: int = 1
    ) -> None:
        """Divide heads evenly, and F, also of experts, in whole blocks.

        Raises `ArgumentValueError` for more ranks than can share the heads or the blocks.
        """
        self.whole, self.rank, self.ranks = whole, rank, ranks
        self.heads = self._even("heads", whole.heads)
        # With fewer key heads than ranks, several ranks hold the same one.
        holders = max(ranks // whole.kv_heads, 1)
        require(
            whole.kv_heads * holders % ranks == 0,
            f"group: expected ranks that divide the {whole.kv_heads} key heads of "
            f"{whole.name}, or a multiple of them, got {ranks} ranks",
        )
        each = whole.kv_heads * holders // ranks
        first = rank // holders * each
        self.kv_heads: Range = (first, first + each)
        self.inner = self._in_units(whole.inner, unit)
        experts = whole.experts
        self.expert_inner = (
            (0, 0) if experts is None else self._in_units(experts.inner, expert_unit)
        )
        rows = -(-whole.vocabulary // ranks)
        start = min(rank * rows, whole.vocabulary - rows)
        self.vocabulary: Range = (start, start + rows)
        """Rows of the head. The last rank's rows overlap the rows of the rank before it."""
        self.own = dataclasses.replace(
            whole,
            heads=self.heads[1] - self.heads[0],
            kv_heads=each,
            inner=self.inner[1] - self.inner[0],
            experts=experts
            and dataclasses.replace(experts, inner=self.expert_inner[1] - self.expert_inner[0]),
        )
        """The design of the rank's decoder."""

    def cut(self, part: str) -> Cut | None:
        """Return the ranges of a part that belong to the rank; `None` for the whole part."""
        stem, _, kind = part.partition(".")
        width, whole = self.whole.width, self.whole
        queries, keys = _scaled(self.heads, width), _scaled(self.kv_heads, width)
        if stem in ("output", "down"):
            columns = queries if stem == "output" else self.inner
            return Cut(-1, (columns,)) if kind == "weight" else None
        if stem == "expert_down":
            return Cut(-1, (self.expert_inner,))
        if stem in ("expert_gate", "expert_up"):
            return Cut(-2, (self.expert_inner,))
        rows: dict[str, tuple[Range, ...]] = {
            "q": (queries,),
            "k": (keys,),
            "v": (keys,),
            "qkv": self._joined(queries, keys),
            "gate": (self.inner,),
            "up": (self.inner,),
            "gate_up": (self.inner, _moved(self.inner, whole.inner)),
            "head": (self.vocabulary,),
        }
        if whole.qk_norm == "heads":
            rows |= {"q_norm": (self.heads,), "k_norm": (self.kv_heads,)}
        return Cut(0, rows[stem]) if stem in rows else None

    def require_blocks(self, part: str, elements: int) -> None:
        """Refuse to cut the columns of a part within a block of `elements` elements."""
        cut = self.cut(part)
        if cut is None or cut.axis != -1:
            return
        wrong = [end for bounds in cut.ranges for end in bounds if end % elements]
        if wrong:
            raise ArgumentValueError(
                f"group: expected shares of {part} in whole blocks of {elements} elements, got a "
                f"share that ends at {wrong[0]}. Use fewer ranks, or a format with smaller blocks."
            )

    def _joined(self, queries: Range, keys: Range) -> tuple[Range, ...]:
        """Rows of a joined matrix of queries, keys and values."""
        whole, width = self.whole, self.whole.width
        if whole.qkv == "groups" and whole.kv_heads > 1:
            require(
                whole.kv_heads % self.ranks == 0,
                f"group: expected ranks that divide the {whole.kv_heads} groups of "
                f"{whole.name}, got {self.ranks} ranks",
            )
            return (_scaled(self.kv_heads, (whole.group + 2) * width),)
        at_keys = whole.heads * width
        at_values = at_keys + whole.kv_heads * width
        return queries, _moved(keys, at_keys), _moved(keys, at_values)

    def _in_units(self, length: int, unit: int) -> Range:
        """The rank's whole blocks of an inner layer."""
        units = length // unit
        require(
            units >= self.ranks,
            f"group: expected at most {units} ranks, the blocks of {unit} in an inner layer of "
            f"{self.whole.name}, got {self.ranks}",
        )
        start, stop = (rank * units // self.ranks for rank in (self.rank, self.rank + 1))
        return start * unit, length if stop == units else stop * unit

    def _even(self, what: str, count: int) -> Range:
        require(
            count % self.ranks == 0,
            f"group: expected ranks that divide the {count} {what} of {self.whole.name}, got "
            f"{self.ranks} ranks",
        )
        each = count // self.ranks
        return self.rank * each, (self.rank + 1) * each


class ShardedDecoder(Decoder):
    """A rank's part of a decoder. All ranks run it on the same tokens."""

    def __init__(
        self,
        share: Share,
        group: Communicator,
        outside: Part,
        layers: Sequence[Part],
        dtype: DType,
    ) -> None:
        """Take a rank's weights as `loading.py` delivers them."""
        if share.whole.is_tied:
            start, stop = share.vocabulary
            outside = {**outside, "head.weight": outside["embedding.weight"][start:stop]}
        super().__init__(share.own, outside, layers, dtype)
        self._share = share
        self.group = group
        """The communicator of all ranks."""

    def tables(self, positions: int, length: int | None = None) -> Tables:
        """Return tables of positions; ALiBi's bias is of the rank's heads."""
        whole = self._share.whole
        if not whole.alibi:
            return super().tables(positions, length)
        bias = alibi_bias(whole.heads, whole.width, positions)[slice(*self._share.heads)]
        return Tables(bias=ub.asarray(np.ascontiguousarray(bias), device=self.device))

    def _product(self, x: Tensor, weights: Part, part: str) -> Tensor:
        if part == "head":
            return self._gathered(super()._product(x, weights, part))
        if part not in ("output", "down"):
            return super()._product(x, weights, part)
        (found,) = products(x, [weights[f"{part}.weight"]], self._is_invariant)
        found = self._summed(found)
        bias = self._bias(weights, part)
        return found if bias is None else found + bias

    def _mlp(self, layer: int, weights: Part, x: Tensor) -> Tensor:
        found = super()._mlp(layer, weights, x)
        return self._summed(found) if self.design.has_experts(layer) else found

    def _summed(self, own: Tensor) -> Tensor:
        """The sum of the ranks' results.

        Libraries choose the order of a sum by its size. With three ranks and more the order changes
        the bits, so an invariant sum has the order of the ranks.
        """
        if not self._is_invariant or self.group.ranks == 2:
            return ub.all_reduce(own, self.group)
        parts = ub.all_gather(own, self.group)
        total = parts[0]
        for rank in range(1, self.group.ranks):
            total = total + parts[rank]
        return total

    def _gathered(self, own: Tensor) -> Tensor:
        """The ranks' logits beside each other."""
        tokens, rows = own.shape
        ranks, vocabulary = self.group.ranks, self.vocabulary
        parts = ub.all_gather(own.contiguous(), self.group).swapaxes(0, 1)
        if ranks * rows == vocabulary:
            return parts.reshape(tokens, vocabulary)
        before = (ranks - 1) * rows
        last = parts[:, ranks - 1, rows - (vocabulary - before) :]
        return ub.concatenate([parts[:, : ranks - 1].reshape(tokens, before), last], 1)


def _scaled(bounds: Range, factor: int) -> Range:
    return bounds[0] * factor, bounds[1] * factor


def _moved(bounds: Range, by: int) -> Range:
    return bounds[0] + by, bounds[1] + by
