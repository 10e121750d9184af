"""The fundamental types of PTX (ISA manual §5.2) and how a register holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["predicate", "bits", "unsigned", "signed", "float", "packed"]


@dataclass(frozen=True)
class PtxType:
    """A type as an instruction names it.

    A register holds bits: `llvm` is their integer type, and `real` is the type in which LLVM
    computes. Narrow floats are computed in f32 and rounded once, which is exact for a sum, a
    difference or a product.
    """

    name: str
    kind: Kind
    width: int

    @property
    def llvm(self) -> str:
        """The LLVM integer that holds the bits."""
        return f"i{self.width}"

    @property
    def real(self) -> str:
        """The LLVM type of the value in arithmetic."""
        if self.kind != "float":
            return self.llvm
        return "double" if self.name == "f64" else "float"

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        return max(self.width // 8, 1)

    @property
    def is_float(self) -> bool:
        """A single floating point value, not a pair."""
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        """A signed integer, in two's complement."""
        return self.kind == "signed"

    @property
    def element(self) -> PtxType:
        """The type of a packed pair's halves."""
        return TYPES[self.name.removesuffix("x2")]


def _all_types() -> dict[str, PtxType]:
    types = [PtxType("pred", "predicate", 1)]
    for width in (8, 16, 32, 64, 128):
        types.append(PtxType(f"b{width}", "bits", width))
    for width in (8, 16, 32, 64):
        types.append(PtxType(f"u{width}", "unsigned", width))
        types.append(PtxType(f"s{width}", "signed", width))
    for name, width in (("f16", 16), ("bf16", 16), ("f32", 32), ("f64", 64)):
        types.append(PtxType(name, "float", width))
    types.append(PtxType("tf32", "float", 32))
    types += [PtxType(name, "float", 8) for name in ("e4m3", "e5m2")]
    types += [PtxType(name, "packed", 16) for name in ("e4m3x2", "e5m2x2")]
    types += [PtxType(name, "packed", 32) for name in ("f16x2", "bf16x2", "u16x2", "s16x2")]
    return {one.name: one for one in types}


TYPES = _all_types()
"""Types by name, without the dot."""

PRED = TYPES["pred"]
B16 = TYPES["b16"]
B32 = TYPES["b32"]
B64 = TYPES["b64"]
U32 = TYPES["u32"]
S32 = TYPES["s32"]
U64 = TYPES["u64"]
F16 = TYPES["f16"]
BF16 = TYPES["bf16"]
F32 = TYPES["f32"]
F64 = TYPES["f64"]

BITS = {width: TYPES[f"b{width}"] for width in (8, 16, 32, 64, 128)} | {1: PRED}
"""The untyped register of each width."""
