"""`Assembler`: the text of chosen tokens in pieces, and the reason for its end."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.models.text.stopping import StopStrings
from ubridge.models.tokenizers.tokenizer import Tokenizer
from uhal.errors import ArgumentTypeError


@dataclass(frozen=True)
class Choice:
    """A chosen token with its log-probabilities, if these were requested."""

    token: int
    log_probability: float
    """Natural logarithm of its probability before any penalty."""
    best: tuple[tuple[int, float], ...]
    """The most probable tokens with their log-probabilities, the best first."""

    @classmethod
    def of(cls, token: int, values: np.ndarray[Any, Any], count: int) -> Choice:
        """Return the choice of a token among log-probabilities, with the `count` best."""
        order = np.argsort(-values, kind="stable")[:count]
        best = tuple((int(one), float(values[one])) for one in order)
        return cls(token, float(values[token]), best)


@dataclass(frozen=True)
class Limits:
    """Conditions that end a text, in addition to the model's end token."""

    max_tokens: int | None = None
    """The most tokens to generate; None: until the context is full."""
    stop: str | Sequence[str] = ()
    """One or more strings; the text ends before the first of them."""
    ignore_end: bool = False
    """Whether end tokens are generated like other tokens, without ending the text."""
    log_probabilities: int | None = None
    """The number of most probable tokens in each `Choice`; None for no log-probabilities."""

    def __post_init__(self) -> None:
        """Raise `ArgumentTypeError` or `ArgumentValueError` for impossible values."""
        for name, least in (("max_tokens", 1), ("log_probabilities", 0)):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise ArgumentTypeError(f"{name}: expected an int, got {type(value).__name__}")
            require(
                operator.index(value) >= least,
                f"{name}: expected at least {least}, got {value}",
            )
        # Read only once, as it may be an iterator.
        object.__setattr__(self, "stop", StopStrings(self.stop).strings)


class Assembler:
    """Turns chosen tokens into pieces of text until the text ends. One thread may use it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        ends: Iterable[int],
        prompt: Sequence[int],
        limits: Limits,
        capacity: int,
    ) -> None:
        """Begin after a prompt; `ends` are the model's end tokens, `capacity` its context."""
        self._stream = tokenizer.stream(prompt)
        self._stops = StopStrings(limits.stop)
        self._limits = limits
        self._ends = frozenset(ends) | frozenset(tokenizer.end_tokens)
        # The model must read all tokens of the text but the last.
        self._most = capacity - len(prompt) + 1
        self._count = 0
        self.finish: str | None = None
        """Reason for the end: `end`, `stop`, `length` or `context`; None before the end."""

    @property
    def left(self) -> int:
        """The most tokens that the text can still get."""
        limit = self._limits.max_tokens
        return (self._most if limit is None else min(limit, self._most)) - self._count

    def push(self, token: int) -> list[str]:
        """Return the pieces of text that a chosen token completes; `finish` may then be set."""
        self._count += 1
        pieces: list[str] = []
        if token in self._ends and not self._limits.ignore_end:
            self.finish = "end"
        else:
            pieces.append(self._stops.push(self._stream.push(token)))
            self.finish = self._over()
        if self.finish not in (None, "stop"):
            pieces.append(self._stops.push(self._stream.finish()) + self._stops.finish())
            if self._stops.found is not None:
                self.finish = "stop"
        return [one for one in pieces if one]

    def _over(self) -> str | None:
        if self._stops.found is not None:
            return "stop"
        if self._count == self._limits.max_tokens:
            return "length"
        return "context" if self._count >= self._most else None


def log_probabilities(logits: ub.DeviceTensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the natural logarithms of a token's probabilities, (vocabulary,)."""
    values = logits.to_numpy().astype(np.float64)
    best = values.max()
    found: np.ndarray[Any, np.dtype[np.float64]] = values - (
        best + np.log(np.exp(values - best).sum())
    )
    return found
