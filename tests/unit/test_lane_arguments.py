"""Every accepted value reaches the driver as exactly the bytes of its parameter."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.counting_bench import Bench
from tests.sampling import rounds
from uhal import DevicePointer, LaunchConfig, Parameter, Signature, Stream, launch
from uhal.dtypes import ALL as DTYPES
from uhal.dtypes import DType
from uhal.errors import ArgumentValueError

INTEGERS = [dtype for dtype in DTYPES if dtype.kind in ("int", "uint")]
FLOATS = [dtype for dtype in DTYPES if dtype.kind == "float"]
CTYPES: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "u8": ctypes.c_uint8,
    "i16": ctypes.c_int16,
    "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


def packed(bench: Bench, dtype: DType, value: Any) -> bytes:
    return bench.packed(bench.function(f"{dtype} v"), value)[0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_python_ints_from_the_least_to_the_greatest(
    bench: Bench, dtype: DType, rng: np.random.Generator
) -> None:
    assert dtype.min is not None
    assert dtype.max is not None
    values = [dtype.min, dtype.min + 1, 0, 1, dtype.max - 1, dtype.max]
    values += [int(v) for v in rng.integers(dtype.min, dtype.max, 20, dtype.dtype, endpoint=True)]
    for value in values:
        assert packed(bench, dtype, value) == np.array(value, dtype.dtype).tobytes()


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_integers_whose_sign_nobody_tells(
    bench: Bench, size: int, rng: np.random.Generator
) -> None:
    """Every integer from the least signed to the greatest unsigned is passed as its bytes."""
    function = bench.function(f"integer[{size}] v")
    low, high = -(1 << 8 * size - 1), (1 << 8 * size) - 1
    drawn = (int.from_bytes(rng.bytes(size), "little", signed=bool(i % 2)) for i in range(20))
    for value in [low, low + 1, -1, 0, 1, -low - 1, -low, high - 1, high, *drawn]:
        assert bench.packed(function, value)[0] == (value & high).to_bytes(size, "little"), value
    for kind in (f"i{size}", f"u{size}"):
        for number in np.frombuffer(rng.bytes(8 * size), kind):
            assert bench.packed(function, number)[0] == number.tobytes()
            plain = np.ctypeslib.as_ctypes_type(kind)(int(number))
            assert bench.packed(function, plain)[0] == number.tobytes()
    raw = rng.bytes(size)
    assert bench.packed(function, raw)[0] == raw
    if size == 1:
        for truth in (True, np.True_):
            assert bench.packed(function, truth)[0] == b"\1"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_scalars_of_the_very_type(
    bench: Bench, dtype: DType, rng: np.random.Generator
) -> None:
    raw = rng.integers(0, 256, 16 * dtype.itemsize, "u1")
    array = (raw % 2).view("?") if dtype.kind == "bool" else raw.view(dtype.dtype)
    for value in array:
        assert isinstance(value, np.generic)
        assert packed(bench, dtype, value) == value.tobytes()


def test_both_of_numpys_64_bit_integers(bench: Bench) -> None:
    for kind in (np.longlong, np.int_, np.intp):
        assert packed(bench, named("i64"), kind(-5)) == struct.pack("=q", -5)
    for kind in (np.ulonglong, np.uint, np.uintp):
        assert packed(bench, named("u64"), kind(2**63 + 5)) == struct.pack("=Q", 2**63 + 5)


def named(name: str) -> DType:
    return next(dtype for dtype in DTYPES if dtype.name == name)


@pytest.mark.parametrize("name", CTYPES)
def test_ctypes_scalars_of_the_very_type(bench: Bench, name: str) -> None:
    value = CTYPES[name](1)
    assert packed(bench, named(name), value) == bytes(value)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_the_other_signedness_passes_when_the_value_fits(bench: Bench, dtype: DType) -> None:
    other = named(("u" if dtype.kind == "int" else "i") + dtype.name[1:])
    value = other.dtype.type(100)
    assert packed(bench, dtype, value) == value.tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_python_floats_are_rounded_once_to_nearest_even(
    bench: Bench, dtype: DType, rng: np.random.Generator
) -> None:
    largest = float(ml_dtypes.finfo(dtype.dtype).max)
    smallest = float(ml_dtypes.finfo(dtype.dtype).smallest_subnormal)
    values = [0.0, -0.0, 1.0, -1.0, 0.1, largest, -largest, smallest, smallest / 2, smallest * 0.75]
    exponents = rng.uniform(math.log2(smallest), math.log2(largest) - 1, rounds(200, 20000))
    values += list(2.0**exponents * rng.choice([-1, 1], exponents.size))
    function = bench.function(f"{dtype} v")
    for value in values:
        got = bench.packed(function, float(value))[0]
        assert got == nearest(dtype, float(value)), value


def nearest(dtype: DType, value: float) -> bytes:
    """Return the nearest number of the type, ties to even, by a comparison of exact doubles."""
    if dtype.name in ("f32", "f64"):
        return np.array(value, dtype.dtype).tobytes()
    integer = f"u{dtype.itemsize}"
    every = np.arange(2 ** (8 * dtype.itemsize - 1), dtype=integer)
    with np.errstate(invalid="ignore"):
        numbers = every.view(dtype.dtype).astype("f8")
        distance = np.where(np.isfinite(numbers), np.abs(numbers - abs(value)), np.inf)
    closest = every[distance == distance.min()]
    bits = int(next(b for b in closest if len(closest) == 1 or b % 2 == 0))
    if math.copysign(1, value) < 0:
        bits |= 1 << (8 * dtype.itemsize - 1)
    return bits.to_bytes(dtype.itemsize, "little")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_nan_pass_where_the_type_has_them(bench: Bench, dtype: DType) -> None:
    function = bench.function(f"{dtype} v")

    def read_back(value: float) -> float:
        return float(np.frombuffer(bench.packed(function, value)[0], dtype.dtype)[0])

    assert math.isnan(read_back(math.nan))
    if dtype.name != "f8e4m3":
        assert read_back(math.inf) == math.inf
        assert read_back(-math.inf) == -math.inf


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_an_int_is_taken_for_a_float(bench: Bench, name: str) -> None:
    dtype = named(name)
    for value in (0, 1, -3, 2048):
        assert packed(bench, dtype, value) == np.array(value, dtype.dtype).tobytes()
    assert packed(bench, named("f32"), 2**100) == struct.pack("=f", 2.0**100)
    assert packed(bench, named("f64"), 10**300) == struct.pack("=d", 1e300)


def test_bools(bench: Bench) -> None:
    dtype = named("bool")
    assert [packed(bench, dtype, v) for v in (True, False)] == [b"\1", b"\0"]
    assert [packed(bench, dtype, v) for v in (np.True_, np.False_)] == [b"\1", b"\0"]


def test_pointers(bench: Bench) -> None:
    function = bench.function("const f32* x, ptr y, f32* z, ptr w")
    x = bench.buffer(100)
    view = x[10:20]
    found = bench.packed(function, x, view, None, DevicePointer(2**64 - 1))
    address = x.as_device_ptr().address
    assert [int.from_bytes(data, "little") for data in found] == [
        address,
        address + 40,
        0,
        2**64 - 1,
    ]
    integers = x.view("i32")
    assert int.from_bytes(bench.packed(function, x, integers, x, None)[1], "little") == address


def test_a_const_pointer_takes_read_only_memory(bench: Bench) -> None:
    from uhal import DeviceBuffer

    array = np.zeros(4, "f4")
    array.flags.writeable = False
    function = bench.function("const f32* x")
    found = bench.packed(function, DeviceBuffer.from_dlpack(array))
    assert int.from_bytes(found[0], "little") == array.ctypes.data


class Shape(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int), ("columns", ctypes.c_int), ("scale", ctypes.c_float))


def test_aggregates(bench: Bench) -> None:
    function = bench.function("bytes[12] shape")
    expected = struct.pack("=iif", 3, 4, 0.5)
    structured = np.array((3, 4, 0.5), "i4,i4,f4")[()]
    for value in (
        expected,
        bytearray(expected),
        memoryview(expected),
        Shape(3, 4, 0.5),
        structured,
        (ctypes.c_ubyte * 12)(*expected),
    ):
        assert bench.packed(function, value) == [expected]


def test_parameters_of_unknown_kind_take_typed_values(bench: Bench) -> None:
    parameters = [Parameter(0, size=8), Parameter(1, size=4), Parameter(2, size=2)]
    function = bench.driver.function(bench.context, Signature(parameters), "k")
    buffer = bench.buffer()
    address = buffer.as_device_ptr().address.to_bytes(8, "little")
    assert bench.packed(function, buffer, np.float32(0.5), np.float16(2)) == [
        address,
        struct.pack("=f", 0.5),
        np.float16(2).tobytes(),
    ]
    assert bench.packed(function, np.int64(-1), ctypes.c_int(7), b"ab") == [
        b"\xff" * 8,
        struct.pack("=i", 7),
        b"ab",
    ]
    assert bench.packed(function, None, b"wxyz", ml_dtypes.bfloat16(1))[0] == bytes(8)


def test_a_kernel_without_signature_takes_typed_values(bench: Bench) -> None:
    function = bench.function(None, "mystery")
    buffer = bench.buffer()
    bench.driver.parameter_sizes = [8, 4, 8, 8, 3]
    function[1, 1](buffer, np.int32(-2), None, DevicePointer(5), b"abc")
    assert bench.driver.parameters == [
        buffer.as_device_ptr().address.to_bytes(8, "little"),
        struct.pack("=i", -2),
        bytes(8),
        (5).to_bytes(8, "little"),
        b"abc",
    ]
    bench.driver.parameter_sizes = ()
    function[1, 1]()


@pytest.mark.parametrize("count", [1, 47, 48, 49, 200])
def test_any_number_of_parameters(bench: Bench, count: int, rng: np.random.Generator) -> None:
    """Few and small arguments are stored on the stack, others on the heap."""
    names = rng.choice([dtype.name for dtype in INTEGERS], count)
    function = bench.function(", ".join(f"{name} v{i}" for i, name in enumerate(names)))
    values = [int(v) for v in rng.integers(0, 128, count)]
    expected = [
        value.to_bytes(named(name).itemsize, "little")
        for name, value in zip(names, values, strict=True)
    ]
    assert bench.packed(function, *values) == expected


def test_large_aggregates_leave_the_stack(bench: Bench, rng: np.random.Generator) -> None:
    first, second = rng.bytes(300), rng.bytes(1000)
    function = bench.function("bytes[300] a, u8 b, bytes[1000] c")
    assert bench.packed(function, first, 7, second) == [first, b"\7", second]


GEOMETRIES: list[tuple[Any, Any, Any, tuple[int, ...]]] = [
    (1, 1, 0, (1, 1, 1, 1, 1, 1, 0)),
    ((2,), (3,), 0, (2, 1, 1, 3, 1, 1, 0)),
    ((2, 3), (4, 5), 16, (2, 3, 1, 4, 5, 1, 16)),
    ((2, 3, 4), (5, 6, 7), 49152, (2, 3, 4, 5, 6, 7, 49152)),
    ((2**31 - 1, 65535, 65535), (1, 1, 64), 0, (2**31 - 1, 65535, 65535, 1, 1, 64, 0)),
    (1, 1024, 0, (1, 1, 1, 1024, 1, 1, 0)),
    (1, (1, 1024, 1), 0, (1, 1, 1, 1, 1024, 1, 0)),
    (1, (32, 32), 0, (1, 1, 1, 32, 32, 1, 0)),
    (np.int64(5), np.uint8(200), np.int32(64), (5, 1, 1, 200, 1, 1, 64)),
    ((np.int8(2), 3), (np.uint16(4),), 0, (2, 3, 1, 4, 1, 1, 0)),
]


@pytest.mark.parametrize(("grid", "block", "shared", "expected"), GEOMETRIES)
def test_geometry_reaches_the_driver(
    bench: Bench, grid: Any, block: Any, shared: Any, expected: tuple[int, ...]
) -> None:
    function = bench.function("")
    with Stream() as stream:
        forms = [
            lambda: launch(function, grid, block, (), shared, stream),
            lambda: launch(function, grid=grid, block=block, shared=shared, stream=stream),
            lambda: launch(function, config=LaunchConfig(grid, block, shared), stream=stream),
            lambda: function[grid, block, shared, stream](),
            lambda: function[LaunchConfig(grid, block, shared), stream](),
        ]
        for form in forms:
            bench.quiet()
            form()
            (call,) = [arguments for slot, arguments in bench.driver.calls if slot == "launch"]
            assert call[0] == function.handle
            assert call[1:8] == expected
            assert call[8] == stream.handle


def test_a_float_lies_within_its_parameters_range(bench: Bench) -> None:
    function = bench.function("f32 x")
    most = float(np.finfo("f4").max)
    for value in (0.0, -0.0, most, -most, np.inf, -np.inf, np.nan):
        assert bench.packed(function, value) == [np.float32(value).tobytes()]
    launches = bench.driver.count("launch")
    for value in (2 * most, -2 * most, 1e39, -1e308):
        with pytest.raises(ArgumentValueError, match=r"argument 0 'x' \(f32\)"):
            function[1, 1](value)
    assert bench.driver.count("launch") == launches
