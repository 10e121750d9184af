"""`Request`: one text of an engine, as an iterator of its pieces and as an awaitable."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import ubridge as ub
from ubridge.models.paging import PagedSequence
from ubridge.models.serving.drafting import continuations
from ubridge.models.serving.lookup import Drafter, HiddenDrafter
from ubridge.models.text.assembling import Assembler, Choice, Limits, log_probabilities
from ubridge.models.text.sampler import Sampler


class Driver(Protocol):
    """The engine of a request."""

    def advance(self, request: Request) -> None:
        """Run steps until the request has pieces or is done."""

    def cancel(self, request: Request) -> None:
        """End a request, and give back its pages."""


class Request(Iterator[str]):
    """Pieces of a text during generation: iterate, `read()` to the end, or `await` the text.

    Made by `Engine.submit`. The thread that asks for a piece runs the engine's next steps, for all
    requests. A piece never ends within a character. Any thread may use it.
    """

    def __init__(
        self,
        driver: Driver,
        prompt: Sequence[int],
        limits: Limits,
        sampler: Sampler,
        assembler: Assembler,
        priority: int,
        arrival: int,
        drafter: Drafter | None = None,
        vocabulary: int = 0,
    ) -> None:
        """Made by `Engine.submit`."""
        self._driver = driver
        self._limits = limits
        self._sampler = sampler
        self.text_tokens = sampler.tokens
        """The tokens of the prompt and the chosen ones; the sampler adds to this list."""
        self._assembler = assembler
        self._drafter, self._vocabulary = drafter, vocabulary
        self._pieces: deque[str] = deque()
        self._listener: Callable[[], object] | None = None
        self.rank = (-priority, arrival)
        """Order in which requests are served: by priority, then by arrival."""
        self.sequence: PagedSequence | None = None
        """Its pages, while the engine works on it."""
        self.tokens: list[int] = []
        """Chosen tokens, with the final token that ended the text."""
        self.choices: list[Choice] = []
        """The chosen tokens with log-probabilities, if requested."""
        self.prompt_tokens = len(prompt)
        self.reused_tokens = 0
        """Tokens of the prompt that were found in pages."""
        self.preemptions = 0
        """How often requests of a higher rank took its pages; its tokens were then read again."""
        self.finish: str | None = None
        """Reason for the end: `end` by the model, `stop` by a text, `length` by `max_tokens`,
        `context` by a full context, `closed`, `error`; None before the end."""
        self.error: BaseException | None = None
        """The error that ended the text; the next piece raises this error."""
        self.failures = 0
        """Number of consecutive failed steps with this request."""

    # -- for its reader --------------------------------------------------------------------------

    def __next__(self) -> str:
        if not self._pieces and self.finish is None:
            self._driver.advance(self)
        try:
            return self._pieces.popleft()
        except IndexError:
            if self.error is not None:
                error, self.error = self.error, None
                raise error from None
            raise StopIteration from None

    def read(self) -> str:
        """Return the rest of the text."""
        return "".join(self)

    def close(self) -> None:
        """End the text here and give back its pages. A second call does nothing."""
        self._driver.cancel(self)

    def __await__(self) -> Generator[Any, None, str]:
        """Return the rest of the text while other tasks run; a cancelled task closes it."""
        return self._whole().__await__()

    async def _whole(self) -> str:
        return "".join([piece async for piece in self])

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the pieces; other tasks run meanwhile, and a cancelled task closes the text."""
        # Only its users pay for the import, which takes longer than any module of ubridge.
        import asyncio

        try:
            while True:
                piece = await asyncio.to_thread(next, self, None)
                if piece is None:
                    return
                yield piece
        finally:
            if self.finish is None:
                await asyncio.to_thread(self.close)

    @property
    def seed(self) -> int:
        """The seed of the draws; it reproduces the text."""
        return self._sampler.seed

    # -- for its engine --------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """Number of its tokens that the model has not read."""
        read = 0 if self.sequence is None else self.sequence.length
        return len(self.text_tokens) - read

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit alone decides its next token."""
        return self._sampler.is_largest and self._limits.log_probabilities is None

    @property
    def has_pieces(self) -> bool:
        """Whether a piece of its text waits for its reader."""
        return bool(self._pieces)

    def drafts(self, most: int, branches: int) -> list[list[int]]:
        """Return continuations that may follow, each within the text's remaining length.

        An error of the drafter ends this text only.
        """
        if self._drafter is None:
            return []
        most = min(most, self._assembler.left - 1)
        if most <= 0:
            return []
        try:
            drafts = self._drafter(self.text_tokens, most)
            return continuations(drafts, self._vocabulary, most, branches)
        except Exception as error:
            self.end("error", error)
            return []

    @property
    def observes(self) -> bool:
        """Whether its drafter takes hidden states."""
        return isinstance(self._drafter, HiddenDrafter)

    def observe(self, hidden: ub.DeviceTensor) -> None:
        """Give the drafter the hidden state of the last chosen token; its error ends the text."""
        if isinstance(self._drafter, HiddenDrafter) and self.finish is None:
            try:
                self._drafter.observe(hidden)
            except Exception as error:
                self.end("error", error)

    def choose(self, logits: ub.DeviceTensor) -> int:
        """Choose the next token by logits of (vocabulary,), and take it."""
        count = self._limits.log_probabilities
        before = None if count is None else log_probabilities(logits)
        token = self._sampler.choose(logits)
        if before is not None:
            self.choices.append(Choice.of(token, before, count or 0))
        self._took(token)
        return token

    def take(self, token: int) -> int:
        """Take the token of the largest logit."""
        self._sampler.take(token)
        self._took(token)
        return token

    def end(self, why: str, error: BaseException | None = None) -> None:
        """End the text for a reason of the engine."""
        self.error = error
        self.finish = why
        self._notify()

    def listen(self, listener: Callable[[], object]) -> None:
        """Call a function after each change, on the thread that runs the engine."""
        self._listener = listener

    def _took(self, token: int) -> None:
        self.tokens.append(token)
        self._pieces.extend(self._assembler.push(token))
        self.finish = self._assembler.finish
        self._notify()

    def _notify(self) -> None:
        if self._listener is not None:
            self._listener()

    def __repr__(self) -> str:
        state = self.finish or ("waiting" if self.sequence is None else "running")
        return (
            f"<{type(self).__name__}: {self.prompt_tokens} tokens of a prompt, "
            f"{len(self.tokens)} chosen, {state}>"
        )
