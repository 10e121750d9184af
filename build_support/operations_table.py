"""Write docs/reference/operations.md: `python -m build_support.operations_table`."""

from __future__ import annotations

from pathlib import Path

from ubridge.core.accuracy import markdown_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "operations.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(
        "# Operations\n\n"
        "Every operation of `ubridge` with the dtypes it is promised for on CUDA, ROCm and the\n"
        "host. `python -m build_support.operations_table` writes this page from\n"
        "`ubridge/core/op_table.py` and `ubridge/core/accuracy.py`; the tests hold the kernels to "
        "it.\n\n"
        "A result is the exact one, computed in f32 for halves and f8 and in f64 for f64, and\n"
        "rounded to its dtype once. The last column is what computing adds to that rounding: a\n"
        "rounding is 2^-24 of a value in f32 and 2^-53 in f64. Integers are exact.\n\n"
        f"{markdown_table()}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
