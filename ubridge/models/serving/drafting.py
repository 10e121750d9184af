"""`ModelDrafter`: drafts of the next tokens by a smaller model of the same tokens."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol, cast

import ubridge as ub
from ubridge.models.cache import Cache
from ubridge.models.serving.lookup import Drafts
from ubridge.models.text.prefix import shared_length


class DraftingModel(Protocol):
    """A model that proposes tokens, such as `ubridge.models.Model`."""

    vocabulary: int
    """Number of its tokens."""

    def cache(self) -> Cache:
        """Return an empty cache."""

    def logits(self, tokens: Sequence[int], cache: Cache) -> ub.DeviceTensor:
        """Append tokens to the cache, and return logits of the next token."""


class ModelDrafter:
    """Proposes the tokens of the largest logits of another model, one after the other.

    Both models have the same tokens; a token that only one model has ends a proposal. One text may
    use a drafter, which holds a cache of the other model. For example::

        small = Model.load("TinyLlama-1.1B")
        engine = Engine(model, speculate=4, drafter=lambda: ModelDrafter(small))
    """

    def __init__(self, model: DraftingModel) -> None:
        """Make an empty cache of a model; the model may serve other texts too."""
        self._model = model
        self._cache = model.cache()

    def __call__(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """Return at most `most` tokens; fewer where the cache or the vocabulary ends."""
        cache, drafts = self._cache, list[int]()
        if len(tokens) > cache.capacity or not all(map(self._knows, tokens[cache.length :])):
            return drafts
        # The last token is read again where the cache has it, because its logits are not kept.
        cache.truncate(min(shared_length(cache.tokens, tokens), len(tokens) - 1))
        pending = list(tokens[cache.length :])
        for _ in range(min(most, cache.capacity - len(tokens) + 1)):
            pending = [int(ub.argmax(self._model.logits(pending, cache)).to_numpy())]
            drafts += pending
        return drafts

    def _knows(self, token: int) -> bool:
        return token < self._model.vocabulary


def continuations(proposed: Drafts, vocabulary: int, most: int, branches: int) -> list[list[int]]:
    """Return proposals as different continuations of at most `most` tokens each.

    A continuation ends before the first number that is no token of the vocabulary.
    """
    several = len(proposed) > 0 and not hasattr(proposed[0], "__index__")
    given = cast("Sequence[Sequence[int]]", proposed if several else [proposed])
    found: list[list[int]] = []
    for one in given[:branches]:
        numbers = map(operator.index, one[:most])
        tokens = list(takewhile(lambda token: 0 <= token < vocabulary, numbers))
        if tokens and not any(other[: len(tokens)] == tokens for other in found):
            found.append(tokens)
    return found
