"""Questions: an operation, and the dtypes and layouts of its operands and its result.

A question names no memory. Start offsets of operands, and numbers that become arguments of kernels,
such as an epsilon, come with each call. The question alone determines the kernel and its number of
blocks.
"""

from __future__ import annotations

from typing import Any

from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from uhal import DType

Known = tuple[DType, Layout]
"""Facts about an operand: its element type, and its layout from its first element on."""


class Question:
    """An operation on operands of these types and layouts.

    A value; compared by its key.
    """

    __slots__ = {  # noqa: RUF023 -- in the order of the constructor
        "op": "The operation.",
        "operands": "Element types and layouts of the operands.",
        "result": "Type and layout of the result, also of an operation in place.",
        "attributes": "Other facts that decide the launch, by name.",
        "numbers": "How many numbers a call passes after the operands.",
        "is_capturable": "Whether the answer must be launches alone: captures record no more.",
        "key": "Equal for equal questions.",
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
        """The first operand's element type, or the result's without operands."""
        return self.operands[0][0] if self.operands else self.result[0]

    def layout(self, operand: int) -> Layout:
        """Return the layout of an operand."""
        return self.operands[operand][1]

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return self.result[1].shape

    def attribute(self, name: str) -> Any:
        """Return an attribute; `KeyError` for an unknown name."""
        return dict(self.attributes)[name]

    def has_flag(self, name: str) -> bool:
        """Return whether the question has an optional flag."""
        return (name, True) in self.attributes

    @property
    def is_in_place(self) -> bool:
        """Whether the operation reads or keeps old contents of the result."""
        return self.op.family.is_in_place

    def for_capture(self) -> Question:
        """Return the same question, restricted to lowerings that can be captured."""
        if self.is_capturable:
            return self
        return Question(
            self.op, self.operands, self.result, self.attributes, self.numbers, is_capturable=True
        )

    def __repr__(self) -> str:
        operands = ", ".join(f"{dtype}{tuple(layout.shape)}" for dtype, layout in self.operands)
        return f"<{self.op.name} of {operands or 'nothing'} into {self.result[0]}{self.shape}>"
