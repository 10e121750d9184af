"""`PagedCache`: the table of a cache's pages and the sequences whose tokens they hold.

A cache assigns and counts pages, and holds no device memory: a page is a number. A reader of keys
and values uses `PagedSequence.pages`; a writer uses `PagedSequence.slots`.

Shared pages have a reference count. A write to a shared page first copies the page (copy-on-write).
Full pages are found again by a digest of their tokens and of all tokens before them. Full pages
stay after their sequence is freed until a new page needs their place; the least recently used page
goes first.
"""

from __future__ import annotations

import itertools
from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError, OutOfMemoryError

_MOST = 1 << 24
"""Pages, and tokens of a page: indices of tokens then fit the 64 bits of kernels."""


class PageCopy(NamedTuple):
    """A page whose contents must be copied before the next write to the target."""

    source: int
    target: int


class PageCounts(NamedTuple):
    """Numbers of pages; their sum is the number of pages of the cache."""

    live: int
    """Pages of sequences."""
    reusable: int
    """Pages without a sequence whose tokens can still be found."""
    free: int
    """Pages without contents."""


class PagedSequence:
    """The tokens of one sequence and their pages. Made by `PagedCache`, which alone changes it."""

    def __init__(self, cache: PagedCache, digest: bytes) -> None:
        """Made by `PagedCache.allocate` and `PagedCache.fork`."""
        self._cache = cache
        self._digests = [digest]
        """The digest of no token, then of each page up to the last full written page."""
        self.tokens: list[int] = []
        """The tokens with a place in pages, in order."""
        self.pages: list[int] = []
        """The pages, in order: position p is in `pages[p // page_size]`."""
        self.unwritten = 0
        """Number of last tokens whose keys and values are not yet in the pages."""
        self.room = 0
        """Number of tokens that the last page still takes without a call of the cache.

        A caller that adds such a token to `tokens` also lowers `room`, and writes the token before
        other calls. A call of the cache does the same, but takes too long in a step of many
        sequences.
        """
        self.version = -1
        """Changes with `pages`, and differs between the sequences of a cache."""
        self.is_freed = False
        """Whether its pages were given back."""

    @property
    def length(self) -> int:
        """The number of its tokens."""
        return len(self.tokens)

    @property
    def written(self) -> int:
        """Number of leading tokens whose keys and values are in the pages."""
        return len(self.tokens) - self.unwritten

    def slots(self, first: int, count: int) -> list[int]:
        """Return the slots of positions: page * page_size + offset in the page."""
        first = whole_number("PagedSequence.slots, first", first)
        count = whole_number("PagedSequence.slots, count", count)
        size, pages = self._cache.page_size, self.pages
        return [
            pages[position // size] * size + position % size
            for position in range(first, first + count)
        ]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.length} tokens in {len(self.pages)} pages>"


