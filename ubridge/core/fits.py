"""What rules about questions are written with: whether sizes, shapes and dtypes fit one another."""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.question import Question
from uhal import DType
from uhal.errors import ArgumentValueError

MOST = (1 << 63) - 1
"""Of a number that counts elements or bytes: kernels take them as 64 bits."""


def require_counts(what: str, *numbers: object) -> None:
    """Refuse what are not numbers that kernels can count with."""
    for one in numbers:
        if type(one) is not int or not 0 <= one <= MOST:
            raise ArgumentValueError(f"{what}: expected numbers in 0…2^63-1, got {one!r:.80}")


def require(holds: object, what: str) -> None:
    """Raise `ArgumentValueError` with these words unless it holds."""
    if not holds:
        raise ArgumentValueError(what)


def same(*values: object) -> bool:
    """Say whether all are equal."""
    return all(one == values[0] for one in values)


def lies(*layouts: Layout) -> bool:
    """Say whether all are contiguous."""
    return all(layout.is_contiguous for layout in layouts)


def count(*numbers: object) -> bool:
    """Say whether all are numbers of at least 1."""
    return all(type(one) is int and 1 <= one <= MOST for one in numbers)


def parts(question: Question) -> tuple[list[DType], list[Layout]]:
    """Return the dtypes and the layouts, of the result first."""
    known = (question.result, *question.operands)
    return [dtype for dtype, _ in known], [layout for _, layout in known]


def one_shape(layouts: list[Layout]) -> bool:
    """Say whether all are of one shape."""
    return same(*(layout.shape for layout in layouts))
