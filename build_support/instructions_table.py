"""Write docs/reference/ptx-instructions.md: `python -m build_support.instructions_table`."""

from __future__ import annotations

from pathlib import Path

from uhal.ptx.instructions import FORMS, SPECIAL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "ptx-instructions.md"
HEAD = """# PTX instructions

`python -m build_support.instructions_table` writes this page from `uhal/ptx/instructions.py`. Tests
check it. `op("mad.hi.u32", a, b, c)` of [`uhal.ptx`](ptx.md) emits any row but control flow, and
the [simulated driver](simulators.md) executes every row.

A form spells an opcode with its modifiers. Braces hold alternatives, or the name of a set of
alternatives from the next section. An empty alternative, or a `?` behind the name, makes the
modifier optional.

Operands: `=` marks a result, `?` an optional operand. `t` is the last type in the form, `t0` the
first, `w` a type twice as wide as `t`. `n` is an integer constant, `l` a label, `[]` an address,
`{x}` a vector, `x|y` a pair.

## Sets of modifiers

"""

SETS = {
    "space": ".global,.shared,.shared::cta,.shared::cluster,.local,.const"
    ",.param,.param::entry,.param::func",
    "window": ".global,.shared,.shared::cta,.shared::cluster,.local,.const",
    "visible": ".global,.shared,.shared::cta,.shared::cluster",
    "near": ".global,.shared,.shared::cta",
    "sem": ".relaxed,.acquire,.release,.acq_rel",
    "scope": ".cta,.cluster,.gpu,.sys",
    "cop": ".ca,.cg,.cs,.lu,.cv,.wb,.wt",
    "L1": ".L1::evict_normal,.L1::evict_unchanged,.L1::evict_first,.L1::evict_last"
    ",.L1::no_allocate",
    "L2": ".L2::evict_first,.L2::evict_last,.L2::evict_normal",
    "hint": ".L2::cache_hint",
    "size": ".L2::64B,.L2::128B,.L2::256B",
    "priority": ".L2::evict_last,.L2::evict_normal,.L2::evict_first,.L2::evict_unchanged",
    "other": ".L2::evict_first,.L2::evict_unchanged",
    "vec": ".v2,.v4,.v8",
    "type": ".b8,.b16,.b32,.b64,.b128,.u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64,.f32,.f64",
    "int": ".u8,.u16,.u32,.u64,.s8,.s16,.s32,.s64",
    "float": ".f16,.f32,.f64",
    "round": ".rn,.rz,.rm,.rp",
    "iround": ".rni,.rzi,.rmi,.rpi",
    "cmp": ".eq,.ne,.lt,.le,.gt,.ge,.equ,.neu,.ltu,.leu,.gtu,.geu,.num,.nan",
    "ucmp": ".eq,.ne,.lt,.le,.gt,.ge,.lo,.ls,.hi,.hs",
    "bool": ".and,.or,.xor",
    "layout": ".row,.col",
    "shape": ".m16n16k16,.m8n32k16,.m32n8k16",
}
"""Alternatives that many forms share, by the name that the page gives them."""
HINTS = "{cop?}{L1?}{L2?}{hint?}{size?}"
"""Cache hints of loads and stores, which the page calls `{hints}`."""


def shortened(pattern: str) -> str:
    """Return a form's pattern, with names for sets of modifiers."""
    for name, alternatives in SETS.items():
        pattern = pattern.replace(f"{{{alternatives}}}", f"{{{name}}}")
        pattern = pattern.replace(f"{{{alternatives},}}", f"{{{name}?}}")
    return pattern.replace(HINTS, "{hints}")


def expanded(cell: str) -> str:
    """Return the pattern from the result of `shortened`."""
    cell = cell.replace("{hints}", HINTS)
    for name, alternatives in SETS.items():
        cell = cell.replace(f"{{{name}}}", f"{{{alternatives}}}")
        cell = cell.replace(f"{{{name}?}}", f"{{{alternatives},}}")
    return cell


def page() -> str:
    """Return the text of the page."""
    spelled = {name: alternatives.split(",") for name, alternatives in SETS.items()}
    parts = [HEAD + f"* hints: `{HINTS}`"]
    for name, alternatives in spelled.items():
        parts.append(f"* {name}: " + ", ".join(f"`{one}`" for one in alternatives))
    chapter = ""
    for form in FORMS:
        own = form.section.partition(": ")[0]
        if own != chapter:
            chapter = own
            parts.append(f"\n## {chapter}\n\n| form | operands | target | PTX |\n|---|---|---|---|")
        operands = f"`{form.operands}`" if form.operands else ""
        cells = [f"`{shortened(form.pattern)}`", operands]
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
