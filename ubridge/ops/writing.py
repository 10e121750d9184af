"""Elements of a tensor overwritten: by a number, or by another tensor."""

from __future__ import annotations

from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.promotion import checked_number
from ubridge.core.rows import rows_of
from ubridge.definitions.memory import COPY2D, FILL
from ubridge.device.tensor_data import TensorData
from ubridge.ops import results
from ubridge.ops.elementwise import converted, plan_conversion, wrapped
from ubridge.ops.engine import (
    MOVED_AS,
    Plan,
    Value,
    bits_of,
    change,
    contiguous,
    plan_change,
    plan_copy,
    reshaped,
    write,
)
from ubridge.ops.remembering import remembered
from ubridge.ops.strided import Tensor
from uhal.errors import InvalidHandleError
from uhal.interop import StreamLike


def _plan_fill(x: Value, value: Any) -> Plan | None:
    """Plan a fill; `None` for element types that are filled as another type."""
    if x._dtype.name in MOVED_AS:
        return None
    return plan_change(FILL, x, (), (checked_number(FILL.name, x._dtype, value),))


@remembered(_plan_fill, changes=True)
def fill(x: Tensor, value: Any, *, stream: StreamLike | None = None) -> Tensor:
    """Set every element to a number; return the tensor."""
    number = checked_number(FILL.name, x._dtype, value)
    bits = bits_of(x)
    if bits is not x:
        number = wrapped(bits._dtype, number)
    change(FILL, bits, (), stream, (number,))
    return x


def _plan_copy_from(x: Value, source: Value) -> Plan | None:
    """Plan a copy over elements that are contiguous, or in rows at equal distances."""
    if not isinstance(source, TensorData) or x._dtype.name in MOVED_AS or not x._layout.size:
        return None
    given = plan_conversion(source, x._dtype)
    given = given._viewed(given._layout.broadcast_to(x._layout.shape))
    layout = x._layout
    if layout.is_contiguous:
        plan: Plan = plan_copy(given)
        plan.target = x
        return plan
    rows, columns, pitch, starts = rows_of(layout)
    if len(starts) > 1:
        return None
    lines = x._viewed(Layout((rows, columns), (pitch, 1), starts[0]))
    return plan_change(COPY2D, lines, (reshaped(contiguous(given), (rows, columns)),))


@remembered(_plan_copy_from, changes=True)
def copy_from(x: Tensor, source: Tensor, *, stream: StreamLike | None = None) -> Tensor:
    """Overwrite the elements with a tensor that broadcasts to x's shape; return x."""
    results.require_tensors("copy_from", source)
    if source._executor is not x._executor:
        raise InvalidHandleError(
            f"copy_from: expected a tensor on {x.device!r}, got one on {source.device!r}"
        )
    given: Any = converted(source, x._dtype, stream=stream)
    layout = given._layout.broadcast_to(x._layout.shape)
    if given._buffer is x._buffer and layout == x._layout:
        return x
    if not results.may_write("copy_from", x, given):
        given = given.copy(stream=stream)
        layout = given._layout.broadcast_to(x._layout.shape)
    write(given._viewed(layout), x, stream)
    return x
