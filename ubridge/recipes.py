"""`Recipe`: the quantized format of each matrix of a model, by llama.cpp's names.

A name is a format of `ENCODED`, or one of llama.cpp's mixtures such as `Q4_K_M`, in any case. Rows
that are no whole number of blocks get llama.cpp's fallback (`llama-quant.cpp`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ubridge.core.block_formats import FORMATS, BlockFormat, block_format
from ubridge.quantizing import ENCODED
from uhal.errors import ArgumentValueError

FALLBACKS: Mapping[str, str] = {
    "q2_K": "iq4_nl",
    "q3_K": "iq4_nl",
    "q4_K": "q5_0",
    "q5_K": "q5_1",
    "q6_K": "q8_0",
    "iq4_xs": "iq4_nl",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
}
"""Formats of 256 elements, and their fallbacks of 32."""
MIXTURES: Mapping[str, str] = {
    "Q4_K_S": "q4_K",
    "Q4_K_M": "q4_K",
    "Q5_K_S": "q5_K",
    "Q5_K_M": "q5_K",
}
"""Names of llama.cpp's mixtures, and the format of most of their matrices."""
_FILE_TYPES = {
    **{"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_K": 10, "q3_K": 11},
    **{"q4_K": 14, "q5_K": 16, "q6_K": 18, "iq4_nl": 25, "iq4_xs": 30, "tq1_0": 36},
    **{"tq2_0": 37, "mxfp4": 38, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17},
}
"""`general.file_type` by name (`enum llama_ftype` of llama.h)."""


@dataclass(frozen=True)
class Recipe:
    """The formats of a model's matrices, by role and layer."""

    name: str
    usual: BlockFormat

    @property
    def file_type(self) -> int | None:
        """Name in GGUF files; empty for formats without weights."""
        return _FILE_TYPES.get(self.name)

    def format_of(self, role: str, layer: int, layers: int, columns: int) -> BlockFormat | None:
        """Return the format of a matrix with this many columns; None: it is not quantized.

        `role` is `head` (the embedding where there is none), `v`, `down`, or anything else.
        """
        chosen = self._chosen(role, layer, layers)
        if columns % chosen.elements == 0:
            return chosen
        fallback = FORMATS.get(FALLBACKS.get(chosen.name, ""))
        return fallback if fallback is not None and columns % fallback.elements == 0 else None

    def _chosen(self, role: str, layer: int, layers: int) -> BlockFormat:
        if self.name not in MIXTURES:
            return self.usual
        if role == "head":
            return FORMATS["q6_K"]
        eighth = layers // 8
        if self.name.endswith("_M") and role in ("v", "down"):
            is_outer = layer < eighth or layer >= 7 * layers // 8
            return FORMATS["q6_K"] if is_outer or (layer - eighth) % 3 == 2 else self.usual
        early = {"v": 4, "down": eighth}.get(role, 0)
        return FORMATS["q5_K"] if self.name == "Q4_K_S" and layer < early else self.usual

    def summary(self, counts: Mapping[BlockFormat | None, int]) -> str:
        """Return a line that counts matrices of other formats; empty if there are none."""
        kept = Counter(counts)
        whole = {self.usual, *((FORMATS["q6_K"], FORMATS["q5_K"]) if self.name in MIXTURES else ())}
        parts = [
            f"{count} matrices became {one.name}"
            if one is not None
            else f"{count} matrices stayed as they were"
            for one, count in kept.items()
            if count and one not in whole
        ]
        if not parts:
            return ""
        return (
            f"quantize {self.name}: {' and '.join(parts)}, for their rows are no whole blocks of "
            f"{self.usual.elements} elements"
        )


def recipe_of(name: str | BlockFormat) -> Recipe:
    """Return the recipe of a name. `ArgumentValueError` lists the known names."""
    if isinstance(name, str) and name.upper() in MIXTURES:
        return Recipe(name.upper(), FORMATS[MIXTURES[name.upper()]])
    try:
        found = block_format(name)
    except ArgumentValueError:
        found = None
    if found is None or found.name not in ENCODED:
        why = "it is read and not written" if found is not None else "there is no such format"
        raise ArgumentValueError(
            f"quantize: expected one of {', '.join((*ENCODED, *MIXTURES))}, got {name!r}; {why}"
        )
    return Recipe(found.name, found)
