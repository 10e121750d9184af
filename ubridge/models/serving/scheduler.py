"""`Scheduler`: chooses the requests and their tokens that a step reads."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ubridge.models.paging import PageCopy, PagedCache, PagedSequence
from ubridge.models.serving.request import Request

_WATERMARK = 100
"""A hundredth of the pages stays free for running requests when a request is admitted."""


_rank = attrgetter("rank")


@dataclass(slots=True)
class Part:
    """Tokens of one request in a batch."""

    request: Request
    tokens: list[int]
    """The tokens of the request, which the sampler extends."""
    sequence: PagedSequence
    first: int
    """Position of the first token."""
    drafts: list[list[int]]
    """Proposed continuations of the request's own tokens; none, or one for each sequence."""
    is_last: bool
    """Whether the part has the request's last token, so that the next can be chosen."""
    forks: list[PagedSequence] = field(default_factory=list)
    """Sequences of further continuations, which begin as `sequence` does."""
    accepted: int = 0
    """Index of the continuation with the chosen tokens; its sequence stays."""


@dataclass
class Batch:
    """The work of one step."""

    parts: list[Part] = field(default_factory=list)
    noted: list[Part] = field(default_factory=list)
    """Parts whose pages the cache looks at after the step."""
    copies: list[PageCopy] = field(default_factory=list)
    """Copies of pages to perform first, in order."""


