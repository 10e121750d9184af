"""A tensor like an earlier tensor is made without Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from uhal import Device, LaunchSequence, Stream, set_recorder
from uhal._lane import CallTable, Creation, RememberedCreation, SlotMaker, current_context
from uhal.dtypes import f32
from uhal.errors import ArgumentValueError


class Shape(tuple[int, ...]):
    __slots__ = ()


class Layout:
    __slots__ = ("shape", "words")

    def __init__(self, *shape: int) -> None:
        self.shape = Shape(shape)
        self.words = (*shape, "words")


class Executor:
    __slots__ = ("device", "table")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.table: Any = CallTable()


class Tensor:
    __slots__ = ("buffer", "dtype", "executor", "layout")

    buffer: Any
    layout: Any
    dtype: Any
    executor: Any


class Other(Tensor):
    __slots__ = ()


make = SlotMaker(Tensor, "buffer", "layout", "dtype", "executor")


class Asked:
    """Creations of zeros, counted."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.launch: LaunchSequence | None = None
        self.size = 6

    def __call__(self, executor: Executor, *given: Any, **named: Any) -> Creation | None:
        self.calls.append((given, named))
        if "refused" in given:
            return None
        return Creation(
            executor.device, self.size, "f32", layout=Layout(6), element=f32, zeros=True
        )


@pytest.fixture
def host() -> Iterator[Device]:
    with Device(0, backend="host") as device:
        yield device


@pytest.fixture
def executor(host: Device) -> Executor:
    return Executor(host)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def function(*given: Any, **named: Any) -> Any:
    return "called", given, named


@pytest.fixture
def call(host: Device, executor: Executor, asked: Asked) -> Any:
    return RememberedCreation(
        function,
        asked,
        Tensor,
        make,
        ("shape", "value", "dtype"),
        {host.context: executor},
        layouts=(Layout, "words", Shape),
        executors=(Executor, "table"),
    )


def numbers(tensor: Any) -> list[float]:
    found: list[float] = tensor.buffer.to_numpy().tolist()
    return found


EQUAL: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
    ((6,), (6,)),
    (((2, 3),), (tuple([2, 3]),)),
    (((2, 3),), (Shape((2, 3)),)),
    (((),), (Shape(),)),
    (((2, 3), -5, "f32"), (tuple([2, 3]), int("-5"), "f32")),
]


@pytest.mark.parametrize(("first", "second"), EQUAL, ids=str)
def test_equal_arguments_are_answered_without_python(
    call: Any, asked: Asked, executor: Executor, first: Any, second: Any
) -> None:
    made = [call(*given) for given in (first, second, first)]
    assert asked.calls == [(first, {})]
    assert len(executor.table) == 1
    assert len({id(one.buffer) for one in made}) == 3
    for one in made:
        assert type(one) is Tensor
        assert numbers(one) == [0.0] * 6
        assert (one.layout, one.dtype, one.executor) == (made[0].layout, f32, executor)


def test_other_arguments_are_asked_for(call: Any, asked: Asked) -> None:
    wide = 1 << 70
    different: list[tuple[Any, ...]] = [
        (6,),
        ((6,),),
        ((6, 1),),
        ((1, 6),),
        (6, 1),
        (6, True),
        (6, 1.0),
        (6, -1),
        (6, wide),
        (6, None),
        (6, "f32"),
        (6, f32),
        (6, float),
        (6, 1, "f32"),
    ]
    for _ in range(2):
        for given in different:
            assert type(call(*given)) is Tensor
        assert type(call(6, dtype="f32")) is Tensor
        assert type(call(6, value="f32")) is Tensor
    assert asked.calls[:-2] == [(given, {}) for given in different]
    assert asked.calls[-2:] == [((6,), {"dtype": "f32"}), ((6,), {"value": "f32"})]


@pytest.mark.parametrize(
    "given",
    [
        ([2, 3],),
        (np.int64(6),),
        ((np.int64(6),),),
        ((2, True),),
        ((2, (3,)),),
        (6, np.float32(1)),
        pytest.param((object(),), id="object"),
        (tuple(range(20)),),
        (1, 2, 3, 4),
        ("refused",),
    ],
)
def test_the_function_runs_for_other_kinds_of_arguments(
    call: Any, executor: Executor, given: tuple[Any, ...]
) -> None:
    for _ in range(2):
        assert call(*given) == ("called", given, {})
    assert call(6, nothing=1) == ("called", (6,), {"nothing": 1})
    assert call(6, shape=1) == ("called", (6,), {"shape": 1})
    assert call() == ("called", (), {})
    assert len(executor.table) == 0


