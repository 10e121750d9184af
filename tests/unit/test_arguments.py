"""What is said about every kind of wrong launch: class, words, and not one native call."""

from __future__ import annotations

import ctypes
import enum
import math
import struct
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.counting_driver import CountingDriver
from uhal import DeviceBuffer, DevicePointer, Function, HostBuffer, Stream, launch
from uhal._lane import Context
from uhal.arguments import pack
from uhal.device import Device
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)
from uhal.signature import Signature

NAN = math.nan


class World:
    """Two devices, a buffer of each sort, and kernels of any signature."""

    def __init__(self) -> None:
        self.driver = CountingDriver()
        self.context = self.driver.open_context()
        self.device = Device._of(self.context)
        self.elsewhere = CountingDriver().open_context()
        foreign = Device._of(self.elsewhere)
        self.floats = DeviceBuffer.uninitialized(16, "f32", device=self.device)
        self.doubles = DeviceBuffer.uninitialized(16, "f64", device=self.device)
        self.foreign = DeviceBuffer.uninitialized(16, "f32", device=foreign)
        self.closed = DeviceBuffer.uninitialized(16, "f32", device=self.device)
        self.closed.close()
        self.pinned = HostBuffer(4, "f32", device=self.device)
        self.stream = Stream(device=self.device)
        self.foreign_stream = Stream(device=foreign)
        self.closed_stream = Stream(device=self.device)
        self.closed_stream.close()

    def kernel(self, parameters: str | None, name: str = "k") -> Function:
        signature = None if parameters is None else Signature.parse(parameters, entry=name)
        return self.driver.function(self.context, signature, name)

    def refusal(self, *given: Any) -> DeviceError:
        """Launch; return what is raised, after checking that the driver heard nothing of it."""
        before = len(self.driver.calls)
        with pytest.raises(DeviceError) as caught:
            launch(*given)
        assert self.driver.calls[before:] == []
        return caught.value


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    context: Context
    for context in (made.context, made.elsewhere):
        context.close()


class Color(enum.IntEnum):
    RED = 1


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))


U32 = "expected an int in 0…4294967295, got "
F32 = "expected a float that fits f32, got "
TYPED = ": a sized scalar must be {}, a plain Python number is converted"
POINTER = "expected a DeviceBuffer of f32, DevicePointer or None, got "
SIZED = (
    "expected a sized value of {} ({}numpy or ctypes scalar, bytes) because the parameter's type "
    "is unknown, got {}; get_function(name, signature) can tell it"
)

