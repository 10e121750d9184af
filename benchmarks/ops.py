"""Operations, sizes, inputs and timing of `benchmarks.ops_host`.

Every library gets the same arrays and reports the sum of the results' magnitudes. Equal sums show
that a row of the table compares the same computation.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

COLUMNS = {1_000: 100, 1_000_000: 1_000, 16_000_000: 4_000}
"""Elements of the operands to the length of their rows."""
FEW = 16
"""Elements of operands so small that the overhead of a call shows."""
OPERATIONS = {
    "add": "elementwise",
    "multiply by a number": "elementwise",
    "add a row": "elementwise",
    "exp": "elementwise",
    "tanh": "elementwise",
    "relu": "elementwise",
    "where": "elementwise",
    "cast to f64": "elementwise",
    "copy transposed": "elementwise",
    "sum": "reductions",
    "sum of rows": "reductions",
    "sum of rows of 16": "reductions",
    "sum of columns": "reductions",
    "mean": "reductions",
    "largest of rows": "reductions",
    "index of largest of rows": "reductions",
    "softmax": "softmax",
    "layer norm": "norms",
    "rms norm": "norms",
    "take rows": "indexing",
    "gather": "indexing",
}
"""Operation to its family. All are of f32."""
PRODUCTS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "128": ((128, 128), (128, 128)),
    "512": ((512, 512), (512, 512)),
    "1024": ((1024, 1024), (1024, 1024)),
    "2048": ((2048, 2048), (2048, 2048)),
    "64 of 128": ((64, 128, 128), (64, 128, 128)),
    "4096 x 4096 by a column": ((4096, 4096), (4096, 1)),
}
"""Matrix products, of f32."""

_ROUND_SECONDS = 0.004
_FORM_SECONDS = 0.25
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Inputs:
    """The operands of one size, as every library gets them."""

    x: Array
    y: Array
    row: Array
    narrow: Array
    """The elements of x in rows of 16."""
    condition: Array
    rows: Array
    """Ids of rows of x."""
    indices: Array
    """An id along the first axis for each element of x."""


class Library(Protocol):
    """A library's calls on the inputs: a call for each operation, which returns its result."""

    name: str

    def operations(self, inputs: Inputs, columns: int) -> dict[str, Callable[[], Any]]: ...
    def product(self, x: Array, y: Array) -> Callable[[], Any]: ...
    def wait(self) -> None: ...
    def to_numpy(self, result: Any) -> Array: ...
    def versions(self) -> dict[str, str]: ...


@dataclass
class Timing:
    """Measured cost of one operation at one size."""

    library: str
    operation: str
    size: int
    """Elements; 0 for a product, whose name has the sizes."""
    nanoseconds: float
    """Processor time of a call, in all threads of the process: the least of the rounds."""
    checksum: float


def inputs_of(size: int) -> Inputs:
    """Return the inputs: the same arrays in every process."""
    rng = np.random.default_rng(size)
    columns = COLUMNS.get(size, 4)
    rows = size // columns

    def drawn(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    x = drawn(rows, columns)
    return Inputs(
        x=x,
        y=drawn(rows, columns),
        row=drawn(columns),
        narrow=drawn(size // 16, 16),
        condition=x > 0,
        rows=rng.integers(0, rows, rows),
        indices=rng.integers(0, rows, (rows, columns)),
    )


def run(library: Library) -> None:
    """Time all operations of a library; print a JSON object on standard output.

    The arguments are the processors to run on.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(map(int, sys.argv[1:])))
    rows = []
    for size in (FEW, *COLUMNS):
        calls = library.operations(inputs_of(size), COLUMNS.get(size, 4))
        for operation, call in calls.items():
            rows.append(_row(library, operation, size, call))
    rng = np.random.default_rng(0)
    for operation, shapes in PRODUCTS.items():
        call = library.product(*(rng.standard_normal(shape, np.float32) for shape in shapes))
        rows.append(_row(library, operation, 0, call))
    print(json.dumps({"rows": list(map(asdict, rows)), "versions": library.versions()}))


def _row(library: Library, operation: str, size: int, call: Callable[[], Any]) -> Timing:
    result = np.abs(library.to_numpy(call()).astype(np.float64)).sum()
    return Timing(library.name, operation, size, _nanoseconds(library, call), float(result))


def _nanoseconds(library: Library, call: Callable[[], Any]) -> float:
    count = 1
    while (taken := _taken(library, call, count)) * count < _ROUND_SECONDS * 1e9:
        count *= 4
    found = [taken]
    end = time.monotonic() + _FORM_SECONDS
    while time.monotonic() < end or len(found) < _LEAST_ROUNDS:
        found.append(_taken(library, call, count))
    return round(min(found), 1)


def _taken(library: Library, call: Callable[[], Any], count: int) -> float:
    start = time.process_time_ns()
    for _ in range(count):
        call()
    library.wait()
    return (time.process_time_ns() - start) / count
