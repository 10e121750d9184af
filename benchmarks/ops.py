"""Cases, operands and timing of `benchmarks.ops_host`.

Every library gets the same elements and reports the sum of the result's magnitudes. Equal sums show
that a row of the table compares the same computation.
"""

from __future__ import annotations

import operator
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.ops_rows import FAMILIES, Row

Array = npt.NDArray[Any]

COLUMNS = {16: 4, 1_000: 100, 1_000_000: 1_000, 16_000_000: 4_000}
"""Length of an operand's rows, by its number of elements."""
CHANNELS = {16: 1, 1_000: 10, 1_000_000: 16, 16_000_000: 16}
"""Channels of a square image, by its number of elements."""
LAYOUTS = ("contiguous", "transposed", "broadcast", "sliced")
"""Layouts of x."""
BASE = "f32"
ROWS = {row.name: (family, row) for family, rows in FAMILIES.items() for row in rows}
"""Maps a row's name to its family and the row."""

_ROUND_SECONDS = 0.002
_CASE_SECONDS = 0.06
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """A row with one size, element type, layout of x and axis."""

    row: str
    size: int
    """Elements; 0 for a row with shapes of its own."""
    dtype: str = BASE
    layout: str = LAYOUTS[0]
    axis: int = -1

    @property
    def family(self) -> str:
        return ROWS[self.row][0]

    @property
    def operation(self) -> str:
        """The row's name, with the differences from contiguous f32 along the last axis."""
        parts = [self.row]
        parts += [self.dtype] if self.dtype != BASE else []
        parts += [self.layout] if self.layout != LAYOUTS[0] else []
        return ", ".join([*parts, *(["first axis"] if self.axis == 0 else [])])


@dataclass(frozen=True)
class Timing:
    """Measured cost of a case in one library."""

    nanoseconds: float
    """Time of a call: the least of the rounds."""
    system: float
    """Nanoseconds of a call within the operating system, most of them for page faults."""
    faults: float
    """Page faults of a call."""
    checksum: float


class Library(Protocol):
    """A library as a worker uses it."""

    name: str

    def names(self, case: Case) -> dict[str, Any]: ...
    def tensor(self, array: Array, dtype: str) -> Any: ...
    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def wait(self) -> None: ...
    def to_numpy(self, result: Any) -> Array: ...
    def versions(self) -> dict[str, str]: ...


def cases(row: Row, dtypes: tuple[str, ...], sizes: tuple[int, ...]) -> Iterator[tuple[bool, Case]]:
    """Yield the cases of a row, and whether each is a basic case: f32 and contiguous.

    A case differs from a basic case in the element type or in the layout, not in both.
    """
    names = row.names
    base = BASE if BASE in dtypes else dtypes[0]
    for size in (0,) if row.shapes else sizes:
        for axis in (-1, 0) if "axis" in names else (-1,):
            for dtype in dtypes:
                yield dtype == base, Case(row.name, size, dtype, LAYOUTS[0], axis)
            for layout in LAYOUTS[1:] if "x" in names and "fill" not in row.name else ():
                yield False, Case(row.name, size, base, layout, axis)


# -- operands ------------------------------------------------------------------------------------


