"""Cuts a GCU's matrix product into tiles: the tuner behind the `matmul_*` kernels.

A SIP multiplies tiles of `sip_m` by `sip_k` and `sip_k` by `sip_n` elements out of its own L1
memory. One of three modes decides how the SIPs divide the work: by the batch, the rows of the left
operand or the columns of the right operand. This tuner chooses the same tiles as Ubridge's tuner.
Only the cache differs: its key here includes the weight's type.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import lru_cache
from math import ceil
from typing import NamedTuple

L1_BYTES = 1536 * 1024 - 1024
"""Memory of one SIP that tiles may fill."""
ACCUMULATOR_BYTES = 524288
"""Vector accumulators of one SIP."""
_CACHED_SHAPES = 4096


class DataType(IntEnum):
    """Codes of Ubridge's kernels for the element types of products."""

    I8 = 0
    F16 = 4
    BF16 = 5
    F32 = 8
    I4 = 15


class Multicore(Enum):
    """The axis that is divided among the SIPs."""

    BATCH = "batch"
    LHS = "lhs"
    RHS = "rhs"


class AtenGemmInfo(NamedTuple):
    """A matrix product to tune: (batch, m, k) times (batch, k, n); all are at least 1."""

    data_type: DataType
    weight_type: DataType
    batch: int
    m: int
    k: int
    n: int


class AtenGemmTune(NamedTuple):
    """The tuner's decision: the tile in elements, and the axis divided among SIPs."""

    sip_m: int
    sip_k: int
    sip_n: int
    multicore: Multicore


@lru_cache(maxsize=_CACHED_SHAPES)
def tune(info: AtenGemmInfo) -> AtenGemmTune:
    """Choose tiles for a product with a result of the left operand's type."""
    return _tuned_f32(info) if info.data_type is DataType.F32 else _tuned_half(info)


class _Units(NamedTuple):
    """The least tile of a kernel, in elements, and the bytes of an element."""

    m: int
    k: int
    n: int
    element: int
    accumulator: int


def _tuned_f32(info: AtenGemmInfo) -> AtenGemmTune:
    units = _Units(m=32, k=32, n=64, element=4, accumulator=16)
    mode = _multicore(info, units)
    if _one_tile_fits(info, units):
        sip_m, sip_n = _widened(info, units, mode)
        return AtenGemmTune(sip_m, _up(info.k, units.k), sip_n, mode)
    sip_n = units.n
    sip_k = _up(info.k, units.k)
    if info.n // units.n > 1000:
        sip_n, sip_k = 256, 32
    depth = _greatest_depth(info, units, sip_n)
    if depth > 0:
        sip_k = _down(depth, 32)
    return AtenGemmTune(units.m, sip_k, sip_n, mode)


def _tuned_half(info: AtenGemmInfo) -> AtenGemmTune:
    units = _half_units(info)
    mode = _multicore(info, units)
    if _one_tile_fits(info, units):
        sip_m, sip_n = _widened(info, units, mode)
        sip_k = _up(info.k, units.k)
    else:
        sip_m, sip_n, mode = units.m, units.n, Multicore.RHS
        sip_k = min(_down(_greatest_depth(info, units, sip_n), units.k), info.k)
    if info.weight_type is DataType.I4 and sip_m > 128:
        sip_m = _down(sip_m, 128)
    if sip_m % 32 != 0 and sip_m != 1:
        sip_m = 32
    return AtenGemmTune(sip_m, sip_k, sip_n, mode)


def _half_units(info: AtenGemmInfo) -> _Units:
    rows = info.m * info.batch
    unit_m = 64 if rows > 32 else 1 if rows <= 8 else 32
    unit_k = 64 if info.m > 32 else 128
    if info.weight_type is DataType.I4:
        unit_k *= 2
    return _Units(m=unit_m, k=unit_k, n=128, element=2, accumulator=8)


def _multicore(info: AtenGemmInfo, units: _Units) -> Multicore:
    rows = ceil(info.m / units.m)
    columns = ceil(info.n / units.n)
    if info.batch >= rows and info.batch >= columns:
        return Multicore.BATCH
    return Multicore.LHS if rows >= columns else Multicore.RHS


def _one_tile_fits(info: AtenGemmInfo, units: _Units) -> bool:
    return _tile_bytes(info, units, units.m, units.n) <= L1_BYTES


def _tile_bytes(info: AtenGemmInfo, units: _Units, m: int, n: int) -> int:
    """L1 bytes of a tile of the whole depth, with operands double-buffered."""
    depth = _up(info.k, units.k)
    elements = 2 * m * depth + m * n + 2 * n * depth + _up(info.n, units.n)
    return elements * 2 * units.element


def _widened(info: AtenGemmInfo, units: _Units, mode: Multicore) -> tuple[int, int]:
    """Return (sip_m, sip_n); the side that is not divided among SIPs is as wide as fits."""
    if mode is Multicore.RHS:
        return _side(info, units, info.m, units.m, units.n), units.n
    return units.m, _side(info, units, info.n, units.n, units.m)


def _side(info: AtenGemmInfo, units: _Units, size: int, unit: int, other: int) -> int:
    whole = _up(size, unit)
    fits = (
        _tile_bytes(info, units, whole, other) <= L1_BYTES
        and units.accumulator * whole * other <= ACCUMULATOR_BYTES
    )
    if fits:
        return whole
    depth = _up(info.k, units.k)
    elements = L1_BYTES // 2 // units.element
    by_memory = _quotient(elements - 2 * depth * other - _up(info.n, units.n), 2 * depth + other)
    by_accumulators = ACCUMULATOR_BYTES // units.accumulator // other
    return min(_down(by_memory, unit), _down(by_accumulators, unit))


def _greatest_depth(info: AtenGemmInfo, units: _Units, sip_n: int) -> int:
    """Return the largest depth for the least tile; negative when N alone fills L1."""
    elements = L1_BYTES // 2 // units.element
    return _quotient(elements - units.m * sip_n - _up(info.n, units.n), 2 * units.m + 2 * sip_n)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _down(size: int, unit: int) -> int:
    return _quotient(size, unit) * unit


def _quotient(numerator: int, denominator: int) -> int:
    """Divide as C does, towards zero."""
    quotient = abs(numerator) // denominator
    return quotient if numerator >= 0 else -quotient