# parameter, argument (a str `=name` is an attribute of World), class, words
WRONG = [
    ("u32 n", -1, ArgumentRangeError, U32 + "-1"),
    ("u32 n", 1 << 32, ArgumentRangeError, U32 + "4294967296"),
    ("u32 n", 10**400, ArgumentRangeError, U32 + "an int of 1329 bits"),
    ("u32 n", np.int32(-5), ArgumentRangeError, U32 + "numpy.int32 -5"),
    ("u32 n", 1.5, ArgumentTypeError, U32 + "float 1.5"),
    ("u32 n", 16.0, ArgumentTypeError, U32 + "float 16.0"),
    ("u32 n", NAN, ArgumentTypeError, U32 + "float nan"),
    ("u32 n", True, ArgumentTypeError, U32 + "bool True"),
    ("u32 n", np.True_, ArgumentTypeError, U32 + f"numpy.{np.bool_.__name__} True"),
    ("u32 n", "16", ArgumentTypeError, U32 + "str '16'"),
    ("u32 n", None, ArgumentTypeError, U32 + "None"),
    ("u32 n", [16], ArgumentTypeError, U32 + "list [16]"),
    ("u32 n", 1j, ArgumentTypeError, U32 + "complex 1j"),
    ("u32 n", np.uint64(5), ArgumentTypeError, U32 + "numpy.uint64 5" + TYPED.format("u32")),
    ("u32 n", ctypes.c_int8(5), ArgumentTypeError, U32 + "ctypes.c_byte(5)" + TYPED.format("u32")),
    (
        "u32 n",
        np.array(5),
        ArgumentTypeError,
        U32 + "numpy.ndarray of shape (), dtype int64; take the number out: array.item()",
    ),
    ("u32 n", "=floats", ArgumentTypeError, U32 + "DeviceBuffer of 16 f32"),
    ("u32 n", DevicePointer(5), ArgumentTypeError, U32 + "DevicePointer(0x5)"),
    ("u32 n", "x" * 99, ArgumentTypeError, U32 + "str '" + "x" * 58 + "…"),
    ("i8 n", 128, ArgumentRangeError, "expected an int in -128…127, got 128"),
    (
        "i64 n",
        1 << 63,
        ArgumentRangeError,
        "expected an int in -9223372036854775808…9223372036854775807, got 9223372036854775808",
    ),
    (
        "u64 n",
        1 << 64,
        ArgumentRangeError,
        "expected an int in 0…18446744073709551615, got 18446744073709551616",
    ),
    ("f32 a", 1e39, ArgumentValueError, F32 + "float 1e+39, which overflows"),
    ("f32 a", 10**400, ArgumentRangeError, F32 + "int of 1329 bits, which overflows"),
    ("f32 a", True, ArgumentTypeError, F32 + "bool True"),
    ("f32 a", "1", ArgumentTypeError, F32 + "str '1'"),
    ("f32 a", None, ArgumentTypeError, F32 + "None"),
    ("f32 a", np.float64(1), ArgumentTypeError, F32 + "numpy.float64 1.0" + TYPED.format("f32")),
    ("f32 a", np.int32(1), ArgumentTypeError, F32 + "numpy.int32 1" + TYPED.format("f32")),
    (
        "f16 a",
        65520.0,
        ArgumentValueError,
        "expected a float that fits f16, got float 65520.0, which overflows",
    ),
    (
        "bf16 a",
        np.float16(1),
        ArgumentTypeError,
        "expected a float that fits bf16, got numpy.float16 1.0" + TYPED.format("bf16"),
    ),
    (
        "f8e4m3 a",
        math.inf,
        ArgumentValueError,
        "expected a float that fits f8e4m3, got float inf, which overflows",
    ),
    ("bool b", 1, ArgumentTypeError, "expected a bool, got int 1"),
    ("bool b", np.uint8(1), ArgumentTypeError, "expected a bool, got numpy.uint8 1"),
    (
        "f32* x",
        "=doubles",
        ArgumentTypeError,
        "expected a DeviceBuffer of f32, got DeviceBuffer of 16 f64; to read the same bytes as "
        "f32 pass buffer.view('f32')",
    ),
    ("f32* x", "=closed", InvalidHandleError, "expected an open DeviceBuffer, got a closed one"),
    (
        "f32* x",
        "=foreign",
        InvalidHandleError,
        "expected a DeviceBuffer of counting:0, the kernel's device, got one of counting:0 as it "
        "was before Device.close()",
    ),
    (
        "f32* x",
        140_000_000,
        ArgumentTypeError,
        POINTER + "int 140000000; an address is passed as DevicePointer(address)",
    ),
    (
        "f32* x",
        np.zeros((2, 3), np.float32),
        ArgumentTypeError,
        POINTER + "numpy.ndarray of shape (2, 3), dtype float32; copy it to the device: "
        "DeviceBuffer.from_numpy(array)",
    ),
    (
        "f32* x",
        [1.0, 2.0],
        ArgumentTypeError,
        POINTER + "list [1.0, 2.0]; copy it to the device: DeviceBuffer.from_slice(values, 'f32')",
    ),
    (
        "f32* x",
        "=pinned",
        ArgumentTypeError,
        POINTER + "HostBuffer of 4 f32; it is host memory: copy it with "
        "DeviceBuffer.from_numpy(host_buffer.array)",
    ),
    ("f32* x", 1.5, ArgumentTypeError, POINTER + "float 1.5"),
    ("f32* x", True, ArgumentTypeError, POINTER + "bool True"),
    (
        "ptr x",
        7,
        ArgumentTypeError,
        "expected a DeviceBuffer, DevicePointer or None, got int 7; an address is passed as "
        "DevicePointer(address)",
    ),
    ("bytes[8] s", b"x", ArgumentTypeError, "expected 8 bytes, got bytes b'x' of 1 byte"),
    (
        "bytes[8] s",
        5,
        ArgumentTypeError,
        "expected 8 bytes (bytes, numpy.void or a ctypes structure), got int 5",
    ),
    (
        "unknown[8] u",
        5,
        ArgumentTypeError,
        SIZED.format("8 bytes", "DeviceBuffer, DevicePointer, None, ", "int 5"),
    ),
    ("unknown[4] u", None, ArgumentTypeError, SIZED.format("4 bytes", "", "None")),
    (
        "scalar[8] u",
        "=floats",
        ArgumentTypeError,
        SIZED.format("8 bytes", "", "DeviceBuffer of 16 f32"),
    ),
    (
        "unknown[8] u",
        np.int32(1),
        ArgumentTypeError,
        "expected 8 bytes, got numpy.int32 1 of 4 bytes",
    ),
]


