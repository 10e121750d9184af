"""Text from a prompt, piece by piece."""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import ubridge as ub
from ubridge.core.fits import require
from ubridge.habits import OF_GENERATION
from ubridge.models.text.assembling import Assembler, Choice, Limits, log_probabilities
from ubridge.models.text.prefix import shared_length
from ubridge.models.text.protocol import CacheLike, LanguageModel
from ubridge.models.text.sampler import Hook, Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.shared_cache import SharedCache
from ubridge.models.tokenizers.tokenizer import Tokenizer, require_one_text
from uhal.errors import ArgumentTypeError
from uhal.habits import refuse_names


class Generation(Iterator[str]):
    """Pieces of a text during generation: iterate, or `read()` it to its end.

    Attributes such as `tokens` and `finish` describe the text so far. The work is done on the
    iterating thread, one thread at a time. A piece never ends within a character. A text that has
    ended, or that the program dropped, holds no cache.
    """

    def __repr__(self) -> str:
        return "<Generation: iterate over its pieces of text, or read() all of it>"

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

    def __getitem__(self, index: object) -> NoReturn:
        _refuse_as_text("generation[…]")

    def __len__(self) -> NoReturn:
        raise ArgumentTypeError(
            "len(generation): a generation is no text. Write len(generation.read()), or "
            "len(generation.tokens) for the tokens so far."
        )

    def __bool__(self) -> bool:
        # A type with a length is otherwise false when the length is 0.
        return True

    def __contains__(self, text: object) -> NoReturn:
        # Python would iterate, and so use up the text.
        _refuse_as_text("… in generation")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            _refuse_as_text("generation == …")
        return NotImplemented

    # A type with comparisons inherits no hash.
    __hash__ = object.__hash__

    def __add__(self, other: object) -> NoReturn:
        _refuse_as_text("generation + …")

    def __radd__(self, other: object) -> NoReturn:
        _refuse_as_text("… + generation")

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
        text = Assembler(
            self._tokenizer, self._model.end_tokens, self._prompt, self._limits, self._capacity
        )
        # The next call with any cache may overwrite the logits, so the token is chosen before a
        # piece is handed out.
        token = self._chosen(self._read_prompt())
        self.prompt_seconds = time.perf_counter() - start
        while True:
            self.seconds = time.perf_counter() - start
            yield from text.push(token)
            if text.finish is not None:
                break
            token = self._chosen(self._read(token))
        self.finish = text.finish

    def _read_prompt(self) -> ub.DeviceTensor:
        """Let the model read the tokens that the cache lacks, at least the last token."""
        assert self._shared is not None
        cache, prompt = self._shared.take(self), self._prompt
        same = min(shared_length(prompt, cache.tokens), len(prompt) - 1)
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
        before = None if count is None else log_probabilities(logits)
        token = self._sampler.choose(logits)
        self.tokens.append(token)
        if before is not None:
            self.choices.append(Choice.of(token, before, count or 0))
        return token


def tokens_of(tokenizer: Tokenizer, prompt: str | Iterable[int]) -> list[int]:
    """Return the tokens of a prompt, which may be tokens already."""
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
        raise ArgumentTypeError(f"prompt: expected a text or tokens, got {type(prompt).__name__}")
    return [tokenizer.require_token(token) for token in require_one_text("prompt", prompt)]


def _refuse_as_text(use: str) -> NoReturn:
    raise ArgumentTypeError(f"{use}: a generation is no text. Write generation.read().")


refuse_names(Generation, OF_GENERATION)
