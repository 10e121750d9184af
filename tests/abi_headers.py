"""Helpers for ABI headers: declarations of a text, and types reduced to machine types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uhal.abi import Header
from uhal.abi_table import table_of

_REDUCED = {"address": "void*", "text": "i8*", "char": "i8", "bool": "u8"}


def header_of(text: str, name: str = "abi.h") -> Header:
    """Return the declarations of a text."""
    return Header(table_of(text, name), name)


def canonical(encoded: Any) -> str:
    """Reduce an encoded type; types with equal strings are passed the same way."""
    if isinstance(encoded, str):
        return _REDUCED.get(encoded, encoded)
    kind, target, *rest = encoded
    if kind == "record":
        return str(target)
    if kind == "[]":
        return f"{canonical(target)}[{rest[0]}]"
    if kind == "()":
        return f"{canonical(target)}({', '.join(map(canonical, rest[0]))})*"
    return f"{canonical(target)}*"


def parameters(header: Header, function: str) -> tuple[str, ...]:
    """Return the reduced parameters of a function."""
    return tuple(canonical(kind) for _, kind in header.prototypes[function].parameters)


def parameter_lists(path: Path, lists: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Reduce parameter lists such as `(int a, void *b)`, with a header's types."""
    asked = "".join(f"int asked_{name}{text};\n" for name, text in lists.items())
    header = header_of(f"{path.read_text('utf-8')}\n{asked}")
    return {name: parameters(header, f"asked_{name}") for name in lists}
