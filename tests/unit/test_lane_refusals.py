"""Every kind of wrong launch raises a clear error before any native call."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from tests.counting_bench import Bench
from tests.unit import wrong_launches
from tests.unit.wrong_launches import SAXPY, Stage, Wrong
from uhal import LaunchConfig, launch
from uhal.dtypes import ALL as DTYPES
from uhal.dtypes import DType
from uhal.errors import ArgumentRangeError, DeviceError, InvalidHandleError

INTEGERS = [dtype for dtype in DTYPES if dtype.kind in ("int", "uint")]


def line_of(error: BaseException, file: str) -> int:
    """Return the line of the innermost frame in `file` on the error's traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    assert frames[-1].lineno is not None
    return frames[-1].lineno


def expect_refusal(bench: Bench, wrong: Wrong, stage: Stage) -> None:
    bench.quiet()
    with pytest.raises(DeviceError) as caught:
        wrong.act(stage)
    assert bench.driver.calls == []
    error = caught.value
    assert type(error) is wrong.error
    file = wrong_launches.__file__
    site = f"{Path(file).name}:{line_of(error, file)}"
    assert str(error) == f"{wrong.words}. The kernel was not launched. [{site}]"
    assert error.code is None


@pytest.mark.parametrize("wrong", wrong_launches.ALL, ids=lambda wrong: wrong.name)
def test_it_is_refused_in_words_before_any_native_call(bench: Bench, wrong: Wrong) -> None:
    stage = Stage(bench)
    expect_refusal(bench, wrong, stage)
    # the device stays usable
    launch(stage.saxpy, 1, 1, stage.good)
    assert bench.driver.slots() == ["launch"]


def test_the_table_is_long_enough_and_names_each_row_once() -> None:
    names = [wrong.name for wrong in wrong_launches.ALL]
    assert len(names) >= 100
    assert len(set(names)) == len(names)


def test_many_refusals_in_a_row_leave_nothing_behind(bench: Bench) -> None:
    stage = Stage(bench)
    for wrong in wrong_launches.ALL * 3:
        expect_refusal(bench, wrong, stage)
    launch(stage.saxpy, 1, 1, stage.good)
    assert bench.driver.slots() == ["launch"]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("beyond", [1, 2**70])
def test_both_ends_of_every_integer(bench: Bench, dtype: DType, beyond: int) -> None:
    function = bench.function(f"{dtype} v")
    assert dtype.min is not None
    assert dtype.max is not None
    bench.quiet()
    for value in (dtype.min - beyond, dtype.max + beyond):
        with pytest.raises(ArgumentRangeError) as caught:
            function[1, 1](value)
        assert f"expected an int in {dtype.min}…{dtype.max}, got {value}." in str(caught.value)
        assert isinstance(caught.value, (OverflowError, ValueError))
    assert bench.driver.calls == []
    assert bench.packed(function, dtype.min)[0] == dtype.min.to_bytes(
        dtype.itemsize, "little", signed=True
    ) or bench.packed(function, dtype.min)[0] == bytes(dtype.itemsize)


def test_the_message_names_the_line_of_the_caller(bench: Bench) -> None:
    function = bench.function(SAXPY, "saxpy")
    with pytest.raises(DeviceError) as caught:
        launch(function, 1, 1, (1,))  # this line
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("# this line"))
    assert str(caught.value).endswith(f"[test_lane_refusals.py:{number}]")


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"gird": 1}, "unexpected keyword argument 'gird'"),
        ({"grid": 1, "config": LaunchConfig(1, 1)}, "both config and 'grid'"),
        ({"block": 1, "config": LaunchConfig(1, 1)}, "both config and 'block'"),
        ({"shared": 0, "config": LaunchConfig(1, 1)}, "both config and 'shared'"),
        ({"config": (1, 1)}, "expected a uhal.LaunchConfig, got tuple"),
        ({"function": None}, "'function' twice"),
    ],
)
def test_a_wrong_call_of_launch_itself_is_a_type_error(
    bench: Bench, keywords: dict[str, object], words: str
) -> None:
    function = bench.function("")
    bench.quiet()
    with pytest.raises(TypeError, match=words):
        launch(function, **keywords)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at most 6 positional"):
        launch(function, 1, 1, (), 0, None, None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs a function"):
        launch()  # type: ignore[call-arg]
    assert bench.driver.calls == []


def test_a_closed_device_refuses_every_form_of_launch(bench: Bench) -> None:
    function = bench.function("")
    bound = function[1, 1]
    bench.context.close()
    bench.quiet()
    for act in (lambda: launch(function, 1, 1), lambda: function[1, 1], bound):
        with pytest.raises(InvalidHandleError, match="device counting:0 is closed; open it again"):
            act()
    assert bench.driver.calls == []


def test_a_refused_launch_stamps_no_buffer(bench: Bench) -> None:
    """Any stream reuses the buffer of a refused launch without a wait."""
    stage = Stage(bench)
    busy = bench.busy_stream()
    buffer = bench.buffer(1000)
    with pytest.raises(DeviceError):
        launch(stage.saxpy, 1, 1, (-1, buffer, buffer, 1.0), stream=busy)
    buffer.close()
    bench.quiet()
    again = bench.buffer(1000)
    launch(stage.saxpy, 1, 1, (1, again, again, 1.0))
    assert bench.driver.slots() == ["launch"]
