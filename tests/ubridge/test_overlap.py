"""Results in the memory of operands are correct, for every function that takes `out`.

The functions come from `ubridge.__all__` and from the table of operations. A new function without a
case here fails the first test.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.op_calls import OpCall, call_of
from tests.ubridge.op_rows import OP_ROWS, row_of
from tests.ubridge.operands import values
from ubridge import DeviceTensor, QuantizedWeight
from ubridge.core.layout import Layout
from ubridge.core.overlap import Span, conflict
from ubridge.definitions.table import OPS
from ubridge.device import recording
from ubridge.device.executor import DeviceExecutor
from uhal import Device, DeviceBuffer, DType, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

DEVICES = tuple(row.name for row in OP_ROWS)

Array = npt.NDArray[Any]
Tensors = Sequence[DeviceTensor]
SIDE = 4
START = 1024
"""Offset of the shared operand in the block, in bytes."""
PLACES = ("full", "after", "before", "transposed out", "transposed operand", "stepped out")
OBJECTS = ("views", "one buffer", "import")


@dataclass(frozen=True)
class Case:
    """Form of a call: dtypes and shapes of the operands, and the function."""

    operands: tuple[tuple[str, tuple[int, ...]], ...]
    call: Callable[..., DeviceTensor]
    """Function of the operands and `out`."""


def case(call: Callable[..., DeviceTensor], *dtypes: str, shape: Any = (SIDE, SIDE)) -> Case:
    return Case(tuple((dtype, shape) for dtype in dtypes), call)


def named(name: str, **settings: Any) -> Callable[..., DeviceTensor]:
    """The function with its operands in order."""
    return lambda *operands, out=None: getattr(ub, name)(*operands, **settings, out=out)


def joined(name: str) -> Callable[..., DeviceTensor]:
    return lambda *operands, out=None: getattr(ub, name)(operands, out=out)


def product(x: DeviceTensor, blocks: DeviceTensor, *, out: Any = None) -> DeviceTensor:
    """Multiply by a block-quantized weight whose bytes are the operand `blocks`."""
    start = blocks.layout.start_offset
    weight = QuantizedWeight(blocks.buffer[start : start + blocks.size], "q8_0", 32, 32)
    return ub.quantized_matmul(x, weight, out=out)


SQUARE = (SIDE, SIDE)
HEADS = (1, 1, SIDE, SIDE)
HALVES = (SIDE, SIDE // 2)
OF_IDS = ("u32", "i64")
REDUCTIONS = (
    *[op.name for op in OPS.values() if op.family.name in ("reduce", "arg_reduce")],
    *("mean", "any", "all", "var", "std", "prod"),
)


def all_cases() -> dict[str, Case]:
    """Return cases by name. A key may continue after a space if a function has several cases."""
    found = {}
    for op in OPS.values():
        if op.family.name == "unary" and hasattr(ub, op.name):
            found[op.name] = case(named(op.name), "f32")
            found[f"{op.name} f64"] = case(named(op.name), "f64")
        if op.family.name in ("binary", "compare"):
            short, usual, wide = (
                ("f16", "f32", "f64") if "f32" in op.dtypes else ("i16", "i32", "i64")
            )
            found[op.name] = case(named(op.name), usual, usual)
            found[f"{op.name} {short} {wide}"] = case(named(op.name), short, wide)
            if op.family.name == "compare":
                found[f"{op.name} u8"] = case(named(op.name), "u8", "u8")
    for name in ("logical_and", "logical_or", "logical_xor"):
        found[name] = case(named(name), "f32", "f32")
    for name in ("logical_not", "isfinite", "isinf", "signbit"):
        found[name] = case(named(name), "f32")
    found["bitwise_invert"] = case(named("bitwise_invert"), "i32")
    for name in REDUCTIONS:
        found[name] = case(named(name), "f32")
        found[f"{name} axis"] = case(named(name, axis=0), "f32")
    for name, dtype in (("f32", "i32"), ("f32", "f16"), ("f16", "f64"), ("u8", "bool")):
        found[f"astype {name} {dtype}"] = case(named("astype", dtype=dtype), name)
    for name in ("softmax", "log_softmax", "argsort", "cumsum"):
        found[name] = case(named(name, axis=-1), "f32")
        found[f"{name} first axis"] = case(named(name, axis=0), "f64")
    found["argsort u32"] = case(named("argsort"), "u32")
    for ids in OF_IDS:
        row = ((ids, (SIDE,)),)
        square = ((ids, SQUARE),)
        for dtype in ("f32", "u32", "i64"):
            x = ((dtype, SQUARE),)
            found[f"take {dtype} {ids}"] = Case(x + row, named("take"))
            found[f"take last {dtype} {ids}"] = Case(x + row, named("take", axis=1))
            found[f"gather {dtype} {ids}"] = Case(x + square, named("gather", axis=0))
            found[f"embedding {dtype} {ids}"] = Case(row + x, named("embedding"))
    norm = (("f32", SQUARE), ("f32", (SIDE,)))
    rows = (("f32", HEADS), ("f32", HALVES), ("f32", HALVES))
    return found | {
        "affine": case(lambda x, out=None: ub.affine(x, 2, 1, out=out), "f32"),
        "elu": case(named("elu", alpha=0.5), "f32"),
        "power": case(named("power", exponent=2.5), "f32"),
        "power square": case(named("power", exponent=2), "f64"),
        "isnan": case(named("isnan"), "f32"),
        "clip": case(named("clip"), "f32", "f32", "f32"),
        "clip numbers": case(lambda x, out=None: ub.clip(x, -1, 1, out=out), "f32"),
        "where": case(named("where"), "u8", "f32", "f32"),
        "where u8": case(named("where"), "u8", "u8", "u8"),
        "masked_fill": case(named("masked_fill", value=7), "f32", "bool"),
        "masked_fill u8": case(named("masked_fill", value=7), "u8", "bool"),
        "silu_mul": case(named("silu_mul"), "f32", "f32"),
        "matmul": case(named("matmul"), "f32", "f32"),
        "matmul f16": case(named("matmul"), "f16", "f32"),
        "einsum": case(lambda x, y, out=None: ub.einsum("ij,jk->ki", x, y, out=out), "f32", "f32"),
        "einsum view": case(lambda x, out=None: ub.einsum("ij->ji", x, out=out), "f32"),
        "attention": case(named("attention"), "f32", "f32", "f32", shape=HEADS),
        "attention mask": case(
            lambda q, k, v, mask, out=None: ub.attention(q, k, v, mask=mask, out=out),
            *("f32",) * 4,
            shape=HEADS,
        ),
        "kv_concat": case(named("kv_concat", axis=0), "f32", "f32"),
        "cat": case(joined("cat"), "f32", "f32"),
        "cat f16": case(joined("cat"), "f16", "f32"),
        "stack": case(joined("stack"), "f32", "f32"),
        "concatenate": case(joined("concatenate"), "f32", "f32"),
        "rms_norm": Case(norm, named("rms_norm")),
        "layer_norm": Case((*norm, norm[1]), named("layer_norm")),
        "rope": Case(rows, named("rope")),
        "rope interleaved": Case(rows, named("rope", interleaved=True)),
        "rope heads_last": Case(
            (("f32", (1, SIDE, 1, SIDE)), *rows[1:]), named("rope", heads_last=True)
        ),
        "quantized_matmul": Case((("f32", (2, 32)), ("u8", (32 * 34,))), product),
    }


WRITTEN = all_cases()


def with_runs() -> dict[str, Case]:
    """Return the cases above; for other operations with `out`, the calls of their runs."""
    found = dict(WRITTEN)
    untold = taking_out() - {name.partition(" ")[0] for name in WRITTEN}
    for op in OPS.values():
        if op.dtypes and op.called in untold:
            with Device(0, backend="host") as host:
                run = call_of(op, host, np.random.default_rng(0))

            def call(*given: DeviceTensor, out: Any = None, run: OpCall = run) -> Any:
                return run(**dict(zip(run.operands, given, strict=True)), out=out)

            operands = run.operands.values()
            found[op.called] = Case(tuple((one.dtype.name, one.shape) for one in operands), call)
    return found


def taking_out() -> set[str]:
    """The public functions that have an `out`."""
    return {
        name
        for name in ub.__all__
        if callable(getattr(ub, name))
        and not isinstance(getattr(ub, name), type)
        and not name.startswith("launch_")
        and "out" in inspect.signature(getattr(ub, name)).parameters
    }


@pytest.fixture
def cases() -> dict[str, Case]:
    return with_runs()


def test_every_function_with_out_has_a_case(cases: dict[str, Case]) -> None:
    taking = taking_out()
    assert taking - {name.partition(" ")[0] for name in cases} == set()
    # Each method is a function or passes its `out` to a function; `take` of weights is `ub.take`.
    methods = {
        name
        for name in dir(DeviceTensor)
        if not name.startswith("_")
        and callable(getattr(DeviceTensor, name, None))
        and "out" in inspect.signature(getattr(DeviceTensor, name)).parameters
    }
    assert methods <= taking


def drawn(case: Case, rng: np.random.Generator) -> list[Array]:
    """Return operands; ids are small enough for each axis, and the bytes of blocks are finite."""
    found = []
    for dtype, shape in case.operands:
        if case.call is product and dtype == "u8":
            weight = rng.standard_normal((32, 32)).astype("f4")
            found.append(np.frombuffer(bytes(ub.quantized.quantize(weight, "q8_0")), np.uint8))
        elif dtype in OF_IDS:
            found.append(rng.integers(0, SIDE, shape).astype(as_dtype(dtype).dtype))
        else:
            found.append(values(rng, shape, dtype))
    return found


def strides_of(shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """Strides in elements: row-major, with the axes reversed, or every second element."""
    if kind.startswith("transposed"):
        turned = Layout.contiguous(shape[::-1]).strides
        return tuple(turned[::-1])
    step = 2 if kind == "stepped out" else 1
    return tuple(step * stride for stride in Layout.contiguous(shape).strides)


def described(buffer: DeviceBuffer, layout: Layout, dtype: DType) -> DeviceTensor:
    """Return a tensor for writing, without a check of booleans' bytes."""
    tensor = DeviceTensor(buffer, layout)
    return tensor._made(tensor._buffer, layout, dtype)


