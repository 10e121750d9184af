"""Write docs/reference/ptx-instructions.md: `python -m build_support.instructions_table`."""

from __future__ import annotations

from pathlib import Path

from uhal.ptx.instructions import FORMS, SPECIAL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "ptx-instructions.md"
HEAD = """# PTX instructions

`python -m build_support.instructions_table` writes this page from `uhal/ptx/instructions.py`. Tests
check it. `op("mad.hi.u32", a, b, c)` of [`uhal.ptx`](ptx.md) emits any row but control flow, and
the [simulated driver](simulators.md) executes every row.

A form spells an opcode with its modifiers. Braces hold alternatives; an empty alternative makes
the modifier optional. Operands: `=` marks a result, `?` an operand that may be left out. `t` is the
last type the form names, `t0` the first, `w` a type twice as wide as `t`. `n` is an integer
constant, `l` a label, `[]` an address, `{x}` a vector, `x|y` a pair.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    chapter = ""
    for form in FORMS:
        own = form.section.partition(": ")[0]
        if own != chapter:
            chapter = own
            parts.append(f"\n## {chapter}\n\n| form | operands | target | PTX |\n|---|---|---|---|")
        operands = f"`{form.operands}`" if form.operands else ""
        cells = [f"`{form.pattern}`", operands]
        row = " | ".join(cell.replace("|", "\\|") for cell in cells)
        parts.append(f"| {row} | sm_{form.target} | {form.version[0]}.{form.version[1]} |")
    parts.append("\n## Predefined registers\n\n| register | type |\n|---|---|")
    parts += [f"| `{name}` | {kind} |" for name, kind in SPECIAL.items()]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
