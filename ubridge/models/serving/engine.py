"""`Engine`: many texts of one model at once, by continuous batching."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import ubridge as ub
from ubridge.core.closing import Closing
from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from ubridge.models.paging import PageCounts, PagedSequence
from ubridge.models.serving.batch import PagedModel
from ubridge.models.serving.lookup import Drafter, NgramLookup
from ubridge.models.serving.request import Request
from ubridge.models.serving.scheduler import Batch, Part, Scheduler
from ubridge.models.text.assembling import Assembler
from ubridge.models.text.generation import tokens_of
from ubridge.models.text.options import RequestOptions, settled, takes
from ubridge.models.text.sampler import Sampler
from ubridge.models.tokenizers.tokenizer import Tokenizer
from uhal.dtypes import DTypeLike
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError, InvalidHandleError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CONTEXTS = 4
"""Without `pages`, an engine has pages for this number of texts of the whole context."""
_MOST_FAILURES = 3
"""Consecutive failed steps after which a request ends with the error."""


class ServedModel(Protocol):
    """A model that an engine can run, such as `ubridge.models.Model`."""

    @property
    def context(self) -> int:
        """The default capacity of texts, in tokens."""

    @property
    def end_tokens(self) -> Sequence[int]:
        """Tokens that end a text."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    def paged(
        self,
        pages: int,
        page_size: int,
        sequences: int,
        context: int,
        cache_dtype: DTypeLike | None = None,
    ) -> PagedModel:
        """Return the layers with pools of pages."""


@dataclass(frozen=True)
class EngineStats:
    """Counts of an engine's requests, steps, tokens and pages so far."""

    waiting: int
    """Requests without pages."""
    running: int
    """Requests with pages."""
    finished: int
    """Requests that ended for any reason."""
    steps: int
    """Batches that went through the layers."""
    read_tokens: int
    """Tokens that went through the layers, drafts included."""
    reused_tokens: int
    """Tokens that were found in pages and not read again."""
    chosen_tokens: int
    """Tokens of all answers."""
    drafted_tokens: int
    """Tokens proposed by drafters."""
    accepted_tokens: int
    """Proposed tokens that were chosen."""
    preemptions: int
    """How often a request gave its pages to another."""
    failures: int
    """Steps that ended with an error of the device."""
    pages: PageCounts
    """Numbers of live, reusable and free pages."""


