"""Rounds a Python float to 16 or 8 bits in one step, to nearest, ties to even.

Going through f32, as numpy extensions do, rounds twice and is sometimes one unit off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class _Format:
    nbytes: int
    precision: int
    """Significant bits, the hidden one included."""
    least_exponent: int
    """Exponent of the smallest normal number."""
    overflow: int
    """The first bit pattern above the largest finite number."""
    nan: int
    has_infinity: bool


_FORMATS = {
    "f16": _Format(2, 11, -14, 0x7C00, 0x7E00, True),
    "bf16": _Format(2, 8, -126, 0x7F80, 0x7FC0, True),
    "f8e4m3": _Format(1, 4, -6, 0x7F, 0x7F, False),
}


def pack_small_float(dtype_name: str, value: float) -> bytes:
    """Return the bytes of `value` as `f16`, `bf16` or `f8e4m3`, in the machine's order.

    `OverflowError` when a finite value, or an infinity the type lacks, cannot be held.
    """
    form = _FORMATS[dtype_name]
    bits = _magnitude_bits(form, abs(value))
    if math.copysign(1.0, value) < 0:
        bits |= 1 << (8 * form.nbytes - 1)
    return bits.to_bytes(form.nbytes, "little")


def _magnitude_bits(form: _Format, magnitude: float) -> int:
    if math.isnan(magnitude):
        return form.nan
    if math.isinf(magnitude):
        if not form.has_infinity:
            raise OverflowError
        return form.overflow
    if magnitude == 0:
        return 0
    exponent = max(math.frexp(magnitude)[1] - 1, form.least_exponent)
    hidden = 1 << (form.precision - 1)
    count = round(math.ldexp(magnitude, form.precision - 1 - exponent))
    # Subnormals have count < hidden and fall into exponent field 0; a round up carries over.
    bits = (exponent - form.least_exponent) * hidden + count
    if bits >= form.overflow:
        raise OverflowError
    return bits
