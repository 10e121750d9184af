"""`Eagle3`: the draft layer of EAGLE-3, and the trees of tokens that it proposes.

One decoder layer reads the target model's features of a position beside the embedding of the next
token, and gives the logits of the token after that (Li et al., "EAGLE-3", 2025). Features are the
target's hidden states that enter layers 2, L // 2 and L - 3. Weights have the names in its files:
`fc.weight`, `midlayer.*`, `norm.weight`, `lm_head.weight`, `embed_tokens.weight`, `d2t`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.fits import require

Tensor = ub.DeviceTensor

_LAYER = "midlayer."
_PARTS = (
    "embed_tokens.weight",
    "norm.weight",
    "lm_head.weight",
    *(
        f"{_LAYER}{one}.weight"
        for one in (
            "input_layernorm",
            "hidden_norm",
            "post_attention_layernorm",
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.o_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
            "mlp.down_proj",
        )
    ),
)


@dataclass(frozen=True)
class EagleState:
    """Keys and values of the positions that were read, (1, kv heads, positions, d) each."""

    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        """The number of positions."""
        return self.keys.shape[2]


@dataclass(frozen=True)
class EagleTree:
    """Proposed tokens and their parents; a parent is an earlier index, or -1 for the text."""

    tokens: list[int]
    parents: list[int]

    def paths(self) -> list[list[int]]:
        """Return the tokens from the text to each leaf."""
        inner = set(self.parents)
        found = []
        for leaf in range(len(self.tokens)):
            if leaf in inner:
                continue
            path: list[int] = []
            node = leaf
            while node >= 0:
                path.append(self.tokens[node])
                node = self.parents[node]
            found.append(path[::-1])
        return found


class Eagle3:
    """The draft layer over f32 weights. One thread at a time may use it."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        heads: int,
        *,
        theta: float = 10000.0,
        epsilon: float = 1e-5,
    ) -> None:
        """Take the weights; `ArgumentValueError` if one is missing or the heads do not fit."""
        missing = [name for name in _PARTS if name not in weights]
        require(not missing, f"Eagle3: expected weights {', '.join(_PARTS)}, got no {missing}")
        self._weights = weights
        self._epsilon, self._theta = epsilon, theta
        rows = [weights[f"{_LAYER}self_attn.{one}_proj.weight"].shape[0] for one in "qk"]
        require(
            heads >= 1 and rows[0] % heads == 0 and rows[1] % (rows[0] // heads) == 0,
            f"Eagle3, heads: expected a divisor of {rows[0]} that leaves whole heads of {rows[1]} "
            f"keys, got {heads}",
        )
        self._heads, self._width = heads, rows[0] // heads
        self._kv_heads = rows[1] // self._width
        self._size = weights["norm.weight"].shape[0]
        offsets = weights.get("d2t")
        self._offsets = None if offsets is None else offsets.to_numpy().astype(np.int64)

    def features(self, hidden: Tensor) -> Tensor:
        """Return the draft layer's features, (positions, E'), of joined hidden states.

        `hidden` is (positions, 3 E): those that enter layers 2, L // 2 and L - 3, side by side.
        """
        if hidden.shape[1] == self._size:
            return hidden
        return ub.linear(hidden, self._weights["fc.weight"])

    def __call__(
        self,
        features: Tensor,
        tokens: Sequence[int],
        state: EagleState | None = None,
        *,
        positions: Sequence[int] | None = None,
        mask: npt.NDArray[Any] | None = None,
    ) -> tuple[Tensor, Tensor, EagleState]:
        """Return the next features, the logits, and the state with the new positions.

        Features of a position go with the token behind it; both have (positions,) rows. By default
        new positions follow the state's positions and see all positions before them. `positions`
        gives them other numbers, and `mask`, booleans of (new, all), says which positions each
        sees.
        """
        w, count = self._weights, len(tokens)
        before = 0 if state is None else state.length
        at = range(before, before + count) if positions is None else positions
        ids = ub.from_numpy(np.asarray(tokens, np.int64), device=features.device)
        embedded = ub.embedding(ids, w["embed_tokens.weight"])
        joined = ub.concatenate(
            [
                self._normed(embedded, f"{_LAYER}input_layernorm"),
                self._normed(features, f"{_LAYER}hidden_norm"),
            ],
            1,
        )
        query, key, value = (
            self._part(joined, f"self_attn.{one}_proj").reshape(count, -1, self._width)
            for one in "qkv"
        )
        query, key = self._rotated(query, at), self._rotated(key, at)
        query, key, value = (one.swapaxes(0, 1).expand_dims(0) for one in (query, key, value))
        if state is not None:
            key = ub.concatenate([state.keys, key], 2)
            value = ub.concatenate([state.values, value], 2)
        made = EagleState(key.contiguous(), value.contiguous())
        seen = np.tri(count, before + count, before, bool) if mask is None else mask
        hidden = np.where(seen, 0.0, -np.inf).astype(np.float32)
        shape = (1, self._heads, count, before + count)
        attended = ub.attention(
            query.contiguous(),
            made.keys,
            made.values,
            mask=ub.broadcast_to(ub.from_numpy(hidden, device=features.device), shape),
        )
        attended = attended[0].swapaxes(0, 1).contiguous().reshape(count, -1)
        x = features + self._part(attended, "self_attn.o_proj")
        inner = self._normed(x, f"{_LAYER}post_attention_layernorm")
        gated = ub.silu_mul(self._part(inner, "mlp.gate_proj"), self._part(inner, "mlp.up_proj"))
        x = x + self._part(gated, "mlp.down_proj")
        return x, ub.linear(self._normed(x, "norm"), w["lm_head.weight"]), made

    def propose(
        self,
        features: Tensor,
        logits: Tensor,
        state: EagleState,
        *,
        width: int = 10,
        depth: int = 7,
        total: int = 60,
    ) -> EagleTree:
        """Return the likeliest continuations of a text as a tree of at most `total` - 1 tokens.

        `features`, (1, E'), and `logits`, (1, V'), are the results for the text's last position.
        Each depth keeps the `width` tokens with the largest summed log-probability, among `width`
        children of each kept token.
        """
        frontier = [-1]
        tokens: list[int] = []
        parents: list[int] = []
        sums: list[float] = []
        # Columns of a node and of its ancestors among the new positions of the state.
        columns: dict[int, list[int]] = {-1: []}
        start = state.length
        for level in range(depth):
            rows = _log_softmax(logits.to_numpy().astype(np.float64))
            children: list[int] = []
            for row, node in zip(rows, frontier, strict=True):
                for one in np.argsort(-row, kind="stable")[:width]:
                    children.append(len(tokens))
                    parents.append(node)
                    sums.append((sums[node] if node >= 0 else 0.0) + float(row[one]))
                    tokens.append(self._target(int(one)))
            if level == depth - 1:
                break
            best = sorted(children, key=lambda one: -sums[one])[:width]
            of_parents = [frontier.index(parents[one]) for one in best]
            given = ub.take(features, np.asarray(of_parents, np.int64))
            first = state.length - start
            mask = np.zeros((len(best), state.length + len(best)), bool)
            mask[:, :start] = True
            for index, one in enumerate(best):
                columns[one] = [*columns[parents[one]], first + index]
                mask[index, [start + column for column in columns[one]]] = True
            features, logits, state = self(
                given,
                [tokens[one] for one in best],
                state,
                positions=[start + level] * len(best),
                mask=mask,
            )
            frontier = best
        # A parent is at least as likely as its children, and earlier, so the kept tokens form a
        # tree.
        kept = sorted(sorted(range(len(tokens)), key=lambda one: -sums[one])[: total - 1])
        index_of = {one: index for index, one in enumerate(kept)}
        index_of[-1] = -1
        return EagleTree([tokens[one] for one in kept], [index_of[parents[one]] for one in kept])

    def _target(self, token: int) -> int:
        return token if self._offsets is None else token + int(self._offsets[token])

    def _normed(self, x: Tensor, part: str) -> Tensor:
        return ub.rms_norm(x.contiguous(), self._weights[f"{part}.weight"], self._epsilon)

    def _part(self, x: Tensor, part: str) -> Tensor:
        return ub.linear(x, self._weights[f"{_LAYER}{part}.weight"])

    def _rotated(self, x: Tensor, at: Sequence[int] | range) -> Tensor:
        """Return (positions, heads, d) rotated in pairs half a head apart."""
        half = self._width // 2
        angles = np.outer(np.asarray(at, float), self._theta ** (-np.arange(half) / half))
        cos, sin = (
            ub.from_numpy(one(angles).astype(np.float32), device=x.device)
            for one in (np.cos, np.sin)
        )
        return ub.rope(x.expand_dims(0), cos, sin, heads_last=True)[0]


def _log_softmax(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    shifted = rows - rows.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
