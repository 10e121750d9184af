"""The table of wrong launches: the act, the class of its error, and the message."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.counting_bench import Bench
from uhal import (
    DeviceBuffer,
    Function,
    HostBuffer,
    LaunchConfig,
    Parameter,
    Signature,
    Stream,
    _lane,
    launch,
)
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)

SAXPY = "u32 n, const f32* x, f32* y, f32 a"
MIXED = "bool flag, bytes[12] shape, f16 h, bf16 g, f8e4m3 e, ptr p"
ADVICE_SIZED = "a sized scalar must be {}, a plain Python number is converted"
MAY_POINT = "(DeviceBuffer, DevicePointer, None, numpy or ctypes scalar, bytes)"
WORD = "expected an int in -2147483648…4294967295"
UNKNOWN = "because the parameter's type is unknown"
ADVICE_UNKNOWN = "get_function(name, signature) can tell it"


class Stage:
    """The objects of wrong launches, each created once per test."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.saxpy = bench.function(SAXPY, "saxpy")
        self.mixed = bench.function(MIXED, "mixed")
        self.untyped = bench.function(None, "mystery")
        parameters = [Parameter(0, size=8), Parameter(1, "q", size=4)]
        self.unknown = bench.driver.function(bench.context, Signature(parameters), "unknown")
        self.counts = bench.function("integer[4] n, integer[1] flag, integer[8] m", "counts")
        self.x = bench.buffer()
        self.integers = bench.buffer(4, "i32")
        self.closed = bench.buffer()
        self.closed.close()
        parent = bench.buffer()
        self.orphan = parent[1:3]
        parent.close()
        self.readonly = self._readonly()
        self.pinned = HostBuffer(4, "f32")
        self.closed_stream = Stream()
        self.closed_stream.close()
        self.foreign_device = bench.driver.open_context(1)
        _lane.push_context(self.foreign_device)
        self.foreign = bench.buffer()
        self.foreign_stream = Stream()
        _lane.pop_context()
        handle = _lane.ModuleHandle(bench.context, bench.driver._fresh("module"))
        attributes = bench.driver.function_attributes(0, "gone")
        self.gone = Function(handle, 1, "gone", self.saxpy.signature, attributes)
        self.gone_bound = self.gone[1, 1]
        handle.close()
        stream = Stream()
        self.bound_to_closed = self.saxpy[1, 1, 0, stream]
        stream.close()

    def _readonly(self) -> DeviceBuffer:
        array = np.zeros(4, "f4")
        array.flags.writeable = False
        return DeviceBuffer.from_dlpack(array)

    @property
    def good(self) -> tuple[Any, ...]:
        return (4, self.x, self.x, 1.0)

    def with_n(self, value: Any) -> tuple[Any, ...]:
        return (value, self.x, self.x, 1.0)

    def with_x(self, value: Any) -> tuple[Any, ...]:
        return (4, value, self.x, 1.0)

    def with_y(self, value: Any) -> tuple[Any, ...]:
        return (4, self.x, value, 1.0)

    def with_a(self, value: Any) -> tuple[Any, ...]:
        return (4, self.x, self.x, value)

    def with_mixed(self, index: int, value: Any) -> tuple[Any, ...]:
        arguments: list[Any] = [True, bytes(12), 1.0, 1.0, 1.0, None]
        arguments[index] = value
        return tuple(arguments)


@dataclass(frozen=True)
class Wrong:
    """One wrong launch: the act, the class of its error, and the message."""

    name: str
    act: Callable[[Stage], object]
    error: type[DeviceError]
    words: str


def arguments(
    name: str, chosen: Callable[[Stage], tuple[Any, ...]], error: type[DeviceError], words: str
) -> Wrong:
    return Wrong(name, lambda s: launch(s.saxpy, 1, 1, chosen(s)), error, f"saxpy, {words}")


def number(name: str, value: Any, got: str, error: type[DeviceError] = ArgumentTypeError) -> Wrong:
    words = f"argument 0 'n' (u32): expected an int in 0…4294967295, got {got}"
    return arguments(f"n-{name}", lambda s: s.with_n(value), error, words)


