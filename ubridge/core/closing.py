"""Objects that a `with` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

_Self = TypeVar("_Self", bound="Closing")


class Closing(ABC):
    """Base of objects that hold memory, streams or threads until `close()`."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
