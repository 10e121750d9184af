"""The largest or smallest of an axis, in order."""

from __future__ import annotations

import operator

from ubridge.core.operand_checks import axis_of
from ubridge.ops import nn, selection
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


def topk(
    x: Tensor,
    k: int,
    axis: int = -1,
    largest: bool = True,
    *,
    stream: StreamLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest elements of an axis, or the smallest, and their places as u32.

    The largest, or smallest, comes first; of equal ones any. The whole axis is sorted. Raises
    `ArgumentValueError` unless 0 <= `k` <= the axis' length.
    """
    require_tensors("topk", x)
    place = axis_of("topk", x._layout, axis)
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise ArgumentTypeError(f"topk, k: expected an int, got {type(k).__name__}")
    count = operator.index(k)
    if not 0 <= count <= x.shape[place]:
        raise ArgumentValueError(
            f"topk, k: expected 0 to {x.shape[place]}, the length of axis {place}, got {count}"
        )
    order = nn.argsort(x, place, largest, stream=stream)
    ids = order.narrow(place, 0, count).contiguous(stream=stream)
    return selection.gather(x, ids, place, stream=stream), ids


__all__ = ["topk"]
