"""The table of instructions: each form that is executed, its section and what emits it.

A row's pattern spells an opcode with its modifiers; braces hold alternatives, an empty one makes
the modifier optional: `add{.rn,.rz,}{.ftz,}.f32`. The families (integer.py, floating.py, …) add
their rows with the decorator `instruction`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from .errors import UnsupportedPtxError
from .program import Instruction

Handler = Callable[[Any, Instruction], None]
"""Emits an instruction; its first argument is the `Emitter`, which looks instructions up here."""

_PART = re.compile(r"\{([^}]*)\}|([^{]+)")


@dataclass(frozen=True)
class Row:
    """One form of an instruction."""

    pattern: str
    section: str
    """Of the PTX ISA manual 9.0: chapter, its title, the instruction."""
    handler: Handler
    suspends: bool
    """Whether a thread waits in it for others."""

    @property
    def name(self) -> str:
        """The opcode."""
        return re.split(r"[.{]", self.pattern, maxsplit=1)[0]

    def parts(self) -> list[list[str]]:
        """The alternatives of each part of the pattern, in order."""
        return [
            [one.strip() for one in found[1].split(",")] if found[1] is not None else [found[2]]
            for found in _PART.finditer(self.pattern)
        ]

    def spellings(self) -> Iterator[str]:
        """Every spelling the row allows."""
        return ("".join(choice) for choice in product(*self.parts()))


ROWS: list[Row] = []
_BY_NAME: dict[str, list[tuple[re.Pattern[str], Row]]] = {}


def instruction(
    *patterns: str, section: str, suspends: bool = False
) -> Callable[[Handler], Handler]:
    """Enter forms into the table; the decorated function emits them."""

    def enter(handler: Handler) -> Handler:
        for pattern in patterns:
            row = Row(pattern, section, handler, suspends)
            expression = "".join(
                "(?:" + "|".join(re.escape(one) for one in choices) + ")" for choices in row.parts()
            )
            ROWS.append(row)
            _BY_NAME.setdefault(row.name, []).append((re.compile(expression), row))
        return handler

    return enter


def find(one: Instruction) -> Row:
    """The row of an instruction. Raises `UnsupportedPtxError` that names line and section."""
    rows = _BY_NAME.get(one.name)
    spelling = _in_order(one) if one.name in _ANY_ORDER else one.spelling
    for expression, row in rows or ():
        if expression.fullmatch(spelling):
            return row
    section = rows[0][1].section if rows else _absent_section(one)
    raise UnsupportedPtxError(f"{one.spelling} is not executed here (PTX ISA §{section})", one.line)


_ANY_ORDER = ("atom", "red")
"""Instructions whose modifiers compilers write in different orders; ptxas takes them all."""
_ORDER = {
    modifier: rank
    for rank, modifiers in enumerate(
        (
            ("relaxed", "acquire", "release", "acq_rel"),
            ("cta", "cluster", "gpu", "sys"),
            ("global", "shared", "shared::cta", "shared::cluster"),
            ("add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max"),
            ("noftz",),
            ("L2::cache_hint",),
            ("v2", "v4", "v8"),
        )
    )
    for modifier in modifiers
}


def _in_order(one: Instruction) -> str:
    """The spelling with its modifiers in the manual's order, the type last."""
    ordered = sorted(one.modifiers, key=lambda modifier: _ORDER.get(modifier, len(_ORDER)))
    return ".".join((one.name, *ordered))


ABSENT = {
    "tex": "9.7.10 Texture",
    "tld4": "9.7.10 Texture",
    "txq": "9.7.10 Texture",
    "istypep": "9.7.10 Texture",
    "suld": "9.7.11 Surface",
    "sust": "9.7.11 Surface",
    "sured": "9.7.11 Surface",
    "suq": "9.7.11 Surface",
    "mbarrier": "9.7.13 Parallel Synchronization and Communication: mbarrier",
    "wgmma": "9.7.15 Asynchronous Warpgroup-Level Matrix",
    "tcgen05": "9.7.16 TensorCore 5th Generation",
    "stacksave": "9.7.17 Stack Manipulation",
    "alloca": "9.7.17 Stack Manipulation",
    "multimem": "9.7.9 Data Movement and Conversion: multimem",
    "cp": "9.7.9 Data Movement and Conversion: cp.async.bulk",
    "createpolicy": "9.7.9 Data Movement and Conversion: createpolicy",
    "mapa": "9.7.9 Data Movement and Conversion: mapa",
    "getctarank": "9.7.9 Data Movement and Conversion: getctarank",
    "tensormap": "9.7.9 Data Movement and Conversion: tensormap.replace",
    "stmatrix": "9.7.14 Warp-Level Matrix: stmatrix",
    "movmatrix": "9.7.14 Warp-Level Matrix: movmatrix",
    "clusterlaunchcontrol": "9.7.13 Parallel Synchronization and Communication",
    "stackrestore": "9.7.17 Stack Manipulation",
}
"""Instructions that are known and have no row, with their sections."""


def is_known(name: str) -> bool:
    """Say whether the manual has an opcode, executed here or not."""
    return name in _BY_NAME or name in ABSENT


def _absent_section(one: Instruction) -> str:
    return ABSENT.get(one.name, "9.7 Instructions: no such opcode is known")
