"""Properties computed once for each object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as kept_property
else:

    class kept_property:
        """A `functools.cached_property` without a lock.

        Before Python 3.12 all objects share one lock. A forked child waits forever for a lock that
        another thread of its parent held.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self._function = function
            self._name = function.__name__
            self.__doc__ = function.__doc__

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # The attribute of the same name comes before this descriptor.
            value = instance.__dict__[self._name] = self._function(instance)
            return value


__all__ = ["kept_property"]
