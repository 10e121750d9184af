"""`Scheduler`: steps that decode several texts, and steps without enough pages."""

from __future__ import annotations

import random

import pytest

from ubridge.models.paging import PagedCache
from ubridge.models.serving.request import Request
from ubridge.models.serving.scheduler import Batch, Scheduler
from ubridge.models.text.assembling import Assembler, Limits
from ubridge.models.text.sampler import Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.tokenizers.rwkv import WorldTokenizer


class NoDriver:
    """Replaces the engine for requests that nobody reads."""

    def advance(self, request: Request) -> None:
        """Never called."""

    def cancel(self, request: Request) -> None:
        """Never called."""


def request_of(prompt: list[int], arrival: int) -> Request:
    limits = Limits(ignore_end=True)
    text = Assembler(WorldTokenizer({1: b"a"}), (), [1], limits, 10**9)
    return Request(NoDriver(), prompt, limits, Sampler(Sampling(), prompt), text, 0, arrival)


def run(scheduler: Scheduler) -> Batch:
    """Take one step, in which each part that ends its text chooses the token 1."""
    batch = scheduler.batch()
    for part in batch.parts:
        assert part.sequence.tokens == part.request.text_tokens[: part.sequence.length]
        assert len(part.sequence.pages) * scheduler.cache.page_size >= part.sequence.length
        if part.is_last:
            part.request.take(1)
    scheduler.settle(batch)
    return batch


def test_a_decoding_text_takes_pages_without_an_append(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    size, texts = draw.randint(2, 6), draw.randint(1, 5)
    cache = PagedCache(1000, size)
    scheduler = Scheduler(cache, texts, 100)
    requests = [request_of([one, *[2] * draw.randint(0, 9)], one) for one in range(texts)]
    for one in requests:
        scheduler.add(one)
    run(scheduler)
    appends: list[object] = []
    monkeypatch.setattr(cache, "append", lambda *given: appends.append(given))
    for _ in range(5 * size):
        batch = run(scheduler)
        assert [part.request for part in batch.parts] == requests
        assert [part.first for part in batch.parts] == [len(r.text_tokens) - 2 for r in requests]
    assert not appends
    assert all(one.preemptions == 0 for one in requests)
    assert sum(cache.counts) == cache.pages


def test_without_pages_the_last_text_waits(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randint(2, 6)
    # Two texts fit for a while; each text alone fits to its end.
    cache = PagedCache(8, size)
    scheduler = Scheduler(cache, 2, 100)
    first, second = (request_of([one, *[2] * draw.randint(1, 5)], one) for one in range(2))
    scheduler.add(first)
    scheduler.add(second)
    while len(first.text_tokens) < 8 * size:
        run(scheduler)
    assert second.preemptions >= 1 and first.preemptions == 0
    first.end("length")
    scheduler.remove(first)
    while len(second.text_tokens) < 8 * size:
        run(scheduler)
    scheduler.remove(second)
    cache.forget()
    assert cache.counts.free == cache.pages
