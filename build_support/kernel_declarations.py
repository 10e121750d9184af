"""Reads kernels' parameters from a preprocessed source, as its author wrote them.

Compilers keep the sizes and offsets of parameters, but drop the names and types. The signatures
beside an image have all four.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from uhal.errors import ArgumentValueError
from uhal.signature import Signature, merge


class DeclarationError(Exception):
    """The compiled kernels differ from the source's declarations."""


def declared_signatures(
    expanded: str, kernel: re.Pattern[str], compiled: Mapping[str, Signature]
) -> dict[str, Signature]:
    """Return the source's declarations of each compiled kernel, in the image's order.

    `expanded` is the source after the preprocessor; `kernel` matches the head of a kernel there, up
    to the parenthesis, with the name as its group. Raises `DeclarationError` if source and image
    have different kernels, and `ArgumentValueError` if they contradict each other about a kernel.
    """
    declared = {
        match[1]: _parts(_balanced(expanded, match.end() - 1))
        for match in kernel.finditer(expanded)
    }
    if sorted(declared) != sorted(compiled):
        raise DeclarationError(f"compiled are {sorted(compiled)}, declared {sorted(declared)}")
    return {name: _describe(declared[name], reported) for name, reported in compiled.items()}


def sidecar_text(signatures: Mapping[str, Signature]) -> str:
    """Return the lines of a `.sig` file."""
    return "".join(f"{entry}: {reported.declaration}\n" for entry, reported in signatures.items())


def _describe(parts: list[str], compiled: Signature) -> Signature:
    """The parameters in the source's spelling; a structure becomes its compiled size."""
    words = []
    for part, parameter in zip(parts, compiled, strict=True):
        try:
            Signature.parse(part)
            words.append(part)
        except ArgumentValueError:
            name = part.split()[-1].lstrip("*")
            words.append(f"ptr {name}" if "*" in part else f"bytes[{parameter.size}] {name}")
    declared = Signature.parse(", ".join(words), entry=compiled.entry, source="kernel source")
    merge(compiled, declared)
    return declared


def _parts(parameters: str) -> list[str]:
    inside = parameters[1:-1].strip()
    return [part.strip() for part in inside.split(",")] if inside else []


def _balanced(text: str, start: int) -> str:
    """The text in parentheses that opens at `start`, including the parentheses."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start : position + 1]
    raise DeclarationError("a parameter list is never closed")
