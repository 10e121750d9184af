"""Operations that were answered before are answered again without Python, and only those."""

from __future__ import annotations

from typing import Any

import pytest

from uhal._lane import RememberedCall, SlotMaker


class Layout:
    __slots__ = ("start", "words")

    def __init__(self, *words: int, start: int = 0) -> None:
        self.words = words
        self.start = start


class DType:
    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code


class Answer:
    __slots__ = ("dtype", "launch", "layout")

    def __init__(self, launch: Any, layout: Any, dtype: Any) -> None:
        self.launch = launch
        self.layout = layout
        self.dtype = dtype


class Executor:
    def __init__(self) -> None:
        self.known: Any = {}


class Tensor:
    __slots__ = ("buffer", "dtype", "executor", "layout")

    def __init__(self, buffer: str, layout: Any, dtype: Any, executor: Any) -> None:
        self.buffer = buffer
        self.layout = layout
        self.dtype = dtype
        self.executor = executor


class Other(Tensor):
    __slots__ = ()


make = SlotMaker(Tensor, "buffer", "layout", "dtype", "executor")
SLOTS: dict[str, Any] = {
    "layouts": (Layout, "words", "start"),
    "dtypes": (DType, "code"),
    "answers": (Answer, "launch", "layout", "dtype"),
}
F32, F64 = DType("f"), DType("d")


def fallback(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    return ("fallback", arguments, keywords)


def launch(*arguments: Any) -> tuple[Any, ...]:
    return ("launched", *arguments)


@pytest.fixture
def executor() -> Executor:
    return Executor()


def call_of(operands: int) -> RememberedCall:
    return RememberedCall(fallback, "op", operands, make, **SLOTS)


def test_what_is_known_is_launched(executor: Executor) -> None:
    x = Other("x", Layout(2, 3, 3, 1), F32, executor)
    y = Other("y", Layout(2, 3, 1, 2), F32, executor)
    one, two = call_of(1), call_of(2)
    shape = Layout(6, 1)
    assert one(x) == ("fallback", (x,), {})
    executor.known["op", "f", (2, 3, 3, 1)] = Answer(launch, shape, F64)
    executor.known["op", "f", (2, 3, 3, 1), (2, 3, 1, 2)] = Answer(launch, shape, F32)
    made = one(x)
    assert type(made) is Other
    assert (made.layout, made.dtype, made.executor) == (shape, F64, executor)
    assert made.buffer == ("launched", None, None, "x")
    assert two(x, y).buffer == ("launched", None, None, "x", "y")
    assert two(y, x) == ("fallback", (y, x), {})


def test_everything_else_is_left_to_python(executor: Executor) -> None:
    whole = Layout(6, 1)
    x = Tensor("x", whole, F32, executor)
    executor.known["op", "f", (6, 1)] = Answer(launch, whole, F32)
    executor.known["op", "f", (6, 1), (6, 1)] = Answer(launch, whole, F32)
    one, two = call_of(1), call_of(2)
    empty = Tensor.__new__(Tensor)
    for wrong in (
        Tensor("x", Layout(6, 1, start=3), F32, executor),
        Tensor("x", whole, F64, executor),
        Tensor("x", whole, F32, Executor()),
        Tensor("x", "no layout", F32, executor),
        Tensor("x", whole, "no dtype", executor),
        empty,
        object(),
        3,
    ):
        assert one(wrong) == ("fallback", (wrong,), {})
        assert two(wrong, wrong) == ("fallback", (wrong, wrong), {})
        assert two(x, wrong) == ("fallback", (x, wrong), {})
    assert two(x, Other("y", whole, F32, executor))[0] == "fallback"
    assert one(x, out=3) == ("fallback", (x,), {"out": 3})
    for given in ((), (x, x), (x, x, x)):
        assert one(*given) == ("fallback", given, {})
    executor.known["op", "f", (6, 1)] = "no answer"
    assert one(x)[0] == "fallback"
    executor.known = None
    assert two(x, x)[0] == "fallback"


def test_what_fails_is_raised(executor: Executor) -> None:
    def failing(*arguments: object) -> None:
        raise KeyError("launch")

    x = Tensor("x", Layout(6, 1), F32, executor)
    executor.known["op", "f", (6, 1)] = Answer(failing, None, None)
    with pytest.raises(KeyError, match="launch"):
        call_of(1)(x)
    del executor.known
    with pytest.raises(AttributeError, match="known"):
        call_of(1)(x)


def test_it_is_made_of_slots() -> None:
    for operands in (0, 3):
        with pytest.raises(ValueError, match="operands: expected 1 or 2"):
            call_of(operands)
    with pytest.raises(ValueError, match="expected slots for buffer, layout, dtype and executor"):
        RememberedCall(fallback, "op", 1, SlotMaker(Tensor, "buffer"), **SLOTS)
    with pytest.raises(ValueError, match="is no slot"):
        RememberedCall(fallback, "op", 1, make, **{**SLOTS, "dtypes": (DType, "__init__")})
    call = call_of(1)
    call.__name__ = "exp"
    assert (call.__name__, repr(call)) == ("exp", "<RememberedCall of 'op'>")
    with pytest.raises(TypeError):
        RememberedCall.__new__(RememberedCall)(3)
