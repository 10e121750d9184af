"""Write docs/reference/gcu_entries.md: `python -m build_support.gcu_table`.

The page maps Ubridge's entries to operations, with the reasons why other entries are not used. The
lowerings' kernels give the mapping; there is no second list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tops_backend import entries
from ubridge.core.operation import Op
from ubridge.definitions.table import OPS
from ubridge.prepare.gcu.elementwise import GELU_ERF_REASON
from ubridge.prepare.gcu.table import GCU
from uhal.dtypes import ALL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "gcu_entries.md"
_NIBBLES = "its kernel uses one minimum for both halves of a block"
_COPIES_NOTHING = "its kernel copies an unwritten buffer; quantizing is commented out"

REFUSED: Mapping[str, str] = {
    **{f"ugelu_erf_{dtype}": GELU_ERF_REASON for dtype in ("bf16", "f16", "f32")},
    **{f"quantize_block_q4_k_{dtype}": _COPIES_NOTHING for dtype in ("bf16", "f16", "f32")},
    **{f"dequantize_block_q4_k_{dtype}": _NIBBLES for dtype in ("bf16", "f16")},
    "dequantize_block_q4_k_f32": f"{_NIBBLES}; elements twice",
}
"""Maps an entry to the reason why no operation uses it."""


def entry_name(op: Op, dtype: str, other: str | None = None) -> str | None:
    """Return the entry of an operation on GCUs, `None` without its own kernel.

    The entry need not exist.
    """
    lowering = GCU.get(op) or GCU.get(op.family)
    kernel = None if lowering is None else lowering.kernel
    if kernel is None or ("{other}" in kernel.entry) != (other is not None):
        return None
    return kernel.entry.format(root=op.root, dtype=dtype, other=other)


def mapped(entries: Iterable[str]) -> dict[str, str]:
    """Return the operation of each entry with an operation."""
    known = frozenset(entries)
    names = [dtype.name for dtype in ALL]
    found: dict[str, str] = {}
    for op in OPS.values():
        for dtype in names:
            for other in (None, *names):
                entry = entry_name(op, dtype, other)
                if entry in known and entry not in REFUSED:
                    found.setdefault(entry, op.name)
    return found


def markdown_table(families: Mapping[str, Iterable[str]]) -> str:
    """Return a table of all entries: module, and operation or reason for having none."""
    operations = mapped(entry for names in families.values() for entry in names)
    lines = ["| Module | Entry | Operation |", "|---|---|---|"]
    for module, names in families.items():
        for entry in names:
            operation = operations.get(entry)
            said = f"refused: {REFUSED[entry]}" if operation is None else f"`{operation}`"
            lines.append(f"| {module} | `{entry}` | {said} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, and print counts."""
    families = entries.families()
    every = [entry for family in families.values() for entry in family]
    found = mapped(every)
    PAGE.write_text(
        "# Ubridge's kernels on GCUs\n\n"
        f"Ubridge has {len(every)} entries. Operations of ubridge launch {len(found)} of them; "
        f"{len(REFUSED)} are refused.\n"
        "`python -m build_support.gcu_table` writes this page from `ubridge/prepare/gcu/`.\n"
        "Compared with numpy on a simulated runtime; not run on a GCU.\n\n"
        f"{markdown_table(families)}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
