"""Handlers of instructions: they emit the forms in the product's table.

The table, `uhal/ptx/instructions.py`, has the forms. The families (integer.py, …) attach
a handler to each of its keys with the decorator `instruction`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UnsupportedPtxError
from .program import Instruction

if TYPE_CHECKING:
    from uhal.ptx import instructions
else:
    # Loaded by path, without uhal: its import would take longer than a kernel.
    _PATH = Path(__file__).resolve().parents[2] / "uhal" / "ptx" / "instructions.py"
    _SPEC = importlib.util.spec_from_file_location(f"{__name__}.instructions", _PATH)
    instructions = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(instructions)

Handler = Callable[[Any, Instruction], None]
"""Emits an instruction; its first argument is the `Emitter`, which looks instructions up here."""


@dataclass(frozen=True)
class InstructionRow:
    """Handler of an instruction's forms."""

    handler: Handler
    suspends: bool
    """Whether a thread waits for other threads in it."""


ROWS: dict[str, InstructionRow] = {}
"""Instructions by the keys of the product's table."""


def instruction(*keys: str, suspends: bool = False) -> Callable[[Handler], Handler]:
    """Attach the decorated function to keys of the table."""

    def enter(handler: Handler) -> Handler:
        for key in keys:
            ROWS[key] = InstructionRow(handler, suspends)
        return handler

    return enter


def find(one: Instruction) -> InstructionRow:
    """The handler of an instruction. Raises `UnsupportedPtxError` that names line and section."""
    form = instructions.find(one.spelling)
    if form is not None:
        return ROWS[form.key]
    forms = instructions.forms_of(one.name)
    section = forms[0].section if forms else _absent_section(one)
    raise UnsupportedPtxError(f"{one.spelling} is not executed here (PTX ISA §{section})", one.line)


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
"""Known instructions without a row, with their sections of the manual."""


def is_known(name: str) -> bool:
    """Say whether the manual has an opcode, executed here or not."""
    return bool(instructions.forms_of(name)) or name in ABSENT


def _absent_section(one: Instruction) -> str:
    return ABSENT.get(one.name, "9.7 Instructions: no such opcode is known")
