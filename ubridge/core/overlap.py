"""The overlap rule for a result and its operands, by addresses and extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ubridge.core.layout import Layout
from ubridge.core.operation import Op


class Span(NamedTuple):
    """The memory of a tensor."""

    address: int
    """Address of the first element, in bytes; never dereferenced."""
    layout: Layout
    """Layout, relative to the first element."""
    itemsize: int

    def may_share(self, other: Span) -> bool:
        """Return whether both tensors may share a byte.

        False is always exact. True may be wrong for strided layouts, but not for parts of the same
        rows.
        """
        here, there = self.address, other.address
        if not self.nbytes or not other.nbytes:
            return False
        if there >= here + self.nbytes or here >= there + other.nbytes:
            return False
        if self.layout.is_contiguous and other.layout.is_contiguous:
            return True
        return not any(
            _are_apart(self, other, stride * one.itemsize)
            for one in (self, other)
            for stride in one.layout.strides
        )

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last, gaps included."""
        return self.layout.extent * self.itemsize


def _are_apart(one: Span, other: Span, pitch: int) -> bool:
    """Return whether two tensors lie in different columns of rows that are `pitch` bytes apart."""
    width, further = _width(one, pitch), _width(other, pitch)
    if not width or not further:
        return False
    distance = (other.address - one.address) % pitch
    return width <= distance and distance + further <= pitch


def _width(span: Span, pitch: int) -> int:
    """Return the bytes that a tensor takes of each row, 0 where it does not lie in such rows."""
    width = span.itemsize
    for length, stride in zip(span.layout.shape, span.layout.strides, strict=True):
        step = stride * span.itemsize
        if length > 1 and (not pitch or step % pitch):
            width += (length - 1) * step
    return width if width <= pitch else 0


def conflict(op: Op, result: Span, operands: Sequence[Span]) -> int | None:
    """Return the first operand that overlaps the result against the rule, if any.

    A result may overlap an operand only if the operation allows it and both have the same address,
    layout and item size.
    """
    for number, one in enumerate(operands):
        if not one.may_share(result):
            continue
        is_same = (one.address, one.itemsize) == (result.address, result.itemsize)
        if number >= op.family.replaces or not is_same or not _lie_alike(one.layout, result.layout):
            return number
    return None


def _lie_alike(one: Layout, other: Layout) -> bool:
    """Return whether two layouts place elements alike; strides of one-element axes are ignored."""
    return one.words == other.words or (
        one.shape == other.shape
        and all(
            length == 1 or here == there
            for length, here, there in zip(one.shape, one.strides, other.strides, strict=True)
        )
    )