def real(name: str, value: Any, got: str, error: type[DeviceError] = ArgumentTypeError) -> Wrong:
    words = f"argument 3 'a' (f32): expected a float that fits f32, got {got}"
    return arguments(f"a-{name}", lambda s: s.with_a(value), error, words)


def pointer(
    name: str,
    value: Callable[[Stage], Any],
    words: str,
    error: type[DeviceError] = ArgumentTypeError,
) -> Wrong:
    said = f"argument 1 'x' (const f32*): expected {words}"
    return arguments(f"x-{name}", lambda s: s.with_x(value(s)), error, said)


def counts(
    name: str, index: int, value: object, words: str, error: type[DeviceError] = ArgumentTypeError
) -> Wrong:
    """Return a wrong launch of a kernel whose image does not tell the sign of integers."""
    given: list[object] = [1, 1, 1]
    given[index] = value
    parameter = ("integer[4] n", "integer[1] flag", "integer[8] m")[index]
    typed, named = parameter.split()
    said = f"counts, argument {index} '{named}' ({typed}): {words}"
    return Wrong(name, lambda s: launch(s.counts, 1, 1, tuple(given)), error, said)


def mixed(
    name: str, index: int, value: Any, words: str, error: type[DeviceError] = ArgumentTypeError
) -> Wrong:
    what = ["flag' (bool", "shape' (bytes[12]", "h' (f16", "g' (bf16", "e' (f8e4m3", "p' (ptr"]
    said = f"mixed, argument {index} '{what[index]}): expected {words}"
    return Wrong(name, lambda s: launch(s.mixed, 1, 1, s.with_mixed(index, value)), error, said)


def geometry(name: str, grid: Any, block: Any, shared: Any, words: str) -> Wrong:
    def act(s: Stage) -> None:
        launch(s.saxpy, grid, block, s.good, shared)

    return Wrong(name, act, ArgumentValueError, f"saxpy, {words}")


POINTER = "a DeviceBuffer of f32, DevicePointer or None, got "

COUNTS = [
    arguments(
        "too-few",
        lambda s: s.good[:3],
        ArgumentTypeError,
        f"arguments: expected 4 arguments ({SAXPY}), got 3",
    ),
    arguments(
        "too-many",
        lambda s: (*s.good, 2),
        ArgumentTypeError,
        f"arguments: expected 4 arguments ({SAXPY}), got 5",
    ),
    arguments(
        "none-at-all",
        lambda s: (),
        ArgumentTypeError,
        f"arguments: expected 4 arguments ({SAXPY}), got 0",
    ),
    Wrong(
        "keyword",
        lambda s: s.saxpy[1, 1](4, s.x, s.x, a=1.0),  # type: ignore[call-arg]
        ArgumentTypeError,
        "saxpy, arguments: expected positional arguments in the kernel's order, got a=…",
    ),
    Wrong(
        "args-int",
        lambda s: launch(s.saxpy, 1, 1, 5),  # type: ignore[arg-type]
        ArgumentTypeError,
        "saxpy, args: expected a tuple of kernel arguments, got int",
    ),
    Wrong(
        "args-str",
        lambda s: launch(s.saxpy, 1, 1, "four"),  # type: ignore[arg-type]
        ArgumentTypeError,
        "saxpy, args: expected a tuple of kernel arguments, got str",
    ),
    Wrong(
        "no-geometry",
        lambda s: s.saxpy(*s.good),  # type: ignore[operator]
        ArgumentTypeError,
        "saxpy, geometry: expected a grid and a block: saxpy[grid, block](…), got none",
    ),
    Wrong(
        "no-function",
        lambda s: launch("saxpy", 1, 1, s.good),  # type: ignore[arg-type]
        ArgumentTypeError,
        "launch, function: expected a Function, got str 'saxpy'; take one from a module: "
        "module.get_function(name)",
    ),
]

