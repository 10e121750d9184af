"""The page of instructions matches the table."""

from __future__ import annotations

from build_support import instructions_table
from uhal.ptx.instructions import FORMS


def test_the_page_is_in_step() -> None:
    """Written by `python -m build_support.instructions_table`."""
    text = instructions_table.PAGE.read_text(encoding="utf-8")
    assert text == instructions_table.page()
    cells = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert {form.pattern for form in FORMS} <= set(map(instructions_table.expanded, cells))
