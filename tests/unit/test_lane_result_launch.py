"""Launches that return the buffer of their result, a new one or the caller's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.counting_bench import Bench
from uhal import DeviceBuffer, LaunchConfig, Stream
from uhal._lane import ResultLaunch
from uhal.errors import ArgumentTypeError, InvalidHandleError

SIGNATURE = "u64 n, const f32* x, f32* out, f32 factor"


def launch_of(bench: Bench, size: int, stream: Stream | None = None) -> ResultLaunch:
    bound = bench.function(SIGNATURE)[8, 32, 0, stream]
    return ResultLaunch(bound, (size,), 1, size, "f32")


def words(bench: Bench) -> list[int]:
    return [int.from_bytes(data, "little") for data in bench.driver.parameters]


def test_arguments_stand_around_a_new_result(bench: Bench, rng: np.random.Generator) -> None:
    size = int(rng.integers(1, 1000))
    x, launch = bench.buffer(size), launch_of(bench, size)
    bench.driver.parameter_sizes = [8, 8, 8, 4]
    made = launch(None, None, x, 1.0)
    assert (type(made), made.size, str(made.dtype)) == (DeviceBuffer, size, "f32")
    one = int(np.float32(1).view(np.uint32))
    assert words(bench) == [size, int(x.as_device_ptr()), int(made.as_device_ptr()), one]
    other = launch(None, None, x, 1.0)
    assert int(other.as_device_ptr()) != int(made.as_device_ptr())
    assert launch(None, made, x, 1.0) is made
    assert words(bench)[2] == int(made.as_device_ptr())
    assert bench.driver.count("launch") == 3


def test_arguments_behind_the_operands_are_kept(bench: Bench, rng: np.random.Generator) -> None:
    size, factor = int(rng.integers(1, 1000)), float(rng.integers(1, 100))
    bound = bench.function(SIGNATURE)[8, 32, 0]
    x, launch = bench.buffer(size), ResultLaunch(bound, (size,), 1, size, "f32", (factor,))
    bench.driver.parameter_sizes = [8, 8, 8, 4]
    made = launch(None, None, x)
    packed = int(np.float32(factor).view(np.uint32))
    assert words(bench) == [size, int(x.as_device_ptr()), int(made.as_device_ptr()), packed]
    with pytest.raises(ArgumentTypeError, match="expected 4 arguments"):
        launch(None, None, x, factor)
    full = ResultLaunch(bound, (size,), 1, size, "f32", (factor,) * 60)
    with pytest.raises(TypeError, match="expected stream, out and 1 or more operands"):
        full(None, None, x)


def test_it_goes_to_the_stream_given_or_else_bound(bench: Bench) -> None:
    streams = [Stream(), Stream()]
    launch, x = launch_of(bench, 4, streams[0]), bench.buffer(4)
    bench.quiet()
    for given in (None, streams[1]):
        launch(given, None, x, 1.0)
    calls = [arguments for slot, arguments in bench.driver.calls if slot == "launch"]
    assert [arguments[8] for arguments in calls] == [one.handle for one in streams]


def test_what_is_wrong_is_refused_and_not_launched(bench: Bench) -> None:
    launch, x, closed, stream = launch_of(bench, 4), bench.buffer(4), bench.buffer(4), Stream()
    closed.close()
    stream.close()
    in_use = bench.context.pool_statistics()["blocks_in_use"]
    for wrong in ((), (None,), (None, None), (None, None, *[x] * 60)):
        with pytest.raises(TypeError, match="expected stream, out and 1 or more operands"):
            launch(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="expected 4 arguments"):
        launch(None, None, x)
    with pytest.raises(ArgumentTypeError, match="f64"):
        launch(None, None, bench.buffer(4, "f64"), 1.0)
    with pytest.raises(ArgumentTypeError, match="out"):
        launch(None, np.zeros(4, "f4"), x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="stream: expected"):
        launch("s", None, x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidHandleError):
        launch(stream, None, x, 1.0)
    for out, operand in ((None, closed), (closed, x)):
        with pytest.raises(InvalidHandleError, match="closed"):
            launch(None, out, operand, 1.0)
    with pytest.raises(TypeError, match="expected positional arguments"):
        launch(None, None, x, factor=1.0)  # type: ignore[call-arg]
    assert bench.driver.count("launch") == 0
    assert bench.context.pool_statistics()["blocks_in_use"] == in_use


def test_it_is_made_of_a_plain_launch(bench: Bench) -> None:
    function = bench.function(SIGNATURE)
    for config in (LaunchConfig(0, 32), LaunchConfig(8, 32, cluster=2)):
        with pytest.raises(ValueError, match="a grid and a block, and nothing else"):
            ResultLaunch(function[config], (), 0, 4, "f32")
    for place, size, dtype in ((-1, 4, "f32"), (0, -4, "f32"), (0, 4, "f31")):
        with pytest.raises((ValueError, TypeError)):
            ResultLaunch(function[8, 32], (), place, size, dtype)
    with pytest.raises(TypeError):
        ResultLaunch.__new__(ResultLaunch)(None, None)
