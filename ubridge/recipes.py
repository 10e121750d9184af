"""`Recipe`: the quantized format of each matrix of a model, by llama.cpp's names.

A name is a format of `ENCODED`, or one of llama.cpp's mixtures such as `Q4_K_M`, in any case. Rows
that are no whole number of blocks get llama.cpp's fallback (`llama-quant.cpp`).
"""

from __future__ import annotations

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
    "Q3_K_S": "q3_K",
    "Q3_K_M": "q3_K",
    "Q3_K_L": "q3_K",
    "Q4_K_S": "q4_K",
    "Q4_K_M": "q4_K",
    "Q5_K_S": "q5_K",
    "Q5_K_M": "q5_K",
}
"""Names of llama.cpp's mixtures, and the format of most of their matrices."""
_FILE_TYPES = {
    **{"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_K": 10, "q3_K": 11},
    **{"q4_K": 14, "q5_K": 16, "q6_K": 18, "iq4_nl": 25, "iq4_xs": 30, "tq1_0": 36},
    **{"tq2_0": 37, "mxfp4": 38, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13},
    **{"Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17},
}
"""`general.file_type` by name (`enum llama_ftype` of llama.h)."""


_OUTPUTS = {"Q3_K_M": "q4_K", "Q3_K_L": "q5_K"}
"""Formats of attention's output."""
_OUTPUTS_OF_EIGHT = dict.fromkeys(("Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M"), "q5_K")
"""Formats of attention's output in models of eight experts."""


@dataclass(frozen=True)
class Shape:
    """Facts of a model that decide the formats of its matrices."""

    layers: int
    experts: int = 0
    is_falcon: bool = False
    is_grouped: bool = False
    """Whether several heads of queries share keys and values."""

    @property
    def is_70b(self) -> bool:
        """Whether llama.cpp counts the model among models of 70 billion parameters."""
        return self.layers == 80 and self.is_grouped


@dataclass(frozen=True)
class Recipe:
    """The formats of a model's matrices, by role and layer."""

    name: str
    usual: BlockFormat

    @property
    def file_type(self) -> int | None:
        """Value of `general.file_type` in GGUF files; None for a format without a number."""
        return _FILE_TYPES.get(self.name)

    def format_of(self, role: str, layer: int, model: Shape, columns: int) -> BlockFormat | None:
        """Return the format of a matrix with this many columns; None: it is not quantized.

        `role` is `head` (the embedding where there is none), `k`, `v`, `output`, `down`, or
        anything else. A matrix of queries, keys and values together is `v`.
        """
        chosen = self.wished(role, layer, model)
        if columns % chosen.elements == 0:
            return chosen
        fallback = FORMATS.get(FALLBACKS.get(chosen.name, ""))
        return fallback if fallback is not None and columns % fallback.elements == 0 else None

    def wished(self, role: str, layer: int, model: Shape) -> BlockFormat:
        """Return the format of a matrix whose rows are whole blocks."""
        return FORMATS[self._chosen(role, layer, model)]

    def _chosen(self, role: str, layer: int, model: Shape) -> str:
        usual = self.usual.name
        if self.name not in MIXTURES:
            return usual
        if role == "head":
            return "q8_0" if model.is_falcon else "q6_K"
        if role in ("k", "v") and model.experts == 8:
            return "q8_0"
        if role == "v":
            found = self._of_values(layer, model)
            return "q5_K" if model.is_70b and found in ("q3_K", "q4_K") else found
        if role == "down":
            return self._of_down(layer, model)
        if role == "output" and not model.is_falcon:
            return (_OUTPUTS_OF_EIGHT if model.experts == 8 else _OUTPUTS).get(self.name, usual)
        return "q4_K" if role == "output" and self.name == "Q3_K_L" else usual

    def _of_values(self, layer: int, model: Shape) -> str:
        usual = self.usual.name
        return {
            "Q3_K_M": "q5_K" if layer < 2 else "q4_K",
            "Q3_K_L": "q5_K",
            "Q4_K_S": "q5_K" if layer < 4 else usual,
            "Q4_K_M": "q6_K" if _needs_more(layer, model) else usual,
            "Q5_K_M": "q6_K" if _needs_more(layer, model) else usual,
        }.get(self.name, usual)

    def _of_down(self, layer: int, model: Shape) -> str:
        usual, needs_more = self.usual.name, _needs_more(layer, model)
        is_early, is_first = layer < model.layers // 8, layer < model.layers // 16
        if model.is_falcon:
            finer = {"Q3_K_M": "q4_K", "Q4_K_M": "q5_K", "Q5_K_M": "q6_K"} if needs_more else {}
            first = {"Q3_K_M": "q5_K", "Q4_K_M": "q6_K"} if is_first else {}
            return {"Q3_K_L": "q4_K", **finer, **first}.get(self.name, usual)
        return {
            "Q3_K_M": "q5_K" if is_first else "q4_K",
            "Q3_K_L": "q5_K",
            "Q4_K_S": "q5_K" if is_early else usual,
            "Q4_K_M": "q6_K" if needs_more else usual,
            "Q5_K_M": "q6_K" if needs_more else usual,
        }.get(self.name, usual)

    def summary(self, fallbacks: Mapping[BlockFormat | None, int]) -> str:
        """Return a line that counts matrices of other formats than wished; empty for none."""
        parts = [
            f"{count} matrices became {one.name}"
            if one is not None
            else f"{count} matrices stayed as they were"
            for one, count in fallbacks.items()
            if count
        ]
        if not parts:
            return ""
        return (
            f"quantize {self.name}: {' and '.join(parts)}, for their rows are no whole blocks of "
            f"{self.usual.elements} elements"
        )


def _needs_more(layer: int, model: Shape) -> bool:
    """Whether a layer is among the first or last eighth, or each third between them."""
    eighth = model.layers // 8
    is_outer = layer < eighth or layer >= 7 * model.layers // 8
    return is_outer or (layer - eighth) % 3 == 2


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
