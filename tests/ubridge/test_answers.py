"""Repeated operations: a remembered answer must not leak into another call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.operands import LAYOUTS, operand, shape_of
from ubridge import DeviceExecutor
from ubridge.device.recent import Recent
from ubridge.ops.elementwise import answering_pair
from uhal import Device, Stream, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError


@pytest.fixture(autouse=True)
def on_host(host: Device) -> Iterator[Device]:
    yield host


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8"])
def test_repeated_operations_of_changing_operands(
    dtype: str, host: Device, rng: np.random.Generator
) -> None:
    """The same layouts come again and again, with other elements, dtypes and streams."""
    stream = Stream()
    shapes = [shape_of(rng, layout, 2) for layout in LAYOUTS]
    for _ in range(rounds(60, 2000)):
        number = int(rng.integers(0, len(shapes)))
        x = operand(rng, host, LAYOUTS[number], dtype, shapes[number], special=False)
        y = operand(rng, host, str(rng.choice(LAYOUTS[:5])), dtype, shapes[number], special=False)
        told = f"{x.layout} {y.layout} {shapes[number]}"
        given = stream if rng.random() < 0.5 else None
        stream.synchronize()
        added = ubridge.add(x.tensor, y.tensor, stream=given).to_numpy()
        np.testing.assert_array_equal(added, x.array + y.array, told)
        chosen = ubridge.where(ubridge.less(x.tensor, y.tensor), x.tensor, y.tensor)
        np.testing.assert_array_equal(chosen.to_numpy(), np.minimum(x.array, y.array), told)
        cast = x.tensor.astype("f16").to_numpy()
        np.testing.assert_array_equal(cast, x.array.astype(np.float16), told)
        if x.array.size:
            for axis in (0, -1, None):
                largest = x.tensor.max(axis, bool(rng.integers(0, 2))).to_numpy()
                exact = x.array.max(axis)
                np.testing.assert_array_equal(largest.ravel(), exact.ravel(), told)
            rows = rng.integers(0, shapes[number][0], 3)
            for ids in (rows, ubridge.asarray(rows)):
                taken = ubridge.take(x.tensor, ids).to_numpy()
                np.testing.assert_array_equal(taken, x.array[rows], told)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8"])
def test_repeated_operations_into_tensors(
    dtype: str, host: Device, rng: np.random.Generator
) -> None:
    """The result goes into an operand, another tensor, or a view with another layout."""
    stream = Stream()
    for _ in range(rounds(20, 500)):
        shape = tuple(map(int, rng.integers(0, 4, 2)))
        arrays = [rng.integers(0, 10, shape).astype(as_dtype(dtype).dtype) for _ in range(2)]
        x, y = map(ubridge.asarray, arrays)
        outputs = (ubridge.empty_like(x), ubridge.empty_like(x.T).T, ubridge.empty_like(x)[:], x)
        for out in outputs:
            out.copy_from(ubridge.asarray(arrays[0]))
            host.synchronize()
            given = stream if rng.random() < 0.5 else None
            assert ubridge.add(x, y, out=out, stream=given) is out
            host.synchronize()
            np.testing.assert_array_equal(out.to_numpy(), arrays[0] + arrays[1])
            assert ubridge.copy(y, out=out) is out
            np.testing.assert_array_equal(out.to_numpy(), arrays[1])
            assert ubridge.multiply(y, 3, out=out) is out
            np.testing.assert_array_equal(out.to_numpy(), arrays[1] * 3)
        marks = ubridge.empty(shape, "bool")
        assert ubridge.less(x, y, out=marks) is marks
        np.testing.assert_array_equal(marks.to_numpy(), x.to_numpy() < arrays[1])


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i64", "bool"])
def test_repeated_products_of_changing_operands(
    dtype: str, host: Device, rng: np.random.Generator
) -> None:
    """Operands of equal shapes have other layouts, dtypes, streams and parts of a buffer."""
    stream = Stream()
    counts = DeviceExecutor.of(host).matmul_launches
    taken = 0
    for _ in range(rounds(40, 1000)):
        m, n, k = (int(length) for length in rng.choice([1, 2, 5, 33], 3))
        arrays = [rng.integers(-4, 5, shape).astype("i8") for shape in ((2, m, k), (2, k, n))]
        x, y = (ubridge.asarray(one.astype(as_dtype(dtype).dtype)) for one in arrays)
        exact = arrays[0].astype(np.int64) @ arrays[1]
        given = stream if rng.random() < 0.5 else None
        if dtype == "bool":
            with pytest.raises(ArgumentTypeError, match="matmul"):
                ubridge.matmul(x, y)
            continue
        turned = ubridge.copy(x.mT).mT, ubridge.copy(y.mT).mT
        host.synchronize()
        for left, right, expected in (
            (x, y, exact),
            (turned[0], y, exact),
            (x, turned[1], exact),
            (x[1], y[0], arrays[0][1].astype(np.int64) @ arrays[1][0]),
            (x[0], y, arrays[0][0].astype(np.int64) @ arrays[1]),
            (x, y[0, :, 0], arrays[0].astype(np.int64) @ arrays[1][0, :, 0]),
            (x[0, 0], y, arrays[0][0, 0].astype(np.int64) @ arrays[1]),
        ):
            product = ubridge.matmul(left, right, stream=given)
            taken += 1
            assert product.shape == expected.shape
            np.testing.assert_array_equal(product.to_numpy(), expected.astype(np.float64))
    after = DeviceExecutor.of(host).matmul_launches
    assert sum(after.values()) - sum(counts.values()) == taken


def test_what_does_not_take_a_result_is_refused_again_and_again() -> None:
    x = ubridge.ones(16)
    for _ in range(2):
        ubridge.exp(x, out=ubridge.empty_like(x))
        with pytest.raises(ArgumentTypeError, match="cannot cast output from f32 to f64"):
            ubridge.exp(x, out=ubridge.empty(16, "f64"))
        with pytest.raises(ArgumentTypeError, match="cannot cast output from bool to u8"):
            ubridge.less(x, x, out=ubridge.empty(16, "u8"))
        with pytest.raises(ArgumentValueError, match="doesn't match the broadcast shape"):
            ubridge.add(x, x, out=ubridge.empty(17))
        with pytest.raises(ArgumentTypeError, match="expected a DeviceTensor, got ndarray"):
            ubridge.add(x, x, out=np.ones(16, "f4"))  # type: ignore[arg-type]


def test_numbers_that_are_equal_but_not_the_same() -> None:
    zeros = ubridge.asarray(np.array([0.0, -0.0]))
    ones = ubridge.asarray(np.array([1, 2], np.int64))
    for _ in range(2):
        assert np.signbit((zeros + 0.0).to_numpy()).tolist() == [False, False]
        assert np.signbit((zeros + -0.0).to_numpy()).tolist() == [False, True]
        assert np.signbit(ubridge.maximum(zeros, -0.0).to_numpy()).tolist()[1]
        assert (ones * 1).dtype.name == "i64"
        assert (ones * 1.0).dtype.name == "f64"
        assert (ones * True).dtype.name == "i64"
        assert (zeros * np.float32(1)).dtype.name == "f64"
        with pytest.raises(ArgumentTypeError, match="unsupported operand type 'list'"):
            zeros * [1]


def test_axes_that_are_equal_but_no_axes() -> None:
    x = ubridge.ones((2, 3))
    assert x.sum(1).shape == (2,)
    for wrong in (1.0, "1"):
        with pytest.raises(ArgumentTypeError, match="axis: expected an int"):
            x.sum(wrong)  # type: ignore[arg-type]


def test_what_is_not_used_any_more_is_forgotten(
    host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recently used answers are kept for any number of other answers."""
    executor = DeviceExecutor.of(host)
    monkeypatch.setattr(executor, "_answers", Recent(8))
    x = ubridge.asarray(np.ones((3, 1), np.float32))
    for length in range(10, 40):
        assert ubridge.ones((length, 1)).sum(0).to_numpy() == length
        assert x.sum(0).to_numpy() == 3
        assert len(executor._answers) <= 8
        assert sum(1 for key in executor.known if x.layout.words in key) == 1
    assert not any((10, 1, 1, 1) in key for key in executor._answers._older)


