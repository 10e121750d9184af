"""Launches prepared once: one call sets the arguments and enqueues every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench
from uhal import DeviceBuffer, LaunchConfig, LaunchSequence, Passed, Stream, Tally, set_recorder
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.frameworks import address_for, address_of, shares_memory

SIGNATURE = "u64 n, const f32* x, f32* out, f32 factor"
X, OUT, FACTOR = Passed.operand(0), Passed.result(), Passed.operand(1)


def sequence_of(bench: Bench, size: int, stream: Stream | None = None) -> LaunchSequence:
    bound = bench.function(SIGNATURE)[8, 32, 0, stream]
    return LaunchSequence([(bound, (size, X, OUT, FACTOR))], size, "f32")


def words(bench: Bench) -> list[int]:
    return [int.from_bytes(data, "little") for data in bench.driver.parameters]


def address(buffer: DeviceBuffer) -> int:
    return int(buffer.as_device_ptr())


def test_arguments_stand_where_the_step_has_them(bench: Bench, rng: np.random.Generator) -> None:
    size = int(rng.integers(1, 1000))
    x, sequence = bench.buffer(size), sequence_of(bench, size)
    bench.driver.parameter_sizes = [8, 8, 8, 4]
    made = sequence(None, None, x, 1.0)
    assert (type(made), made.size, str(made.dtype)) == (DeviceBuffer, size, "f32")
    one = int(np.float32(1).view(np.uint32))
    assert words(bench) == [size, address(x), address(made), one]
    other = sequence(None, None, x, 1.0)
    assert address(other) != address(made)
    assert sequence(None, made, x, 1.0) is made
    assert words(bench)[2] == address(made)
    assert bench.driver.count("launch") == 3
    assert (len(sequence), sequence.operands, sequence.scratch) == (1, 2, 0)


def test_what_is_not_passed_is_kept(bench: Bench, rng: np.random.Generator) -> None:
    size, factor = int(rng.integers(1, 1000)), float(rng.integers(1, 100))
    bound = bench.function(SIGNATURE)[8, 32, 0]
    x, weight = bench.buffer(size), bench.buffer(size)
    sequence = LaunchSequence([(bound, (size, weight, X, factor))])
    bench.driver.parameter_sizes = [8, 8, 8, 4]
    packed = int(np.float32(factor).view(np.uint32))
    assert sequence(None, x, x) is x
    assert words(bench) == [size, address(weight), address(x), packed]
    with pytest.raises(TypeError, match="out, which must be a buffer, and 1 operands"):
        sequence(None, None, x)
    many = LaunchSequence([(bound, (size, X, OUT, factor))], size, "f32", operands=3)
    assert many.operands == 3
    many(None, None, x, None, "not looked at")
    with pytest.raises(TypeError, match="3 operands"):
        many(None, None, x)


def test_several_steps_share_a_result_and_scratch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps get views of the call's arguments and of scratch memory that only this call has."""
    bound = bench.function("ptr x, ptr out")[1, 1]
    x = bench.buffer(10)
    room = Passed.scratch(256, 4, "f64")
    steps: list[tuple[Any, tuple[Passed, Passed]]] = [
        (bound, (Passed.operand(0, 8, 3, "f32"), room)),
        (bound, (room, Passed.result(4, 2, "u8"))),
        (bound, (X, OUT)),
    ]
    sequence = LaunchSequence(steps, 6, "i64", scratch=512)
    in_use = bench.context.pool_statistics()["blocks_in_use"]
    seen: list[list[int]] = []
    read = bench.driver._read_parameters
    bench.driver.parameter_sizes = [8, 8]

    def noted(table: int | None) -> None:
        read(table)
        seen.append(words(bench))

    monkeypatch.setattr(bench.driver, "_read_parameters", noted)
    made = sequence(None, None, x)
    assert (made.size, str(made.dtype), len(sequence)) == (6, "i64", 3)
    scratch = seen[0][1] - 256
    assert seen == [
        [address(x) + 8, scratch + 256],
        [scratch + 256, address(made) + 4],
        [address(x), address(made)],
    ]
    assert bench.context.pool_statistics()["blocks_in_use"] == in_use + 1
    with pytest.raises(ArgumentValueError, match="3 of f32 from byte 8>: expected a buffer that"):
        sequence(None, None, bench.buffer(4))
    with pytest.raises(ArgumentTypeError, match="expected a DeviceBuffer, got int"):
        sequence(None, None, 3)


