"""Repeated operations are launched without Python; new operations are not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.counting_bench import Bench
from uhal import dtypes
from uhal._lane import CallTable, RememberedCall, SlotMaker


class Layout:
    __slots__ = ("start", "words")

    def __init__(self, *words: int, start: int = 0) -> None:
        self.words = words
        self.start = start


class Answer:
    __slots__ = ("__weakref__", "ahead", "behind", "dtype", "launch", "layout")

    def __init__(
        self, launch: Any, layout: Any = None, dtype: Any = None, ahead: Any = (), behind: Any = ()
    ) -> None:
        self.launch = launch
        self.layout = layout
        self.dtype = dtype
        self.ahead = ahead
        self.behind = behind


class Executor:
    __slots__ = ("table",)

    def __init__(self, table: Any = None) -> None:
        self.table = CallTable() if table is None else table


class Tensor:
    __slots__ = ("buffer", "dtype", "executor", "layout")

    def __init__(self, buffer: Any, layout: Any, dtype: Any, executor: Any) -> None:
        self.buffer = buffer
        self.layout = layout
        self.dtype = dtype
        self.executor = executor


class Other(Tensor):
    __slots__ = ()


make = SlotMaker(Tensor, "buffer", "layout", "dtype", "executor")
SLOTS: dict[str, Any] = {
    "layouts": (Layout, "words", "start"),
    "executors": (Executor, "table"),
    "answers": (Answer, "launch", "layout", "dtype", "ahead", "behind"),
}
F32, F64 = "f32", "f64"
SHAPE = Layout(6, 1)


def function(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    return ("called", arguments, keywords)


def launch(*arguments: Any) -> tuple[Any, ...]:
    return ("launched", *arguments)


class Asked:
    """An answer that counts its queries."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = Answer(launch, SHAPE, F64) if answer is None else answer
        self.calls: list[Any] = []

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls.append((arguments, keywords))
        return self.answer


def call_of(asks: Callable[..., Any], *settings: str) -> Any:
    return RememberedCall(function, asks, make, settings, **SLOTS)


@pytest.fixture
def executor() -> Executor:
    return Executor()


def test_what_was_answered_is_launched_without_asking(executor: Executor) -> None:
    x = Other("x", Layout(2, 3, 3, 1), F32, executor)
    y = Other("y", Layout(2, 3, 1, 2), F32, executor)
    asked = Asked()
    call = call_of(asked, "y")
    for _ in range(3):
        made = call(x)
        assert type(made) is Other
        assert (made.layout, made.dtype, made.executor) == (SHAPE, F64, executor)
        assert made.buffer == ("launched", None, None, "x")
        assert call(x, y).buffer == ("launched", None, None, "x", "y")
        assert call(y, x).buffer == ("launched", None, None, "y", "x")
        assert call(x, stream="s").buffer == ("launched", "s", None, "x")
    assert asked.calls == [((x,), {}), ((x, y), {}), ((y, x), {})]
    assert len(executor.table) == 3


def test_what_is_equal_and_another_object_is_asked_for(executor: Executor) -> None:
    layout = Layout(6, 1)
    x = Tensor("x", layout, F32, executor)
    asked = Asked()
    call = call_of(asked, "axis", "dtype")
    minus, plus = -0.0, 0.0
    for _ in range(2):
        for given in (minus, plus, False, 0, None, "f32", (0, 1), dtypes.f32, float):
            assert call(x, given).buffer == ("launched", None, None, "x")
            assert call(x, axis=given).buffer == ("launched", None, None, "x")
    assert len(asked.calls) == 18
    call(Tensor("x", layout, F64, executor))
    call(Tensor("x", Layout(6, 1), F32, executor))
    assert len(asked.calls) == 20
    call(Tensor("y", layout, F32, executor), minus)
    assert len(asked.calls) == 20
    other = call_of(asked, "axis")
    other(x, minus)
    assert len(asked.calls) == 21


def test_what_may_change_is_asked_for_each_time(executor: Executor) -> None:
    class Whole(int):
        pass

    x = Tensor("x", SHAPE, F32, executor)
    asked = Asked()
    call = call_of(asked, "axis")
    for given in ([0], {}, object(), Whole(3), (0, [1]), ((0, Whole(1)),)):
        for _ in range(2):
            assert call(x, given).buffer == ("launched", None, None, "x")
    assert len(asked.calls) == 12
    assert len(executor.table) == 0