class Scheduler:
    """Waiting and running requests, and the pages of the running requests.

    Requests go by rank: priority, then arrival. If pages run out, the running request of the lowest
    rank gives back all of its pages and waits again; it reads its tokens again later.
    """

    def __init__(
        self, cache: PagedCache, sequences: int, tokens: int, drafts: int = 0, branches: int = 1
    ) -> None:
        """Run at most `sequences` sequences, with `tokens` tokens per step, at least one of each.

        A request has up to `branches` proposed continuations of up to `drafts` tokens.
        """
        self.cache = cache
        self.waiting: list[Request] = []
        """Requests without pages, by rank."""
        self.running: list[Request] = []
        """Requests with pages, by rank."""
        self._latest: dict[Request, Part] = {}
        """The part of each running request in its last batch, for the next one."""
        self.preemptions = 0
        self.reused = 0
        """Tokens that were found in pages."""
        self._sequences = sequences
        self._tokens = tokens
        self._drafts = drafts
        self._branches = branches

    def add(self, request: Request) -> None:
        """Let a request wait for pages."""
        insort(self.waiting, request, key=_rank)

    def fork(self, source: Request, request: Request) -> None:
        """Add a request that continues the tokens of another, and shares its pages."""
        if source.sequence is None or len(self.running) == self._sequences:
            self.add(request)
            return
        request.sequence = self.cache.fork(source.sequence)
        insort(self.running, request, key=_rank)

    def remove(self, request: Request) -> None:
        """Forget a request, and give back its pages."""
        if request in self.waiting:
            self.waiting.remove(request)
        if request in self.running:
            self.running.remove(request)
        self._release(request)

    def batch(self) -> Batch:
        """Give tokens their place in pages, and return them as the next step."""
        batch = Batch()
        parts = batch.parts
        if not self._drafts:
            self._continue(batch)
        budget = self._tokens - len(parts)
        if len(parts) < len(self.running):
            unread = [request for request in self.running if request.left]
            # A request with one token goes before prompts, which would delay it.
            ready = [request for request in unread if request.left == 1]
            prompts = [request for request in unread if request.left > 1]
            later = len(ready)
            for request in (*ready, *prompts):
                if budget == 0:
                    break
                # Each later request keeps its next token.
                later = max(0, later - 1)
                budget -= self._append(batch, request, max(1, budget - later))
        while budget and self.waiting and len(self.running) < self._sequences:
            request = self.waiting[0]
            if not self._admit(request):
                break
            self.waiting.pop(0)
            insort(self.running, request, key=_rank)
            budget -= self._append(batch, request, budget)
        return batch

    def _continue(self, batch: Batch) -> None:
        """Add the parts of the last batch that go on with one token and without a copy."""
        parts, turn_page = batch.parts, self.cache.turn_page
        for part in self._latest.values():
            tokens, sequence = part.tokens, part.sequence
            held = sequence.tokens
            first = len(held)
            if len(tokens) == first + 1 and (room := sequence.room or turn_page(sequence)):
                held.append(tokens[first])
                sequence.room = room - 1
                part.first = first
                parts.append(part)
                if room == 1:
                    batch.noted.append(part)

    def settle(self, batch: Batch) -> None:
        """Note the tokens of a step as read, and drop refused drafts and finished requests."""
        for part in batch.noted:
            part.request.failures = 0
            sequence = part.sequence
            if part.drafts:
                sequence = self._kept(part)
                # Refused drafts go; the last chosen token is not read yet.
                self.cache.truncate(sequence, len(part.request.text_tokens) - 1)
            self.cache.wrote(sequence)
        for part in batch.parts:
            if part.request.finish is not None:
                self.remove(part.request)

    def undo(self, batch: Batch) -> None:
        """Let the requests of a failed step read their tokens again."""
        for part in batch.parts:
            self._drop_forks(part)
            if part.request.sequence is not None:
                part.request.failures += 1
                self._preempt(part.request)

    # -- pages -----------------------------------------------------------------------------------

    def _admit(self, request: Request) -> bool:
        """Take the found pages of a request if the rest of its tokens will fit."""
        cache, tokens = self.cache, request.text_tokens
        # Its beginning may be in pages after the next step.
        begin = tokens[: cache.page_size]
        if len(tokens) > cache.page_size and cache.found(tokens) == 0:
            for one in self.running:
                if one.left > 1 and one.text_tokens[: cache.page_size] == begin:
                    return False
        sequence = cache.allocate(tokens)
        needed = cache.needed(sequence, len(tokens) - sequence.length)
        if self.running and needed + cache.pages // _WATERMARK > cache.available:
            cache.free(sequence)
            return False
        request.sequence = sequence
        self.reused += sequence.length
        if not request.tokens:
            request.reused_tokens = sequence.length
        return True

    def _append(self, batch: Batch, request: Request, budget: int) -> int:
        """Add tokens of a request to a batch; return their number."""
        sequence = request.sequence
        if sequence is None or budget == 0:
            return 0
        first = sequence.length
        count = min(request.left, budget)
        is_last = count == request.left
        tokens = request.text_tokens[first : first + count]
        while self.cache.needed(sequence, count) > self.cache.available:
            last = self.running[-1]
            for part in [one for one in batch.parts if one.request is last]:
                self._drop_forks(part)
                batch.parts.remove(part)
                batch.noted = [one for one in batch.noted if one is not part]
            self._preempt(last)
            if last is request:
                return 0
        drafts: list[list[int]] = []
        if is_last and self._drafts:
            drafts = self._fitting(request, sequence, count, budget)
        forks = [self.cache.fork(sequence) for _ in drafts[1:]]
        for one, more in zip((sequence, *forks), drafts or [[]], strict=True):
            batch.copies += self.cache.append(one, [*tokens, *more])
        part = Part(request, request.text_tokens, sequence, first, drafts, is_last, forks)
        # The next step of a text that decodes is the same part, one token further.
        self._latest[request] = part if is_last else replace(part, is_last=True)
        batch.parts.append(part)
        batch.noted.append(part)
        return count * max(1, len(drafts)) + sum(map(len, drafts))

    def _fitting(
        self, request: Request, sequence: PagedSequence, count: int, budget: int
    ) -> list[list[int]]:
        """Return continuations that fit the pages and the budget, each behind `count` tokens."""
        cache = self.cache
        # Forks repeat the tokens that are read now; a prompt has too many of them for forks.
        branches = self._branches if count == 1 else 1
        fitting: list[list[int]] = []
        pages = 0
        for one in request.drafts(min(self._drafts, budget - count), branches):
            budget -= count + len(one)
            pages += cache.needed_apart(sequence, count + len(one))
            if budget < 0 or pages > cache.available:
                break
            fitting.append(one)
        return fitting

    def _kept(self, part: Part) -> PagedSequence:
        """Leave the request the sequence of the accepted continuation, and free the others."""
        sequences = [part.sequence, *part.forks]
        kept = sequences.pop(part.accepted)
        for one in sequences:
            self.cache.free(one)
        part.forks, part.sequence, part.request.sequence = [], kept, kept
        return kept

    def _drop_forks(self, part: Part) -> None:
        for one in part.forks:
            self.cache.free(one)
        part.forks = []

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request)
        request.preemptions += 1
        self.preemptions += 1
        self.add(request)

    def _release(self, request: Request) -> None:
        if request.sequence is not None:
            self.cache.free(request.sequence)
            request.sequence = None
            self._latest.pop(request, None)
