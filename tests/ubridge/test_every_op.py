"""Every operation, dtype and class of layout is within its promised accuracy; none is left out.

A sample of dtypes and layouts in `make test`, all of them in a soak.
"""

from __future__ import annotations

import numpy as np
import pytest

import tests.ubridge.op_runs_decoding
import tests.ubridge.op_runs_windows
from build_support.operations_table import PAGE, STUB, markdown_table, stub
from tests.sampling import SOAK, rounds
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.op_runs import RUNS, Trial
from tests.ubridge.operands import LAYOUTS
from tests.ubridge.promised import within
from ubridge import OPS, Op
from ubridge.quantized import FORMATS
from uhal import Device

DEVICES = tuple(row.name for row in OP_ROWS)
PROMISED = [op for op in OPS.values() if op.dtypes]

# They add their runs.
assert tests.ubridge.op_runs_decoding and tests.ubridge.op_runs_windows


_OF_BLOCKS = ("quantized_matvec", "quantized_product", "indexed_product", "block_elements")
"""Operations on block-quantized weights: one case per format; simulated devices run a sample."""
CASES = [
    pytest.param(op, name, id=f"{op.name} {name}", marks=[pytest.mark.entries(drawn=12)])
    if name
    else pytest.param(op, name, id=op.name)
    for op in PROMISED
    for name in (FORMATS if op.name in _OF_BLOCKS else (None,))
]


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize(("op", "blocks"), CASES)
def test_every_operation(
    op: Op, blocks: str | None, device: Device, rng: np.random.Generator
) -> None:
    row: OpRow = row_of(device.backend)
    row.require_images()
    family = op.family.name
    assert family in RUNS, f"{op.name}: no run for the family {family}: write one in op_runs.py"
    others = OPS["astype"].dtypes if family == "cast" else ("u8", "u32", "i64")
    dtypes = [
        dtype
        for dtype in op.dtypes
        if row.has(op, dtype, None) or any(row.has(op, dtype, other) for other in others)
    ]
    if not dtypes:
        pytest.skip(f"{row.backend} has no kernel of {op.name}")
    tried = 0
    # Use fewer dtypes on simulated devices, where translating a kernel is slow.
    some = 2 if row.backend == "host" else 1
    for dtype in dtypes if SOAK else rng.permutation(dtypes)[:some]:
        for layout in LAYOUTS if SOAK else rng.permutation(LAYOUTS)[:2]:
            for _ in range(rounds(1, 4)):
                trial = Trial(row, device, rng, op, str(dtype), str(layout), blocks)
                told = f"{op.name} {dtype} {layout} on {row.backend}"
                for outcome in RUNS[family](trial):
                    within(outcome, op.accuracy, row, told)
                    tried += 1
    assert tried or not SOAK


def test_every_family_tried_has_operations() -> None:
    assert set(RUNS) == {op.family.name for op in PROMISED}


def test_the_documented_table_is_the_op_table() -> None:
    """Written by `python -m build_support.operations_table`."""
    assert markdown_table() in PAGE.read_text(encoding="utf-8")


def test_the_stub_of_functions_has_every_function() -> None:
    """Written by `python -m build_support.operations_table`."""
    assert stub() == STUB.read_text(encoding="utf-8")
