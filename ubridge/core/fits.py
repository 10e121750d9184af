"""Whether the parts of a question fit one another, and what definitions write their rules with.

Functions on tensors have checked this already, with messages of their own. Graph files are not
trusted: a question with parts that do not fit would make a kernel read beyond its memory.
Sums and products are Python's integers, which never overflow.
"""

from __future__ import annotations

from math import prod

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


def require_sound(question: Question) -> None:
    """Refuse a question whose parts do not fit; `ArgumentValueError` says what was expected."""
    op, family = question.op, question.op.family
    for _, layout in (question.result, *question.operands):
        require_counts(f"{op.name}: a layout", *layout.key)
        require(layout.start_offset == 0, f"{op.name}: a layout begins with its memory")
        require(min(layout.shape, default=1) >= 1, f"{op.name}: expected nothing empty")
        require(
            prod(layout.shape) <= MOST,
            f"{op.name}: {layout.shape} are more than kernels can count",
        )
    if family.check is None:
        raise ArgumentValueError(f"{op.name}: no operation of graph files")
    numbers = len(family.numbers.split())
    require(
        len(question.operands) in family.tensors and question.numbers == numbers,
        f"{op.name}: expected {family.tensors[0]} operands and {numbers} numbers, got "
        f"{len(question.operands)} and {question.numbers}",
    )
    names, given = family.attributes, tuple(name for name, _ in question.attributes)
    require(
        set(given) == set(names.split()),
        f"{op.name}: expected the attributes {names or 'none'}, got {', '.join(given) or 'none'}",
    )
    if not family.may_have_gaps:
        require(question.result[1].is_contiguous, f"{op.name}: expected a result without gaps")
    require(family.check(question), f"{op.name}: {question!r} do not fit")
