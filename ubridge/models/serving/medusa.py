"""`MedusaHeads` and `MedusaDrafter`: drafts by further heads on a model's last hidden state.

Head k computes `x + silu(A x + b)`, once for each of its layers. The result gives the logits of the
token k + 2 positions on (Cai et al., "Medusa", 2024). Weights have the names in its files:
`k.0.linear.weight` (E, E), `k.0.linear.bias` and `k.1.weight` (V, E) for one layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ubridge as ub
from ubridge.core.fits import require
from ubridge.models.serving.lookup import Drafts

Tensor = ub.DeviceTensor

CHOICES = ((0, 0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 0), (1, 1), (0, 2), (3,))
"""Continuations, the likeliest first; each one lists the rank of every head's token."""


class MedusaHeads:
    """Heads that share a hidden state. One thread at a time may use them."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights of all heads; `ArgumentValueError` if one is missing or does not fit."""
        self._heads: list[tuple[list[tuple[Tensor, Tensor]], Tensor]] = []
        while f"{len(self._heads)}.0.linear.weight" in weights:
            head = len(self._heads)
            layers: list[tuple[Tensor, Tensor]] = []
            while f"{head}.{len(layers)}.linear.weight" in weights:
                name = f"{head}.{len(layers)}.linear"
                weight = weights[f"{name}.weight"]
                size = weight.shape[-1]
                bias = weights.get(f"{name}.bias")
                require(
                    weight.shape == (size, size) and bias is not None and bias.shape == (size,),
                    f"MedusaHeads: expected {name}.weight of (E, E) and {name}.bias of (E,), got "
                    f"{weight.shape} and {None if bias is None else bias.shape}",
                )
                assert bias is not None
                layers.append((weight, bias))
            name = f"{head}.{len(layers)}.weight"
            last = weights.get(name)
            require(
                last is not None and len(last.shape) == 2 and last.shape[1] == size,
                f"MedusaHeads: expected {name} of (V, {size}), got "
                f"{None if last is None else last.shape}",
            )
            assert last is not None
            self._heads.append((layers, last))
        require(
            self._heads and len(self._heads) == len({name.split(".")[0] for name in weights}),
            "MedusaHeads: expected weights of heads 0, 1 and so on, such as 0.0.linear.weight, got "
            f"{sorted(weights)[:4]}",
        )

    def __len__(self) -> int:
        return len(self._heads)

    def __call__(self, hidden: Tensor) -> list[Tensor]:
        """Return the logits of each head, (rows, V), for hidden states of (rows, E)."""
        found = []
        for layers, last in self._heads:
            x = hidden.astype(last.dtype, copy=False)
            for weight, bias in layers:
                x = x + ub.silu(ub.linear(x, weight, bias))
            found.append(ub.linear(x, last))
        return found


class MedusaDrafter:
    """Proposes the best tokens of Medusa's heads as a tree. One text may use it.

    For example::

        heads = MedusaHeads(ub.load("medusa_lm_head.safetensors"))
        engine = Engine(model, speculate=4, branches=8, drafter=lambda: MedusaDrafter(heads))
    """

    def __init__(self, heads: MedusaHeads, choices: Sequence[Sequence[int]] = CHOICES) -> None:
        """Propose a continuation for each of `choices`, whose 0 is a head's most probable token."""
        require(
            all(choice and min(choice) >= 0 for choice in choices) and len(choices) > 0,
            f"MedusaDrafter, choices: expected runs of numbers from 0 on, got {choices!r:.80}",
        )
        self._heads = heads
        self._choices = [tuple(one)[: len(heads)] for one in choices]
        self._width = 1 + max(max(one) for one in self._choices)
        self._best: list[list[int]] = []

    def observe(self, hidden: Tensor) -> None:
        """Take the hidden state, (E,), whose logits chose the text's last token."""
        self._best = []
        for logits in self._heads(hidden.reshape(1, -1)):
            width = min(self._width, logits.shape[1])
            self._best.append([int(one) for one in ub.topk(logits, width)[1].to_numpy()[0]])

    def __call__(self, tokens: Sequence[int], most: int) -> Drafts:
        """Return a continuation for each choice; none before a hidden state is known."""
        best = self._best
        if not best:
            return ()
        return [
            [best[head][index] for head, index in enumerate(one[:most])]
            for one in self._choices
            if all(index < len(best[head]) for head, index in enumerate(one[:most]))
        ]
