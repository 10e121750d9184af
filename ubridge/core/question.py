"""What is asked for: an operation, what its operands and its result are, and how they lie.

A question names no memory. Where in a buffer an operand begins and the numbers that become
arguments of kernels, such as an epsilon, come with each call; what decides which kernel runs, and
on how many blocks, is in the question.
"""

from __future__ import annotations

from typing import Any

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from uhal import DType

Known = tuple[DType, Layout]
"""What is known of an operand: its element type, and how it lies from its first element on."""


class Question:
    """An operation on operands of these types and layouts. A value; compared by its key."""

    __slots__ = {  # noqa: RUF023 -- in the order of the constructor
        "op": "What is asked for.",
        "operands": "Element types and layouts of the operands.",
        "result": "What is written. An operation in place writes into memory that it is given.",
        "attributes": "What else decides how it is launched, by name.",
        "numbers": "How many numbers a call passes behind the operands.",
        "is_capturable": "Whether the answer must be launches alone: a capture knows no others.",
        "key": "Equal for equal questions. The operation tells how many operands there may be.",
    }

    def __init__(
        self,
        op: Op,
        operands: tuple[Known, ...],
        result: Known,
        attributes: tuple[tuple[str, Any], ...] = (),
        numbers: int = 0,
        is_capturable: bool = False,
    ) -> None:
        self.op = op
        self.operands = operands
        self.result = result
        self.attributes = attributes
        self.numbers = numbers
        self.is_capturable = is_capturable
        self.key: tuple[Any, ...] = (
            op,
            *[part for dtype, layout in operands for part in (dtype.code, layout.words)],
            result[0].code,
            result[1].words,
            attributes,
            numbers,
            is_capturable,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Question) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def dtype(self) -> DType:
        """The element type of the first operand, or of the result where there is none."""
        return self.operands[0][0] if self.operands else self.result[0]

    def layout(self, operand: int) -> Layout:
        """Return how an operand lies."""
        return self.operands[operand][1]

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return self.result[1].shape

    def attribute(self, name: str) -> Any:
        """Return an attribute; `KeyError` when there is none of the name."""
        return dict(self.attributes)[name]

    @property
    def is_in_place(self) -> bool:
        """Whether what was where the result goes matters, or stays in part."""
        return self.op.family.name in IN_PLACE

    def for_capture(self) -> Question:
        """Return the question whose answer can be captured."""
        if self.is_capturable:
            return self
        return Question(
            self.op, self.operands, self.result, self.attributes, self.numbers, is_capturable=True
        )

    def __repr__(self) -> str:
        operands = ", ".join(f"{dtype}{tuple(layout.shape)}" for dtype, layout in self.operands)
        return f"<{self.op.name} of {operands or 'nothing'} into {self.result[0]}{self.shape}>"


IN_PLACE = frozenset(("fill", "copy2d", "scatter", "index_add", "kv_append", "cache", "rotary"))
"""Families whose result is memory of the caller."""

__all__ = ["IN_PLACE", "Known", "Question"]
