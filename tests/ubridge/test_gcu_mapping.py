"""All of Ubridge's entries: mapped to an operation, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

from build_support.gcu_table import REFUSED, entry_name, mapped, markdown_table
from tops_backend import entries
from ubridge.definitions.table import OPS
from ubridge.prepare.gcu.table import GCU

TABLE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "gcu_entries.md"
ALL = [entry for family in entries.families().values() for entry in family]


def test_every_entry_is_mapped_or_refused() -> None:
    found = mapped(ALL)
    assert len(ALL) == len(set(ALL)) == 320
    assert set(found) | set(REFUSED) == set(ALL)
    assert not set(found) & set(REFUSED)
    assert (len(found), len(REFUSED)) == (311, 9)


def test_lowerings_name_the_module_an_entry_is_in() -> None:
    for entry, name in mapped(ALL).items():
        op = OPS[name]
        kernel = (GCU.get(op) or GCU[op.family]).kernel
        assert kernel is not None
        assert entry in entries.families()[kernel.module], entry
        # Launches pass arguments by these names.
        assert all(parameter.name for parameter in entries.signatures()[entry]), entry


def test_what_has_no_kernel_has_no_entry() -> None:
    assert entry_name(OPS["scatter"], "f32", "u32") is None
    assert entry_name(OPS["exp"], "f32", "u32") is None
    assert entry_name(OPS["exp"], "f32") == "uexp_f32"


def test_the_documented_table_is_the_mapping() -> None:
    """Written by `python -m build_support.gcu_table`."""
    assert markdown_table(entries.families()) in TABLE.read_text(encoding="utf-8")
