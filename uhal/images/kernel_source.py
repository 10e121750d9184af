"""Advice about kernel sources that compilers refuse with unclear messages."""

from __future__ import annotations

import re

_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*>\s*KERNEL(?:_BOUNDED)?\s*\(")


def template_advice(source: str) -> str:
    """Return a line about a KERNEL that is declared as a template, "" where there is none."""
    if not _TEMPLATE.search(source):
        return ""
    return (
        "\nA KERNEL cannot be a template: its entry has one name and one list of types. Write the "
        "body as a template DEVICE_FUNCTION, and one KERNEL for each type that calls it."
    )
