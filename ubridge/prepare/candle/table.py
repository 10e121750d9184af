"""The lowerings for kernels with Candle's parameters: one table for GPUs, one for CPUs."""

from __future__ import annotations

from ubridge.core.lowering import Lowerings
from ubridge.definitions.products import MATMUL
from ubridge.prepare.candle import (
    attention,
    blocks,
    elementwise,
    host_axes,
    host_blocks,
    indexing,
    q8_1,
    rows,
    windows,
)
from ubridge.prepare.matmul.table import MatmulLowering

_ALL: Lowerings = {
    **elementwise.LOWERINGS,
    **indexing.LOWERINGS,
    **rows.LOWERINGS,
    **windows.LOWERINGS,
    **attention.LOWERINGS,
    **blocks.LOWERINGS,
    MATMUL: MatmulLowering(),
}

CANDLE: Lowerings = {**_ALL, **q8_1.LOWERINGS}
"""Lowerings for GPUs: vectors of 8 bits are Q8_1, as in Candle's kernels."""

CANDLE_ON_CPUS: Lowerings = {**_ALL, **host_axes.LOWERINGS, **host_blocks.LOWERINGS}
"""Lowerings for CPUs: vectors of 8 bits are Q8_0 and Q8_K."""
