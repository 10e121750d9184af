"""`NgramLookup`: drafts of the next tokens from the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import ubridge as ub
from ubridge.core.operand_checks import whole_number

Drafts: TypeAlias = Sequence[int] | Sequence[Sequence[int]]
"""Tokens that may follow a text, or several such continuations."""


class Drafter(Protocol):
    """Proposes the next tokens of one text; any proposal is allowed."""

    def __call__(self, tokens: Sequence[int], most: int) -> Drafts:
        """Return at most `most` tokens that may follow `tokens`; between calls, `tokens` only grow.

        Several sequences are several continuations; sequences that begin alike form a tree.
        """


@runtime_checkable
class HiddenDrafter(Drafter, Protocol):
    """A drafter that also sees the hidden state behind each chosen token."""

    def observe(self, hidden: ub.DeviceTensor) -> None:
        """Take the hidden state, (E,), whose logits chose the text's last token.

        The hidden state is the result of the model's last norm, valid during the call.
        """


class NgramLookup:
    """Proposes the tokens after the earliest occurrence of a text's last tokens.

    The search is for the last `longest` tokens, then for fewer. One text may use it.
    """

    def __init__(self, longest: int = 2) -> None:
        """Look for at most `longest` tokens, at least 1."""
        self._longest = whole_number("NgramLookup, longest", longest, 1)
        self._follows: dict[tuple[int, ...], int] = {}
        """The place after the earliest occurrence of each run of tokens."""
        self._noted = 0

    def __call__(self, tokens: Sequence[int], most: int) -> Sequence[int]:
        """Return the tokens after the earliest occurrence; none if there is no occurrence."""
        for end in range(self._noted + 1, len(tokens)):
            for count in range(1, min(end, self._longest) + 1):
                self._follows.setdefault(tuple(tokens[end - count : end]), end)
        self._noted = max(self._noted, len(tokens) - 1)
        for count in range(min(self._longest, len(tokens)), 0, -1):
            position = self._follows.get(tuple(tokens[-count:]))
            if position is not None:
                return tokens[position : position + most]
        return ()
