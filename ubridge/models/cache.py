"""`Cache`: what a model keeps of a text it has read, so that it need not read it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ubridge as ub
from ubridge.models.decoder import Tables
from uhal.errors import ArgumentValueError


class Cache:
    """The tokens of one text and what layers keep of them. Made by `Model.cache`.

    It belongs to the model that made it and holds device memory until it is let go of. One thread
    at a time may use it.
    """

    def __init__(
        self, tensors: Mapping[str, ub.DeviceTensor], tables: Tables, capacity: int
    ) -> None:
        self.tensors = tensors
        """What layers keep, by layer and part; for saving it or copying it."""
        self.tables = tables
        """What depends on positions alone."""
        self.capacity = capacity
        """Tokens it has room for."""
        self.tokens: list[int] = []
        """The tokens it holds, in order."""
        self.kept = 0
        """Of how many of them layers keep what they need; `Model.logits` reads the rest again."""
        self.plan: Any = None
        """The captured step, once there was one."""

    @property
    def length(self) -> int:
        """The number of tokens it holds."""
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        """Forget all tokens behind the first `length`, in no time.

        A recurrent model cannot go back: it reads the tokens that stay again with the next ones.
        Raises `ArgumentValueError` for a length that is negative or above that of the text.
        """
        if not 0 <= length <= len(self.tokens):
            raise ArgumentValueError(
                f"truncate: expected 0 to {len(self.tokens)} tokens, got {length}"
            )
        if length < len(self.tokens):
            del self.tokens[length:]
            self.kept = 0 if self.is_recurrent else min(self.kept, length)

    is_recurrent = False

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.tokens)} of {self.capacity} tokens>"
