"""Runs of each family of operations on random operands, with numpy's results.

A run gets a `Trial` and returns an `Outcome` for each result. A family without a run fails
`test_every_op.py`, so that every operation of the table is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import ubridge as ub
from tests.sampling import SOAK
from tests.ubridge.op_rows import OpRow
from tests.ubridge.operands import LAYOUTS, Array, Operand, operand, shape_of
from tests.ubridge.random_numbers import even, normal, words
from ubridge import DeviceTensor, Op
from ubridge.quantized import FORMATS
from uhal import Device, as_dtype

Wide = np.longdouble
VIEWS = LAYOUTS[:5]
"""Layouts that support shapes of any lengths."""


@dataclass
class Outcome:
    """A device's result and the exact result."""

    got: Array
    exact: Array
    magnitude: Any = 0
    terms: int = 1


@dataclass
class Trial:
    """An operation on elements of a dtype, with the class of the first operand's layout."""

    row: OpRow
    device: Device
    rng: np.random.Generator
    op: Op
    dtype: str
    layout: str
    blocks: str | None = None
    """Format of the blocks, for operations that take block-quantized weights."""

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        return shape_of(self.rng, self.layout, rank)

    def x(self, shape: tuple[int, ...]) -> Operand:
        return operand(self.rng, self.device, self.layout, self.dtype, shape, special=False)

    def other(self, shape: tuple[int, ...], dtype: str | None = None) -> Operand:
        layout = str(self.rng.choice(VIEWS))
        return operand(self.rng, self.device, layout, dtype or self.dtype, shape, special=False)

    def ids(self, length: int, shape: tuple[int, ...]) -> tuple[DeviceTensor, Array]:
        """Return ids below a length on the device, of a dtype with a kernel."""
        kinds = [one for one in ("u8", "u32", "i64") if self.row.has(self.op, self.dtype, one)]
        kind = str(self.rng.choice(kinds)) if kinds else "i64"
        bound = min(length, 256) if kind == "u8" else length
        ids = self.rng.integers(0, max(bound, 1), shape)
        tensor = ub.from_numpy(ids.astype(as_dtype(kind).dtype), device=self.device)
        return tensor, ids

    def length(self, most: int = 6) -> int:
        return int(self.rng.integers(1, most + 1))

    def format(self) -> str:
        """Return the trial's format of blocks, or a random format if it has none."""
        return self.blocks or str(self.rng.choice(list(FORMATS)))

    @property
    def is_float(self) -> bool:
        return as_dtype(self.dtype).kind == "float"


def wide(x: Operand | Array) -> Array:
    """Return the array in a precision beyond the device's; integers are unchanged."""
    array = x.array if isinstance(x, Operand) else x
    return array if array.dtype.kind in "iub" else array.astype(Wide)


def reference(op: Op, *arrays: Any, **named: Any) -> Array:
    assert op.reference is not None
    with np.errstate(all="ignore"):
        return np.asarray(op.reference(*arrays, **named))


RUNS: dict[str, Callable[[Trial], Iterator[Outcome]]] = {}


def run(*families: str) -> Callable[[Callable[[Trial], Iterator[Outcome]]], Any]:
    def remember(function: Callable[[Trial], Iterator[Outcome]]) -> Any:
        RUNS.update(dict.fromkeys(families, function))
        return function

    return remember


# -- element by element --------------------------------------------------------------------------


