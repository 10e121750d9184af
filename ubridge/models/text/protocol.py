"""What generation asks of a model and of its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import ubridge as ub
from uhal import Device


class CacheLike(Protocol):
    """What a model keeps of a text that it has read."""

    kept: int
    """Of how many of its tokens the tensors hold what is needed."""

    @property
    def capacity(self) -> int:
        """Tokens it has room for."""

    @property
    def room(self) -> int:
        """Tokens that its tensors are for so far."""

    @property
    def length(self) -> int:
        """Tokens it holds."""

    @property
    def tokens(self) -> list[int]:
        """The tokens it holds, in order."""

    @property
    def tensors(self) -> Mapping[str, ub.DeviceTensor]:
        """What it keeps of them on the device."""

    def truncate(self, length: int) -> None:
        """Forget all tokens behind the first `length`."""

    def make_room(self, length: int) -> None:
        """Have tensors for a text of `length` tokens, at most the capacity."""

    def close(self) -> None:
        """Let go of its memory."""


CacheT = TypeVar("CacheT", bound=CacheLike)


class LanguageModel(Protocol[CacheT]):
    """A model from tokens to logits, such as `ubridge.models.Model`."""

    @property
    def architecture(self) -> str:
        """The kind of model it is."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens it knows."""

    @property
    def device(self) -> Device:
        """Where it is."""

    @property
    def end_tokens(self) -> Sequence[int]:
        """Tokens after which a text is over."""

    def cache(self, capacity: int | None = None) -> CacheT:
        """Return room for a text."""

    def logits(
        self, tokens: Sequence[int], cache: CacheT, *, every: bool = False
    ) -> ub.DeviceTensor:
        """Read tokens behind those of the cache; return f32 logits behind the last, or each."""