@pytest.mark.parametrize(("parameter", "value", "error", "words"), WRONG)
def test_a_wrong_argument(
    world: World, parameter: str, value: Any, error: type[DeviceError], words: str
) -> None:
    if isinstance(value, str) and value.startswith("="):
        value = getattr(world, value[1:])
    kernel = world.kernel(f"u32 first, {parameter}", "saxpy")
    kind, _, name = parameter.rpartition(" ")
    raised = world.refusal(kernel, 1, 1, (1, value))
    assert type(raised) is error
    shape, _, site = str(raised).rpartition(" ")
    assert shape == f"saxpy, argument 1 '{name}' ({kind}): {words}. The kernel was not launched."
    assert site.startswith("[test_arguments.py:")
    assert raised.backend == "counting"


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("u32 n", np.int32(5), struct.pack("=I", 5)),
        ("u32 n", ctypes.c_int32(5), struct.pack("=I", 5)),
        ("u32 n", Color.RED, struct.pack("=I", 1)),
        ("i32 n", np.uint32(5), struct.pack("=i", 5)),
        ("i8 n", -128, b"\x80"),
        ("u64 n", (1 << 64) - 1, b"\xff" * 8),
        ("i64 n", -(1 << 63), b"\0" * 7 + b"\x80"),
        ("f32 a", 3, struct.pack("=f", 3)),
        ("f32 a", math.inf, struct.pack("=f", math.inf)),
        ("f64 a", -0.0, struct.pack("=d", -0.0)),
        ("f16 a", 65519.0, b"\xff\x7b"),
        ("f16 a", np.float16(1), b"\0\x3c"),
        ("bf16 a", 0.0, b"\0\0"),
        ("bf16 a", ml_dtypes.bfloat16(1), b"\x80\x3f"),
        ("f8e4m3 a", 448, b"\x7e"),
        ("bool b", True, b"\1"),
        ("bool b", np.False_, b"\0"),
        ("bool b", ctypes.c_bool(True), b"\1"),
        ("f32* x", None, bytes(8)),
        ("f32* x", DevicePointer(0xABC), (0xABC).to_bytes(8, "little")),
        ("bytes[8] s", b"12345678", b"12345678"),
        ("bytes[8] s", Pair(1, 1.0), struct.pack("=if", 1, 1.0)),
        ("bytes[8] s", np.void(b"12345678"), b"12345678"),
        ("unknown[8] u", np.float64(1), struct.pack("=d", 1)),
        ("unknown[8] u", None, bytes(8)),
        ("scalar[4] u", np.int32(7), struct.pack("=i", 7)),
    ],
)
def test_a_rare_argument_that_is_right(
    world: World, parameter: str, value: object, expected: bytes
) -> None:
    kernel = world.kernel(parameter)
    assert pack(kernel, 0, value) == expected
    launches = world.driver.count("launch")
    launch(kernel, 1, 1, (value,))
    assert world.driver.count("launch") == launches + 1


@pytest.mark.parametrize("value", [5, 1.5, True, "x", [1]], ids=repr)
def test_without_a_signature_only_sized_values_are_taken(world: World, value: object) -> None:
    raised = world.refusal(world.kernel(None), 1, 1, (np.int32(1), value))
    assert type(raised) is ArgumentTypeError
    assert str(raised).startswith("k, argument 1: expected a sized value (DeviceBuffer, ")
    launch(world.kernel(None), 1, 1, (np.int32(1), world.floats, None, DevicePointer(4), b"abc"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "expected 2 arguments (u64 n, f32* x), got 0"),
        ((1,), "expected 2 arguments (u64 n, f32* x), got 1"),
        ((1, None, 3), "expected 2 arguments (u64 n, f32* x), got 3"),
    ],
)
def test_a_wrong_number_of_arguments(world: World, given: tuple[Any, ...], words: str) -> None:
    raised = world.refusal(world.kernel("u64 n, f32* x"), 1, 1, given)
    assert type(raised) is ArgumentTypeError
    assert str(raised).startswith(f"k, arguments: {words}. The kernel was not launched. [")


