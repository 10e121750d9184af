"""Write the table of docs/guide/environment.md: `python -m build_support.environment_table`."""

from __future__ import annotations

from pathlib import Path

from uhal.environment import VARIABLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "environment.md"
_LEVELS, _AFTER_LEVELS = "Levels, best first: ", "A clone builds "
_HEAD = "| variable | value | if unset | effect |\n|---|---|---|---|\n"


def table() -> str:
    """Return the table of every variable: its values, its default and its effect."""
    return _HEAD + "".join(
        f"| `{one.name}` | {_cell(one.values)} | {one.otherwise} | {one.effect} |\n"
        for one in VARIABLES.values()
    )


def _cell(values: str) -> str:
    """Shorten the values to a cell; the levels stand in a paragraph below the table."""
    kind, colon, _ = values.partition(": ")
    return f"{kind}, below" if colon else values


def page() -> str:
    """Return the page with today's table and levels."""
    before, _, rest = PAGE.read_text("utf-8").partition("| variable |")
    between, _, rest = rest.partition("\n\n")[2].partition(_LEVELS)
    after = rest.partition(_AFTER_LEVELS)[2]
    levels = [f"`{one}`" for one in VARIABLES["UHAL_HOST_LEVEL"].choices]
    named = f"{', '.join(levels[:5])},\n{', '.join(levels[5:])}.\n"
    return f"{before}{table()}\n{between}{_LEVELS}{named}{_AFTER_LEVELS}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