NUMBERS = [
    number("negative", -1, "-1", ArgumentRangeError),
    number("too-large", 2**32, "4294967296", ArgumentRangeError),
    number("enormous", 10**100, "an int of 333 bits", ArgumentRangeError),
    number("float", 1.0, "float 1.0"),
    number("nan", math.nan, "float nan"),
    number("inf", math.inf, "float inf"),
    number("true", True, "bool True"),
    number("str", "3", "str '3'"),
    number("none", None, "None"),
    number("list", [1], "list [1]"),
    number("dict", {}, "dict {}"),
    number("complex", 1j, "complex 1j"),
    number("bytes", b"\x03\0\0\0", "bytes b'\\x03\\x00\\x00\\x00'"),
    number(
        "array",
        np.zeros(1, "u4"),
        "numpy.ndarray of shape (1,), dtype uint32; take the number out: array.item()",
    ),
    number("np-i64", np.int64(3), "numpy.int64 3: " + ADVICE_SIZED.format("u32")),
    number("np-f32", np.float32(3), "numpy.float32 3.0: " + ADVICE_SIZED.format("u32")),
    number("np-bool", np.True_, "numpy.bool True"),
    number("np-i32-negative", np.int32(-1), "numpy.int32 -1", ArgumentRangeError),
    number("c-long", ctypes.c_int64(1), "ctypes.c_long(1): " + ADVICE_SIZED.format("u32")),
    number("c-int-negative", ctypes.c_int32(-1), "ctypes.c_int(-1)", ArgumentRangeError),
    arguments(
        "n-buffer",
        lambda s: s.with_n(s.x),
        ArgumentTypeError,
        "argument 0 'n' (u32): expected an int in 0…4294967295, got DeviceBuffer of 4 f32",
    ),
    real("1e300", 1e300, "float 1e+300, which overflows", ArgumentValueError),
    real("-1e300", -1e300, "float -1e+300, which overflows", ArgumentValueError),
    real("huge-int", 10**400, "int of 1329 bits, which overflows", ArgumentRangeError),
    real("true", True, "bool True"),
    real("str", "1", "str '1'"),
    real("none", None, "None"),
    real("np-f64", np.float64(1), "numpy.float64 1.0: " + ADVICE_SIZED.format("f32")),
    real("np-f16", np.float16(1), "numpy.float16 1.0: " + ADVICE_SIZED.format("f32")),
    real("np-i32", np.int32(1), "numpy.int32 1: " + ADVICE_SIZED.format("f32")),
    real("c-double", ctypes.c_double(1), "ctypes.c_double(1.0): " + ADVICE_SIZED.format("f32")),
]

POINTERS = [
    pointer(
        "closed", lambda s: s.closed, "an open DeviceBuffer, got a closed one", InvalidHandleError
    ),
    pointer(
        "view-of-closed",
        lambda s: s.orphan,
        "an open DeviceBuffer, got a closed one",
        InvalidHandleError,
    ),
    pointer(
        "foreign",
        lambda s: s.foreign,
        "a DeviceBuffer of counting:0, the kernel's device, got one of counting:1",
        InvalidHandleError,
    ),
    pointer(
        "wrong-dtype",
        lambda s: s.integers,
        "a DeviceBuffer of f32, got DeviceBuffer of 4 i32; convert the values before the copy: "
        "array.astype(np.float32), or read the same bytes as f32: buffer.view('f32')",
    ),
    arguments(
        "y-readonly",
        lambda s: s.with_y(s.readonly),
        ArgumentTypeError,
        "argument 2 'y' (f32*): the kernel may write through this parameter: expected a writable "
        "DeviceBuffer, got one that describes read-only memory; copy it into a buffer of your own",
    ),
    pointer("int", lambda s: 5, f"{POINTER}int 5; an address is passed as DevicePointer(address)"),
    pointer("true", lambda s: True, f"{POINTER}bool True"),
    pointer("float", lambda s: 1.5, f"{POINTER}float 1.5"),
    pointer("str", lambda s: "x", f"{POINTER}str 'x'"),
    pointer("bytes", lambda s: b"x", f"{POINTER}bytes b'x'"),
    pointer("dict", lambda s: {}, f"{POINTER}dict {{}}"),
    pointer(
        "list",
        lambda s: [1.0, 2.0],
        f"{POINTER}list [1.0, 2.0]; copy it to the device: DeviceBuffer.from_slice(values, 'f32')",
    ),
    pointer(
        "array",
        lambda s: np.zeros(3, "f4"),
        f"{POINTER}numpy.ndarray of shape (3,), dtype float32; copy it to the device: "
        "DeviceBuffer.from_numpy(array)",
    ),
    pointer(
        "pinned",
        lambda s: s.pinned,
        f"{POINTER}HostBuffer of 4 f32; it is host memory: copy it with "
        "DeviceBuffer.from_numpy(host_buffer.array)",
    ),
    pointer(
        "c-void-p",
        lambda s: ctypes.c_void_p(5),
        f"{POINTER}ctypes.c_void_p(5); an address is passed as DevicePointer(address)",
    ),
]