def test_buffers_begin_with_the_first_element(executor: Executor) -> None:
    words = Layout(2, 1)
    asked = Asked()
    call = call_of(asked, "y")
    for start in (0, 3, 1):
        layout = Layout(start=start)
        layout.words = words.words
        x = Tensor("abcdef", layout, F32, executor)
        y = Tensor("uvwxyz", words, F32, executor)
        assert call(x, y).buffer == ("launched", None, None, "abcdef"[start:], "uvwxyz")
        assert call(y, x).buffer == ("launched", None, None, "uvwxyz", "abcdef"[start:])
    assert len(asked.calls) == 1


def test_what_is_passed_besides_lies_ahead_and_behind(executor: Executor) -> None:
    x = Tensor("x", SHAPE, F32, executor)
    asked = Asked(Answer(launch, SHAPE, F32, ("a", "b"), (2.5,)))
    call = call_of(asked)
    for _ in range(2):
        assert call(x).buffer == ("launched", None, None, "a", "b", "x", 2.5)


def test_everything_else_is_left_to_the_function(executor: Executor) -> None:
    x = Tensor("x", SHAPE, F32, executor)
    asked = Asked()
    call = call_of(asked, "y")
    empty = Tensor.__new__(Tensor)
    unmade = Layout(6, 1)
    del unmade.start
    for wrong in (
        Tensor("x", "no layout", F32, executor),
        Tensor("x", Layout.__new__(Layout), F32, executor),
        Tensor("x", unmade, F32, executor),
        Tensor("x", SHAPE, F32, "no executor"),
        Tensor("x", SHAPE, F32, Executor("no table")),
        empty,
    ):
        assert call(wrong) == ("called", (wrong,), {})
        assert call(wrong, x) == ("called", (wrong, x), {})
    for nothing in (object(), 3, (), (3,)):
        assert call(nothing) == ("called", (nothing,), {})
    for wrong in (
        Tensor("x", "no layout", F32, executor),
        Tensor("x", SHAPE, F32, Executor()),
        Other("x", SHAPE, F32, executor),
        empty,
    ):
        assert call(x, wrong) == ("called", (x, wrong), {})
    assert call(x, out=3) == ("called", (x,), {"out": 3})
    assert call(x, y=2, out=3) == ("called", (x,), {"y": 2, "out": 3})
    assert call(x, stream=1, y=2) == ("called", (x,), {"stream": 1, "y": 2})
    assert call(x, 2, y=2) == ("called", (x, 2), {"y": 2})
    for given in ((), (x, x, x), (x,) * 7):
        assert call(*given) == ("called", given, {})
    assert asked.calls == []
    assert call_of(lambda x: None)(x) == ("called", (x,), {})
    for table in ("no table", None):
        executor.table = table
        assert call(x) == ("called", (x,), {})
    del executor.table
    assert call(x) == ("called", (x,), {})


