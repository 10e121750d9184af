"""`Architecture`: a model's parameters for the decoder, from `table.py` and its files.

Letters in shapes: E elements of the residual stream, F elements of an MLP's inner layer, d elements
of a head. There are H heads of queries, K heads of keys and values, V tokens in the vocabulary, and
n experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ubridge.models.positions import Rope


@dataclass(frozen=True)
class Experts:
    """A layer's experts: gated MLPs. A router chooses some of them for each token."""

    count: int
    used: int
    inner: int
    """F of one expert."""
    is_normalized: bool
    """Whether the shares of the chosen experts are divided by their sum."""
    layers: frozenset[int]
    """Layers with experts instead of one MLP."""


@dataclass(frozen=True)
class Architecture:
    """The axes along which decoders differ. Made by `table.architecture_of`."""

    # -- sizes -----------------------------------------------------------------------------------
    name: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    context: int
    # -- norms and sums --------------------------------------------------------------------------
    norm: Literal["rms", "rms_plus_one", "layer"] = "rms"
    """`rms_plus_one` multiplies by 1 + weight."""
    epsilon: float = 1e-5
    residual: Literal["sequential", "parallel", "sandwich"] = "sequential"
    """`parallel` adds attention and MLP of one input; `sandwich` also norms both results."""
    norms: Literal[1, 2] = 2
    """Norms of a parallel layer: one for attention and MLP together, or one each."""
    # -- MLP -------------------------------------------------------------------------------------
    mlp: Literal["gated", "fused", "plain"] = "gated"
    """`fused` has gate and up in one matrix, the gate first; `plain` has no gate."""
    activation: str = "silu"
    experts: Experts | None = None
    # -- attention -------------------------------------------------------------------------------
    qkv: Literal["separate", "rows", "groups"] = "separate"
    """Three matrices, or one: all of q, all of k, all of v; or one group of heads after another."""
    biases: frozenset[str] = frozenset()
    """Products with a bias: `qkv`, `output`, `mlp`, `head`. Layer norms always have biases."""
    qk_norm: Literal["", "rms", "layer", "heads"] = ""
    """Norm of each head's queries and keys; `heads`: a layer norm per head, without bias."""
    rope: Rope | None = None
    is_interleaved: bool = False
    """Whether rotated pairs are neighbours; otherwise they lie half the rotated width apart."""
    alibi: bool = False
    has_learned_positions: bool = False
    windows: tuple[int, ...] = ()
    """Window of each layer: number of last keys a query sees, with its own; 0 for all."""
    scale: float = 0.0
    """Factor of the attention scores."""
    score_cap: float = 0.0
    """The bound of scores, by tanh; 0 for no bound."""
    # -- both ends -------------------------------------------------------------------------------
    embedding_scale: float = 1.0
    logit_cap: float = 0.0
    logit_scale: float = 1.0
    is_tied: bool = False
    """Whether the head is the embedding."""
    # -- tokens ----------------------------------------------------------------------------------
    end_tokens: tuple[int, ...] = field(default=(), compare=False)

    @property
    def group(self) -> int:
        """Number of query heads that share a key head."""
        return self.heads // self.kv_heads

    def window(self, layer: int) -> int:
        """Return the number of keys that a layer's query sees; 0 for all."""
        return self.windows[layer] if self.windows else 0

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return self.experts is not None and layer in self.experts.layers

    def state_bytes(self, capacity: int, itemsize: int) -> int:
        """Return the bytes of keys and values of a text of `capacity` tokens."""
        return 2 * capacity * self.layers * self.kv_heads * self.width * itemsize

    # -- required contents of files --------------------------------------------------------------

    def tensors(self) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Yield layer (-1: outside layers), part (a name in `table.py`), and shape of each."""
        wide = (self.hidden,)
        yield -1, "embedding.weight", (self.vocabulary, self.hidden)
        if self.has_learned_positions:
            yield -1, "positions.weight", (self.context, self.hidden)
        yield from self._norm(-1, "norm", wide)
        if not self.is_tied:
            yield from self._product(-1, "head", "head", self.vocabulary, self.hidden)
        for layer in range(self.layers):
            yield from self._attention(layer)
            if self.residual != "parallel" or self.norms == 2:
                yield from self._norm(layer, "mlp_norm", wide)
            if self.residual == "sandwich":
                yield from self._norm(layer, "attention_after", wide)
                yield from self._norm(layer, "mlp_after", wide)
            yield from self._mlp(layer)

    def _attention(self, layer: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        yield from self._norm(layer, "attention_norm", (self.hidden,))
        parts = {"q": queries, "k": keys, "v": keys}
        for part, rows in (
            parts if self.qkv == "separate" else {"qkv": queries + 2 * keys}
        ).items():
            yield from self._product(layer, part, "qkv", rows, self.hidden)
        yield from self._product(layer, "output", "output", self.hidden, queries)
        for part, heads in (("q_norm", self.heads), ("k_norm", self.kv_heads)):
            if self.qk_norm == "heads":
                yield layer, f"{part}.weight", (heads, self.width)
            elif self.qk_norm:
                yield layer, f"{part}.weight", (self.width,)
                if self.qk_norm == "layer":
                    yield layer, f"{part}.bias", (self.width,)

    def _mlp(self, layer: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        if self.experts is not None and self.has_experts(layer):
            count, inner = self.experts.count, self.experts.inner
            yield layer, "router.weight", (count, self.hidden)
            yield layer, "expert_gate.weight", (count, inner, self.hidden)
            yield layer, "expert_up.weight", (count, inner, self.hidden)
            yield layer, "expert_down.weight", (count, self.hidden, inner)
            return
        before = {"gated": ("gate", "up"), "fused": ("gate_up",), "plain": ("up",)}[self.mlp]
        for part in before:
            rows = 2 * self.inner if part == "gate_up" else self.inner
            yield from self._product(layer, part, "mlp", rows, self.hidden)
        yield from self._product(layer, "down", "mlp", self.hidden, self.inner)

    def _norm(
        self, layer: int, part: str, shape: tuple[int, ...]
    ) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        yield layer, f"{part}.weight", shape
        if self.norm == "layer":
            yield layer, f"{part}.bias", shape

    def _product(
        self, layer: int, part: str, kind: str, rows: int, columns: int
    ) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        yield layer, f"{part}.weight", (rows, columns)
        if kind in self.biases:
            yield layer, f"{part}.bias", (rows,)
