"""`SharedCache`: one cache for the texts of a session; the latest text uses it."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ubridge.models.text.protocol import CacheLike


class SharedCache:
    """A cache, allocated at the first access, and its current user."""

    def __init__(self, make: Callable[[], CacheLike]) -> None:
        """Prepare; `make` returns a new cache each time, always of the same capacity."""
        self._make = make
        self._cache: CacheLike | None = None
        self._user: weakref.ref[object] | None = None

    @property
    def cache(self) -> CacheLike:
        """The cache, without a check of its current user."""
        if self._cache is None:
            self._cache = self.another()
        return self._cache

    def take(self, user: object) -> CacheLike:
        """Return the cache, which belongs to the user until another user takes it."""
        self._user = weakref.ref(user)
        return self.cache

    def is_with(self, user: object) -> bool:
        """Return whether this user was the last to take the cache."""
        return self._user is not None and self._user() is user

    def another(self) -> CacheLike:
        """Return a new cache, for a user that has lost the shared cache."""
        return self._make()

    def replace(self, cache: CacheLike) -> None:
        """Share another cache from now on."""
        if cache is not self._cache:
            self.close()
            self._cache = cache

    def close(self) -> None:
        """Free the cache; the next access allocates another cache."""
        cache, self._cache, self._user = self._cache, None, None
        if cache is not None:
            cache.close()