OTHERS = [
    mixed("bool-int", 0, 1, "a bool, got int 1"),
    mixed("bool-none", 0, None, "a bool, got None"),
    mixed("bool-np-u8", 0, np.uint8(1), "a bool, got numpy.uint8 1"),
    mixed("bytes-short", 1, b"\1" * 3, "12 bytes, got bytes b'\\x01\\x01\\x01' of 3 bytes"),
    mixed(
        "bytes-int",
        1,
        5,
        "12 bytes (bytes, numpy.void or a ctypes structure), got int 5",
    ),
    mixed(
        "f16-overflow",
        2,
        1e9,
        "a float that fits f16, got float 1000000000.0, which overflows",
        ArgumentValueError,
    ),
    mixed(
        "f16-int-overflow",
        2,
        70000,
        "a float that fits f16, got int 70000, which overflows",
        ArgumentRangeError,
    ),
    mixed(
        "bf16-overflow",
        3,
        1e39,
        "a float that fits bf16, got float 1e+39, which overflows",
        ArgumentValueError,
    ),
    mixed(
        "f8-inf",
        4,
        math.inf,
        "a float that fits f8e4m3, got float inf, which overflows",
        ArgumentValueError,
    ),
    mixed(
        "ptr-int",
        5,
        7,
        "a DeviceBuffer, DevicePointer or None, got int 7; an address is passed as "
        "DevicePointer(address)",
    ),
    Wrong(
        "no-signature-int",
        lambda s: launch(s.untyped, 1, 1, (5,)),
        ArgumentTypeError,
        f"mystery, argument 0: expected a sized value {MAY_POINT} {UNKNOWN}, got int 5; "
        f"{ADVICE_UNKNOWN}",
    ),
    Wrong(
        "no-signature-closed",
        lambda s: launch(s.untyped, 1, 1, (s.closed,)),
        InvalidHandleError,
        "mystery, argument 0: expected an open DeviceBuffer, got a closed one",
    ),
    Wrong(
        "unknown-int",
        lambda s: launch(s.unknown, 1, 1, (5, np.int32(1))),
        ArgumentTypeError,
        f"unknown, argument 0 (unknown[8]): expected a sized value of 8 bytes {MAY_POINT} "
        f"{UNKNOWN}, got int 5; {ADVICE_UNKNOWN}",
    ),
    Wrong(
        "unknown-float",
        lambda s: launch(s.unknown, 1, 1, (None, 1.5)),
        ArgumentTypeError,
        "unknown, argument 1 'q' (unknown[4]): expected a sized value of 4 bytes (numpy or ctypes "
        f"scalar, bytes) {UNKNOWN}, got float 1.5; {ADVICE_UNKNOWN}",
    ),
    Wrong(
        "unknown-width",
        lambda s: launch(s.unknown, 1, 1, (None, np.int64(1))),
        ArgumentTypeError,
        "unknown, argument 1 'q' (unknown[4]): expected 4 bytes, got numpy.int64 1 of 8 bytes",
    ),
    counts("integer-high", 0, 2**32, f"{WORD}, got 4294967296", ArgumentRangeError),
    counts("integer-low", 0, -(2**31) - 1, f"{WORD}, got -2147483649", ArgumentRangeError),
    counts("integer-float", 0, 1.0, f"{WORD}, got float 1.0"),
    counts("integer-bool", 0, True, f"{WORD}, got bool True"),
    counts(
        "integer-wide",
        0,
        np.int64(1),
        f"{WORD}, got numpy.int64 1: a sized scalar must have 4 bytes, an int is fitted",
    ),
    counts("integer-f32", 0, np.float32(1), f"{WORD}, got numpy.float32 1.0"),
    counts("integer-bytes", 0, b"12345", "expected 4 bytes, got bytes b'12345' of 5 bytes"),
    counts("flag-high", 1, 256, "expected an int in -128…255, got 256", ArgumentRangeError),
    counts(
        "word-high",
        2,
        2**64,
        "expected an int in -9223372036854775808…18446744073709551615, got 18446744073709551616",
        ArgumentRangeError,
    ),
]

