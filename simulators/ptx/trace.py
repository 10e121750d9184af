"""Trace of a kernel: each instruction before it runs, each register it wrote.

The run time passes on the chosen thread's trace (`trace` in runtime/ptx.h) and drops the rest.
"""

from __future__ import annotations

from .operands import Operands
from .program import Register
from .types import PtxType


def trace_instruction(e: Operands, line: int) -> None:
    """Report that the instruction of a line is about to run."""
    _tell(e, line, "null", "null", "0")


def trace_result(e: Operands, line: int, name: str, kind: PtxType) -> None:
    """Report a register's value; `kind` is its type in the instruction."""
    if kind.width <= 64:
        bits = e.resized(e.read(Register(name), kind), kind.width, 64, signed=False)
        _tell(e, line, _text(e, name), _text(e, kind.name), bits)


def _tell(e: Operands, line: int, name: str, kind: str, bits: str) -> None:
    function = e.field("trace", "ptr")
    thread = "ptr %block, i32 %tx, i32 %ty, i32 %tz"
    e.line(f"call void {function}({thread}, i32 {line}, ptr {name}, ptr {kind}, i64 {bits})")


def _text(e: Operands, text: str) -> str:
    symbol = f'@"text.{text}"'
    size = len(text) + 1
    constant = f'private constant [{size} x i8] c"{text}\\00"'
    e.declarations[f"text.{text}"] = f"{symbol} = {constant}"
    return symbol
