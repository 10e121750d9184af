"""Helpers for shape rules, and the check of questions in files of graphs.

Plans of functions on tensors apply the same rules. Files are not trusted: a question with
inconsistent parts would make a kernel read beyond its memory. Sums and products are Python's
integers, which never overflow.
"""

from __future__ import annotations

from math import prod

from ubridge.core.layout import Shape
from ubridge.core.question import Question
from uhal import as_dtype
from uhal.errors import ArgumentValueError

MOST = (1 << 63) - 1
"""The largest count of elements or bytes: kernels take counts as 64 bits."""


def require_counts(what: str, *numbers: object) -> None:
    """Refuse values other than counts of at most 63 bits."""
    for one in numbers:
        if type(one) is not int or not 0 <= one <= MOST:
            raise ArgumentValueError(f"{what}: expected numbers in 0…2^63-1, got {one!r:.80}")


def require(holds: object, what: str) -> None:
    """Raise `ArgumentValueError` with this message unless the condition holds."""
    if not holds:
        raise ArgumentValueError(what)


def same(*values: object) -> bool:
    """Return whether all values are equal."""
    return values.count(values[0]) == len(values)


def count(*numbers: object) -> bool:
    """Return whether all numbers are ints of at least 1."""
    return all(type(one) is int and 1 <= one <= MOST for one in numbers)


def flag(question: Question, name: str) -> None:
    """Refuse an attribute other than a bool."""
    given = question.attribute(name)
    require(
        type(given) is bool, f"{question.op.name}: expected {name} as a bool, got {given!r:.80}"
    )


def shapes(question: Question) -> list[Shape]:
    """Return the shapes of the operands."""
    return [layout.shape for _, layout in question.operands]


def require_sound(question: Question) -> None:
    """Refuse a question with inconsistent parts; `ArgumentValueError` names the expected value."""
    op, family = question.op, question.op.family
    for _, layout in (question.result, *question.operands):
        require_counts(f"{op.name}: a layout", *layout.key)
        require(layout.start_offset == 0, f"{op.name}: a layout begins with its memory")
        require(min(layout.shape, default=1) >= 1, f"{op.name}: expected nothing empty")
        require(
            prod(layout.shape) <= MOST,
            f"{op.name}: {layout.shape} are more than kernels can count",
        )
    if family.rule is None:
        raise ArgumentValueError(f"{op.name}: no operation of graph files")
    numbers = len(family.numbers.split())
    require(
        len(question.operands) in family.tensors and question.numbers == numbers,
        f"{op.name}: expected {family.tensors[0]} operands and {numbers} numbers, got "
        f"{len(question.operands)} and {question.numbers}",
    )
    names, given = family.attributes, tuple(name for name, _ in question.attributes)
    flags = {name for name in given if f"[{name}]" in names.split()}
    require(
        {*given} - flags == {name for name in names.split() if name[0] != "["},
        f"{op.name}: expected the attributes {names or 'none'}, got {', '.join(given) or 'none'}",
    )
    for name in flags:
        flag(question, name)
    if not family.may_have_gaps:
        require(question.result[1].is_contiguous, f"{op.name}: expected a result without gaps")
    packed = all(layout.is_contiguous for _, layout in question.operands[: family.packed])
    require(packed, f"{op.name}: expected contiguous operands")
    _require_dtypes(question)
    shape = family.rule(question)
    require(shape == question.shape, f"{op.name}: expected a result {shape}, got {question.shape}")


def _require_dtypes(question: Question) -> None:
    """Refuse element types that the family does not list."""
    operands, _, result = question.op.family.kinds.partition(" -> ")
    given = [*question.operands, question.result]
    count = len(question.operands)
    listed = [*operands.split()[:count], result] if result else ["T"] * len(given)
    common = [dtype for (dtype, _), kind in zip(given, listed, strict=True) if kind == "T"]
    fits = all(
        kind == "*" or dtype is (common[0] if kind == "T" else as_dtype(kind))
        for (dtype, _), kind in zip(given, listed, strict=True)
    )
    wanted = question.op.family.kinds or "one element type"
    require(fits, f"{question.op.name}: expected {wanted}, got {question!r}")