def test_results_are_written_where_operands_lie_as_they_do(
    executor: Executor, bench: Bench
) -> None:
    asked = Asked(Answer(launch, SHAPE, F32))
    written: list[Any] = []
    asked.answer.launch = lambda *given: written.append(given)
    over = RememberedCall(function, asked, make, ("y",), True, **SLOTS)
    x, y = (Tensor(bench.buffer(6), SHAPE, F32, executor) for _ in range(2))
    for _ in range(2):
        assert over(x, y, out=x) is x
        assert over(x, 2, stream="s", out=y) is y
        assert over(x, out=y, stream="s") is y
    a, b = x.buffer, y.buffer
    expected = [(None, a, a, b), ("s", b, a), ("s", b, a)]
    assert written == 2 * expected
    assert len(asked.calls) == 3
    other = Layout(6, 1)
    for wrong in (
        Tensor("z", other, F32, executor),
        Tensor("z", SHAPE, F64, executor),
        Tensor("z", SHAPE, F32, Executor()),
        Other("z", SHAPE, F32, executor),
        Tensor.__new__(Tensor),
        3,
    ):
        assert over(x, out=wrong) == ("called", (x,), {"out": wrong})
    lying = Tensor("abcdefg", other, F32, executor)
    assert over(x, lying, out=x) == ("called", (x, lying), {"out": x})
    for _ in range(2):  # the result's own memory in another layout
        assert over(x, Tensor(a, other, F32, executor), out=x)[0] == "called"
        assert over(Tensor(a, other, F32, executor), out=x)[0] == "called"
    late = Layout(6, 1, start=1)
    assert over(Tensor("abcdefg", late, F32, executor), out=x)[0] == "called"
    assert written == 2 * expected
    whole = bench.buffer(12)

    def at(buffer: object) -> Tensor:
        return Tensor(buffer, SHAPE, F32, executor)

    one = whole[:6]
    for same in (whole[:6], whole[:6].view("i32"), whole[6:]):
        assert over(at(one), out=(out := at(same))) is out
    for askew in (whole[1:7], whole[5:11], whole.view("f64")[:3], whole.view("u8")[:6], "unknown"):
        assert over(at(one), out=at(askew))[0] == "called"
        assert over(at(whole[:6]), at(askew), out=at(one))[0] == "called"
    fresh = RememberedCall(function, Asked(), make, ("y",), True, **SLOTS)
    assert fresh(x, out=None).buffer == ("launched", None, None, a)
    executor.table = CallTable()  # drop the table: the `asks` of its calls noted the buffers


def test_answers_have_all_their_parts(executor: Executor) -> None:
    x = Tensor("x", SHAPE, F32, executor)
    unmade = Answer(launch)
    del unmade.layout
    for wrong in ("no answer", unmade, Answer(launch, behind=[1]), Answer(launch, ahead=(1,) * 9)):
        with pytest.raises(TypeError, match="expected an answer or None"):
            call_of(Asked(wrong))(x)


def test_what_fails_is_raised(executor: Executor) -> None:
    def failing(*arguments: object) -> None:
        raise KeyError("launch")

    def refusing(*arguments: object) -> None:
        raise ValueError("asked")

    x = Tensor("x", Layout(6, 1), F32, executor)
    call = call_of(Asked(Answer(failing)))
    for _ in range(2):
        with pytest.raises(KeyError, match="launch"):
            call(x)
    with pytest.raises(ValueError, match="asked"):
        call_of(refusing)(x)


def test_a_table_may_be_replaced_while_it_is_asked(executor: Executor) -> None:
    def asks(x: Any) -> Answer:
        executor.table = CallTable()
        gc.collect()
        return Answer(launch, SHAPE, F32)

    x = Tensor("x", SHAPE, F32, executor)
    call = call_of(asks)
    for _ in range(3):
        assert call(x).buffer == ("launched", None, None, "x")
        assert len(executor.table) == 1

    def answer_goes(*arguments: object) -> str:
        executor.table = CallTable()
        gc.collect()
        return "made"

    last = call_of(lambda x: Answer(answer_goes, SHAPE, F64))
    for _ in range(2):
        assert (last(x).buffer, last(x).dtype) == ("made", F64)
    executor.table = None


def test_tensors_that_change_while_it_is_asked_are_left_to_the_function(
    executor: Executor,
) -> None:
    def asks(x: Any) -> Answer:
        x.layout, x.dtype = Layout(7, 1), F64
        gc.collect()
        return Answer(launch, SHAPE, F32)

    x = Tensor("x", Layout(6, 1), F32, executor)
    assert call_of(asks)(x) == ("called", (x,), {})
    assert len(executor.table) == 0


def test_a_table_keeps_the_later_answers_and_lets_go_of_all(executor: Executor) -> None:
    tensors = [Tensor("x", Layout(length, 1), F32, executor) for length in range(5000)]
    seen: list[Any] = []

    def asks(x: Any) -> Answer:
        found = Answer(launch, SHAPE, F32)
        seen.append(weakref.ref(found))
        return found

    call = call_of(asks)
    for one in tensors:
        assert call(one).buffer == ("launched", None, None, "x")
        count = len(seen)
        call(one)
        assert len(seen) == count
    assert 512 < len(executor.table) <= 1024
    assert sum(ref() is not None for ref in seen) == len(executor.table)
    executor.table = None
    gc.collect()
    assert all(ref() is None for ref in seen)