def test_entries_never_outnumber_the_limit(rng: np.random.Generator) -> None:
    most = int(rng.integers(600, 2000))
    recent: Recent[int, int] = Recent(most)
    for key in range(3 * most):
        recent.keep(key, key)
        assert len(recent) <= most
    assert recent.get(3 * most - 1) == 3 * most - 1
    assert recent.get(0) is None


def test_half_of_the_limit_is_kept_whatever_is_used() -> None:
    recent: Recent[int, int] = Recent(20)
    for key in range(10):
        recent.keep(key, -key)
    assert [recent.get(key) for key in range(10)] == [-key for key in range(10)]
    recent.keep(10, -10)
    assert len(recent) == 11 and recent.get(0) == 0


def test_calls_of_several_questions_are_remembered_as_a_chain(host: Device) -> None:
    x = ubridge.ones((4, 5))
    add = answering_pair(ubridge.OPS["add"])
    divide = answering_pair(ubridge.OPS["divide"])
    assert add(x, x) is not None
    assert add(x, 1.5) is not None
    whole = x.astype("i64")
    for _ in range(3):
        assert (ubridge.divide(whole, whole).to_numpy() == 1).all()
        assert (ubridge.add(whole, x).to_numpy() == 2).all()
    assert divide(whole, whole) is divide(whole, whole)
    # These calls launch no kernel, so the remembered call returns None.
    assert add(x[:0], x[:0]) is None
    assert add(x, [1]) is None


