"""Write the tables of docs/guide/environment.md: `python -m build_support.environment_table`."""

from __future__ import annotations

import re
from pathlib import Path

from uhal._variables import BUILD, PACKAGE, SIMULATORS, TESTS
from uhal.environment import VARIABLES, with_simulated

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "environment.md"
_LEVELS, _AFTER_LEVELS = "Levels, best first: ", "A clone builds "
_HEAD = "| variable | value | if unset | effect |\n|---|---|---|---|\n"
_GROUPS = {BUILD: "Building", SIMULATORS: "Simulated drivers", TESTS: "Tests"}
"""Headings of the page's later tables, by the program that reads their variables."""


def table(reader: str) -> str:
    """Return the table of a program's variables: their values, defaults and effects."""
    return _HEAD + "".join(
        f"| `{one.name}` | {_cell(one.values)} | {one.otherwise} | {one.effect} |\n"
        for one in with_simulated().values()
        if one.reader == reader
    )


def _cell(values: str) -> str:
    """Shorten the values to a cell; the levels stand in a paragraph below the table."""
    kind, colon, _ = values.partition(": ")
    return f"{kind}, below" if colon else values


def page() -> str:
    """Return the page with today's table and levels."""
    text = PAGE.read_text("utf-8")
    text = _with_table(text, "# Environment variables", PACKAGE)
    for reader, heading in _GROUPS.items():
        text = _with_table(text, f"## {heading}", reader)
    before, _, rest = text.partition(_LEVELS)
    levels = [f"`{one}`" for one in VARIABLES["UHAL_HOST_LEVEL"].choices]
    named = f"{', '.join(levels[:5])},\n{', '.join(levels[5:])}.\n"
    return f"{before}{_LEVELS}{named}{_AFTER_LEVELS}{rest.partition(_AFTER_LEVELS)[2]}"


def _with_table(text: str, heading: str, reader: str) -> str:
    """Return the text with today's table in place of the first table below a heading."""
    before, _, section = text.partition(f"{heading}\n")
    between, _, rest = section.partition(_HEAD)
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    return f"{before}{heading}\n{between}{table(reader)}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
