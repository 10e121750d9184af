"""Sums of products by letters, as numpy's `einsum`; letters to sum become matrix products.

Operands are multiplied from the left, two at a time. A letter of only one of the two operands is
summed before their product, unless the result or a later operand has this letter.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import require_one_device
from ubridge.core.promotion import promoted
from ubridge.definitions.elementwise import MULTIPLY
from ubridge.ops.elementwise import plan_binary, plan_conversion
from ubridge.ops.engine import Plan, Value, plan_copy, reshaped, run
from ubridge.ops.products import plan_matmul
from ubridge.ops.reductions import plan_sum
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

_BEFORE_LETTERS = 1 << 16
"""First character for the axes of an ellipsis, beginning with the last axis."""


def plan_einsum(subscripts: str, *operands: Value) -> Value:
    """Plan sums of products over axes named by letters."""
    require_tensors("einsum", *operands)
    given, result = _parsed(subscripts, operands)
    require_one_device("einsum", *operands)
    dtype = operands[0]._dtype
    for one in operands[1:]:
        dtype = promoted("einsum", dtype, one._dtype)
    if dtype is bool_:
        raise ArgumentTypeError("einsum: expected numbers, got bool; astype the tensors, as to i64")
    parts = [
        _diagonal(plan_conversion(one, dtype), letters)
        for one, letters in zip(operands, given, strict=True)
    ]
    lengths = _lengths(parts)
    parts = [
        (x._viewed(x._layout.broadcast_to([lengths[one] for one in given])), given)
        for x, given in parts
    ]
    x, letters = parts[0]
    for at, part in enumerate(parts[1:], 2):
        later = set(result).union(*(other for _, other in parts[at:]))
        x, letters = _multiplied((x, letters), part, later)
    x, letters = _summed(x, letters, set(result))
    order = [letters.index(letter) for letter in result]
    x = x._viewed(x._layout.permute(order)) if letters else x
    return x if type(x) is Plan else plan_copy(x)


@remembered(plan_einsum)
def einsum(
    subscripts: str,
    *operands: Tensor,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return sums of products over axes named by letters: `einsum("ij,kj->ik", x, y)`.

    A letter of several operands is one axis; a letter that is not behind `->` is summed. Without
    `->` the result has the letters that occur once, in alphabetical order. A letter twice in an
    operand takes its diagonal; `...` stands for any further axes, which are broadcast. Lengths of 1
    are broadcast too. Raises `ArgumentValueError` for letters that do not match the operands.
    """
    return run(plan_einsum(subscripts, *operands), out, stream)


def _parsed(subscripts: str, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's axes."""
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(
            f'einsum: expected letters first, as "ij,jk->ik", got {type(subscripts).__name__}'
        )
    text = "".join(subscripts.split())
    inputs, arrow, result = text.partition("->")
    terms = inputs.split(",")
    require(
        operands and len(terms) == len(operands),
        f"einsum: {subscripts!r} names {len(terms)} operands, got {len(operands)}",
    )
    widest = 0
    for number, (term, one) in enumerate(zip(terms, operands, strict=True)):
        letters = _letters(subscripts, term)
        rest = len(one.shape) - len(letters)
        require(
            rest >= 0 and (not rest or "..." in term),
            f"einsum: operand {number} has shape {one.shape}, which {term!r} does not fit",
        )
        widest = max(widest, rest)
    further = "".join(chr(_BEFORE_LETTERS + axis) for axis in reversed(range(widest)))
    given = []
    for term, one in zip(terms, operands, strict=True):
        rest = len(one.shape) - len(_letters(subscripts, term))
        given.append(term.replace("...", further[len(further) - rest :]))
    if arrow:
        known = set(_letters(subscripts, result))
        require(
            len(known) == len(_letters(subscripts, result)) and known <= set(inputs),
            f"einsum: expected each letter of {result!r} once, and in an operand",
        )
        require(
            "..." in result or not further,
            f"einsum: {subscripts!r} says `...` of operands only",
        )
        return given, result.replace("...", further)
    once = sorted(one for one in set(inputs) - set(".,") if inputs.count(one) == 1)
    return given, further + "".join(once)


def _letters(subscripts: str, term: str) -> str:
    """A term's letters without its ellipsis."""
    letters = term.replace("...", "", 1)
    require(
        all(one.isascii() and one.isalpha() for one in letters),
        f"einsum: expected letters, `...`, `,` and one `->`, got {subscripts!r}",
    )
    return letters


def _diagonal(x: Value, letters: str) -> tuple[Value, str]:
    """The view with one axis for each letter: the diagonal of axes with the same letter."""
    if len(set(letters)) == len(letters):
        return x, letters
    unique = "".join(dict.fromkeys(letters))
    lengths, strides = [], []
    for letter in unique:
        axes = [axis for axis, one in enumerate(letters) if one == letter]
        found = {x.shape[axis] for axis in axes}
        require(
            len(found) <= 1,
            f"einsum: {letter!r} stands twice in an operand, for lengths {sorted(found)}",
        )
        lengths.append(found.pop())
        strides.append(sum(x._layout.strides[axis] for axis in axes))
    layout = Layout(lengths, strides, x._layout.start_offset)
    return x._viewed(layout), unique


def _lengths(parts: list[tuple[Any, str]]) -> dict[str, int]:
    """The length of each letter's axes."""
    lengths: dict[str, int] = {}
    for x, letters in parts:
        for letter, length in zip(letters, x.shape, strict=True):
            known = lengths.setdefault(letter, length)
            if known == 1:
                lengths[letter] = length
            elif length not in (1, known):
                name = repr(letter) if letter.isascii() else "an axis of `...`"
                raise ArgumentValueError(f"einsum: {name} has lengths {known} and {length}")
    return lengths


def _summed(x: Value, letters: str, kept: set[str]) -> tuple[Value, str]:
    """Sum over the axes of letters that are not in `kept`."""
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in kept)
    if not axes:
        return x, letters
    left = "".join(letter for letter in letters if letter in kept)
    return plan_sum(x, axes), left


def _multiplied(
    first: tuple[Value, str], second: tuple[Value, str], later: set[str]
) -> tuple[Value, str]:
    """The product of two operands, summed over their common letters that are not in `later`."""
    x, left = _summed(*first, later | set(second[1]))
    y, right = _summed(*second, later | set(first[1]))
    both = [letter for letter in left if letter in right]
    batch = "".join(letter for letter in both if letter in later)
    inner = "".join(letter for letter in both if letter not in later)
    rows = "".join(letter for letter in left if letter not in right)
    columns = "".join(letter for letter in right if letter not in left)
    a = _arranged(x, left, (*batch,), rows, inner)
    b = _arranged(y, right, (*batch,), inner, columns)
    lengths = {**dict(zip(left, x.shape, strict=True)), **dict(zip(right, y.shape, strict=True))}
    letters = batch + rows + columns
    shape = [lengths[letter] for letter in letters]
    product = plan_matmul(a, b) if inner else plan_binary(MULTIPLY, a, b)
    return reshaped(product, shape), letters


def _arranged(x: Value, letters: str, batch: tuple[str, ...], rows: str, columns: str) -> Value:
    """The elements with axes (batch…, rows, columns): a view if possible, else a copy."""
    order = [letters.index(letter) for letter in (*batch, *rows, *columns)]
    layout = x._layout.permute(order) if order else x._layout
    shape, split = layout.shape, len(batch) + len(rows)
    lengths = (*shape[: len(batch)], prod(shape[len(batch) : split]), prod(shape[split:]))
    return reshaped(x._viewed(layout), lengths)


__all__ = [
    "einsum",
]