def test_parts_of_a_buffer_are_one_question(host: Device, rng: np.random.Generator) -> None:
    """A slice of a cache begins at another offset for every token."""
    array = rng.standard_normal((9, 7)).astype("f4")
    cache, executor = ubridge.asarray(array), DeviceExecutor.of(host)
    np.testing.assert_array_equal(ubridge.square(cache[0]).to_numpy(), array[0] * array[0])
    known = len(executor._answers)
    for row in range(1, 9):
        np.testing.assert_array_equal(ubridge.square(cache[row]).to_numpy(), array[row] ** 2)
        added = ubridge.add(cache[row], cache[row - 1]).to_numpy()
        np.testing.assert_array_equal(added, array[row] + array[row - 1])
    assert len(executor._answers) <= known + 1


def test_a_capture_meets_what_is_not_uploaded(host: Device) -> None:
    """A plan looks up layouts at each launch, so that a graph keeps its own layouts."""
    layouts = DeviceExecutor.of(host).layouts
    x = ubridge.ones((3, 7))
    x.sum(0)
    unseen = ubridge.ones((3, 7919))  # a shape whose layout no other test has uploaded
    with layouts.capture():
        assert (x.sum(0).to_numpy() == 3).all()
        with pytest.raises(DeviceError, match="the warm-up was incomplete"):
            unseen.sum(0)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8", "bool", "i8"])
def test_repeated_joins_reversals_and_writes(
    dtype: str, host: Device, rng: np.random.Generator
) -> None:
    """The same layouts come again, with other elements and memory; some share memory."""
    kind = as_dtype(dtype).dtype
    for _ in range(rounds(20, 500)):
        rows, columns = map(int, rng.integers(1, 5, 2))
        whole = rng.integers(0, 2, (2 * rows, columns)).astype(kind)
        base = ubridge.asarray(whole)
        a, b = whole[:rows], whole[rows:]
        x, y = base[:rows], base[rows:]
        if rng.random() < 0.5:
            a, b, x, y = a.T, b.T, x.T, y.T
        for axis in (0, 1):
            shift = int(rng.integers(-3, 4))
            for found, exact in (
                (ubridge.cat((x, y), axis), np.concatenate((a, b), axis)),
                (ubridge.concat([x, y, x], axis), np.concatenate((a, b, a), axis)),
                (ubridge.stack((x, y), axis), np.stack((a, b), axis)),
                (ubridge.flip(x, axis), np.flip(a, axis)),
                (ubridge.roll(y, shift, axis), np.roll(b, shift, axis)),
                (x[::-1, 1:], a[::-1, 1:]),
            ):
                np.testing.assert_array_equal(found.to_numpy(), exact)
            if dtype != "bool":
                np.testing.assert_array_equal(
                    ubridge.diff(x, axis).to_numpy(), np.diff(a, axis=axis)
                )
        ids = rng.integers(-len(a), len(a), 3)
        np.testing.assert_array_equal(x[ubridge.asarray(ids)].to_numpy(), a[ids])
        target, copy = x.copy(), a.copy()
        target[1:] = y[:-1]
        copy[1:] = b[:-1]
        target[:, -1] = 1
        copy[:, -1] = 1
        np.testing.assert_array_equal(target.to_numpy(), copy)
        target[1:] = target[:-1]
        copy[1:] = copy[:-1].copy()
        np.testing.assert_array_equal(target.to_numpy(), copy)
        order = rng.permutation(len(a))
        places = np.broadcast_to(order[:, None], a.shape)
        ubridge.scatter(target, ubridge.asarray(places), y, 0)
        np.put_along_axis(copy, places, b, 0)
        np.testing.assert_array_equal(target.to_numpy(), copy)
        assert target[0, 0].item() == copy[0, 0]
        assert (1 in target) == (1 in copy)


