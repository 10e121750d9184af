"""Text from a prompt, piece by piece."""

from __future__ import annotations

import inspect
import operator
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.models.text.protocol import CacheLike, LanguageModel
from ubridge.models.text.sampler import Hook, Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.shared_cache import SharedCache
from ubridge.models.text.stopping import StopStrings
from ubridge.models.tokenizers.tokenizer import Tokenizer, require_one_text
from uhal.errors import ArgumentTypeError


@dataclass(frozen=True)
class Choice:
    """A chosen token with its log-probabilities, if these were requested."""

    token: int
    log_probability: float
    """Natural logarithm of its probability by the model's own logits, before any penalty."""
    best: tuple[tuple[int, float], ...]
    """The most probable tokens with their log-probabilities, the best first."""


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


class Generation(Iterator[str]):
    """Pieces of a text during generation: iterate, or `read()` it to its end.

    Attributes such as `tokens` and `finish` describe the text so far. The work is done on the
    iterating thread, one thread at a time. A piece never ends within a character. A text that has
    ended, or that the program dropped, holds no cache.
    """

    def __init__(
        self,
        model: LanguageModel[Any],
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        shared: SharedCache,
        limits: Limits,
        sampling: Sampling,
        hook: Hook | None = None,
    ) -> None:
        """Prepare a text; the model reads nothing before the first piece is requested.

        The text then takes the shared cache. When another text takes that cache, this text
        continues with its own cache and reads its tokens again. Raises `ArgumentValueError` for a
        prompt without tokens or longer than the cache.
        """
        require(
            prompt,
            "prompt: expected at least one token, got none",
        )
        capacity = shared.cache.capacity
        require(
            len(prompt) <= capacity,
            f"prompt: expected at most {capacity} tokens, the size of the "
            f"context, got {len(prompt)}; Model.load(…, context=n) makes a larger one",
        )
        self._model, self._tokenizer, self._limits = model, tokenizer, limits
        self._capacity = capacity
        self._shared: SharedCache | None = shared
        self._own: CacheLike | None = None
        self._sampler = Sampler(sampling, prompt, hook)
        self._ends = frozenset(model.end_tokens) | frozenset(tokenizer.end_tokens)
        self._prompt = list(prompt)
        # A strong reference would be a cycle, which keeps a dropped text's cache in memory.
        self._steps: Generator[str, None, None] = Generation._pieces(weakref.proxy(self))
        self.left_out = 0
        """Number of a chat's oldest messages left out for lack of space in the context."""
        self.prompt_tokens = len(prompt)
        self.reused_tokens = 0
        """Tokens of the prompt that were already in the cache."""
        self.tokens: list[int] = []
        """Chosen tokens, with the final token that ended the text."""
        self.choices: list[Choice] = []
        """The chosen tokens with log-probabilities, if requested."""
        self.finish: str | None = None
        """Reason for the end: `end` by the model, `stop` by a text, `length` by `max_tokens`,
        `context` by a full context, `closed`; None before the end."""
        self.prompt_seconds = 0.0
        """Seconds from the beginning to the first token."""
        self.seconds = 0.0
        """Seconds from the beginning to the last token."""

    @property
    def seed(self) -> int:
        """The seed of the draws; it reproduces the text."""
        return self._sampler.seed

    def __next__(self) -> str:
        try:
            return next(self._steps)
        except BaseException:
            if inspect.getgeneratorstate(self._steps) == inspect.GEN_CLOSED:
                self._release()
            raise

    def read(self) -> str:
        """Return the rest of the text."""
        return "".join(self)

    def close(self) -> None:
        """End the text here; the cache keeps all tokens read."""
        self._steps.close()
        self._release()
        self.finish = self.finish or "closed"

    def _release(self) -> None:
        """Release the caches at the end of the text."""
        self._shared = None
        if self._own is not None:
            self._own.close()
            self._own = None

    def _pieces(self) -> Generator[str, None, None]:
        start = time.perf_counter()
        stream = self._tokenizer.stream(self._prompt)
        stops = StopStrings(self._limits.stop)
        # The next call with any cache may overwrite the logits, so the token is chosen before a
        # piece is handed out.
        token = self._chosen(self._read_prompt())
        self.prompt_seconds = time.perf_counter() - start
        why: str | None = None
        while why is None:
            self.seconds = time.perf_counter() - start
            if token in self._ends and not self._limits.ignore_end:
                why = "end"
                break
            piece = stops.push(stream.push(token))
            if piece:
                yield piece
            why = self._over(stops)
            if why is None:
                token = self._chosen(self._read(token))
        if why != "stop":
            rest = stops.push(stream.finish()) + stops.finish()
            if stops.found is not None:
                why = "stop"
            if rest:
                yield rest
        self.finish = why

    def _over(self, stops: StopStrings) -> str | None:
        if stops.found is not None:
            return "stop"
        if len(self.tokens) == self._limits.max_tokens:
            return "length"
        # The model must read the chosen token, too.
        full = len(self._sampler.tokens) > self._capacity
        return "context" if full else None

    def _read_prompt(self) -> ub.DeviceTensor:
        """Let the model read the tokens that the cache lacks, at least the last token."""
        assert self._shared is not None
        cache, prompt = self._shared.take(self), self._prompt
        same = 0
        for ours, theirs in zip(prompt[:-1], cache.tokens, strict=False):
            if ours != theirs:
                break
            same += 1
        cache.truncate(same)
        self.reused_tokens = same
        return self._model.logits(prompt[same:], cache)

    def _read(self, token: int) -> ub.DeviceTensor:
        if self._own is None:
            assert self._shared is not None
            if self._shared.is_with(self):
                return self._model.logits([token], self._shared.cache)
            self._own = self._shared.another()
            return self._model.logits(self._sampler.tokens, self._own)
        return self._model.logits([token], self._own)

    def _chosen(self, logits: ub.DeviceTensor) -> int:
        count = self._limits.log_probabilities
        before = None if count is None else _log_probabilities(logits)
        token = self._sampler.choose(logits)
        self.tokens.append(token)
        if before is not None:
            self.choices.append(Choice(token, float(before[token]), _best(before, count or 0)))
        return token


def _log_probabilities(logits: ub.DeviceTensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = logits.to_numpy().astype(np.float64)
    best = values.max()
    found: np.ndarray[Any, np.dtype[np.float64]] = values - (
        best + np.log(np.exp(values - best).sum())
    )
    return found


def _best(
    values: np.ndarray[Any, np.dtype[np.float64]], count: int
) -> tuple[tuple[int, float], ...]:
    order = np.argsort(-values, kind="stable")[:count]
    return tuple((int(token), float(values[token])) for token in order)


def tokens_of(tokenizer: Tokenizer, prompt: str | Iterable[int]) -> list[int]:
    """Return the tokens of a prompt, which may be tokens already."""
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
        raise ArgumentTypeError(f"prompt: expected a text or tokens, got {type(prompt).__name__}")
    return [tokenizer.require_token(token) for token in require_one_text("prompt", prompt)]