def test_it_goes_to_the_stream_given_or_else_bound(bench: Bench) -> None:
    streams = [Stream(), Stream()]
    sequence, x = sequence_of(bench, 4, streams[0]), bench.buffer(4)
    bench.quiet()
    for given in (None, streams[1]):
        sequence(given, None, x, 1.0)
    calls = [arguments for slot, arguments in bench.driver.calls if slot == "launch"]
    assert [arguments[8] for arguments in calls] == [one.handle for one in streams]


def test_a_tally_is_shared(bench: Bench) -> None:
    bound, tally, x = bench.function(SIGNATURE)[8, 32], Tally(), bench.buffer(4)
    for times in (2, 3):
        sequence = LaunchSequence([(bound, (4, X, OUT, 1.0))], 4, "f32", tally=tally)
        for _ in range(times):
            sequence(None, None, x)
    with pytest.raises(ArgumentTypeError):
        sequence(None, None, bench.buffer(4, "f64"))
    assert tally.count == 5


def test_a_recorder_is_told_of_every_call(bench: Bench) -> None:
    sequence, x, about = sequence_of(bench, 4), bench.buffer(4), object()
    named = LaunchSequence([(bench.function("ptr x")[1, 1], (X,))], 1, "f32", about=about)
    told: list[tuple[Any, ...]] = []

    def note(*what: Any) -> None:
        told.append(what)

    def refuse(*what: object) -> None:
        raise KeyError("recorder")

    assert set_recorder(note) is None
    try:
        made = sequence(None, None, x, 2.0)
        sequence(None, made, x, 3.0)
        other = named(None, None, x)
        with pytest.raises(ArgumentTypeError):
            sequence(None, None, x, "number")
        with pytest.raises(TypeError, match="expected a callable or None"):
            set_recorder(3)  # type: ignore[arg-type]
        assert set_recorder(refuse) is note
        with pytest.raises(KeyError, match="recorder"):
            sequence(None, None, x, 1.0)
    finally:
        assert set_recorder(None) is refuse
    sequence(None, None, x, 4.0)
    assert told == [
        (sequence, made, True, (x, 2.0)),
        (sequence, made, False, (x, 3.0)),
        (named, other, True, (x,)),
    ]
    assert named.about is about


def test_what_is_wrong_is_refused_and_not_launched(bench: Bench) -> None:
    sequence, x, closed, stream = sequence_of(bench, 4), bench.buffer(4), bench.buffer(4), Stream()
    closed.close()
    stream.close()
    in_use = bench.context.pool_statistics()["blocks_in_use"]
    for wrong in ((), (None,), (None, None), (None, None, x), (None, None, *[x] * 60)):
        with pytest.raises(TypeError, match="expected stream, out and 2 operands"):
            sequence(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="f64"):
        sequence(None, None, bench.buffer(4, "f64"), 1.0)
    with pytest.raises(ArgumentTypeError, match="out"):
        sequence(None, np.zeros(4, "f4"), x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="stream: expected"):
        sequence("s", None, x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidHandleError):
        sequence(stream, None, x, 1.0)
    for out, operand in ((None, closed), (closed, x)):
        with pytest.raises(InvalidHandleError, match="closed"):
            sequence(None, out, operand, 1.0)
    with pytest.raises(TypeError, match="no keywords"):
        sequence(None, None, x, factor=1.0)  # type: ignore[call-arg]
    assert bench.driver.count("launch") == 0
    assert bench.context.pool_statistics()["blocks_in_use"] == in_use


