"""A tensor as text. For a large tensor, only the edges are fetched from the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ubridge.ops.strided import StridedTensor

_MOST_PRINTED = 1000
_EDGE = 3
"""Elements of an axis printed at either end; both numbers are numpy's defaults."""


def text_of(tensor: StridedTensor, prefix: str) -> str:
    """Return the elements as numpy prints them; lines after the first are indented for `prefix`."""
    if tensor.buffer.closed:
        return "<closed>"
    if tensor.size <= _MOST_PRINTED:
        return np.array2string(tensor.to_numpy(), separator=", ", prefix=prefix)
    edges: Any = tensor.to_numpy() if tensor.ndim == 0 else _edges(tensor, 0)
    return np.array2string(edges, separator=", ", prefix=prefix, threshold=0, edgeitems=_EDGE)


def _edges(tensor: StridedTensor, axis: int) -> Any:
    """First and last elements of every axis; each end has one element more than the text."""
    if axis == tensor.ndim:
        return tensor.to_numpy()
    kept = _EDGE + 1
    length = tensor.shape[axis]
    if length <= 2 * kept:
        return _edges(tensor, axis + 1)
    first = _edges(tensor.narrow(axis, 0, kept), axis + 1)
    last = _edges(tensor.narrow(axis, length - kept, kept), axis + 1)
    return np.concatenate((first, last), axis)
