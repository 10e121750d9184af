"""A numpy user's first hour: each attempt works, or a golden message names the alternative."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from uhal import Device, DeviceBuffer, Event, HostBuffer, LaunchConfig, Stream
from uhal.errors import ArgumentTypeError, DeviceError, NoDeviceError

GOLDEN = Path(__file__).with_name("first_hour.txt")
Attempt = tuple[str, Callable[[], object]]


def attempts() -> list[Attempt]:
    a = ub.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    b = ub.zeros((2, 4))
    array: Any = np.ones((2, 3), np.float32)
    any_a: Any = a
    return [
        ('ub.ones(2, device="gpu")', lambda: ub.ones(2, device="gpu")),
        ('ub.ones(2, device="host:x")', lambda: ub.ones(2, device="host:x")),
        ("ub.ones(2, device=0)", lambda: ub.ones(2, device=0)),  # type: ignore[arg-type]
        ("a + array", lambda: a + array),
        ("array + a", lambda: array + a),
        ("array @ a", lambda: array @ a),
        ("np.sin(a)", lambda: np.sin(any_a)),
        ("np.hypot(a, a)", lambda: np.hypot(any_a, any_a)),
        ("np.add.reduce(a)", lambda: np.add.reduce(any_a)),
        ("a @ b", lambda: a @ b),
        ("a @ a", lambda: a @ a),
        ("a + b", lambda: a + b),
        ('f"{a:.2f}"', lambda: f"{a:.2f}"),
    ]


def test_what_is_refused_says_where_and_what_to_do(device: Device) -> None:
    lines = []
    for what, attempt in attempts():
        with pytest.raises((DeviceError, IndexError)) as caught:
            attempt()
            pytest.fail(f"{what}: not refused")
        bases = (TypeError, ValueError, IndexError, RuntimeError)
        kinds = [one.__name__ for one in bases if isinstance(caught.value, one)]
        lines.append(f"{what}\n    {' '.join(kinds)}: {caught.value}\n")
    said = "".join(lines)
    if not GOLDEN.exists():
        GOLDEN.write_text(said, encoding="utf-8")
        pytest.fail(f"wrote {GOLDEN}: read it")
    assert said == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("ending", ["", ":0"])
def test_a_name_is_taken_where_a_device_is(ending: str, device: Device) -> None:
    name = device.backend + ending
    assert ub.ones((2, 2), device=name).device == device
    assert ub.asarray([1.0], device=name).device == device
    assert ub.asarray(ub.zeros(1), device=name).device == device
    assert ub.from_numpy(np.ones(2), device=name).device == device
    assert ub.zeros(2, device=name).device == device
    assert ub.arange(2, device=name).device == device
    assert ub.DeviceExecutor.of(name) is ub.DeviceExecutor.of(device)
    assert ub.load_module("unary", device=name) is ub.load_module("unary", device=device)
    assert ub.ComputeGraph(name).executor.device == device
    with ub.trace(name) as graph:
        ub.ones(2) + 1
    assert graph.n_ops
    for one in (
        Stream(device=name),
        Event(device=name),
        Stream.default(name),
        DeviceBuffer.zeros(2, "f32", device=name),
        DeviceBuffer.from_numpy(np.ones(2), device=name),
        DeviceBuffer.uninitialized(2, "f32", device=name),
        HostBuffer(2, "f32", device=name),
    ):
        assert one.device == device
    assert LaunchConfig.for_num_elems(100, device=name) == LaunchConfig.for_num_elems(100)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "bool", "i64", "f8e4m3", "u16"])
def test_a_tensor_is_pickled(dtype: str, device: Device, rng: np.random.Generator) -> None:
    x = ub.asarray(rng.integers(0, 2, (3, 4)), dtype).T
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.dtype is x.dtype and y.device == x.device and y.buffer is not x.buffer
        np.testing.assert_array_equal(y.to_numpy(), x.to_numpy())


def test_where_the_backend_is_missing_unpickling_says_so(device: Device) -> None:
    written = pickle.dumps(ub.ones(2))
    written = written.replace(f"{device.backend}:0".encode(), b"tops:9")
    with pytest.raises(NoDeviceError, match="unpickling a DeviceTensor: it was on tops:9, which"):
        pickle.loads(written)


def test_a_tensor_of_one_element_is_formatted(device: Device) -> None:
    assert f"{ub.full((1, 1), 2.5):.2f}" == "2.50"
    assert f"{ub.asarray(7):>4d}" == "   7"
    x = ub.ones(2)
    assert f"{x}" == str(x)
    with pytest.raises(ArgumentTypeError, match="one element"):
        format(x, "d")


def test_scalars_of_numpy_on_the_left_are_numbers(device: Device) -> None:
    x: Any = ub.asarray([1.0, 2.0])
    assert (np.float32(3) * x).tolist() == [3, 6]
    assert (np.float64(3) - x).dtype.name == "f64"
    assert (np.float32(1) / x).tolist() == [1, 0.5]
    assert (np.float32(2) == x).tolist() == [False, True]
    assert (np.float32(1.5) < x).tolist() == [False, True]
    assert (np.float32(2) ** x).tolist() == [2, 4]
    with pytest.raises(ArgumentTypeError, match=r"np\.gcd: expected numpy arrays"):
        np.gcd(np.int64(2), x)
