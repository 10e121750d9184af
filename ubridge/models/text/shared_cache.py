"""One cache that several texts take turns with: the last that began to read has it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ubridge.models.text.protocol import CacheLike


class SharedCache:
    """A cache, made when it is first asked for, and what uses it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """Of what makes caches of one capacity."""
        self._make = make
        self._cache: CacheLike | None = None
        self._user: weakref.ref[object] | None = None

    @property
    def cache(self) -> CacheLike:
        """The cache, whoever uses it."""
        if self._cache is None:
            self._cache = self.another()
        return self._cache

    def take(self, user: object) -> CacheLike:
        """Return the cache, which is the user's until another one takes it."""
        self._user = weakref.ref(user)
        return self.cache

    def is_with(self, user: object) -> bool:
        """Return whether nobody took the cache since this user did."""
        return self._user is not None and self._user() is user

    def another(self) -> CacheLike:
        """Return a new cache, for one that the first was taken from."""
        made: CacheLike = self._make()
        return made

    def replace(self, cache: CacheLike) -> None:
        """Share another cache from now on."""
        if cache is not self._cache:
            self.close()
            self._cache = cache

    def close(self) -> None:
        """Let go of the cache; the next that asks gets a new one."""
        cache, self._cache, self._user = self._cache, None, None
        if cache is not None:
            cache.close()
