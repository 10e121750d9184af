"""The operations of the table on one and two tensors as functions, under the table's names.

`functions.pyi` tells type checkers their names; `python -m build_support.operations_table` writes
it. `ubridge` exports every name in `__all__` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ubridge.core.operation import Family, Op
from ubridge.definitions.elementwise import BINARY, COMPARISON, UNARY
from ubridge.definitions.table import OPS
from ubridge.ops.elementwise import binary_function, unary_function

KINDS: Mapping[Family, Callable[[Op], Any]] = {
    UNARY: unary_function,
    BINARY: binary_function,
    COMPARISON: binary_function,
}
"""Maps a family of operations to the factory of their functions."""

__all__ = sorted(op.name for op in OPS.values() if op.family in KINDS)
globals().update({name: KINDS[OPS[name].family](OPS[name]) for name in __all__})
