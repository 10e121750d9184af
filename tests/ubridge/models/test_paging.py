"""`PagedCache` against a memory that notes the text of each slot."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.sampling import rounds
from ubridge.models import PagedCache, PagedSequence
from ubridge.models.paging import PageCopy, PageCounts
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    OutOfMemoryError,
)


class Memory:
    """A cache whose slots keep a hash of all tokens so far, as keys and values depend on them."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.cache = PagedCache(pages, page_size)
        self.slots: list[int | None] = [None] * (pages * page_size)
        self.live: list[PagedSequence] = []

    def append(self, sequence: PagedSequence, tokens: list[int]) -> list[PageCopy]:
        first = sequence.length
        is_step = len(tokens) == 1 and tokens[0] % 2 == 1 and self.cache.page_size > 1
        if is_step and (sequence.room or self.cache.turn_page(sequence)) > 1:
            # Append a token like a step of the engine.
            sequence.tokens.append(tokens[0])
            sequence.room -= 1
            (slot,) = sequence.slots(first, 1)
            self.slots[slot] = _text(sequence.tokens)
            return []
        version = sequence.version
        copies = self.cache.append(sequence, tokens)
        assert not tokens or sequence.version != version
        size = self.cache.page_size
        for source, target in copies:
            here = self.slots[source * size : (source + 1) * size]
            self.slots[target * size : (target + 1) * size] = here
        for position, slot in enumerate(sequence.slots(first, len(tokens)), first):
            self.slots[slot] = _text(sequence.tokens[: position + 1])
        self.cache.wrote(sequence)
        return copies

    def check(self) -> None:
        """Compare each sequence's slots with its text, and the counts with the tables."""
        cache = self.cache
        for one in self.live:
            held = [self.slots[slot] for slot in one.slots(0, one.length)]
            assert held == [_text(one.tokens[: end + 1]) for end in range(one.length)]
            assert len(one.pages) == -(-one.length // cache.page_size)
            assert one.written == one.length
            if one.room:
                assert one.room == len(one.pages) * cache.page_size - one.length
                assert cache._uses[one.pages[-1]] == 1
                assert cache._digest_of[one.pages[-1]] is None
        assert len({one.version for one in self.live}) == len(self.live)
        uses = Counter(page for one in self.live for page in one.pages)
        assert [uses[page] for page in range(cache.pages)] == cache._uses
        assert cache.counts.live == len(uses)
        assert sum(cache.counts) == cache.pages
        idle = [*cache._free, *cache._reusable]
        assert len(set(idle) | set(uses)) == len(idle) + len(uses) == cache.pages
        for digest, page in cache._page_of.items():
            assert cache._digest_of[page] == digest


def _text(tokens: list[int]) -> int:
    return hash(tuple(tokens))


def test_random_operations_keep_texts_and_counts(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(rounds(3, 50)):
        memory = Memory(draw.randint(1, 24), draw.randint(1, 5))
        cache = memory.cache
        for _ in range(rounds(200, 2000)):
            one = draw.choice(memory.live) if memory.live else None
            match draw.randrange(6):
                case 0:
                    prompt = [draw.randrange(2) for _ in range(draw.randint(0, 12))]
                    promised = cache.found(prompt)
                    new = cache.allocate(prompt)
                    assert new.tokens == prompt[:promised]
                    memory.live.append(new)
                case 1 if one is not None:
                    memory.live.append(cache.fork(one))
                case 2 if one is not None:
                    cache.free(one)
                    memory.live.remove(one)
                case 3 if one is not None:
                    cache.truncate(one, draw.randint(0, one.length))
                case _ if one is not None:
                    tokens = [draw.randrange(2) for _ in range(draw.randint(0, 7))]
                    needed, before = cache.needed(one, len(tokens)), cache.counts
                    if needed <= cache.available:
                        memory.append(one, tokens)
                        assert before.live + needed >= cache.counts.live
                        assert before.reusable + before.free - needed == cache.available
                    else:
                        kept = list(one.tokens), list(one.pages)
                        with pytest.raises(OutOfMemoryError, match=f"expected {needed} available"):
                            cache.append(one, tokens)
                        assert (kept, before) == ((one.tokens, one.pages), cache.counts)
            memory.check()
        for one in memory.live:
            cache.free(one)
        cache.forget()
        assert cache.counts == PageCounts(0, 0, cache.pages)


def test_only_the_last_partial_page_is_copied() -> None:
    memory = Memory(8, 4)
    parent = memory.cache.allocate()
    memory.append(parent, [1, 2, 3, 4, 5, 6])
    child = memory.cache.fork(parent)
    assert memory.append(child, [7]) == [PageCopy(parent.pages[1], child.pages[1])]
    assert child.pages[0] == parent.pages[0] and child.pages[1] != parent.pages[1]
    # The parent's page is no longer shared.
    assert memory.append(parent, [8]) == []
    memory.live += [parent, child]
    memory.check()


def test_whole_pages_of_a_prompt_are_found_after_their_sequence() -> None:
    memory = Memory(4, 2)
    cache = memory.cache
    first = cache.allocate()
    memory.append(first, [1, 2, 3, 4, 5])
    pages = list(first.pages)
    cache.free(first)
    assert cache.counts == PageCounts(0, 2, 2)
    # The last token of a prompt is always read, for its logits.
    assert [cache.found([1, 2, 3, 4][:n]) for n in range(5)] == [0, 0, 0, 2, 2]
    assert cache.found([1, 2, 9, 4, 5]) == 2
    assert cache.found([1, 2, 3, 4, 5], salt=b"another adapter") == 0
    again = cache.allocate([1, 2, 3, 4, 5])
    assert (again.pages, again.tokens, cache.hits) == (pages[:2], [1, 2, 3, 4], 4)


def test_the_least_recently_used_page_gives_way() -> None:
    memory = Memory(3, 1)
    cache = memory.cache
    for token in (1, 2, 3):
        one = cache.allocate()
        memory.append(one, [token])
        cache.free(one)
    cache.free(cache.allocate([1, 0]))
    new = cache.allocate()
    memory.append(new, [4])
    assert cache.evictions == 1
    assert [cache.found([token, 0]) for token in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_mistakes_are_refused() -> None:
    cache = PagedCache(2, 4)
    with pytest.raises(ArgumentValueError, match="PagedCache, pages: expected 1 to"):
        PagedCache(0)
    with pytest.raises(ArgumentTypeError, match="PagedCache, page_size: expected an int"):
        PagedCache(1, True)
    one = cache.allocate()
    cache.append(one, [1, 2])
    with pytest.raises(ArgumentValueError, match="expected written tokens, got 0 of 2"):
        cache.fork(one)
    with pytest.raises(ArgumentValueError, match="expected 0 to 2 tokens, got 3"):
        cache.truncate(one, 3)
    with pytest.raises(ArgumentValueError, match="expected a sequence of this cache"):
        PagedCache(2, 4).free(one)
    cache.free(one)
    with pytest.raises(InvalidHandleError, match="free: expected a sequence with pages, got a fr"):
        cache.free(one)