def test_repeated_calls_plan_nothing() -> None:
    """A call whose layouts are known runs no Python, or only the launches of its parts."""
    x, y = (ubridge.ones((3, 4)) for _ in range(2))
    ids, places = ubridge.asarray(np.arange(3)), ubridge.zeros((3, 4), "i64")
    position, token = ubridge.zeros(1, "i64"), ubridge.ones((1, 4))
    one, index = x[0, 0], slice(1, None)
    calls: list[Callable[[], object]] = [
        *(lambda: float(one), lambda: one.item(), lambda: bool(one), lambda: int(one)),
        *(lambda: ubridge.cat((x, y)), lambda: ubridge.stack([x, y], 1)),
        *(lambda: ubridge.flip(x, 1), lambda: ubridge.roll(x, 1, 0), lambda: ubridge.diff(x)),
        *(lambda: x.fill(1), lambda: x.copy_from(y), lambda: x[ids]),
        lambda: ubridge.scatter(x, places, y, 0),
        lambda: ubridge.index_add(x, ids, y, 0),
        lambda: ubridge.kv_append(x, token, position),
        lambda: x[index].copy_from(y[index]),
    ]
    planned: list[str] = []

    def noted(frame: FrameType, event: str, given: object) -> None:
        if event == "call" and "plan" in frame.f_code.co_name:
            planned.append(frame.f_code.co_name)

    for call in calls:
        call()
        call()
        sys.setprofile(noted)
        try:
            call()
        finally:
            sys.setprofile(None)
        assert not planned, planned


@pytest.mark.parametrize(
    "name", ["add", "subtract", "divide", "maximum", "copysign", "power", "less"]
)
def test_a_number_may_come_first(name: str, host: Device, rng: np.random.Generator) -> None:
    function, exact = getattr(ubridge, name), getattr(np, name)
    for _ in range(3):
        x, number = rng.uniform(1, 4, (3, 5)), float(rng.uniform(1, 4))
        got = function(number, ubridge.asarray(x)).to_numpy()
        np.testing.assert_allclose(got, exact(number, x), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bool", "i8", "f32"])
def test_a_join_is_enqueued_in_its_stream(
    dtype: str, host: Device, rng: np.random.Generator
) -> None:
    """A copy before the join is behind the stream's work, too."""
    stream, opened, array = Stream(), threading.Event(), rng.integers(0, 2, (3, 5))
    x = ubridge.zeros((3, 5), dtype)
    later = ubridge.from_numpy(array.astype(x.dtype.dtype))
    for _ in range(2):
        x.fill(0)
        stream.synchronize()
        Stream.default().synchronize()
        opened.clear()
        stream.add_callback(opened.wait)
        x.copy_from(later, stream=stream)
        joined = ubridge.cat([x.T, x.T], stream=stream)
        opened.set()
        expected = np.concatenate([array.T, array.T]).astype(x.dtype.dtype)
        np.testing.assert_array_equal(joined.to_numpy(stream=stream), expected)
