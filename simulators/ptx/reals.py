"""Floating point values: bits of a register to a value to compute with, and back (ISA §5.2.3)."""

from __future__ import annotations

from .types import F32, PtxType
from .writer import Writer


class Reals(Writer):
    """Adds conversions between bits and values."""

    def to_real(self, bits: str, kind: PtxType, *, flush: bool = False) -> str:
        """Convert a type's bits to an LLVM value for arithmetic."""
        if kind.name == "f16":
            half = self.value(f"bitcast i16 {bits} to half")
            return self.value(f"fpext half {half} to float")
        if kind.name == "bf16":
            wide = self.value(f"zext i16 {bits} to i32")
            bits = self.value(f"shl i32 {wide}, 16")
            return self.value(f"bitcast i32 {bits} to float")
        if flush and kind is F32:
            bits = self.flushed(bits)
        return self.value(f"bitcast {kind.llvm} {bits} to {kind.real}")

    def flushed(self, bits: str) -> str:
        """Bits of an f32, a denormal replaced by zero of its sign."""
        exponent = self.value(f"and i32 {bits}, {0x7F800000}")
        tiny = self.value(f"icmp eq i32 {exponent}, 0")
        sign = self.value(f"and i32 {bits}, {0x80000000}")
        return self.value(f"select i1 {tiny}, i32 {sign}, i32 {bits}")

    def from_real(self, value: str, kind: PtxType, *, flush: bool = False) -> str:
        """Convert a computed value to a type's bits, rounded to nearest even."""
        if kind.name == "f16":
            half = self.value(f"fptrunc float {value} to half")
            return self.value(f"bitcast half {half} to i16")
        if kind.name == "bf16":
            return self._nearest_bf16(value)
        bits = self.value(f"bitcast {kind.real} {value} to {kind.llvm}")
        return self.flushed(bits) if flush and kind is F32 else bits

    def _nearest_bf16(self, value: str) -> str:
        bits = self.value(f"bitcast float {value} to i32")
        low = self.value(f"lshr i32 {bits}, 16")
        odd = self.value(f"and i32 {low}, 1")
        nudge = self.value(f"add i32 {odd}, {0x7FFF}")
        rounded = self.value(f"add i32 {bits}, {nudge}")
        high = self.value(f"lshr i32 {rounded}, 16")
        is_nan = self.value(f"fcmp uno float {value}, 0.0")
        chosen = self.value(f"select i1 {is_nan}, i32 {0x7FFF}, i32 {high}")
        return self.value(f"trunc i32 {chosen} to i16")
