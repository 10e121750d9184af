"""One operation of a graph: a question, and views of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ubridge.core.layout import Shape
from ubridge.core.operation import WORK, Op
from ubridge.core.promotion import checked_number
from ubridge.core.question import Question
from ubridge.core.storage_view import StorageView
from uhal import DType
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.kept import kept_property


@dataclass(frozen=True)
class ScalarSlot:
    """A number among the arguments that each run can change."""

    name: str
    value: float
    """The default value."""
    dtype: DType
    low: float
    high: float
    """The range of values, both ends included."""

    def checked(self, value: object) -> float:
        """Return a value for the slot; refuse another kind of value or a value out of range."""
        is_float = self.dtype.kind == "float"
        kinds = (int, float, np.integer, np.floating) if is_float else (int, np.integer)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ArgumentTypeError(
                f"slot {self.name!r}: expected {'a number' if is_float else 'an int'}, got "
                f"{value!r}"
            )
        value = value.item() if isinstance(value, np.generic) else value
        number = checked_number(f"slot {self.name!r}", self.dtype, value)
        if not self.low <= number <= self.high:
            raise ArgumentValueError(
                f"slot {self.name!r}: expected {self.low} to {self.high}, got {value!r}"
            )
        found: float = number
        return found


def with_values(numbers: tuple[Any, ...], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the numbers with the value, or the slot of a plan, for each slot."""
    return tuple([values[one.name] if isinstance(one, ScalarSlot) else one for one in numbers])


@dataclass(frozen=True)
class Call:
    """A question and the graph memory of its operands."""

    question: Question
    operands: tuple[StorageView, ...]
    written: StorageView
    """The view of the result."""
    numbers: tuple[float | ScalarSlot, ...] = ()

    @property
    def op(self) -> Op:
        """The operation that it computes."""
        return self.question.op

    @kept_property
    def views(self) -> tuple[StorageView, ...]:
        """Every view that the call reads, and the written view."""
        return (*self.operands, self.written)

    @property
    def writes(self) -> tuple[StorageView, ...]:
        """Every view that the call may write: all views, for a program's own kernels."""
        return self.views if self.op is WORK else (self.written,)

    @kept_property
    def slots(self) -> tuple[ScalarSlot, ...]:
        """Every slot among the numbers."""
        return tuple(one for one in self.numbers if isinstance(one, ScalarSlot))

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return self.question.shape

    @property
    def is_in_place(self) -> bool:
        """Whether the operation reads or keeps old contents of the result."""
        return self.question.is_in_place
