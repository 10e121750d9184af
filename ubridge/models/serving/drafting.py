"""`ModelDrafter`: drafts of the next tokens by a smaller model of the same tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import ubridge as ub

if TYPE_CHECKING:
    from ubridge.models.model import Model


class ModelDrafter:
    """Proposes the tokens of the largest logits of another model, one after the other.

    The other model has the tokens of the engine's model; tokens that only one of them has end a
    proposal. One text may use a drafter, which holds a cache of the other model. For example::

        small = Model.load("TinyLlama-1.1B")
        engine = Engine(model, speculate=4, drafter=lambda: ModelDrafter(small))
    """

    def __init__(self, model: Model) -> None:
        """Make an empty cache of a model, which may serve other texts too."""
        self._model = model
        self._cache = model.cache()

    def __call__(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """Return at most `most` tokens; fewer where the cache or the vocabulary ends."""
        cache, drafts = self._cache, list[int]()
        if len(tokens) > cache.capacity or not all(map(self._knows, tokens[cache.length :])):
            return drafts
        # The last token is read again where the cache has it, because its logits are not kept.
        cache.truncate(min(_common(cache.tokens, tokens), len(tokens) - 1))
        pending = list(tokens[cache.length :])
        for _ in range(min(most, cache.capacity - len(tokens) + 1)):
            pending = [int(ub.argmax(self._model.logits(pending, cache)).to_numpy())]
            drafts += pending
        return drafts

    def _knows(self, token: int) -> bool:
        return token < self._model.vocabulary


def known(drafts: Sequence[int], vocabulary: int) -> Iterator[int]:
    """Yield drafts up to the first that is no token of a vocabulary."""
    return takewhile(lambda token: 0 <= token < vocabulary, map(operator.index, drafts))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of equal leading tokens."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
