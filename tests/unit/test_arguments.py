"""The bytes of arguments too rare for the lane: sized scalars, small floats, structures.

What is said about wrong ones is in `wrong_launches.py`.
"""

from __future__ import annotations

import ctypes
import enum
import math
import struct
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from tests.counting_driver import CountingDriver
from uhal import DevicePointer, launch
from uhal._lane import Context
from uhal.arguments import pack
from uhal.errors import ArgumentTypeError
from uhal.signature import Signature


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    opened = CountingDriver().open_context()
    yield opened
    opened.close()


class Color(enum.IntEnum):
    RED = 1


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))


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
    context: Context, parameter: str, value: object, expected: bytes
) -> None:
    driver = context.backend
    assert isinstance(driver, CountingDriver)
    kernel = driver.function(context, Signature.parse(parameter))
    assert pack(kernel, 0, value) == expected
    launches = driver.count("launch")
    launch(kernel, 1, 1, (value,))
    assert driver.count("launch") == launches + 1


@pytest.mark.parametrize("value", [object(), "x" * 200, [0] * 200], ids=["object", "str", "list"])
def test_what_was_given_is_described_in_a_few_words(context: Context, value: object) -> None:
    driver = context.backend
    assert isinstance(driver, CountingDriver)
    with pytest.raises(ArgumentTypeError) as caught:
        launch(driver.function(context, Signature.parse("u32 n")), 1, 1, (value,))
    assert len(str(caught.value)) < 200


def test_a_value_whose_repr_fails_is_still_refused(context: Context) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    driver = context.backend
    assert isinstance(driver, CountingDriver)
    with pytest.raises(ArgumentTypeError, match=r"Hostile whose repr fails\. The kernel was not"):
        launch(driver.function(context, Signature.parse("u32 n")), 1, 1, (Hostile(),))