class Block:
    """One allocation with an operand and the result in it, and its initial contents."""

    def __init__(self, rng: np.random.Generator, nbytes: int = 8192) -> None:
        self.memory = rng.integers(0, 256, nbytes).astype(np.uint8)
        self.buffer = DeviceBuffer.from_numpy(self.memory)

    def put(self, array: Array, start: int, strides: tuple[int, ...]) -> None:
        """Write an array at a byte offset, with strides in elements."""
        self._seen(start, array.shape, strides, array.dtype)[...] = array

    def _seen(self, start: int, shape: Any, strides: Any, dtype: Any) -> Array:
        of_bytes = [stride * dtype.itemsize for stride in strides]
        whole = self.memory[start:]
        found: Array = np.ndarray(shape, dtype, whole.data, strides=of_bytes)
        return found

    def tensor(self, dtype: Any, shape: Any, start: int, strides: Any, kind: str) -> DeviceTensor:
        """Return a tensor over the block; `kind` says whether all tensors share a buffer object."""
        element = as_dtype(dtype)
        stored = as_dtype("u8") if element.kind == "bool" else element
        if kind == "one buffer":
            whole = self.buffer.view(stored)
            return described(whole, Layout(shape, strides, start // stored.itemsize), element)
        part = self.buffer[start : start + len(self.memory) // 2].view(stored)
        if kind == "import":
            part = DeviceBuffer.from_dlpack(part)
        return described(part, Layout(shape, strides), element)

    def expect(self, result: Array, start: int, strides: tuple[int, ...], what: str) -> None:
        """Check that the block holds the result and is otherwise unchanged."""
        self.put(result, start, strides)
        found = self.buffer.to_numpy()
        if not np.array_equal(found, self.memory):
            np.testing.assert_array_equal(found, self.memory, err_msg=what)


def overlapping(
    name: str,
    of: Case,
    number: int,
    place: str,
    kind: str,
    device: Device,
    rng: np.random.Generator,
) -> None:
    """Call twice with `out` in an operand's memory; the second call is a remembered call."""
    arrays = drawn(of, rng)
    try:
        expected = of.call(*map(ub.asarray, arrays)).to_numpy()
    except (ArgumentTypeError, NotSupportedError):
        op = OPS.get(name.partition(" ")[0])
        assert device.backend != "host" or (op is not None and not op.dtypes), name
        return
    what = f"{name}: operand {number}, {place}, {kind}"
    array = arrays[number]
    strides = strides_of(array.shape, place if place == "transposed operand" else "")
    out_strides = strides_of(expected.shape, place if place.endswith("out") else "")
    moved = {"after": 1, "before": -1}.get(place, 0) * int(rng.integers(1, 4))
    start = START + moved * expected.dtype.itemsize
    block = Block(rng)
    x = block.tensor(array.dtype, array.shape, START, strides, kind)
    out = block.tensor(expected.dtype, expected.shape, start, out_strides, kind)
    others = [ub.asarray(one) for one in arrays]
    others[number] = x
    for turn in ("eager", "remembered"):
        block.put(array, START, strides)
        block.buffer.copy_from(block.memory)
        assert of.call(*others, out=out) is out or out.shape == ()
        block.expect(expected, start, out_strides, f"{what}, {turn}")


def places_of(name: str, is_host: bool, rng: np.random.Generator) -> Sequence[str]:
    """Return all places on the host, and a sample for the similar elementwise functions."""
    op = OPS.get(name.partition(" ")[0])
    is_alike = op is not None and op.family.name in ("unary", "binary", "compare")
    return rng.choice(PLACES, 2 if is_host else 1) if is_alike or not is_host else PLACES


def test_a_result_over_an_operand_is_as_if_it_lay_apart(
    device: Device, cases: dict[str, Case], rng: np.random.Generator
) -> None:
    is_host = device.backend == "host"
    names = sorted(cases) if is_host else rng.choice(sorted(cases), 3, replace=False)
    for name in names:
        count = len(cases[name].operands)
        for number in range(count) if is_host else [int(rng.integers(count))]:
            for place in places_of(name, is_host, rng):
                kind = str(rng.choice(OBJECTS)) if is_host else "views"
                overlapping(name, cases[name], number, place, kind, device, rng)


def scattered(op: Callable[[Array, Any, Array], None]) -> Callable[..., None]:
    def reference(x: Array, ids: Array, source: Array) -> None:
        for place in np.ndindex(ids.shape):
            op(x, (int(ids[place]), *place[1:]), source[place])

    return reference


def put(x: Array, at: Any, value: Any) -> None:
    x[at] = value


def plus(x: Array, at: Any, value: Any) -> None:
    x[at] += value


def added_rows(x: Array, ids: Array, source: Array) -> None:
    np.add.at(x, ids, source)


def appended(x: Array, source: Array, position: Array) -> None:
    x[int(position[0]) : int(position[0]) + len(source)] = source


def written_slots(x: Array, source: Array, slots: Array) -> None:
    x[0, slots] = source


def copied(x: Array, source: Array) -> None:
    x[...] = source


@dataclass(frozen=True)
class InPlace:
    """A function that changes its first operand, and its counterpart in numpy."""

    operands: tuple[tuple[str, tuple[int, ...]], ...]
    call: Callable[..., Any]
    reference: Callable[..., None]


def set_item(x: DeviceTensor, source: DeviceTensor) -> None:
    x[...] = source


def in_place_operator(symbol: str) -> Callable[..., Any]:
    return lambda x, y: getattr(x, f"__{symbol}__")(y)


TWO = (("f32", SQUARE), ("f32", SQUARE))
OF_SOURCE = (("f32", SQUARE), ("i64", SQUARE), ("f32", SQUARE))
CHANGING = {
    "scatter": InPlace(
        OF_SOURCE, lambda x, ids, source: ub.scatter(x, ids, source, 0), scattered(put)
    ),
    "scatter_add": InPlace(
        OF_SOURCE, lambda x, ids, source: ub.scatter_add(x, ids, source, 0), scattered(plus)
    ),
    "index_add": InPlace(
        (("f32", SQUARE), ("i64", (SIDE,)), ("f32", SQUARE)),
        lambda x, ids, source: ub.index_add(x, ids, source, 0),
        added_rows,
    ),
    "kv_append": InPlace(
        (("f32", SQUARE), ("f32", (2, SIDE)), ("i64", (1,))), ub.kv_append, appended
    ),
    "paged_append": InPlace(
        (("f32", (1, SIDE, 1, SIDE)), ("f32", (2, 1, SIDE)), ("i64", (2,))),
        ub.paged_append,
        written_slots,
    ),
    "copy_from": InPlace(TWO, DeviceTensor.copy_from, copied),
    "copy_from f64": InPlace((TWO[0], ("f64", SQUARE)), DeviceTensor.copy_from, copied),
    "setitem": InPlace(TWO, set_item, copied),
    "iadd": InPlace(TWO, in_place_operator("iadd"), np.ndarray.__iadd__),  # type: ignore[arg-type]
    "isub": InPlace(TWO, in_place_operator("isub"), np.ndarray.__isub__),  # type: ignore[arg-type]
    "imul": InPlace(TWO, in_place_operator("imul"), np.ndarray.__imul__),  # type: ignore[arg-type]
}
ELSEWHERE = {
    "fill": "no operands",
    "copy2d": "copy_from",
    "rotary": "GCUs",
    "rotary_f32": "GCUs",
    "reshape_and_cache": "GCUs",
}
"""In-place operations without a function of that name, and where they are tested instead."""


def test_every_operation_in_place_has_a_case() -> None:
    changing = {op.name for op in OPS.values() if op.family.is_in_place}
    assert changing <= set(CHANGING) | set(ELSEWHERE)
    operators = {name for name in dir(DeviceTensor) if name[2:-2] in {"iadd", "isub", "imul"}}
    assert {name.strip("_") for name in operators} <= set(CHANGING)


@pytest.mark.parametrize("name", CHANGING)
def test_operands_in_changed_memory_are_read_as_they_were(
    name: str, device: Device, rng: np.random.Generator
) -> None:
    of = CHANGING[name]
    is_host = device.backend == "host"
    if not is_host and name not in rng.choice(sorted(CHANGING), 2, replace=False):
        return
    if name in ("kv_append", "paged_append") and device.backend == "tops":
        pytest.skip("a GCU appends one token at a time, and has no pages")
    row = row_of(device.backend)
    if not all(row.has(OPS["add"], dtype, None) for dtype, _ in of.operands if dtype[0] == "f"):
        pytest.skip(f"{row.backend} has no kernels for a dtype of the case")
    for number in range(1, len(of.operands)):
        for place in PLACES if is_host else ("after",):
            arrays = [
                rng.permutation(np.arange(np.prod(shape)) % SIDE)
                .reshape(shape)
                .astype(as_dtype(dtype).dtype)
                for dtype, shape in of.operands
            ]
            if name == "kv_append":
                arrays[2][:] = rng.integers(0, 3)
            array, changed = arrays[number], arrays[0]
            kind = str(rng.choice(OBJECTS)) if is_host else "views"
            strides = strides_of(array.shape, "" if place == "transposed out" else place)
            whole = Layout.contiguous(changed.shape).strides
            moved = {"after": 1, "before": -1}.get(place, 0) * 2 * int(rng.integers(1, 4))
            start = START + moved * changed.dtype.itemsize
            block = Block(rng)
            x = block.tensor(changed.dtype, changed.shape, start, whole, kind)
            operand = block.tensor(array.dtype, array.shape, START, strides, kind)
            given = [ub.asarray(one) for one in arrays[1:]]
            given[number - 1] = operand
            for _ in range(2):
                # Write the operand last: its bytes must be valid, for example ids.
                block.put(changed, start, whole)
                block.put(array, START, strides)
                block.buffer.copy_from(block.memory)
                before = x.to_numpy()
                result = before.copy()
                of.reference(result, *arrays[1:])
                of.call(x, *given)
                block.expect(result, start, whole, f"{name}, operand {number}, {place}, {kind}")


def distances(layout: Layout) -> list[tuple[int, int]]:
    """Return lengths and strides; the stride of an axis of one element does not matter."""
    pairs = zip(layout.shape, layout.strides, strict=True)
    return [(length, stride if length > 1 else 0) for length, stride in pairs]


def test_launches_refuse_what_functions_avoid(
    device: Device, cases: dict[str, Case], rng: np.random.Generator
) -> None:
    """A launch whose result overlaps an operand is refused, unless the table allows it for the same
    address, layout and item size."""
    if device.backend != "host":
        return
    executor = DeviceExecutor.of(device)
    asked: dict[Any, Any] = {}

    class Listener(recording.Listener):
        def asked(self, question: Any, out: Any, is_new: Any, given: Any) -> None:
            asked.setdefault(question, given)

        def allocated(self, buffer: Any) -> None:
            pass

        def called(self, *told: Any) -> None:
            raise AssertionError(told)

    with recording.listening(Listener(device)):
        for of in cases.values():
            of.call(*map(ub.asarray, drawn(of, rng)))
    assert {question.op.name for question in asked} >= {"matmul", "gather", "attention", "argsort"}
    for question, given in asked.items():
        dtype, layout = question.result
        for number, (kind, lies) in enumerate(question.operands):
            for moved in (0, 1) if lies.is_contiguous and lies.size > 8 else (0,):
                block = DeviceBuffer.zeros(8192, "u8")
                out = block[moved * dtype.itemsize :][: 4096 // dtype.itemsize * dtype.itemsize]
                operand = block[: 4096 // kind.itemsize * kind.itemsize].view(kind)
                buffers = [*given]
                buffers[number] = operand
                may = (
                    not moved
                    and number < question.op.family.replaces
                    and kind.itemsize == dtype.itemsize
                    and distances(lies) == distances(layout)
                )
                if may:
                    executor.run(question, None, out.view(dtype), *buffers)
                    continue
                with pytest.raises(ArgumentValueError, match="out: expected memory apart"):
                    executor.run(question, None, out.view(dtype), *buffers)


def test_places_that_share_no_byte_are_found_apart(rng: np.random.Generator) -> None:
    """Spans that the rule calls disjoint share no byte, for example parts of the same rows."""

    def bytes_of(place: Span) -> set[int]:
        starts = np.zeros(place.layout.shape, int)
        for axis, stride in enumerate(place.layout.strides):
            steps = np.arange(place.layout.shape[axis]) * stride * place.itemsize
            starts += steps.reshape([-1 if one == axis else 1 for one in range(starts.ndim)])
        return {
            place.address + int(one) + byte for one in starts.flat for byte in range(place.itemsize)
        }

    def place() -> Span:
        itemsize = int(rng.choice([1, 2, 4, 8]))
        shape = tuple(int(one) for one in rng.integers(0, 4, rng.integers(0, 4)))
        strides = [int(one) for one in rng.integers(0, 9, len(shape))]
        return Span(int(rng.integers(0, 64)) * 8, Layout(shape, strides), itemsize)

    for _ in range(500):
        one, other = place(), place()
        shared = bytes_of(one) & bytes_of(other)
        assert one.may_share(other) == other.may_share(one)
        assert one.may_share(other) or not shared
        if conflict(OPS["add"], one, [other]) is None and shared:
            assert (one.address, one.itemsize) == (other.address, other.itemsize)
    rows = Layout((4, 3), (8, 1))
    left, right = Span(0, rows, 4), Span(12, rows, 4)
    assert not left.may_share(right) and left.may_share(Span(8, rows, 4))
    odd, even = Span(0, Layout((4,), (2,)), 4), Span(4, Layout((4,), (2,)), 4)
    assert not odd.may_share(even)


@pytest.mark.parametrize("step", [2, 3])
def test_an_axis_of_one_element_has_no_distance(
    device: Device, rng: np.random.Generator, step: int
) -> None:
    """A view of one element can be changed in place, for all strides."""
    row_of(device.backend).require_images()
    values = rng.random((3, 5), "f4")
    x = ub.from_numpy(values, device=device)
    for index in (np.s_[1:2, 4::step], np.s_[2::step, 3:4], np.s_[1::step, 2::3]):
        part, expected = x[index], values[index]
        assert ub.add(part, part, out=part) is part
        expected += expected
        part *= 3
        expected *= 3
        np.testing.assert_array_equal(x.to_numpy(), values)


def test_memory_that_touches_is_apart(rng: np.random.Generator) -> None:
    for _ in range(rounds(20, 500)):
        size, other, itemsize = int(rng.integers(1, 9)), int(rng.integers(1, 9)), 4
        start = 4096
        first = Span(start, Layout.contiguous(size), itemsize)
        for at, expected in (
            (start + size * itemsize, False),
            (start + size * itemsize - 1, True),
            (start - other * itemsize, False),
            (start - other * itemsize + 1, True),
        ):
            second = Span(at, Layout.contiguous(other), itemsize)
            assert first.may_share(second) == second.may_share(first) == expected
        empty = Span(start + 1, Layout.contiguous((0, 3)), itemsize)
        assert not first.may_share(empty) and not empty.may_share(first)


def test_columns_that_touch_are_apart() -> None:
    rows, pitch, itemsize = 3, 6, 4
    for begin, end in itertools.combinations(range(pitch + 1), 2):
        for second, stop in itertools.combinations(range(pitch + 1), 2):
            # the second span begins in the same row or in a neighboring row
            for shift in (-1, 0, 1):
                one = Span(4096 + begin * itemsize, Layout((rows, end - begin), (pitch, 1)), 4)
                at = 4096 + (shift * pitch + second) * itemsize
                other = Span(at, Layout((rows, stop - second), (pitch, 1)), 4)
                if end <= second or stop <= begin:
                    assert not one.may_share(other)
                else:
                    assert one.may_share(other)
