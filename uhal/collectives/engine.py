"""The interface between `Communicator`, which checks calls, and a library that does the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uhal.dtypes import as_dtype

if TYPE_CHECKING:
    from uhal._lane import Context, Stream

ID_BYTES = 128


@dataclass(frozen=True)
class Collective:
    """A checked call: equal dtypes, enough elements, no forbidden overlap."""

    name: str
    send: int
    """Address of the operand; 0: none."""
    recv: int
    """Address of the result, equal to `send` if the operand is replaced; 0: none."""
    count: int
    """Elements of one rank's part."""
    dtype: str
    op: str = ""
    peer: int = 0
    """The root of a broadcast or a reduction, or the other rank of `send` and `recv`."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 1 for a barrier, which has none."""
        return as_dtype(self.dtype).itemsize if self.dtype else 1


class Engine(ABC):
    """One rank of a group. One thread at a time may call it."""

    name: str
    dtypes: frozenset[str]
    operations: tuple[str, ...]
    root_broadcasts_result: bool
    """Whether a broadcast reads the root's `recv` instead of its `send`."""

    @classmethod
    @abstractmethod
    def unique_id(cls, context: Context) -> bytes:
        """Return the identifier of a new group."""

    @classmethod
    @abstractmethod
    def join(
        cls,
        context: Context,
        ranks: int,
        identifier: bytes,
        rank: int,
        meanwhile: Callable[[], None],
    ) -> Engine:
        """Return the engine of this rank. Waits for the other ranks.

        Engines that poll call `meanwhile`, which may raise, until the other ranks have come.
        """

    def lacks(self, call: str, dtype: str) -> str:
        """Return why the library cannot do a call on a dtype; empty if it can."""
        return ""

    @abstractmethod
    def enqueue(self, call: Collective, stream: Stream) -> None:
        """Enqueue the call, behind the work of the stream."""

    @abstractmethod
    def enqueue_group(self, calls: list[tuple[Collective, Stream]]) -> None:
        """Enqueue sends and receives that may wait for each other."""

    @abstractmethod
    def failure(self) -> str:
        """Return why an earlier call failed; empty while none has."""

    @abstractmethod
    def split(self, color: int, key: int) -> tuple[Engine, int, int] | None:
        """Return (engine, size, rank) for this color; `None` for a negative color."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group after the enqueued calls."""

    @abstractmethod
    def abort(self, stuck: bool) -> None:
        """Leave the group without waiting. `stuck`: a call waits for a rank that is missing."""


__all__ = ["ID_BYTES", "Collective", "Engine"]
