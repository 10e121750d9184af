"""The formats of quantized weights: one row for each kind of block in ggml's files.

`ubridge/kernels/blocks.h` and `codebook_blocks.h` define the elements of a block, one struct a
format. Kernels, operations and tests of every format are derived from them and this table. A new
format is a struct, its line in the list of its header, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uhal import DType
from uhal.dtypes import u8, u16, u32
from uhal.errors import ArgumentValueError


@dataclass(frozen=True)
class BlockFormat:
    """Memory layout of the elements in a block."""

    name: str
    ggml_type: int
    """The format's number in files (`enum ggml_type` of ggml.h)."""
    elements: int
    """Elements of a block. Rows hold whole blocks."""
    block_bytes: int
    """Bytes of a block."""
    word: DType
    """The type by which kernels read a block; blocks are aligned to its size."""
    summary: str

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of a row. `ArgumentValueError` for rows with a part of a block."""
        if columns < 0 or columns % self.elements:
            raise ArgumentValueError(
                f"{self.name}: expected rows of whole blocks of {self.elements} elements, "
                f"got {columns} columns"
            )
        return columns // self.elements * self.block_bytes

    @property
    def activations(self) -> int:
        """Elements that share a scale in the 8-bit vectors for products."""
        return 256 if self.elements % 256 == 0 else 32


# fmt: off
_ROWS = (
    ("q4_0",     2,  32,  18, u16, "4 bits under a scale of 32 elements"),
    ("q4_1",     3,  32,  20, u16, "4 bits under a scale and a minimum of 32"),
    ("q5_0",     6,  32,  22, u16, "5 bits under a scale of 32"),
    ("q5_1",     7,  32,  24, u16, "5 bits under a scale and a minimum of 32"),
    ("q8_0",     8,  32,  34, u16, "8 bits under a scale of 32"),
    ("q8_1",     9,  32,  36, u32, "8 bits under a scale of 32, with their sum; of activations"),
    ("q2_K",    10, 256,  84, u32, "2 bits under scales and minimums of 16"),
    ("q3_K",    11, 256, 110, u16, "3 bits under scales of 16"),
    ("q4_K",    12, 256, 144, u32, "4 bits under scales and minimums of 32"),
    ("q5_K",    13, 256, 176, u32, "5 bits under scales and minimums of 32"),
    ("q6_K",    14, 256, 210, u16, "6 bits under scales of 16"),
    ("q8_K",    15, 256, 292, u32, "8 bits under a scale of 256, with sums; of activations"),
    ("iq2_xxs", 16, 256,  66, u16, "a book of 256 magnitudes of 8 elements"),
    ("iq2_xs",  17, 256,  74, u16, "a book of 512 magnitudes of 8 elements"),
    ("iq3_xxs", 18, 256,  98, u16, "a book of 256 magnitudes of 4 elements"),
    ("iq1_s",   19, 256,  50, u16, "a book of 2048 signs of 8 elements, scales of 32"),
    ("iq4_nl",  20,  32,  18, u16, "16 values under a scale of 32"),
    ("iq3_s",   21, 256, 110, u16, "a book of 512 magnitudes of 4 elements"),
    ("iq2_s",   22, 256,  82, u16, "a book of 1024 magnitudes of 8 elements"),
    ("iq4_xs",  23, 256, 136, u16, "16 values under scales of 32"),
    ("iq1_m",   29, 256,  56, u16, "a book of 2048 signs of 8 elements, scales of 16"),
    ("tq1_0",   34, 256,  54, u16, "-1, 0 and 1, five in a byte, under a scale of 256"),
    ("tq2_0",   35, 256,  66, u16, "-1, 0 and 1, 2 bits each, under a scale of 256"),
    ("mxfp4",   39,  32,  17, u8,  "E2M1 under a power of two of 32"),
    ("nvfp4",   40,  64,  36, u8,  "E2M1 under scales of E4M3 of 16"),
)
# fmt: on

FORMATS: Mapping[str, BlockFormat] = {row[0]: BlockFormat(*row) for row in _ROWS}
"""Formats by name."""
_BY_LOWER = {name.lower(): format for name, format in FORMATS.items()}


def activation_bytes(columns: int) -> int:
    """Return the bytes of an 8-bit vector, enough on every backend (kernels/activations.h)."""
    return -(-columns // 64) * 80


def block_format(format: BlockFormat | str) -> BlockFormat:
    """Return the format of a name, in upper or lower case.

    Raises `ArgumentValueError` for a name that is not in `FORMATS`.
    """
    found = _BY_LOWER.get(format.lower()) if isinstance(format, str) else format
    if not isinstance(found, BlockFormat):
        raise ArgumentValueError(f"no block format {format!r}; there are {', '.join(FORMATS)}")
    return found
