"""Protocols of a model and its cache for generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import ubridge as ub
from uhal import Device


class CacheLike(Protocol):
    """A cache of the tokens that a model has read."""

    kept: int
    """The number of leading tokens whose state is in the tensors."""

    @property
    def capacity(self) -> int:
        """The most tokens that the cache can hold."""

    @property
    def room(self) -> int:
        """The number of tokens for which the tensors have memory so far."""

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""

    @property
    def tokens(self) -> list[int]:
        """The tokens in the cache, in order."""

    @property
    def tensors(self) -> Mapping[str, ub.DeviceTensor]:
        """The layers' state on the device, by layer and part."""

    def truncate(self, length: int) -> None:
        """Forget all tokens after the first `length`."""

    def make_room(self, length: int) -> None:
        """Grow the tensors for a text of `length` tokens, at most the capacity."""

    def close(self) -> None:
        """Free its memory."""


CacheT = TypeVar("CacheT", bound=CacheLike)


class LanguageModel(Protocol[CacheT]):
    """A model that computes logits from tokens, such as `ubridge.models.Model`."""

    @property
    def architecture(self) -> str:
        """The name of its architecture."""

    @property
    def vocabulary(self) -> int:
        """The number of different tokens."""

    @property
    def device(self) -> Device:
        """The device of its weights."""

    @property
    def end_tokens(self) -> Sequence[int]:
        """Tokens that end a text."""

    def cache(self, capacity: int | None = None) -> CacheT:
        """Return an empty cache for `capacity` tokens, by default the context."""

    def logits(
        self, tokens: Sequence[int], cache: CacheT, *, every: bool = False
    ) -> ub.DeviceTensor:
        """Append tokens to the cache; return f32 logits of the last token, or of each."""
