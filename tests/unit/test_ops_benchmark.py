"""`benchmarks.ops_host` has a row for each public function and method; results are equal."""

from __future__ import annotations

import inspect
import json
import math
from argparse import Namespace
from collections.abc import Iterator

import pytest

import ubridge
from benchmarks import ops, ops_host
from benchmarks.ops_rows import FAMILIES, OUTSIDE, Row, spelled
from benchmarks.workers.ops import Numpy, Ubridge
from ubridge import OPS, DeviceTensor

ALL_ROWS = [row for rows in FAMILIES.values() for row in rows]
PYTHONS_OWN = frozenset(
    "__init__ __repr__ __str__ __format__ __class__ __dir__ __init_subclass__ "
    "__subclasshook__".split()
)
SIZED = [row for row in ALL_ROWS if not row.shapes]


def public_names() -> Iterator[str]:
    """Public functions except `launch_*`, which run the same operations, and tensors' methods."""
    for name in ubridge.__all__:
        found = getattr(ubridge, name)
        if callable(found) and not inspect.isclass(found) and not name.startswith("launch_"):
            yield name
    functions = {id(getattr(ubridge, name)) for name in ubridge.__all__}
    for name, found in inspect.getmembers(DeviceTensor, callable):
        is_its_own = id(found) not in functions and getattr(object, name, None) is not found
        is_public = name.startswith("__") or not name.startswith("_")
        if is_its_own and is_public and name not in PYTHONS_OWN:
            yield name


def test_every_public_function_and_method_has_a_row() -> None:
    measured = spelled(iter(ALL_ROWS))
    names = {*public_names(), *(op.called for op in OPS.values() if hasattr(ubridge, op.called))}
    without = sorted(names - measured - set(OUTSIDE))
    assert not without, f"add rows to benchmarks/ops_rows/: {without}"
    assert not sorted(set(OUTSIDE) & measured), "these have rows: remove their reasons"
    assert not sorted(set(OUTSIDE) - names), "these are no public names"


def test_a_new_function_needs_a_row() -> None:
    others = iter(row for row in ALL_ROWS if "softmax" not in row.ubridge)
    assert "softmax" not in spelled(others)


def test_row_names_are_unique() -> None:
    assert len(ops.ROWS) == len(ALL_ROWS)


@pytest.mark.parametrize("row", SIZED, ids=lambda row: row.name)
def test_a_row_runs_and_agrees_with_numpy(row: Row, seed: int) -> None:
    dtype = ops_host.promised(row)
    case = ops.Case(row.name, 16, ops.BASE if ops.BASE in dtype else dtype[0], axis=0)
    sums = {}
    for library in (Ubridge(), Numpy()):
        if row.of(library.name):
            sums[library.name] = ops._checksum(library, ops.call_of(library, case, seed)())
    if row.is_compared and len(sums) == 2:
        assert math.isclose(*sums.values(), rel_tol=ops_host.SAME, abs_tol=1e-5), sums


def test_a_run_without_peers_fills_the_tables_and_plots() -> None:
    options = Namespace(
        alone=False,
        cases="2",
        peers="/no/python",
        rows=r"^(add\(|take\()",
        seed=1,
        sizes=[16],
        threads=1,
    )
    result = ops_host.run(options, tuple(ops_host.chosen(options)))
    assert set(result.missing) == {"numpy", "torch"}
    assert not result.gaps
    said = json.loads(json.dumps(ops_host.as_json(result, options)))
    named = {row["operation"] for row in said["rows"]}
    assert {"add(x, y)", "take(x, ids, axis)", "take(x, ids, axis), first axis"} <= named
    assert len(named) == 5
    assert "| add(x, y) |" in ops_host.tables(result)