class Engine(Closing):
    """Runs many texts of a model together, in one cache of pages.

    Each step reads tokens of all running texts as one batch: the next token of each, and parts of
    prompts. Texts come and go between steps. Prompts share the pages of equal beginnings. If pages
    run out, the text of the lowest rank gives them back and reads its tokens again later. A text
    gets the same tokens as if it ran alone, to the bit. For example::

        engine = Engine(model, sequences=8)
        texts = [one.read() for one in [engine.submit(prompt) for prompt in prompts]]

    The engine has no thread: it runs on the thread that reads a request or calls `step`. Any thread
    may use it. It holds the memory of its pages until it is closed or dropped.
    """

    def __init__(
        self,
        model: ServedModel,
        *,
        pages: int | None = None,
        page_size: int = 16,
        sequences: int = 16,
        step_tokens: int = 512,
        context: int | None = None,
        speculate: int = 0,
        drafter: Callable[[], Drafter] = NgramLookup,
        branches: int = 1,
        cache_dtype: DTypeLike | None = None,
    ) -> None:
        """Allocate `pages` of `page_size` tokens, by default for four texts of the context.

        At most `sequences` texts run at once, and a step reads at most `step_tokens` tokens.
        `context` limits the tokens of a text; its default is the model's context. With `speculate`,
        `drafter` makes a function for each text, which proposes up to `speculate` tokens a step.
        The step reads the proposals too, and keeps only tokens that it would choose anyway, so the
        text is the same. A step takes at most `branches` continuations of a text, and reads each as
        a fork of the text.

        `cache_dtype` i8 or f8e4m3 keeps keys and values in 8 bits, with a scale for each head of a
        token. Its default is the dtype of activations.

        Raises `ArgumentTypeError` and `ArgumentValueError` for wrong numbers, `NotSupportedError`
        for recurrent models and for devices without attention over pages (GCUs).
        """
        size = whole_number("Engine, page_size", page_size, 1)
        count = whole_number("Engine, sequences", sequences, 1)
        budget = whole_number("Engine, step_tokens", step_tokens, 1)
        drafts = whole_number("Engine, speculate", speculate)
        require(
            budget >= count,
            f"Engine, step_tokens: expected at least {count}, one for each sequence, got {budget}",
        )
        forks = whole_number("Engine, branches", branches, 1)
        longest = model.context if context is None else whole_number("Engine, context", context, 1)
        if pages is None:
            pages = min(count, _CONTEXTS) * -(-longest // size)
        pages = whole_number("Engine, pages", pages, 1)
        rows = count * forks if drafts else count
        self._paged = model.paged(pages, size, rows, longest, cache_dtype)
        self._scheduler = Scheduler(self._paged.cache, count, budget, drafts, forks)
        self._model = model
        self._drafter = drafter if drafts else None
        self._arrivals = itertools.count()
        self._steps = self._read = self._chosen = self._failures = 0
        self._drafted = self._accepted = self._finished = 0
        self._is_closed = False
        # One thread runs a step, others wait for its end; submitting waits, too.
        self._work = threading.RLock()
        self._turn = threading.Condition()
        self._is_driven = False

    @property
    def capacity(self) -> int:
        """The most tokens of a text."""
        return self._paged.capacity

    @takes(RequestOptions)
    def submit(self, prompt: str | Iterable[int], **options: Unpack[RequestOptions]) -> Request:
        """Return a request for the text that follows a prompt, which is a text or tokens.

        Requests of a higher `priority` go first. `Session.generate` describes the options. Nothing
        runs before a request is read, or `step` is called.

        Raises `ArgumentTypeError` and `ArgumentValueError` for wrong options and for a prompt that
        is empty or longer than the engine's `capacity`, `InvalidHandleError` after `close`.
        """
        tokens = tokens_of(self._model.tokenizer, prompt)
        with self._work:
            request = self._request("submit", tokens, dict(options))
            self._scheduler.add(request)
        return request

    @takes(RequestOptions)
    def fork(self, source: Request, **options: Unpack[RequestOptions]) -> Request:
        """Return a request that continues the tokens of another so far, and shares its pages.

        The options are the options of `submit`; the other request's options do not apply. Raises as
        `submit` does.
        """
        with self._work:
            request = self._request("fork", source.text_tokens, dict(options))
            self._scheduler.fork(source, request)
        return request

    def _request(self, call: str, tokens: Sequence[int], options: dict[str, object]) -> Request:
        self._require_open(call)
        priority = options.pop("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ArgumentTypeError(
                f"{call}, priority: expected an int, got {type(priority).__name__}"
            )
        require(tokens, "prompt: expected at least one token, got none")
        require(
            len(tokens) <= self.capacity,
            f"prompt: expected at most {self.capacity} tokens, the capacity of the engine, got "
            f"{len(tokens)}; Engine(…, context=n, pages=n) has more",
        )
        limits, sampling, hook = settled(call, options)
        model = self._model
        return Request(
            self,
            tokens,
            limits,
            Sampler(sampling, tokens, hook),
            Assembler(model.tokenizer, model.end_tokens, tokens, limits, self.capacity),
            priority,
            next(self._arrivals),
            None if self._drafter is None else self._drafter(),
            self._paged.vocabulary,
        )

    # -- steps -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Read one batch of tokens; return whether requests are left.

        A device error ends no request at once: the next steps read the tokens again. After three
        failed steps in a row a request ends with the error.
        """
        with self._work:
            self._require_open("step")
            batch = self._scheduler.batch()
            if batch.parts:
                self._run(batch)
            return bool(self._scheduler.running or self._scheduler.waiting)

    def advance(self, request: Request) -> None:
        """Run steps until a request has pieces or is done."""
        while True:
            with self._turn:
                if request.has_pieces or request.finish is not None:
                    return
                if self._is_driven:
                    self._turn.wait()
                    continue
                self._is_driven = True
            try:
                self.step()
            finally:
                with self._turn:
                    self._is_driven = False
                    self._turn.notify_all()

    def cancel(self, request: Request) -> None:
        """End a request, and give back its pages. A second call does nothing."""
        with self._work:
            if request.finish is None:
                self._scheduler.remove(request)
                self._finished += 1
                request.end("closed")

    def _run(self, batch: Batch) -> None:
        self._steps += 1
        try:
            self._paged.copy_pages(batch.copies)
            self._choose(batch)
        except BaseException as error:
            self._failures += 1
            self._scheduler.undo(batch)
            if not isinstance(error, Exception):
                raise
            for part in batch.parts:
                request = part.request
                if request.finish is None and request.failures >= _MOST_FAILURES:
                    request.end("error", error)
                if request.finish is not None:
                    self._scheduler.remove(request)
                    self._finished += 1
            return
        self._scheduler.settle(batch)
        self._finished += sum(part.request.finish is not None for part in batch.parts)

    def _choose(self, batch: Batch) -> None:
        """Read a batch, and choose the next tokens of its requests."""
        parts: list[tuple[PagedSequence, int]] = []
        wanted: list[int] = []
        rows = 0
        for part in batch.parts:
            for index, sequence in enumerate((part.sequence, *part.forks)):
                parts.append((sequence, part.first))
                rows += sequence.length - part.first
                if part.is_last:
                    drafts = part.drafts[index] if part.drafts else []
                    wanted += range(rows - len(drafts) - 1, rows)
        logits = self._paged.logits(parts, wanted)
        self._read += rows
        if not wanted:
            return
        largest: list[int] = []
        if any(part.is_last and part.request.is_greedy for part in batch.parts):
            tokens, values = ub.argmax(logits, 1).to_numpy(), ub.max(logits, 1).to_numpy()
            # Without a largest number the sampler raises its error.
            largest = [
                int(token) if value > float("-inf") else -1
                for token, value in zip(tokens, values, strict=True)
            ]
        row = 0
        for part in batch.parts:
            if part.is_last:
                # A drafter's error has already ended its text.
                if part.request.finish is None:
                    last = self._choose_of(part, logits, largest, row)
                    if part.request.observes:
                        part.request.observe(self._paged.hidden(wanted[last]))
                row += sum(len(one) + 1 for one in part.drafts or [[]])

    def _choose_of(
        self, part: Part, logits: ub.DeviceTensor, largest: Sequence[int], row: int
    ) -> int:
        """Choose the tokens of a request, as far as a continuation has them.

        Each continuation has a row of logits for the request's last token, then for each draft.
        Returns the row that chose the last token.
        """
        request, drafts = part.request, part.drafts or [[]]
        rows = list(itertools.accumulate((len(one) + 1 for one in drafts), initial=row))
        self._drafted += sum(map(len, drafts))
        alike = list(range(len(drafts)))
        for depth in itertools.count():
            part.accepted = alike[0]
            row = rows[part.accepted] + depth
            try:
                if request.is_greedy and largest[row] >= 0:
                    token = request.take(largest[row])
                else:
                    token = request.choose(logits[row])
            except Exception as error:
                if isinstance(error, DeviceError) and not isinstance(
                    error, (ArgumentTypeError, ArgumentValueError)
                ):
                    raise
                request.end("error", error)
                return row
            self._chosen += 1
            alike = [one for one in alike if drafts[one][depth : depth + 1] == [token]]
            if not alike:
                return row
            self._accepted += 1
            if request.finish is not None:
                part.accepted = alike[0]
                return row
        raise AssertionError("a continuation has an end")

    # -- state -----------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Return the engine's numbers so far."""
        with self._work:
            scheduler = self._scheduler
            return EngineStats(
                waiting=len(scheduler.waiting),
                running=len(scheduler.running),
                finished=self._finished,
                steps=self._steps,
                read_tokens=self._read,
                reused_tokens=scheduler.reused,
                chosen_tokens=self._chosen,
                drafted_tokens=self._drafted,
                accepted_tokens=self._accepted,
                preemptions=scheduler.preemptions,
                failures=self._failures,
                pages=self._paged.cache.counts,
            )

    def close(self) -> None:
        """End all requests and free the pages. A second call does nothing."""
        with self._work:
            for request in [*self._scheduler.running, *self._scheduler.waiting]:
                self.cancel(request)
            if not self._is_closed:
                self._is_closed = True
                self._paged.close()

    def _require_open(self, call: str) -> None:
        if self._is_closed:
            raise InvalidHandleError(
                f"Engine.{call}: expected an open engine, got a closed engine. Make another."
            )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self._scheduler.running)} running, "
            f"{len(self._scheduler.waiting)} waiting, {self._paged.cache!r}>"
        )
