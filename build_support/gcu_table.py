"""Write docs/reference/gcu_entries.md: `python -m build_support.gcu_table`."""

from __future__ import annotations

from pathlib import Path

from tops_backend import entries
from ubridge.prepare.gcu.mapping import REFUSED, mapped, markdown_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "gcu_entries.md"


def main() -> None:
    """Count, and write the page."""
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
