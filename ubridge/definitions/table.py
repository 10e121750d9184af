"""Every operation by its name, and every family."""

from __future__ import annotations

from ubridge.core.operation import Family, Op
from ubridge.definitions import (
    attention,
    elementwise,
    gcus,
    indexing,
    memory,
    products,
    rows,
    windows,
)

_KINDS = (elementwise, memory, indexing, rows, windows, products, attention, gcus)

OPS: dict[str, Op] = {
    one.name: one for kind in _KINDS for one in vars(kind).values() if isinstance(one, Op)
}
"""Operations by name, in the order of the definitions."""

FAMILIES: dict[str, Family] = {op.family.name: op.family for op in OPS.values()}
"""Name to family."""