EXTENT = "expected an int or a tuple of 1 to 3 ints, got "
GRID_X = "expected an int in 1…2147483647, got "
SHARED = "shared: expected an int of bytes in 0…49152, got "
GEOMETRY = [
    geometry("grid-zero", 0, 1, 0, f"grid x: {GRID_X}0"),
    geometry("grid-negative", -1, 1, 0, f"grid x: {GRID_X}-1"),
    geometry("grid-float", 1.5, 1, 0, f"grid: {EXTENT}float 1.5"),
    geometry("grid-nan", math.nan, 1, 0, f"grid: {EXTENT}float nan"),
    geometry("grid-bool", True, 1, 0, f"grid: {EXTENT}bool True"),
    geometry("grid-np-bool", np.True_, 1, 0, f"grid: {EXTENT}numpy.bool True"),
    geometry("grid-np-float", np.float32(1), 1, 0, f"grid: {EXTENT}numpy.float32 1.0"),
    geometry("grid-str", "4", 1, 0, f"grid: {EXTENT}str '4'"),
    geometry("grid-none", None, 1, 0, f"grid: {EXTENT}None"),
    geometry("grid-list", [4], 1, 0, f"grid: {EXTENT}list [4]"),
    geometry("grid-empty", (), 1, 0, f"grid: {EXTENT}tuple ()"),
    geometry("grid-4d", (1, 1, 1, 1), 1, 0, f"grid: {EXTENT}tuple (1, 1, 1, 1)"),
    geometry("grid-x-large", 2**31, 1, 0, f"grid x: {GRID_X}2147483648"),
    geometry("grid-x-2**40", 2**40, 1, 0, f"grid x: {GRID_X}1099511627776"),
    geometry("grid-x-enormous", 10**100, 1, 0, f"grid x: {GRID_X}an int of 333 bits"),
    geometry("grid-y-zero", (1, 0), 1, 0, "grid y: expected an int in 1…65535, got 0"),
    geometry("grid-y-large", (1, 65536), 1, 0, "grid y: expected an int in 1…65535, got 65536"),
    geometry("grid-z-large", (1, 1, 65536), 1, 0, "grid z: expected an int in 1…65535, got 65536"),
    geometry("grid-z-none", (1, 1, None), 1, 0, "grid z: expected an int in 1…65535, got None"),
    geometry("block-zero", 1, 0, 0, "block x: expected an int in 1…1024, got 0"),
    geometry("block-negative", 1, (4, -4), 0, "block y: expected an int in 1…1024, got -4"),
    geometry("block-x-large", 1, 1025, 0, "block x: expected an int in 1…1024, got 1025"),
    geometry("block-y-large", 1, (1, 1025), 0, "block y: expected an int in 1…1024, got 1025"),
    geometry("block-z-large", 1, (1, 1, 65), 0, "block z: expected an int in 1…64, got 65"),
    geometry(
        "block-threads",
        1,
        (32, 64),
        0,
        "block: expected at most 1024 threads in a block, got 2048: (32, 64)",
    ),
    geometry("block-none", 1, None, 0, f"block: {EXTENT}None"),
    geometry("block-str", 1, "32", 0, f"block: {EXTENT}str '32'"),
    geometry("shared-negative", 1, 1, -1, f"{SHARED}-1"),
    geometry("shared-large", 1, 1, 49153, f"{SHARED}49153"),
    geometry("shared-2**40", 1, 1, 2**40, f"{SHARED}1099511627776"),
    geometry("shared-float", 1, 1, 8.0, f"{SHARED}float 8.0"),
    geometry("shared-bool", 1, 1, True, f"{SHARED}bool True"),
    geometry("shared-none", 1, 1, None, f"{SHARED}None"),
    Wrong(
        "config-oversized",
        lambda s: launch(s.saxpy, args=s.good, config=LaunchConfig(1, 2048)),
        ArgumentValueError,
        "saxpy, block x: expected an int in 1…1024, got 2048",
    ),
    Wrong(
        "bound-oversized",
        lambda s: s.saxpy[1, (1, 1, 65)],
        ArgumentValueError,
        "saxpy, block z: expected an int in 1…64, got 65",
    ),
    Wrong(
        "bound-grid-only",
        lambda s: s.saxpy[1],
        ArgumentValueError,
        f"saxpy, block: {EXTENT}None",
    ),
]

