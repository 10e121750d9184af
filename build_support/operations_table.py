"""Write docs/reference/operations.md: `python -m build_support.operations_table`."""

from __future__ import annotations

from pathlib import Path

from ubridge.definitions.table import OPS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "operations.md"


def markdown_table() -> str:
    """Return a table of every operation with dtypes: operands, result and accuracy."""
    lines = [
        "| Operation | Computes | Operands | Result | Dtypes | Largest error of floats |",
        "|---|---|---|---|---|---|",
    ]
    for op in OPS.values():
        if op.dtypes:
            summary, family = op.summary.replace("|", "\\|"), op.family
            parts = (family.operands, family.settings, family.attributes, family.numbers)
            taken = ", ".join(" ".join(parts).split())
            lines.append(
                f"| `{op.name}` | {summary} | {taken} | {family.shape} | "
                f"{' '.join(op.dtypes)} | {op.accuracy.words} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(
        "# Operations\n\n"
        "Every operation of `ubridge`, with the dtypes it supports on CUDA, ROCm and the host.\n"
        "`python -m build_support.operations_table` writes this page from\n"
        "`ubridge/definitions`. Tests check it.\n\n"
        "A result is the exact value rounded once to its dtype, plus the last column's error.\n"
        "Halves and f8 are computed in f32, f64 in f64. One rounding is 2^-24 of a value in f32\n"
        "and 2^-53 in f64. Integers are exact.\n\n"
        f"{markdown_table()}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
