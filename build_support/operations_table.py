"""Write the files generated from the table of operations: `python -m
build_support.operations_table`.

They are docs/reference/operations.md and ubridge/functions.pyi.
"""

from __future__ import annotations

from pathlib import Path

from ubridge.definitions.elementwise import UNARY
from ubridge.definitions.table import OPS
from ubridge.functions import __all__ as functions

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "operations.md"
STUB = ROOT / "ubridge" / "functions.pyi"


def markdown_table() -> str:
    """Return a table of every operation with dtypes: operands, result and accuracy."""
    lines = [
        "| Operation | Computes | Operands | Result | Dtypes | Largest error of floats |",
        "|---|---|---|---|---|---|",
    ]
    for op in OPS.values():
        if op.dtypes:
            summary, family = op.summary.replace("|", "\\|"), op.family
            # Optional flags are for `launch_*`.
            attributes = " ".join(one for one in family.attributes.split() if one[0] != "[")
            parts = (family.operands, family.settings, attributes, family.numbers)
            taken = ", ".join(" ".join(parts).split())
            lines.append(
                f"| `{op.name}` | {summary} | {taken} | {family.shape} | "
                f"{' '.join(op.dtypes)} | {op.accuracy.words} |"
            )
    return "\n".join(lines) + "\n"


def stub() -> str:
    """Return the types of `ubridge.functions`."""
    kinds = {name: "Unary" if OPS[name].family is UNARY else "Binary" for name in functions}
    names = "".join(f'    "{name}",\n' for name in functions)
    typed = "".join(f"{name}: {kind}Function\n" for name, kind in kinds.items())
    return f"""{_PROTOCOLS}
__all__ = [
{names}]

{typed}"""


_PROTOCOLS = '''"""Written by `python -m build_support.operations_table`."""

from typing import Any, Protocol

from ubridge.tensor import DeviceTensor
from uhal.interop import StreamLike

class UnaryFunction(Protocol):
    """An operation on one tensor."""

    def __call__(
        self,
        x: DeviceTensor,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor: ...

class BinaryFunction(Protocol):
    """An operation on two tensors, or a tensor and a number."""

    def __call__(
        self,
        x: Any,
        y: Any,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor: ...
'''


def main() -> None:
    """Write the page and the stub."""
    STUB.write_text(stub(), encoding="utf-8")
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
