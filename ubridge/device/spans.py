"""Address ranges of buffers, for the overlap rule of `core/overlap.py`."""

from __future__ import annotations

from collections.abc import Sequence

from ubridge.core.layout import Layout
from ubridge.core.operation import Op
from ubridge.core.overlap import Span, conflict
from ubridge.core.question import Question
from uhal import DeviceBuffer
from uhal.errors import ArgumentValueError
from uhal.frameworks import address_of, shares_memory


def span_of(buffer: DeviceBuffer, layout: Layout) -> Span:
    """Return the memory of a layout's elements."""
    itemsize = buffer.dtype.itemsize
    start = layout.start_offset
    return Span(address_of(buffer) + start * itemsize, layout.from_start, itemsize)


def require_apart(question: Question, out: object, given: tuple[object, ...]) -> None:
    """Refuse a result in memory that the operation reads after it wrote the result.

    A graph checks the memory of descriptions.
    """
    if not isinstance(out, DeviceBuffer) or not shares_memory(out, *given):
        return
    operands = [
        span_of(buffer, layout)
        for (_, layout), buffer in zip(question.operands, given, strict=False)
        if isinstance(buffer, DeviceBuffer)
    ]
    require_no_conflict(question.op, span_of(out, question.result[1]), operands)


def require_no_conflict(op: Op, result: Span, operands: Sequence[Span]) -> None:
    """Refuse a result in the memory of an operand that the result may not replace."""
    found = conflict(op, result, operands)
    if found is not None:
        raise ArgumentValueError(
            f"{op.name}, out: expected memory apart from the operands', got memory that operand "
            f"{found} lies in. Give other memory, or a copy of the operand."
        )