def test_it_is_made_of_plain_launches(bench: Bench) -> None:
    function = bench.function(SIGNATURE)
    given = (4, X, OUT, 1.0)
    for config in (LaunchConfig(0, 32), LaunchConfig(8, 32, cluster=2)):
        with pytest.raises(ValueError, match="a grid and a block, and nothing else"):
            LaunchSequence([(function[config], given)], 4, "f32")
    bound = function[8, 32]
    with pytest.raises(ValueError, match="expected one or more, got none"):
        LaunchSequence([], 4, "f32")
    with pytest.raises(ValueError, match="beyond the 64 bytes of scratch"):
        LaunchSequence([(bound, (4, Passed.scratch(0, 9, "f64"), OUT, 1.0))], 4, "f32", scratch=64)
    with pytest.raises(ValueError, match="up to 48 arguments, got 49"):
        LaunchSequence([(bound, (4,) * 49)], 4, "f32")
    with pytest.raises(ValueError, match="size, dtype: expected both or neither"):
        LaunchSequence([(bound, given)], 4)
    for size, dtype in ((-4, "f32"), (4, "f31")):
        with pytest.raises((ValueError, TypeError)):
            LaunchSequence([(bound, given)], size, dtype)
    with pytest.raises(TypeError):
        LaunchSequence.__new__(LaunchSequence)(None, None)
    assert repr(LaunchSequence([(bound, given)] * 2, 4, "f32")) == "<LaunchSequence of k, k>"


def test_what_is_passed_is_a_value() -> None:
    part, again = Passed.operand(1, 8, 3, "f32"), Passed.operand(1, 8, 3, "f32")
    assert (part.index, part.start, part.size, str(part.dtype)) == (1, 8, 3, "f32")
    assert part == again and hash(part) == hash(again)
    assert part != Passed.operand(1) and Passed.result() != Passed.operand(0)
    assert (Passed.result().index, Passed.scratch(0, 1, "u8").index) == (-1, -2)
    for wrong in ((1, 8), (1, -1, 3, "f32"), (-1,), (0, 0, 3), (0, 0, -1, "f32")):
        with pytest.raises(ValueError):
            Passed.operand(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Passed.scratch(0, -1, "f32")
    with pytest.raises(TypeError, match=r"made by Passed\.operand"):
        Passed()


def test_an_observer_is_told_of_work_before_it_is_enqueued(
    bench: Bench, rng: np.random.Generator
) -> None:
    size = int(rng.integers(1, 1000))
    x, y = bench.buffer(size), bench.buffer(size)
    kernel, sequence = bench.function(SIGNATURE), sequence_of(bench, size)
    told: list[tuple[object, ...]] = []

    def refuse(*work: object) -> None:
        raise KeyError("observer")

    context = bench.context
    context.observe_work(lambda *work: told.append((bench.driver.count("launch"), *work)))
    before = set_recorder(lambda *call: None)
    try:
        kernel[8, 32, 16](size, x, y, 1.0)
        sequence(None, y, x, 1.0)
        x.set_32(7)
        y.copy_from(x)
        values = np.zeros(size, "f4")
        x.copy_from(values)
        x.as_device_ptr()
        address_for(y, None)
    finally:
        set_recorder(before)
        context.observe_work(None)
    launch, fill, copy, upload, first, second = told
    assert launch == (0, "launch", kernel, (8, 1, 1), (32, 1, 1), 16, (size, x, y, 1.0), False)
    assert fill[1:] == ("fill", x, 4, 7)
    assert copy[1:] == ("copy", y, x)
    assert upload[1:3] == ("copy", x) and upload[3] is values
    assert (first[1:], second[1:]) == (("address", x), ("address", y))
    context.observe_work(refuse)
    with pytest.raises(RuntimeError, match="an observer already"):
        context.observe_work(refuse)
    launches = bench.driver.count("launch")
    for refused in (
        lambda: kernel[8, 32](size, x, y, 1.0),
        lambda: y.copy_from(x),
        lambda: x.set_8(0),
        lambda: x.copy_2d_from(y, (1, 1)),
    ):
        with pytest.raises(KeyError, match="observer"):
            refused()
    assert bench.driver.count("launch") == launches
    context.observe_work(None)
    kernel[8, 32](size, x, y, 1.0)
    assert len(told) == 6


def test_buffers_are_compared_by_address(bench: Bench, rng: np.random.Generator) -> None:
    whole = bench.buffer(64)
    start, size = int(rng.integers(1, 32)), int(rng.integers(1, 32))
    part, rest = whole[start : start + size], whole[start + size :]
    assert address_of(part) - address_of(whole) == part.byte_offset == 4 * start
    assert address_of(whole) == address(whole)
    again = DeviceBuffer.from_raw(address(part), size, "f32", owner=whole)
    assert shares_memory(part, again) and shares_memory(whole, rest, part)
    assert not shares_memory(part, rest) and not shares_memory(again, rest, 3, None)
    assert not shares_memory(whole, whole[5:5])