FROM_HANDLE = "another library's stream comes in by Stream.from_handle(stream)"
CLOSED_STREAM = "saxpy, stream: expected an open Stream, got a closed one"
CLOSED_MODULE = "gone, module: expected an open Module, got a closed one"
FOREIGN = "expected a Stream of counting:0, the kernel's device, got one of counting:1"
HANDLES = [
    Wrong(
        "stream-closed",
        lambda s: launch(s.saxpy, 1, 1, s.good, 0, s.closed_stream),
        InvalidHandleError,
        CLOSED_STREAM,
    ),
    Wrong(
        "stream-closed-bind",
        lambda s: s.saxpy[1, 1, 0, s.closed_stream],
        InvalidHandleError,
        CLOSED_STREAM,
    ),
    Wrong(
        "stream-closed-after-bind",
        lambda s: s.bound_to_closed(*s.good),
        InvalidHandleError,
        CLOSED_STREAM,
    ),
    Wrong(
        "stream-foreign",
        lambda s: launch(s.saxpy, 1, 1, s.good, stream=s.foreign_stream),
        InvalidHandleError,
        f"saxpy, stream: {FOREIGN}",
    ),
    Wrong(
        "stream-foreign-config",
        lambda s: s.saxpy[LaunchConfig(1, 1), s.foreign_stream],
        InvalidHandleError,
        f"saxpy, stream: {FOREIGN}",
    ),
    Wrong(
        "stream-int",
        lambda s: launch(s.saxpy, 1, 1, s.good, stream=5),  # type: ignore[arg-type]
        ArgumentTypeError,
        f"saxpy, stream: expected a Stream or None, got int 5; {FROM_HANDLE}",
    ),
    Wrong(
        "stream-str",
        lambda s: s.saxpy[1, 1, 0, "s"],
        ArgumentTypeError,
        "saxpy, stream: expected a Stream or None, got str 's'",
    ),
    Wrong(
        "module-closed",
        lambda s: launch(s.gone, 1, 1, s.good),
        InvalidHandleError,
        CLOSED_MODULE,
    ),
    Wrong("module-closed-bind", lambda s: s.gone[1, 1], InvalidHandleError, CLOSED_MODULE),
    Wrong(
        "module-closed-after-bind",
        lambda s: s.gone_bound(*s.good),
        InvalidHandleError,
        CLOSED_MODULE,
    ),
]

ALL = [*COUNTS, *NUMBERS, *POINTERS, *OTHERS, *GEOMETRY, *HANDLES]