def test_it_is_a_method_of_a_class(executor: Executor) -> None:
    class Method(Tensor):
        __slots__ = ()
        norm = call_of(Asked(), "axis")
        __add__ = call_of(Asked(), "other")

    x = Method("x", SHAPE, F32, executor)
    for _ in range(2):
        assert x.norm().buffer == x.norm(axis=3).buffer == ("launched", None, None, "x")
        assert (x + x).buffer == ("launched", None, None, "x", "x")
        bound = x.norm
        assert bound(1).buffer == Method.norm(x, 1).buffer == ("launched", None, None, "x")
    assert isinstance(Method.norm, RememberedCall)


def test_it_is_made_of_slots() -> None:
    with pytest.raises(ValueError, match="expected slots for buffer, layout, dtype and executor"):
        RememberedCall(function, function, SlotMaker(Tensor, "buffer"), **SLOTS)
    for name in ("layouts", "executors", "answers"):
        wrong = (Tensor, *["__init__"] * (len(SLOTS[name]) - 1))
        with pytest.raises(ValueError, match="is no slot"):
            RememberedCall(function, function, make, **{**SLOTS, name: wrong})
    call = call_of(function)
    call.__name__ = "exp"
    assert (call.__name__, repr(call)[:32]) == ("exp", "<RememberedCall of <function fun")
    with pytest.raises(TypeError):
        RememberedCall.__new__(RememberedCall)(3)
    with pytest.raises(RuntimeError, match="initialised once"):
        call.__init__(function, function, make, **SLOTS)


@pytest.mark.parametrize("kind", [tuple, list])
def test_tensors_in_a_tuple_or_a_first_list_are_operands(
    executor: Executor, kind: Callable[..., Any]
) -> None:
    x, y, z = (Tensor(name, SHAPE, F32, executor) for name in "xyz")
    asked = Asked(Answer(launch, SHAPE, F32))
    call = call_of(asked, "axis")
    for _ in range(2):
        assert call(kind((x, y)), 1).buffer == ("launched", None, None, "x", "y")
        assert call(kind((z, y)), 1).buffer == ("launched", None, None, "z", "y")
    assert len(asked.calls) == 1
    # Other numbers of tensors, and tensors outside of the tuple, are other calls.
    call(kind((x,)), 1)
    call(kind((x, y, z)), 1)
    call((x,), y)
    call(x, y)
    assert len(asked.calls) == 5
    mixed = kind((x, "text"))
    assert call(mixed, 1) == ("called", (mixed, 1), {})


def test_a_constant_may_precede_the_tensors(executor: Executor) -> None:
    x, y = (Tensor(name, SHAPE, F32, executor) for name in "xy")
    asked = Asked(Answer(launch, SHAPE, F32))
    call = call_of(asked, "first", "second")
    for _ in range(2):
        assert call("text", x, y).buffer == ("launched", None, None, "x", "y")
    assert len(asked.calls) == 1
    assert call("other", x, y).buffer == ("launched", None, None, "x", "y")
    assert len(asked.calls) == 2


def test_a_function_that_changes_its_first_tensor_returns_it(
    executor: Executor, bench: Bench
) -> None:
    memory, other = (bench.buffer(8) for _ in range(2))
    x, y = (Tensor(one, SHAPE, F32, executor) for one in (memory, other))
    passed: list[Any] = []
    asked = Asked(Answer(lambda *given: passed.append(given), SHAPE, F32, (), (2.5,)))
    call = RememberedCall(function, asked, make, ("y",), changes=True, **SLOTS)
    for _ in range(2):
        assert call(x, y) is x
    assert passed == [(None, memory, other, 2.5)] * 2
    assert len(asked.calls) == 1
    # A tensor in the memory that changes is left to the function.
    for overlapping in (x, Tensor(memory[2:], SHAPE, F32, executor)):
        assert call(x, overlapping) == ("called", (x, overlapping), {})
    assert call((x,), y) == ("called", ((x,), y), {})
    executor.table = CallTable()  # drop the table: the `asks` of its calls noted the buffers