@run("unary")
def unary(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    got = getattr(ub, t.op.name)(x.tensor).to_numpy()
    exact = x.array if t.op.name == "round" and not t.is_float else reference(t.op, wide(x))
    yield Outcome(got, exact, abs(wide(x)) if t.is_float else 0)


@run("unary_scalar")
def unary_scalar(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    for parameter in (0.5, 3.0):
        got = getattr(ub, t.op.name)(x.tensor, parameter).to_numpy()
        # `elu` subtracts 1 from e^x and multiplies by the parameter: errors scale with the
        # parameter.
        size = parameter if t.op.name == "elu" and t.is_float else 0
        yield Outcome(got, reference(t.op, wide(x), Wide(parameter)), size)


@run("affine")
def affine(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    multiplier, addend = t.length(3), t.length(9)
    exact = wide(x) * multiplier + addend
    magnitude = abs(wide(x).astype(Wide)) * multiplier + addend
    yield Outcome(ub.affine(x.tensor, multiplier, addend).to_numpy(), exact, magnitude)


@run("binary", "compare")
def binary(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    y = t.other(x.array.shape)
    if t.op.name == "divide" and not t.is_float:
        # `ub.divide` of integers gives f64; only the kernel itself divides with floor.
        three = ub.full((), 3, t.dtype, device=t.device).broadcast_to(x.array.shape)
        buffers = (x.tensor.buffer, x.tensor.layout, three.buffer, three.layout)
        got = ub.launch_binary(t.op, *buffers).to_numpy().reshape(x.array.shape)
        yield Outcome(got, reference(t.op, wide(x), np.full_like(x.array, 3)))
        return
    got = getattr(ub, t.op.name)(x.tensor, y.tensor).to_numpy()
    # The logarithm of a sum near 1 is the difference of larger parts.
    parts = abs(wide(x)) + abs(wide(y)) if t.op.name == "logaddexp" else 0
    yield Outcome(got, reference(t.op, wide(x), wide(y)), parts)


@run("cast")
def cast(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    targets = [one for one in t.op.dtypes if t.row.has(t.op, t.dtype, one)]
    for target in targets if SOAK else t.rng.permutation(targets)[:2]:
        exact = wide(x)
        if t.is_float and as_dtype(target).kind != "float":
            exact = np.maximum(np.trunc(exact), as_dtype(target).min)
        yield Outcome(x.tensor.astype(str(target)).to_numpy(), exact)


@run("where")
def where(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    y = t.other(x.array.shape)
    condition = t.other(x.array.shape, str(t.rng.choice(["bool", "u8", "u32", "i64"])))
    got = ub.where(condition.tensor, x.tensor, y.tensor).to_numpy()
    yield Outcome(got, np.where(condition.array, wide(x), wide(y)))


@run("masked_fill")
def masked_fill(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    mask = t.other(x.array.shape, "bool")
    got = ub.masked_fill(x.tensor, mask.tensor, 3).to_numpy()
    yield Outcome(got, reference(t.op, wide(x), mask.array, 3))


@run("gated")
def gated(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    y = t.other(x.array.shape)
    got = getattr(ub, t.op.name)(x.tensor, y.tensor).to_numpy()
    yield Outcome(got, reference(t.op, wide(x), wide(y)))


@run("fill")
def fill(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    if not x.tensor.layout.may_alias:
        x.tensor.fill(7)
        yield Outcome(x.tensor.to_numpy(), np.full(x.array.shape, 7))


@run("copy2d")
def copy2d(t: Trial) -> Iterator[Outcome]:
    rows, columns, pitch = t.length(), t.length(), 9
    x = operand(t.rng, t.device, "contiguous", t.dtype, (rows, pitch), special=False)
    whole = ub.full((rows, 11), 7, t.dtype, device=t.device)
    ub.launch_copy2d(x.tensor.buffer, whole.buffer, rows, columns, pitch, 11)
    exact = np.full((rows, 11), 7, Wide if t.is_float else x.array.dtype)
    exact[:, :columns] = wide(x)[:, :columns]
    yield Outcome(whole.to_numpy(), exact)


# -- by ids --------------------------------------------------------------------------------------


@run("index_select")
def index_select(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    axis = int(t.rng.integers(x.array.ndim))
    count = t.length() if x.array.shape[axis] else 0
    tensor, ids = t.ids(x.array.shape[axis], (count,))
    yield Outcome(ub.take(x.tensor, tensor, axis).to_numpy(), np.take(wide(x), ids, axis))


@run("gather")
def gather(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    axis = int(t.rng.integers(x.array.ndim))
    shape = list(x.array.shape)
    shape[axis] = t.length() if shape[axis] else 0
    tensor, ids = t.ids(x.array.shape[axis], tuple(shape))
    got = ub.gather(x.tensor, tensor, axis).to_numpy()
    yield Outcome(got, np.take_along_axis(wide(x), ids, axis))


@run("scatter", "index_add")
def scatter(t: Trial) -> Iterator[Outcome]:
    """Each id occurs once, so each sum has two terms and each element has one writer."""
    x = t.x(t.shape(t.length(3)))
    if x.tensor.layout.may_alias:
        return
    axis = int(t.rng.integers(x.array.ndim))
    length = x.array.shape[axis]
    count = int(t.rng.integers(0, length + 1))
    order = t.rng.permutation(length)[:count]
    shape = list(x.array.shape)
    shape[axis] = count
    source = t.other(tuple(shape))
    along = [-1 if one == axis else 1 for one in range(x.array.ndim)]
    ids = np.broadcast_to(order.reshape(along), shape)
    exact = wide(x).copy()
    new = wide(source)
    if t.op.name != "scatter":
        new = np.take_along_axis(exact, ids, axis) + new
    np.put_along_axis(exact, ids, new.astype(exact.dtype), axis)
    given = order if t.op.name == "index_add" else ids
    tensor = ub.from_numpy(given.astype(np.int64), device=t.device)
    getattr(ub, t.op.name)(x.tensor, tensor, source.tensor, axis)
    rounded = abs(exact) if t.op.name != "scatter" else 0
    yield Outcome(x.tensor.to_numpy(), exact, rounded)


# -- along axes ----------------------------------------------------------------------------------


@run("reduce", "arg_reduce")
def reduce(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    axis = int(t.rng.integers(x.array.ndim))
    if x.array.shape[axis] == 0 and t.op.name != "sum":
        return
    got = getattr(ub, t.op.name)(x.tensor, axis).to_numpy()
    if t.op.name == "sum" and not t.is_float:
        yield Outcome(got, x.array.sum(axis, dtype=x.array.dtype))
        return
    magnitude = abs(wide(x)).sum(axis) if t.op.accuracy.of_magnitude else 0
    yield Outcome(got, reference(t.op, wide(x), axis=axis), magnitude, x.array.shape[axis])


@run("clip")
def clip(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    bounds = sorted(float(one) for one in t.rng.uniform(-2, 2, 2))
    held = np.array(bounds).astype(as_dtype(t.dtype).dtype).astype(Wide)
    yield Outcome(ub.clip(x.tensor, *bounds).to_numpy(), np.clip(wide(x), *held))


@run("kind_of_float")
def kind_of_float(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape())
    got = getattr(ub, t.op.name)(x.tensor).to_numpy()
    yield Outcome(got, reference(t.op, wide(x)))


@run("scan", "fold")
def along_an_axis(t: Trial) -> Iterator[Outcome]:
    """Running sums and products: an axis of n elements has n additions or multiplications."""
    x = t.x(t.shape(t.length(3)))
    axis = int(t.rng.integers(x.array.ndim))
    largest = np.maximum(abs(wide(x)), 1).prod(axis) if t.op.name == "prod" else 0
    computed = "f16" if t.row.rounds_each_step else "f64" if t.dtype == "f64" else "f32"
    if t.is_float and np.any(largest > np.finfo(as_dtype(computed).dtype).max):
        return  # some factors overflow, and a later zero makes a NaN of that
    got = getattr(ub, t.op.name)(x.tensor, axis).to_numpy()
    settings: dict[str, Any] = {"axis": axis}
    if not t.is_float:
        yield Outcome(got, getattr(np, t.op.name)(x.array, dtype=x.array.dtype, **settings))
        return
    exact, magnitude = (reference(t.op, one, **settings) for one in (wide(x), abs(wide(x))))
    yield Outcome(got, exact, magnitude, x.array.shape[axis])


@run("softmax", "log_softmax")
def softmax(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    exact = reference(t.op, wide(x)) if x.array.size else x.array
    yield Outcome(getattr(ub, t.op.name)(x.tensor).to_numpy(), exact, abs(wide(x)).max(initial=1))


@run("group_norm")
def group_norm(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    shape = x.array.shape
    if len(shape) < 2 or not x.array.size:
        return
    groups = int(t.rng.choice([one for one in range(1, shape[1] + 1) if shape[1] % one == 0]))
    weights = [t.other(shape[1:2]) for _ in range(2)]
    got = ub.group_norm(x.tensor, *(one.tensor for one in weights), groups, 0.5).to_numpy()
    exact = reference(t.op, *(wide(one) for one in (x, *weights)), groups, 0.5)
    parts = prod(abs(wide(one)).max() for one in (x, weights[0]))
    yield Outcome(got, exact, parts + abs(wide(weights[1])).max())


@run("rmsnorm", "layernorm")
def norm(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    weights = [t.other(x.array.shape[-1:]) for _ in range(1 + (t.op.name == "layer_norm"))]
    got = getattr(ub, t.op.name)(x.tensor, *(one.tensor for one in weights), 0.5).to_numpy()
    if not x.array.size:
        yield Outcome(got, x.array)
        return
    exact = reference(t.op, wide(x), *map(wide, weights), 0.5)
    parts = prod(abs(wide(one)).max() for one in (x, weights[0]))
    yield Outcome(got, exact, parts + abs(wide(weights[-1])).max())


@run("rope", "rope_i", "rope_thd")
def rope(t: Trial) -> Iterator[Outcome]:
    batch, second, third, half = (*t.shape(4)[:3], t.length())
    x = t.x((batch, second, third, 2 * half))
    heads_last = t.op.name == "rope_thd"
    cos, sin = (t.other((second if heads_last else third, half)) for _ in range(2))
    interleaved = t.op.name == "rope_i"
    kind = {"interleaved": interleaved, "heads_last": heads_last}
    got = ub.rope(x.tensor, cos.tensor, sin.tensor, **kind).to_numpy()
    c, s = (wide(one)[:, None] if heads_last else wide(one) for one in (cos, sin))
    first = wide(x)[..., ::2] if interleaved else wide(x)[..., :half]
    other = wide(x)[..., 1::2] if interleaved else wide(x)[..., half:]
    turned = (first * c - other * s, first * s + other * c)
    sizes = (abs(first * c) + abs(other * s), abs(first * s) + abs(other * c))
    exact, magnitude = (
        np.stack(one, -1).reshape(x.array.shape) if interleaved else np.concatenate(one, -1)
        for one in (turned, sizes)
    )
    yield Outcome(got, exact, magnitude)


@run("random")
def random(t: Trial) -> Iterator[Outcome]:
    """The numbers depend on the seed and the position alone, not on the device."""
    seed, position = (int(one) for one in t.rng.integers(0, 2**64, 2, np.uint64))
    shape = t.shape()
    made = getattr(ub, t.op.name)(shape, t.dtype, seed=ub.Generator(seed, position))
    drawn = words(seed, position, prod(shape))
    exact = even(drawn, t.dtype) if t.op.name == "rand" else normal(drawn)
    yield Outcome(made.to_numpy(), exact[: prod(shape)].reshape(shape))


@run("sort")
def sort(t: Trial) -> Iterator[Outcome]:
    """The indices are a permutation that sorts the elements."""
    x = t.x(t.shape(t.length(3)))
    descending = t.op.name == "argsort_descending"
    indices = ub.argsort(x.tensor, descending=descending).to_numpy().astype(np.int64)
    ordered = np.sort(wide(x), -1)
    exact = ordered[..., ::-1] if descending else ordered
    yield Outcome(np.take_along_axis(x.array, indices, -1), exact)
    every = np.broadcast_to(np.arange(indices.shape[-1]), indices.shape)
    yield Outcome(np.sort(indices, -1), every)


@run("elements_in_order")
def elements_in_order(t: Trial) -> Iterator[Outcome]:
    x = t.x(t.shape(t.length(3)))
    descending = t.op.name == "sort_descending"
    ordered = np.sort(wide(x), -1)
    exact = ordered[..., ::-1] if descending else ordered
    yield Outcome(ub.sort(x.tensor, descending=descending).to_numpy(), exact)
