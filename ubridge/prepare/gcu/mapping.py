"""Maps operations to Ubridge's entries, with the reasons why other entries are not used.

The mapping is what the kernels of the lowerings name; nothing is listed twice. The documentation's
table is `markdown_table` of all entries, and a test counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ubridge.core.operation import Op
from ubridge.definitions.table import OPS
from ubridge.prepare.gcu.elementwise import GELU_ERF_REASON
from ubridge.prepare.gcu.table import GCU
from uhal.dtypes import ALL

_NIBBLES = "the kernel takes the first minimum of a block for both of its halves"
_COPIES_NOTHING = "the kernel copies a buffer it never wrote: quantizing is commented out in it"

REFUSED: Mapping[str, str] = {
    **{f"ugelu_erf_{dtype}": GELU_ERF_REASON for dtype in ("bf16", "f16", "f32")},
    **{f"quantize_block_q4_k_{dtype}": _COPIES_NOTHING for dtype in ("bf16", "f16", "f32")},
    **{f"dequantize_block_q4_k_{dtype}": _NIBBLES for dtype in ("bf16", "f16")},
    "dequantize_block_q4_k_f32": f"{_NIBBLES}, and the first half of the elements twice",
}
"""Entry to the reason no operation uses it."""


def entry_name(op: Op, dtype: str, other: str | None = None) -> str | None:
    """Return the entry of an operation on GCUs, `None` where it has no kernel of its own.

    The entry need not exist.
    """
    lowering = GCU.get(op) or GCU.get(op.family)
    kernel = None if lowering is None else lowering.kernel
    if kernel is None or ("{other}" in kernel.entry) != (other is not None):
        return None
    return kernel.entry.format(root=op.root, dtype=dtype, other=other)


def mapped(entries: Iterable[str]) -> dict[str, str]:
    """Return the operation of each entry that has one."""
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
    """Return a table of every entry: its module, and its operation or the reason it has none."""
    operations = mapped(entry for entries in families.values() for entry in entries)
    lines = ["| Module | Entry | Operation |", "|---|---|---|"]
    for module, entries in families.items():
        for entry in entries:
            operation = operations.get(entry)
            said = f"refused: {REFUSED[entry]}" if operation is None else f"`{operation}`"
            lines.append(f"| {module} | `{entry}` | {said} |")
    return "\n".join(lines) + "\n"
