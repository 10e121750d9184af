"""Every elementwise operation x dtype x class of layout against numpy in higher precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ubridge
import uhal
from tests.sampling import SOAK
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.operands import LAYOUTS, Array, Operand, assert_close, operand, shape_of
from ubridge import OPS, DeviceTensor, Op
from uhal import Device, as_dtype

DEVICES = tuple(row.name for row in OP_ROWS)


@pytest.fixture(autouse=True)
def op_row(device: Device) -> OpRow:
    """Operations of the device under test."""
    row = row_of(device.backend)
    row.require_images()
    return row


def of_family(*families: str) -> list[Op]:
    return [op for op in OPS.values() if op.family.name in families and op.dtypes]


def cases(row: OpRow, rng: np.random.Generator, op: Op) -> Iterator[tuple[str, str]]:
    """Every dtype of `row.sample` with three layouts, in a soak with every layout."""
    dtypes = [dtype for dtype in op.dtypes if row.has(op, dtype, None)]
    if not dtypes:
        pytest.skip(f"{row.backend} has no kernel of {op.name}")
    for dtype in row.sample(rng, dtypes):
        layouts = LAYOUTS if SOAK else rng.choice(LAYOUTS, 3, replace=False)
        for layout in layouts:
            yield dtype, str(layout)


def drawn(row: OpRow, rng: np.random.Generator, device: Device, layout: str, dtype: str) -> Operand:
    shape = shape_of(rng, layout)
    return operand(rng, device, layout, dtype, shape, special=row.special_values)


def wide(array: Array) -> Array:
    """Return the array in the precision of the reference."""
    if array.dtype.kind in "iu":
        return array
    return array.astype(np.longdouble if array.dtype == np.float64 else np.float64)


def reference(op: Op, *arrays: Array, **others: Any) -> Array:
    assert op.reference is not None
    with np.errstate(all="ignore"):
        return np.asarray(op.reference(*arrays, **others))


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize("op", of_family("unary"), ids=lambda op: op.name)
def test_unary(op: Op, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    function = getattr(ubridge, op.name)
    for dtype, layout in cases(op_row, rng, op):
        x = operand(
            rng, device, layout, dtype, shape_of(rng, layout), special=op_row.special_values
        )
        told = f"{op.name} {dtype} {layout} {x.array.shape}"
        got = function(x.tensor)
        assert got.dtype.name == dtype, told
        if as_dtype(dtype).kind != "float":
            expected = reference(op, x.array)
            if op.name == "round":
                expected = x.array
            np.testing.assert_array_equal(got.to_numpy(), expected.astype(x.array.dtype), told)
            continue
        assert_close(got.to_numpy(), reference(op, wide(x.array)), dtype, told, 2)


@pytest.mark.parametrize("op", of_family("binary", "compare"), ids=lambda op: op.name)
def test_binary(op: Op, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    function = getattr(ubridge, op.name)
    for dtype, layout in cases(op_row, rng, op):
        shape = shape_of(rng, layout)
        special = op_row.special_values
        x = operand(rng, device, layout, dtype, shape, special=special)
        y = operand(rng, device, str(rng.choice(LAYOUTS[:5])), dtype, shape, special=special)
        if op.name == "divide" and as_dtype(dtype).kind != "float":
            continue  # the quotient of integers is f64; the tests of promotion cover it
        told = f"{op.name} {dtype} {layout} and {y.layout} {shape}"
        got = function(x.tensor, y.tensor)
        if op.family.name == "compare":
            assert got.dtype.name == "bool"
            np.testing.assert_array_equal(
                got.to_numpy(), reference(op, wide(x.array), wide(y.array)), told
            )
            continue
        expected = reference(op, wide(x.array), wide(y.array))
        assert_close(got.to_numpy(), expected, dtype, told)


def test_a_large_operand_that_lies_across_is_turned_first(device: Device) -> None:
    if device.backend in ("host", "tops"):
        pytest.skip(f"{device.backend} has another rule")

    def kernels(x: DeviceTensor) -> int:
        with uhal.profile() as found:
            ubridge.exp(x)
        return len(found.kernels)

    def ones(*shape: int) -> DeviceTensor:
        return ubridge.ones(shape, "f32", device=device)

    assert [kernels(x) for x in (ones(256, 256).mT, ones(8192, 8).mT, ones(8, 8192).mT)] == [2] * 3
    in_order = ones(256, 256), ubridge.broadcast_to(ones(256, 1), (256, 256))
    across = ones(256, 255).mT, ones(9363, 7).mT, ones(7, 9363).mT, ones(256, 512)[:, ::2]
    assert [kernels(x) for x in (*in_order, *across)] == [1] * 6


@pytest.mark.parametrize("op", of_family("unary_scalar"), ids=lambda op: op.name)
def test_elu_and_power(op: Op, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    function = {"elu": ubridge.elu, "power": ubridge.power}[op.name]
    for dtype, layout in cases(op_row, rng, op):
        x = drawn(op_row, rng, device, layout, dtype)
        parameter = float(rng.choice([0.5, 1.5, 3.0]))
        got = function(x.tensor, parameter)
        told = f"{op.name} {parameter} {dtype} {layout}"
        assert_close(got.to_numpy(), reference(op, wide(x.array), parameter), dtype, told, 2)


def test_affine(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, OPS["affine"]):
        x = operand(
            rng, device, layout, dtype, shape_of(rng, layout), special=op_row.special_values
        )
        multiplier, addend = int(rng.integers(1, 4)), int(rng.integers(0, 9))
        got = ubridge.affine(x.tensor, multiplier, addend).to_numpy()
        with np.errstate(all="ignore"):
            expected = wide(x.array) * multiplier + addend
        told = f"affine {multiplier} {addend} {dtype} {layout}"
        if as_dtype(dtype).kind == "float":
            # The addend may cancel x * multiplier.
            finite = np.isfinite(expected.astype(np.float64))
            spread = np.abs(expected) + abs(addend)
            step = {"f64": 3e-16, "f32": 2e-7, "f16": 1e-3, "bf16": 8e-3, "f8e4m3": 0.13}[dtype]
            difference = np.abs(got.astype(np.float64)[finite] - expected[finite])
            assert (difference <= step * spread[finite] + 2**-9 * (dtype == "f8e4m3")).all(), told
            np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), told)
        else:
            np.testing.assert_array_equal(got, expected.astype(x.array.dtype), told)


def test_where(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    conditions = ("bool", "u8", "u32", "i64", *(("i32", "f32") if op_row.promotes else ()))
    has = [dtype for dtype in OPS["where"].dtypes if op_row.has(OPS["where"], dtype, "u8")]
    for dtype in op_row.sample(rng, has, 4):
        for condition_dtype in op_row.sample(rng, conditions):
            layout = str(rng.choice(LAYOUTS))
            shape = shape_of(rng, layout)
            condition = operand(rng, device, layout, condition_dtype, shape)
            x = operand(rng, device, str(rng.choice(LAYOUTS[:5])), dtype, shape)
            y = operand(rng, device, str(rng.choice(LAYOUTS[:5])), dtype, shape)
            got = ubridge.where(condition.tensor, x.tensor, y.tensor).to_numpy()
            expected = np.where(condition.array, x.array, y.array)
            told = f"where {condition_dtype} {dtype} {layout} {x.layout} {y.layout}"
            assert got.dtype == expected.dtype, told
            assert got.tobytes() == expected.tobytes(), told


def cast_pairs() -> list[tuple[str, str]]:
    dtypes = OPS["astype"].dtypes
    return [(one, other) for one in dtypes for other in dtypes]


def once_rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """Round f64 once to a smaller float.

    ml_dtypes casts through f32, which would round twice. So this function first rounds to odd in
    f32; the second rounding is then correct (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", 2008).
    """
    if dtype.itemsize > 2:
        return x.astype(dtype)
    narrow = np.asarray(x.astype(np.float32))
    wide = narrow.astype(np.float64)
    bits = narrow.view(np.uint32) - (np.abs(wide) > np.abs(x))
    odd = (bits | (wide != x)).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), odd, narrow).astype(dtype)


def test_rounding_once_is_told_from_rounding_twice() -> None:
    x = np.array([np.nextafter(189.5 / 512, 0), 189.5 / 512, -np.nextafter(189.5 / 512, 1), np.inf])
    once = once_rounded(x, as_dtype("bf16").dtype).astype(np.float64) * 512
    np.testing.assert_array_equal(once, [189, 190, -190, np.inf])


def test_casts(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    has = op_row.has
    pairs = [one for one in cast_pairs() if one[0] == one[1] or has(OPS["astype"], *one)]
    for source, target in op_row.sample(rng, pairs, 12):
        layouts = LAYOUTS if SOAK else rng.choice(LAYOUTS, 2, replace=False)
        for layout in layouts:
            x = operand(rng, device, str(layout), source, shape_of(rng, str(layout)), special=False)
            got = x.tensor.astype(target)
            told = f"{source} to {target} {layout}"
            assert got.dtype.name == target, told
            exact = x.array
            if as_dtype(source).kind == "float" and as_dtype(target).kind != "float":
                least = as_dtype(target).min
                exact = np.maximum(np.trunc(exact.astype(np.float64)), least)
            elif as_dtype(source).kind == "float":
                exact = exact.astype(np.float64)
            wanted = as_dtype(target)
            is_rounded = exact.dtype == np.float64 and wanted.kind == "float"
            cast = once_rounded(exact, wanted.dtype) if is_rounded else exact.astype(wanted.dtype)
            np.testing.assert_array_equal(got.to_numpy(), cast, told)


def test_out_of_range_floats_saturate(op_row: OpRow, device: Device) -> None:
    op_row.require_promotions()
    given = np.array([np.nan, np.inf, -np.inf, 300.7, -5.5, 1e30], np.float32)
    x = ubridge.asarray(given, device=device)
    assert x.astype("u8").tolist() == [0, 255, 0, 255, 0, 255]
    assert x.astype("u32").tolist() == [0, 2**32 - 1, 0, 300, 0, 2**32 - 1]
    assert x.astype("i64").tolist() == [0, 2**63 - 1, -(2**63), 300, -5, 2**63 - 1]
    assert x.astype("bool").tolist() == [True] * 6


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "<", ">=", "=="])
@pytest.mark.parametrize("number_first", [False, True])
def test_numbers_adapt_to_the_tensor(
    operator: str, number_first: bool, op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    op_row.require_promotions()
    for dtype in ("f32", "f64", "f16", "u8", "i64", "i32", "bool"):
        for number in (3, 0.5, 2.0, True):
            array = operand(rng, device, "contiguous", dtype, (5, 4), special=False).array
            if dtype == "bool" and operator == "-" and isinstance(number, bool):
                continue
            if operator == "/" and number_first and dtype == "bool":
                array = np.ones_like(array)
            x = ubridge.asarray(array, device=device)
            text = f"number {operator} x" if number_first else f"x {operator} number"
            with np.errstate(all="ignore"):
                expected = eval(text, {"x": array, "number": number})
            got = eval(text, {"x": x, "number": number})
            assert got.dtype == expected.dtype, (text, dtype, number)
            np.testing.assert_allclose(
                got.to_numpy().astype(np.float64),
                expected.astype(np.float64),
                rtol=1e-3 if dtype == "f16" else 1e-6,
                atol=1e-6,
                err_msg=f"{text} {dtype} {number}",
            )


def test_dtypes_are_promoted_as_numpy_does(
    op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    op_row.require_promotions()
    kinds = ("f16", "f32", "f64", "u8", "u32", "i64", "bool")
    for first in kinds:
        for second in kinds:
            x = operand(rng, device, "contiguous", first, (3, 4), special=False)
            y = operand(rng, device, "broadcast", second, (3, 4), special=False)
            expected = x.array + y.array
            got = x.tensor + y.tensor
            assert got.dtype == expected.dtype, (first, second)
            np.testing.assert_allclose(got.to_numpy(), expected, rtol=2e-3)


def broadcasting(rng: np.random.Generator, device: Device) -> tuple[Operand, Operand]:
    x = operand(rng, device, "stepped", "f32", (4, 1, 5), special=False)
    y = operand(rng, device, "transposed", "f32", (3, 1), special=False)
    return x, y


def test_shapes_are_broadcast(device: Device, rng: np.random.Generator) -> None:
    x, y = broadcasting(rng, device)
    np.testing.assert_array_equal((x.tensor * y.tensor).to_numpy(), x.array * y.array)
    got = ubridge.where(x.tensor > 0, y.tensor, 1)
    np.testing.assert_array_equal(got.to_numpy(), np.where(x.array > 0, y.array, np.float32(1)))


def poisoned(device: Device, shape: tuple[int, ...], dtype: str = "f32") -> DeviceTensor:
    return ubridge.full(shape, 77, dtype, device=device)


def test_out_is_written_through_its_layout(device: Device, rng: np.random.Generator) -> None:
    x = operand(rng, device, "transposed", "f32", (4, 6), special=False)
    whole = poisoned(device, (6, 9))
    for out in (whole[1:5, 2:8], whole.T[2:8, 1:5].T, whole[::2, ::3].broadcast_to((3, 3))):
        whole.fill(77)
        source = x.tensor[: out.shape[0], : out.shape[1]]
        result = ubridge.negative(source, out=out)
        assert result is out
        expected = -x.array[: out.shape[0], : out.shape[1]]
        np.testing.assert_array_equal(out.to_numpy(), expected)
        assert (whole == 77).to_numpy().sum() == whole.size - out.size


def test_few_elements_are_all_that_is_written(device: Device) -> None:
    """Some GCU kernels write an element for each thread."""
    for count in (1, 5):
        whole = poisoned(device, (100,), "f16")
        x = ubridge.full((count,), -1, device=device)
        x.astype("f16", out=whole[:count])
        assert whole.tolist() == [-1] * count + [77] * (100 - count)
        whole = poisoned(device, (100,))
        ubridge.elu(x, 2.0, out=whole[:count])
        np.testing.assert_array_equal(whole.to_numpy()[count:], 77)
        ubridge.where(x < 0, x, x, out=whole[:count])
        assert whole.tolist() == [-1] * count + [77] * (100 - count)


def test_out_may_overlap_an_operand(device: Device, rng: np.random.Generator) -> None:
    for _ in range(5):
        # The array is larger than the part that a kernel processes at a time.
        array = rng.normal(size=(150, 150)).astype(np.float32)
        x = ubridge.asarray(array, device=device)
        ubridge.add(x, x.T, out=x)
        np.testing.assert_array_equal(x.to_numpy(), array + array.T)
        y = ubridge.asarray(array, device=device)
        y[1:] = y[:-1]
        shifted = array.copy()
        shifted[1:] = array[:-1]
        np.testing.assert_array_equal(y.to_numpy(), shifted)
        z = ubridge.asarray(array, device=device)
        z *= z
        np.testing.assert_array_equal(z.to_numpy(), array * array)


def test_streams_are_given(device: Device, rng: np.random.Generator) -> None:
    from uhal import Stream, StreamFlags

    x = operand(rng, device, "stepped", "f32", (40, 30), special=False)
    with Stream(StreamFlags.NON_BLOCKING, device=device) as stream:
        y = ubridge.exp(x.tensor, stream=stream)
        z = ubridge.multiply(y, y.T.T, stream=stream)
        got = z.to_numpy(stream=stream)
    np.testing.assert_allclose(got, np.exp(x.array.astype(np.float64)) ** 2, rtol=1e-5)


def test_large_transposed_operands(device: Device, op_row: OpRow, rng: np.random.Generator) -> None:
    """Operands that a GPU copies in tiles first, of every family and size of element."""
    shape = 257, int(rng.integers(300, 330))
    left, right = (rng.integers(-50, 50, size).astype("f4") for size in (shape[::-1], shape))
    x, y = (ubridge.array(one, device=device) for one in (left, right))
    positive = left > 0
    mask = ubridge.array(positive, device=device)
    for got, expected in (
        (ubridge.copy(x.mT), left.T),
        (ubridge.negative(x.mT), -left.T),
        (ubridge.add(x.mT, y), left.T + right),
        (ubridge.subtract(y, x.mT), right - left.T),
        (ubridge.greater(x.mT, y), right < left.T),
        (ubridge.where(mask.mT, x.mT, y), np.where(positive.T, left.T, right)),
        (ubridge.masked_fill(y, mask.mT, 3), np.where(positive.T, 3, right)),
        (x.mT * 2, left.T * 2),
        (x.mT.astype("i16"), left.T.astype("i2")),
        (x.astype("f16").mT.astype("f32"), left.T),
    ):
        np.testing.assert_array_equal(got.to_numpy(), expected)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_powers_in_place(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """The first power leaves a tensor as it is, and the second squares it; other powers round."""
    array = rng.uniform(0.5, 2, 100).astype(as_dtype(dtype).dtype)
    x = same = ubridge.asarray(array, device=host)
    x **= 1
    assert x is same
    np.testing.assert_array_equal(x.to_numpy(), array)
    x **= 2.0
    assert x is same
    np.testing.assert_array_equal(x.to_numpy(), array * array)
    x.buffer.close()
    with pytest.raises(uhal.InvalidHandleError):
        x **= 1


def test_kinds_of_every_f8(device: Device, op_row: OpRow) -> None:
    if not op_row.has(OPS["astype"], "f8e4m3", "f32"):
        pytest.skip(f"{op_row.backend} has no kernel that converts f8e4m3")
    bits = np.arange(256, dtype=np.uint8)
    x = ubridge.from_numpy(bits.view(as_dtype("f8e4m3").dtype), device=device)
    is_nan = bits & 0x7F == 0x7F
    expected = {"isnan": is_nan, "isinf": bits > 255, "isfinite": ~is_nan, "signbit": bits > 127}
    for name, right in expected.items():
        np.testing.assert_array_equal(getattr(ubridge, name)(x).to_numpy(), right, name)