EXTENT = "expected an int or a tuple of 1 to 3 ints, got "
GRID = "expected an int in 1…2147483647, got "


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        (0, 1, 0, "grid x: " + GRID + "0"),
        (-1, 1, 0, "grid x: " + GRID + "-1"),
        (1 << 40, 1, 0, "grid x: " + GRID + "1099511627776"),
        (10**400, 1, 0, "grid x: " + GRID + "an int of 1329 bits"),
        (np.int64(0), 1, 0, "grid x: " + GRID + "numpy.int64 0"),
        ((1, 0), 1, 0, "grid y: expected an int in 1…65535, got 0"),
        ((1, 1, 65536), 1, 0, "grid z: expected an int in 1…65535, got 65536"),
        (1.5, 1, 0, "grid: " + EXTENT + "float 1.5"),
        ((1, 2.0), 1, 0, "grid y: expected an int in 1…65535, got float 2.0"),
        ("1", 1, 0, "grid: " + EXTENT + "str '1'"),
        (None, 1, 0, "grid: " + EXTENT + "None"),
        (True, 1, 0, "grid: " + EXTENT + "bool True"),
        ([1], 1, 0, "grid: " + EXTENT + "list [1]"),
        ((), 1, 0, "grid: " + EXTENT + "tuple ()"),
        ((1, 1, 1, 1), 1, 0, "grid: " + EXTENT + "tuple (1, 1, 1, 1)"),
        (1, 0, 0, "block x: expected an int in 1…1024, got 0"),
        (1, 1025, 0, "block x: expected an int in 1…1024, got 1025"),
        (1, (1, 1, 65), 0, "block z: expected an int in 1…64, got 65"),
        (1, (32, 64), 0, "block: expected at most 1024 threads in a block, got 2048: (32, 64)"),
        (1, None, 0, "block: " + EXTENT + "None"),
        (1, NAN, 0, "block: " + EXTENT + "float nan"),
        (1, 1, -1, "shared: expected an int of bytes in 0…49152, got -1"),
        (1, 1, 49153, "shared: expected an int of bytes in 0…49152, got 49153"),
        (1, 1, 1.0, "shared: expected an int of bytes in 0…49152, got float 1.0"),
        (1, 1, None, "shared: expected an int of bytes in 0…49152, got None"),
        (1, 1, True, "shared: expected an int of bytes in 0…49152, got bool True"),
    ],
)
def test_a_wrong_geometry(world: World, grid: Any, block: Any, shared: Any, words: str) -> None:
    raised = world.refusal(world.kernel(""), grid, block, (), shared)
    assert type(raised) is ArgumentValueError
    assert str(raised).startswith(f"k, {words}. The kernel was not launched. [test_arguments.py:")


def test_a_wrong_stream(world: World) -> None:
    kernel = world.kernel("")
    raised = world.refusal(kernel, 1, 1, (), 0, 5)
    assert type(raised) is ArgumentTypeError
    assert "k, stream: expected a Stream or None, got int 5; another library's" in str(raised)
    raised = world.refusal(kernel, 1, 1, (), 0, world.foreign_stream)
    assert type(raised) is InvalidHandleError
    raised = world.refusal(kernel, 1, 1, (), 0, world.closed_stream)
    assert type(raised) is InvalidHandleError


def test_a_wrong_function(world: World) -> None:
    raised = world.refusal("saxpy", 1, 1)
    assert type(raised) is ArgumentTypeError
    assert "launch, function: expected a Function, got str 'saxpy'; take one from" in str(raised)


def test_a_call_without_a_geometry(world: World) -> None:
    with pytest.raises(ArgumentTypeError, match=r"expected a grid and a block: k\[grid, block\]"):
        world.kernel("")(5)


def test_a_static_shared_kernel_says_what_it_takes_itself(world: World) -> None:
    from uhal import _lane
    from uhal.contract import FunctionAttributes

    attributes = FunctionAttributes(max_threads_per_block=64, static_shared_bytes=1024)
    module = _lane.ModuleHandle(world.context, 0xBEEF)
    kernel = Function(module, 0xF00, "k", Signature.parse(""), attributes)
    raised = world.refusal(kernel, 1, 1, (), 48129)
    assert "in 0…48128 (the kernel itself takes 1024 more), got 48129" in str(raised)
    raised = world.refusal(kernel, 1, 65)
    assert "block: expected at most 64 threads in a block, got 65: 65" in str(raised)


def test_a_value_whose_repr_fails_is_still_refused(world: World) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    raised = world.refusal(world.kernel("u32 n"), 1, 1, (Hostile(),))
    assert "Hostile whose repr fails. The kernel" in str(raised)