def test_a_tensor_stands_for_its_layout_and_dtype(
    call: Any, asked: Asked, executor: Executor
) -> None:
    layout = Layout(2, 3)
    x = make(Tensor, "memory", layout, "f32", executor)
    y = make(Tensor, "other memory", layout, "f32", executor)
    for one in (x, y, x):
        assert numbers(call(one)) == [0.0] * 6
    assert len(asked.calls) == 1
    call(make(Tensor, "memory", layout, "f64", executor))
    call(make(Tensor, "memory", Layout(2, 3), "f32", executor))
    assert len(asked.calls) == 3
    other = make(Other, "memory", layout, "f32", executor)
    assert call(other)[0] == "called"
    assert call(6, x)[0] == "called"
    assert call(Tensor())[0] == "called"


def test_the_function_runs_without_an_executor(
    host: Device, call: Any, executor: Executor, asked: Asked
) -> None:
    executor.table = None
    assert call(6)[0] == "called"
    assert asked.calls == []
    known: dict[Any, Any] = {}
    settings: Any = {"layouts": (Layout, "words", Shape), "executors": (Executor, "table")}
    other: Any = RememberedCreation(function, asked, Tensor, make, ("shape",), known, **settings)
    assert other(6)[0] == "called"
    known[current_context()] = "no executor"
    assert other(6)[0] == "called"
    known[current_context()] = Executor(host)
    assert numbers(other(6)) == [0.0] * 6


def test_a_stream_is_no_part_of_the_call(call: Any, asked: Asked) -> None:
    with Stream() as stream:
        assert numbers(call(6, stream=stream)) == [0.0] * 6
        assert numbers(call(6)) == [0.0] * 6
        assert numbers(call(6, dtype="f32", stream=stream)) == [0.0] * 6
    assert [given for given, _ in asked.calls] == [(6,), (6,)]
    with pytest.raises(Exception, match="closed"):
        call(6, stream=stream)


def test_the_function_runs_while_a_recorder_is_set(call: Any, asked: Asked) -> None:
    call(6)
    before = set_recorder(lambda *told: None)
    try:
        assert call(6)[0] == "called"
    finally:
        set_recorder(before)
    assert type(call(6)) is Tensor
    assert len(asked.calls) == 1


def test_a_creation_without_elements_and_a_refused_one(call: Any, asked: Asked) -> None:
    asked.size = 0
    for _ in range(2):
        assert numbers(call(0)) == []
    with pytest.raises(ArgumentValueError, match="size"):
        Creation(call(0).executor.device, -1, "f32", layout=None, element=None)
    with pytest.raises(ValueError, match="arguments"):
        Creation(call(0).executor.device, 1, "f32", None, (1,) * 30, layout=None, element=None)


def test_mistakes_of_a_framework_are_refused(host: Device, executor: Executor) -> None:
    settings: Any = {"layouts": (Layout, "words", Shape), "executors": (Executor, "table")}
    known = {host.context: executor}
    with pytest.raises(ValueError, match="class of tensors"):
        RememberedCreation(function, function, int, make, (), known, **settings)
    with pytest.raises(ValueError, match="no slot"):
        RememberedCreation(
            function,
            function,
            Tensor,
            make,
            (),
            known,
            layouts=(Layout, "__init__", Shape),
            executors=(Executor, "table"),
        )
    with pytest.raises(ValueError, match="shapes that are tuples"):
        RememberedCreation(
            function,
            function,
            Tensor,
            make,
            (),
            known,
            layouts=(Layout, "words", int),
            executors=(Executor, "table"),
        )
    wrong: Any = RememberedCreation(function, function, Tensor, make, ("shape",), known, **settings)
    with pytest.raises(TypeError, match="expected a Creation or None"):
        wrong(6)
    half: Any = Creation.__new__(Creation)
    unmade: Any = RememberedCreation(
        function, lambda *given: half, Tensor, make, ("shape",), known, **settings
    )
    with pytest.raises(Exception, match="never initialized"):
        unmade(6)
