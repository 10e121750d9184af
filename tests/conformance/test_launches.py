"""Values, geometry, shared memory, barriers: work-items see the launch's settings."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uhal import (
    BoundLaunch,
    Device,
    DeviceBuffer,
    DevicePointer,
    Function,
    LaunchConfig,
    Module,
    Stream,
    launch,
)
from uhal.dtypes import ALL as DTYPES
from uhal.dtypes import DType
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)
from uhal_conformance.sampling import rounds

KERNEL_DTYPES = [dtype for dtype in DTYPES if dtype.name != "f8e4m3"]


@pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=str)
def test_every_dtype_in_and_out_bit_for_bit(
    device: Device, basic: Module, dtype: DType, rng: np.random.Generator
) -> None:
    echo = basic.get_function(f"echo_{dtype}")
    for size in (0, 1, 63, 64, 1000, 100_001):
        raw = rng.integers(0, 256, (size + 1) * dtype.itemsize, "u1")
        bits = (raw % 2).view("?") if dtype.kind == "bool" else raw.view(dtype.dtype)
        x = DeviceBuffer.from_numpy(bits[:size])
        y = DeviceBuffer.uninitialized(size + 1, dtype)
        y.set_8(0xA5)
        echo[3, 32](bits[size], x, y, size)
        assert y.to_numpy().tobytes() == bits.tobytes()


def test_parameters_of_every_width_between_others(device: Device, basic: Module) -> None:
    values = (
        True,
        -(2**63),
        -128,
        -1e300,
        65535,
        -1.5,
        -32768,
        2**63 + 1,
        255,
        -(2**31),
        2**32 - 1,
    )
    whole, real = DeviceBuffer.zeros(9, "i64"), DeviceBuffer.zeros(2, "f64")
    basic.get_function("mixed")[1, 1](*values, whole, real)
    expected = [1, -(2**63), -128, 65535, -32768, -(2**63) + 1, 255, -(2**31), 2**32 - 1]
    assert whole.to_numpy().tolist() == expected
    assert real.to_numpy().tolist() == [-1e300, -1.5]


class Shape(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int32), ("flag", ctypes.c_uint8), ("scale", ctypes.c_double))


def test_structures_pass_by_value(device: Device, basic: Module) -> None:
    out = DeviceBuffer.zeros(5, "f64")
    aggregate = basic.get_function("aggregate")
    for scale in (0.125, 0.5):
        for shape in (Shape(-7, 200, scale), bytes(Shape(-7, 200, scale))):
            out.set_8(0xFF)
            aggregate[1, 1](3, shape, 250, out)
            assert out.to_numpy().tolist() == [3, -7, 200, scale, 250]


def coordinates(extent: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    z, y, x = np.meshgrid(*(np.arange(n) for n in reversed(extent)), indexing="ij")
    return np.stack([x.ravel(), y.ravel(), z.ravel()], 1)


def check_geometry(basic: Module, grid: Any, block: Any) -> None:
    full = [(*((e,) if isinstance(e, int) else e), 1, 1)[:3] for e in (grid, block)]
    threads, blocks = int(np.prod(full[1])), int(np.prod(full[0]))
    out = DeviceBuffer.uninitialized(12 * threads * blocks, "u32")
    out.set_8(0xFF)
    launch(basic.get_function("where"), grid, block, (out,))
    found = out.to_numpy().reshape(blocks, threads, 12)
    expected = np.empty_like(found)
    expected[:, :, 0:3] = coordinates(full[1])[None]
    expected[:, :, 3:6] = coordinates(full[0])[:, None]
    expected[:, :, 6:9] = full[1]
    expected[:, :, 9:12] = full[0]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        (1, 1),
        (7, 1),
        (1, 1024),
        ((3, 5), 32),
        ((2, 3, 4), (5, 6, 7)),
        ((1, 1, 9), (1, 1, 64)),
        (1, (1, 1024)),
        ((1, 300), (2, 3, 1)),
        (5000, 3),
    ],
)
def test_every_work_item_knows_its_place(
    device: Device, basic: Module, grid: Any, block: Any
) -> None:
    check_geometry(basic, grid, block)


def test_random_geometries(device: Device, basic: Module, rng: np.random.Generator) -> None:
    for _ in range(rounds(30, 1000)):
        grid = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 4)))
        block = tuple(int(n) for n in rng.integers(1, 11, rng.integers(1, 4)))
        check_geometry(basic, grid, block)


@pytest.mark.parametrize("threads", [1, 2, 100, 1024])
def test_dynamic_shared_memory(
    device: Device, basic: Module, threads: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((50, threads)).astype("f4")
    y = DeviceBuffer.from_numpy(np.full(x.size, np.nan, "f4"))
    basic.get_function("reverse")[50, threads, 4 * threads](DeviceBuffer.from_numpy(x), y)
    assert np.array_equal(y.to_numpy().reshape(x.shape), x[:, ::-1])


def test_all_the_shared_memory_there_is(device: Device, basic: Module) -> None:
    most = device.limits.max_shared_bytes_per_block
    x = np.arange(1024, dtype="f4")
    y = DeviceBuffer.zeros(1024, "f32")
    reverse = basic.get_function("reverse")
    reverse[1, 1024, most](DeviceBuffer.from_numpy(x), y)
    assert np.array_equal(y.to_numpy(), x[::-1])
    with pytest.raises(ArgumentValueError, match=rf"0…{most}, got {most + 1}"):
        reverse[1, 1024, most + 1]


def test_barriers_and_values_kept_across_them(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    x = rng.integers(-1000, 1000, (40, 256)).astype("f8")
    sums = DeviceBuffer.from_numpy(np.full(x.size, np.nan))
    basic.get_function("block_sum")[40, 256](DeviceBuffer.from_numpy(x), sums)
    assert np.array_equal(sums.to_numpy().reshape(x.shape), x.sum(1, keepdims=True) - x)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 1_000_001])
def test_numbers_against_numpy_in_double(
    device: Device, basic: Module, size: int, rng: np.random.Generator
) -> None:
    x, y = (rng.standard_normal(size).astype("f4") for _ in range(2))
    special = [np.inf, -np.inf, np.nan, -0.0, 1e-45, 3e38]
    x[: min(size, 6)] = special[:size]
    a = float(np.float32(rng.standard_normal()))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (a * x.astype("f8") + y).astype("f4")
    out = DeviceBuffer.from_numpy(y)
    config = LaunchConfig.for_num_elems(size)
    launch(
        basic.get_function("saxpy"), args=(size, a, DeviceBuffer.from_numpy(x), out), config=config
    )
    # A device may round the product first; then the sum may cancel most of it.
    rounding = 2.0**-24 * abs(a) * np.abs(x[6:]).max(initial=1)
    np.testing.assert_allclose(out.to_numpy(), expected, rtol=3e-7, atol=rounding)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 10_000_000])
@pytest.mark.parametrize("block", [None, 1, 96])
def test_a_configuration_for_n_elements_covers_them(
    device: Device, basic: Module, size: int, block: int | None
) -> None:
    config = LaunchConfig.for_num_elems(size, block)
    assert config.is_empty == (size == 0)
    out = DeviceBuffer.zeros(size + 1, "u32")
    fill = basic.get_function("fill")
    launch(fill, config=config, args=(size, 5, out))
    found = out.to_numpy()
    assert (found[:size] == 5).all()
    assert found[size] == 0
    with Stream() as stream:
        fill[config, stream](size, 6, out)
        assert (out.to_numpy(stream=stream)[:size] == 6).all()


def test_every_form_of_launch_is_the_same(device: Device, basic: Module) -> None:
    fill = basic.get_function("fill")
    out = DeviceBuffer.zeros(100, "u32")
    config = LaunchConfig((2,), (32,))
    with Stream() as stream:
        bound = fill[2, 32, 0, stream]
        assert isinstance(bound, BoundLaunch)
        forms: list[Callable[[int], None]] = [
            lambda v: launch(fill, (2,), (32,), (100, v, out), 0, stream),
            lambda v: launch(fill, grid=2, block=32, args=(100, v, out), shared=0, stream=stream),
            lambda v: launch(function=fill, args=(100, v, out), config=config, stream=stream),
            lambda v: launch(fill, 2, 32, [100, v, out], stream=stream),  # type: ignore[arg-type]
            lambda v: fill[2, 32, 0, stream](100, v, out),
            lambda v: fill[config, stream](100, v, out),
            lambda v: bound(100, v, out),
            lambda v: bound(*(100, v, out)),
        ]
        for value, form in enumerate(forms, 1):
            form(value)
            assert (out.to_numpy(stream=stream) == value).all()
    launch(fill, 2, 32, (100, 77, out))
    fill[2, 32](100, 78, out[:50].view("i32").view("u32"))


def test_raw_pointers_and_null(device: Device, basic: Module) -> None:
    out = DeviceBuffer.zeros(10, "u32")
    fill = basic.get_function("fill")
    fill[1, 1](4, 3, out.as_device_ptr() + 8)
    fill[1, 1](0, 3, None)
    fill[1, 1](3, 9, DevicePointer(int(out.as_device_ptr())))
    assert out.to_numpy().tolist() == [9, 9, 9, 3, 3, 3, 0, 0, 0, 0]


def test_a_kernels_own_bound_on_its_block(device: Device, basic: Module) -> None:
    bounded = basic.get_function("bounded")
    out = DeviceBuffer.zeros(64, "u32")
    assert bounded.attributes.max_threads_per_block == 64
    bounded[1, 64](out)
    assert out.to_numpy().tolist() == list(range(64))
    with pytest.raises(ArgumentValueError, match="at most 64 threads in a block, got 65"):
        bounded[1, 65]


def test_an_empty_kernel_over_a_large_grid(device: Device, basic: Module) -> None:
    nothing = basic.get_function("nothing")
    nothing[100_000, 1]()
    nothing[(1, 65535), 1]()
    nothing[(1, 1, 65535), (1, 1, 64)]()
    device.synchronize()


def wrong_launches(fill: Function, out: DeviceBuffer) -> list[tuple[type[DeviceError], Any]]:
    closed = DeviceBuffer.zeros(3, "u32")
    closed.close()
    stream = Stream()
    stream.close()
    good = (100, 1, out)
    return [
        (ArgumentTypeError, lambda: fill[1, 1](100, 1)),
        (ArgumentTypeError, lambda: fill[1, 1](100, 1, out, out)),
        (ArgumentRangeError, lambda: fill[1, 1](-1, 1, out)),
        (ArgumentRangeError, lambda: fill[1, 1](100, 2**32, out)),
        (ArgumentTypeError, lambda: fill[1, 1](100.0, 1, out)),
        (ArgumentTypeError, lambda: fill[1, 1](100, np.int64(1), out)),
        (ArgumentTypeError, lambda: fill[1, 1](100, True, out)),
        (ArgumentTypeError, lambda: fill[1, 1](100, 1, out.view("f32"))),
        (ArgumentTypeError, lambda: fill[1, 1](100, 1, 4096)),
        (ArgumentTypeError, lambda: fill[1, 1](100, 1, np.zeros(3, "u4"))),
        (InvalidHandleError, lambda: fill[1, 1](100, 1, closed)),
        (InvalidHandleError, lambda: fill[1, 1, 0, stream](100, 1, out)),
        (ArgumentValueError, lambda: fill[0, 1](*good)),
        (ArgumentValueError, lambda: fill[1, 1025](*good)),
        (ArgumentValueError, lambda: fill[(1, fill.device.limits.max_grid[1] + 1), 1](*good)),
        (ArgumentValueError, lambda: fill[1, (32, 33)](*good)),
        (ArgumentValueError, lambda: fill[1, 1, -1](*good)),
        (ArgumentValueError, lambda: fill[1.5, 1](*good)),
        (ArgumentTypeError, lambda: fill(*good)),
    ]


def test_a_refused_launch_changes_nothing_and_the_device_works_on(
    device: Device, basic: Module
) -> None:
    fill = basic.get_function("fill")
    out = DeviceBuffer.from_numpy(np.full(100, 42, "u4"))
    for error, act in wrong_launches(fill, out):
        with pytest.raises(
            error, match=r"The kernel was not launched\. \[test_launches\.py:\d+\]$"
        ):
            act()
    assert (out.to_numpy() == 42).all()
    fill[1, 1](100, 1, out)
    assert (out.to_numpy() == 1).all()


def test_the_golden_message(device: Device, basic: Module) -> None:
    fill = basic.get_function("fill")
    with pytest.raises(ArgumentRangeError) as caught:
        fill[1, 1](1, -1, None)  # this line
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("# this line"))
    assert str(caught.value) == (
        "fill, argument 1 'value' (u32): expected an int in 0…4294967295, got -1. The kernel was "
        f"not launched. [test_launches.py:{number}]"
    )


def test_packed_bytes_survive_a_thousand_random_launches(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    mixed = basic.get_function("mixed")
    whole, real = DeviceBuffer.zeros(9, "i64"), DeviceBuffer.zeros(2, "f64")
    codes = "?qbdHfhQBiI"
    for _ in range(rounds(300, 10_000)):
        raw = rng.bytes(64)
        values = []
        for code in codes:
            size = struct.calcsize(f"={code}")
            (value,) = struct.unpack(f"={code}", raw[:size])
            raw = raw[size:]
            values.append(0.0 if value != value else value)
        mixed[1, 1](*values, whole, real)
        expected = [v for v, code in zip(values, codes, strict=True) if code not in "df"]
        expected[5] = (expected[5] + 2**63) % 2**64 - 2**63
        assert whole.to_numpy().tolist() == [int(v) for v in expected]
        assert real.to_numpy().tolist() == [values[3], values[5]]