@dataclass
class Operands:
    """The operands of a case by name, made at first use."""

    library: Library
    case: Case
    rng: np.random.Generator

    def of(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the operands among the names. All libraries draw them in one order."""
        shapes = ROWS[self.case.row][1].shapes
        found = {name: self._drawn(shapes[name]) for name in sorted(names & set(shapes))}
        makers: Mapping[str, Callable[[], Any]] = {
            name: getattr(self, f"_{name}")
            for name in sorted(names - set(shapes))
            if hasattr(self, f"_{name}")
        }
        return {**found, **{name: make() for name, make in makers.items()}}

    @property
    def _elements(self) -> int:
        return self.case.size or 16

    def _lengths(self) -> tuple[int, int]:
        columns = COLUMNS[self._elements]
        return self._elements // columns, columns

    def _drawn(self, shape: tuple[int, ...], low: float = 0, high: float = 0) -> Any:
        """Normally distributed numbers, or uniform numbers between bounds; small numbers for
        integers."""
        dtype = self.case.dtype
        array: Array
        if dtype[0] in "iu":
            array = self.rng.integers(1, 9, shape).astype(np.int64)
        elif high:
            array = self.rng.uniform(low, high, shape).astype(np.float32)
        else:
            array = self.rng.standard_normal(shape, np.float32)
        return self.library.tensor(array, BASE if dtype == "bool" else dtype)

    def _x(self) -> Any:
        rows, columns = self._lengths()
        layout = self.case.layout
        if layout == "transposed":
            return self._drawn((columns, rows)).T
        if layout == "broadcast":
            return self.library.broadcast(self._drawn((1, columns)), (rows, columns))
        if layout == "sliced":
            return self._drawn((rows, 2 * columns))[:, ::2]
        return self._drawn((rows, columns))

    def _y(self) -> Any:
        return self._drawn(self._lengths())

    def _positive(self) -> Any:
        return self._drawn(self._lengths(), 0.1, 4)

    def _unit(self) -> Any:
        return self._drawn(self._lengths(), -0.99, 0.99)

    def _row(self) -> Any:
        return self._drawn(self._lengths()[1:], 0.5, 2)

    def _flat(self) -> Any:
        return self._drawn((self._elements,))

    def _one(self) -> Any:
        return self._drawn((1,), 1, 2)[0]

    def _narrow(self) -> Any:
        return self._drawn((self._elements // 16, 16))

    def _array(self) -> Array:
        return self.rng.standard_normal(self._lengths(), np.float32)

    def _ordered(self) -> Any:
        array = np.sort(self.rng.standard_normal(self._elements, np.float32))
        return self.library.tensor(array, BASE)

    def _small(self) -> Any:
        array = self.rng.integers(0, 1000, self._elements)
        return self.library.tensor(array, self.case.dtype)

    def _condition(self) -> Any:
        return self.library.tensor(self.rng.integers(0, 2, self._lengths()) > 0, "bool")

    _other = _condition

    def _ids(self) -> Any:
        length = self._lengths()[self.case.axis] if "axis" in self._names else self._lengths()[0]
        return self.library.tensor(self.rng.integers(0, length, length), "i64")

    def _indices(self) -> Any:
        shape = self._lengths()
        return self.library.tensor(self.rng.integers(0, shape[self.case.axis], shape), "i64")

    def _last(self) -> Any:
        return self.library.tensor(np.array([4095]), "i64")

    def _slots(self) -> Any:
        return self.library.tensor(self.rng.permutation(4096)[:8], "i64")

    def _tables(self) -> Any:
        return self.library.tensor(self.rng.permutation(256).reshape(8, 32), "i64")

    def _sequences(self) -> Any:
        return self.library.tensor(np.arange(8), "i64")

    def _positions(self) -> Any:
        return self.library.tensor(np.full(8, 511), "i64")

    def _count(self) -> Any:
        return self.library.tensor(np.array(3), "i64")

    def _image(self) -> Any:
        channels, side = self._square()
        return self._drawn((1, channels, side, side))

    def _channel(self) -> Any:
        return self._drawn(self._square()[:1], 0.5, 2)

    def _square(self) -> tuple[int, int]:
        channels = CHANNELS[self._elements]
        return channels, isqrt(self._elements // channels)

    @property
    def _names(self) -> frozenset[str]:
        return ROWS[self.case.row][1].names

    def numbers(self) -> dict[str, Any]:
        """Return the numbers that an expression may use."""
        return {
            "axis": self.case.axis,
            "size": self._elements,
            "shape": self._lengths(),
            "side": self._square()[1],
            "rng": self.rng,
            "operator": operator,
        }


def call_of(library: Library, case: Case, seed: int) -> Callable[[], Any]:
    """Return a row's expression as a function without arguments."""
    row = ROWS[case.row][1]
    operands = Operands(library, case, np.random.default_rng([seed, case.size]))
    names = {**library.names(case), **operands.numbers(), **operands.of(row.names)}
    call: Callable[[], Any] = eval(f"lambda: {row.of(library.name)}", names)
    return call


# -- timing --------------------------------------------------------------------------------------


def timing(library: Library, case: Case, seed: int, threads: int) -> Timing:
    """Time a case. The time is processor time for one thread, and wall time for several."""
    call = call_of(library, case, seed)
    checksum = _checksum(library, call())
    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    count = 1
    while (taken := _taken(library, call, count, clock)) * count < _ROUND_SECONDS * 1e9:
        count *= 4
    found = [taken]
    before, calls = resource.getrusage(resource.RUSAGE_SELF), 0
    end = time.monotonic() + _CASE_SECONDS
    while time.monotonic() < end or len(found) < _LEAST_ROUNDS:
        found.append(_taken(library, call, count, clock))
        calls += count
    after = resource.getrusage(resource.RUSAGE_SELF)
    system = (after.ru_stime - before.ru_stime) * 1e9 / calls
    faults = (after.ru_minflt - before.ru_minflt) / calls
    return Timing(round(min(found), 1), round(system, 1), round(faults, 2), checksum)


def _taken(
    library: Library, call: Callable[[], Any], count: int, clock: Callable[[], int]
) -> float:
    start = clock()
    for _ in range(count):
        call()
    library.wait()
    return (clock() - start) / count


def _checksum(library: Library, result: Any) -> float:
    if isinstance(result, (bool, int, float, list, np.ndarray)):
        return float(np.abs(np.asarray(result, np.float64)).sum())
    try:
        return float(np.abs(library.to_numpy(result).astype(np.float64)).sum())
    except (AttributeError, TypeError, ValueError):
        return float("nan")  # the result is no number: a capsule, for example


def elements(case: Case) -> int:
    """Return the elements of a case's largest operand."""
    return case.size or max(map(prod, ROWS[case.row][1].shapes.values()))