class PagedCache:
    """Pages of keys and values that sequences take, share and give back.

    A step of a model appends its tokens, performs the returned copies and writes keys and values to
    the slots. Then it reports `wrote`. One thread at a time may use it.
    """

    def __init__(self, pages: int, page_size: int = 16) -> None:
        """Make a cache of empty pages, each for `page_size` tokens.

        Raises `ArgumentTypeError` or `ArgumentValueError` unless both are ints from 1 to 2**24.
        """
        self.pages = _count("pages", pages)
        """The number of pages."""
        self.page_size = _count("page_size", page_size)
        """Tokens of a page."""
        self._free = deque(range(self.pages))
        self._uses = [0] * self.pages
        self._digest_of: list[bytes | None] = [None] * self.pages
        self._page_of: dict[bytes, int] = {}
        self._reusable: OrderedDict[int, None] = OrderedDict()
        """Pages without a sequence, the least recently used first."""
        self._versions = itertools.count()
        self.hits = 0
        """Tokens that `allocate` found in pages."""
        self.evictions = 0
        """Pages whose contents were given up for a new page."""

    @property
    def available(self) -> int:
        """Number of pages that sequences can still take."""
        return len(self._free) + len(self._reusable)

    @property
    def counts(self) -> PageCounts:
        """Numbers of live, reusable and free pages."""
        return PageCounts(self.pages - self.available, len(self._reusable), len(self._free))

    # -- sequences -------------------------------------------------------------------------------

    def allocate(self, prompt: Sequence[int] = (), *, salt: bytes = b"") -> PagedSequence:
        """Return a new sequence that shares the written full pages of a prompt's beginning.

        The new sequence holds the tokens that were found, in whole pages. It never holds the
        prompt's last token, because a model must read this token for its logits. `salt` keeps
        prompts apart whose pages differ for equal tokens.
        """
        prompt = _tokens("PagedCache.allocate, prompt", prompt)
        made = PagedSequence(self, blake2b(salt, digest_size=32).digest())
        size = self.page_size
        for start in range(0, len(prompt) - size, size):
            tokens = prompt[start : start + size]
            digest = _digest(made._digests[-1], tokens)
            page = self._page_of.get(digest)
            if page is None:
                break
            self._use(page)
            made._digests.append(digest)
            made.tokens.extend(tokens)
            made.pages.append(page)
        made.version = next(self._versions)
        self.hits += made.length
        return made

    def found(self, prompt: Sequence[int], *, salt: bytes = b"") -> int:
        """Return the number of a prompt's tokens that `allocate` would find; nothing changes."""
        prompt = _tokens("PagedCache.found, prompt", prompt)
        digest, size = blake2b(salt, digest_size=32).digest(), self.page_size
        for start in range(0, len(prompt) - size, size):
            digest = _digest(digest, prompt[start : start + size])
            if digest not in self._page_of:
                return start
        return (max(len(prompt) - 1, 0)) // size * size

    def fork(self, sequence: PagedSequence) -> PagedSequence:
        """Return a second sequence of the same tokens, which shares all pages.

        The first sequence that writes to a shared page takes a copy. Raises `ArgumentValueError`
        for tokens that are not yet written.
        """
        self._require_own("fork", sequence)
        require(
            sequence.written == sequence.length,
            f"PagedCache.fork: expected written tokens, got {sequence.written} of "
            f"{sequence.length}. Call wrote() first.",
        )
        made = PagedSequence(self, sequence._digests[0])
        made._digests = list(sequence._digests)
        made.tokens, made.pages = list(sequence.tokens), list(sequence.pages)
        for page in made.pages:
            self._use(page)
        sequence.room, made.version = 0, next(self._versions)
        return made

    def needed(self, sequence: PagedSequence, count: int) -> int:
        """Return the number of pages that an append of `count` tokens would take."""
        count = whole_number("PagedCache.needed, count", count)
        size, length = self.page_size, sequence.length
        new = -(-(length + count) // size) - len(sequence.pages)
        return new + (count > 0 and length % size > 0 and self._uses[sequence.pages[-1]] > 1)

    def needed_apart(self, sequence: PagedSequence, count: int) -> int:
        """Return the most pages that an append takes when the last page is shared."""
        count = whole_number("PagedCache.needed_apart, count", count)
        size, length = self.page_size, sequence.length
        return -(-(length + count) // size) - length // size

    def append(self, sequence: PagedSequence, tokens: Sequence[int]) -> list[PageCopy]:
        """Give tokens a place; return the copy to perform before their keys are written.

        Raises `OutOfMemoryError` if fewer pages are available than needed; nothing changes then.
        """
        tokens = _tokens("PagedCache.append, tokens", tokens)
        self._require_own("append", sequence)
        if not tokens:
            return []
        needed = self.needed(sequence, len(tokens))
        if needed > self.available:
            raise OutOfMemoryError(
                f"PagedCache.append: expected {needed} available pages for {len(tokens)} tokens, "
                f"got {self.available} of {self.pages}. Free a sequence, or make a larger cache."
            )
        copies: list[PageCopy] = []
        size = self.page_size
        if sequence.length % size:
            last = sequence.pages[-1]
            if self._uses[last] > 1:
                own = self._take()
                self._drop(last)
                sequence.pages[-1] = own
                copies.append(PageCopy(last, own))
            else:
                # A truncated page may still be found by the digest of its old tokens.
                self._forget(last)
        sequence.tokens.extend(tokens)
        sequence.unwritten += len(tokens)
        while len(sequence.pages) * size < sequence.length:
            sequence.pages.append(self._take())
        sequence.room = len(sequence.pages) * size - sequence.length
        sequence.version = next(self._versions)
        return copies

    def turn_page(self, sequence: PagedSequence) -> int:
        """Give a sequence one more page if its pages are full; return its room.

        Returns 0, and changes nothing, if the last page is partial or no page is available. The
        caller appends a token next, as `PagedSequence.room` says.
        """
        if len(sequence.tokens) % self.page_size or not (self._free or self._reusable):
            return 0
        sequence.pages.append(self._take())
        sequence.room = self.page_size
        sequence.version = next(self._versions)
        return self.page_size

    def wrote(self, sequence: PagedSequence) -> None:
        """Mark all tokens of a sequence as written, so that others find them."""
        self._require_own("wrote", sequence)
        size, digests = self.page_size, sequence._digests
        for index in range(len(digests) - 1, sequence.length // size):
            tokens = sequence.tokens[index * size : (index + 1) * size]
            digest = _digest(digests[-1], tokens)
            digests.append(digest)
            page = sequence.pages[index]
            if self._digest_of[page] is None and digest not in self._page_of:
                self._digest_of[page] = digest
                self._page_of[digest] = page
        sequence.unwritten = 0

    def truncate(self, sequence: PagedSequence, length: int) -> None:
        """Forget the tokens after the first `length`, and give back pages without tokens.

        Raises `ArgumentValueError` for a negative length or more than the sequence has.
        """
        length = whole_number("PagedCache.truncate, length", length)
        self._require_own("truncate", sequence)
        require(
            length <= sequence.length,
            f"PagedCache.truncate: expected 0 to {sequence.length} tokens, got {length}.",
        )
        kept = -(-length // self.page_size)
        for page in reversed(sequence.pages[kept:]):
            self._drop(page)
        sequence.unwritten = max(0, sequence.unwritten - (sequence.length - length))
        del sequence.pages[kept:], sequence.tokens[length:]
        del sequence._digests[length // self.page_size + 1 :]
        sequence.room, sequence.version = 0, next(self._versions)

    def free(self, sequence: PagedSequence) -> None:
        """Give back all pages; full written pages can still be found until others need them.

        Raises `InvalidHandleError` for a sequence that was freed, or belongs to another cache.
        """
        self._require_own("free", sequence)
        # The last page first: the beginnings of prompts stay longest.
        for page in reversed(sequence.pages):
            self._drop(page)
        sequence.pages, sequence.tokens = [], []
        sequence.unwritten = sequence.room = 0
        sequence.is_freed = True

    def forget(self) -> None:
        """Give up the contents of all reusable pages."""
        for page in list(self._reusable):
            self._forget(page)
            del self._reusable[page]
            self._free.append(page)

    # -- pages -----------------------------------------------------------------------------------

    def _use(self, page: int) -> None:
        self._uses[page] += 1
        self._reusable.pop(page, None)

    def _take(self) -> int:
        """A page for new tokens; `append` has counted the available pages."""
        if self._free:
            page = self._free.popleft()
        else:
            page, _ = self._reusable.popitem(last=False)
            self._forget(page)
            self.evictions += 1
        self._uses[page] = 1
        return page

    def _drop(self, page: int) -> None:
        self._uses[page] -= 1
        if self._uses[page]:
            return
        if self._digest_of[page] is None:
            self._free.append(page)
        else:
            self._reusable[page] = None

    def _forget(self, page: int) -> None:
        digest, self._digest_of[page] = self._digest_of[page], None
        if digest is not None:
            del self._page_of[digest]

    def _require_own(self, call: str, sequence: PagedSequence) -> None:
        if sequence.is_freed:
            raise InvalidHandleError(
                f"PagedCache.{call}: expected a sequence with pages, got a freed sequence. "
                "allocate() makes another."
            )
        if sequence._cache is not self:
            raise ArgumentValueError(
                f"PagedCache.{call}: expected a sequence of this cache, got another cache's. "
                "Use the cache that made it."
            )

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"<{type(self).__name__}: {self.pages} pages of {self.page_size} tokens, "
            f"{counts.live} live, {counts.reusable} reusable, {counts.free} free>"
        )


def _count(name: str, given: object) -> int:
    number = whole_number(f"PagedCache, {name}", given, 1)
    require(number <= _MOST, f"PagedCache, {name}: expected at most {_MOST}, got {number}")
    return number


def _tokens(name: str, given: object) -> list[int]:
    if isinstance(given, str) or not isinstance(given, (Sequence, np.ndarray)):
        raise ArgumentTypeError(f"{name}: expected a sequence of ints, got {type(given).__name__}")
    return [whole_number(name, one) for one in given]


def _digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a page's tokens and of all tokens before them."""
    return blake2b(array("q", tokens).tobytes(), key=before, digest_size=32).digest()
