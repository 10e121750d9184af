"""A view like an earlier view is made without Python."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from uhal._lane import RememberedView, SlotMaker


class Layout:
    __slots__ = ("__weakref__", "text")

    def __init__(self, text: str = "") -> None:
        self.text = text


class Tensor:
    __slots__ = ("buffer", "dtype", "executor", "layout")

    buffer: Any
    layout: Any
    dtype: Any
    executor: Any


class Other(Tensor):
    __slots__ = ()


make = SlotMaker(Tensor, "buffer", "layout", "dtype", "executor")
BUFFER, DTYPE, EXECUTOR = ["memory"], "f32", ["device"]


def tensor(layout: Layout, kind: type[Tensor] = Tensor) -> Tensor:
    made: Tensor = make(kind, BUFFER, layout, DTYPE, EXECUTOR)
    return made


class Viewing:
    """A function that makes views and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.buffer: Any = BUFFER

    def __call__(self, x: Tensor, *given: Any, **named: Any) -> Tensor:
        self.calls += 1
        layout = Layout(f"{x.layout.text}{given}{named}")
        made: Tensor = make(type(x), self.buffer, layout, x.dtype, x.executor)
        return made


@pytest.fixture
def viewing() -> Viewing:
    return Viewing()


@pytest.fixture
def call(viewing: Viewing) -> RememberedView:
    return RememberedView(viewing, make, layouts=Layout)


EQUAL: list[tuple[Any, ...]] = [
    (),
    (3,),
    (-3, None),
    ((2, -1), ...),
    (slice(1, None),),
    ((slice(None, -1, 2), 1 << 29, None),),
]


@pytest.mark.parametrize("given", EQUAL, ids=str)
def test_equal_arguments_are_answered_without_the_function(
    viewing: Viewing, call: RememberedView, given: tuple[Any, ...]
) -> None:
    x = tensor(Layout())
    first = call(x, *given)
    # New objects that are equal.
    again = call(x, *eval(repr(given).replace("Ellipsis", "...")))
    assert viewing.calls == 1
    assert again is not first
    assert again.layout is first.layout
    assert (again.buffer, again.dtype, again.executor) == (BUFFER, DTYPE, EXECUTOR)
    assert again.buffer is BUFFER


def test_other_arguments_and_layouts_are_other_views(
    viewing: Viewing, call: RememberedView
) -> None:
    x = tensor(Layout())
    different = [
        *((), (0,), (1,), (-1,), (None,), (...,), (1, None), (None, 1), ((1, None),)),
        *((slice(1),), (slice(1, None),), (slice(None, None, 1),), ((slice(1),),)),
        *(((),), ((1,), 2), ((1, 2),), (1, 2), ((1, (2,)),)),
    ]
    texts = {call(x, *given).layout.text for given in different}
    assert len(texts) == len(different) == viewing.calls
    for given in different:
        assert call(x, *given).layout.text == f"{given}{{}}"
    call(tensor(Layout()), 1)
    assert viewing.calls > len(different)


@pytest.mark.parametrize(
    "given", [(1.0,), (True,), ([1],), ("1",), (1 << 70,), ((1, 2.0),), (tuple(range(20)),)]
)
def test_other_kinds_of_arguments_go_to_the_function(
    viewing: Viewing, call: RememberedView, given: tuple[Any, ...]
) -> None:
    x = tensor(Layout())
    call(x, *given)
    call(x, *given)
    assert viewing.calls == 2


def test_keywords_and_other_objects_go_to_the_function(
    viewing: Viewing, call: RememberedView
) -> None:
    x = tensor(Layout())
    for _ in range(2):
        assert call(x, axis=1).layout.text == "(){'axis': 1}"
    assert viewing.calls == 2
    with pytest.raises(AttributeError):
        call("no tensor")
    with pytest.raises(TypeError):
        call()


def test_a_result_with_other_memory_is_not_kept(viewing: Viewing, call: RememberedView) -> None:
    viewing.buffer = ["a copy"]
    x = tensor(Layout())
    for _ in range(2):
        assert call(x, 1).buffer is viewing.buffer
    assert viewing.calls == 2


def test_a_view_has_the_class_of_its_tensor(viewing: Viewing, call: RememberedView) -> None:
    layout = Layout()
    assert type(call(tensor(layout), 1)) is Tensor
    assert type(call(tensor(layout, Other), 1)) is Other
    assert viewing.calls == 1


def test_a_table_keeps_the_later_views_and_lets_go_of_all(
    viewing: Viewing, call: RememberedView
) -> None:
    x = tensor(Layout())
    layouts = [weakref.ref(call(x, index).layout) for index in range(1000)]
    kept = sum(one() is not None for one in layouts)
    assert 64 <= kept <= 128
    assert call(x, 999).layout is layouts[999]()
    assert viewing.calls == 1000
    del call, x
    gc.collect()
    # The fixture holds the call.
    assert kept == sum(one() is not None for one in layouts)


def test_what_fails_is_raised_each_time() -> None:
    def refusing(x: Tensor, index: int) -> Tensor:
        raise IndexError(index)

    call = RememberedView(refusing, make, layouts=Layout)
    for _ in range(2):
        with pytest.raises(IndexError, match="7"):
            call(tensor(Layout()), 7)


def test_it_is_a_method_of_a_class() -> None:
    viewing = Viewing()

    class Methods(Tensor):
        __slots__ = ()
        part = RememberedView(viewing, make, layouts=Layout)
        __getitem__ = RememberedView(viewing, make, layouts=Layout)

    x = make(Methods, BUFFER, Layout(), DTYPE, EXECUTOR)
    assert x.part(2).layout is x.part(2).layout
    assert x[1:].layout is x[1:].layout
    assert viewing.calls == 2


def test_it_is_made_of_slots() -> None:
    with pytest.raises(ValueError, match="buffer, layout, dtype and executor"):
        RememberedView(print, SlotMaker(Tensor, "buffer"), layouts=Layout)
    call = RememberedView(print, make, layouts=Layout)
    with pytest.raises(RuntimeError, match="once"):
        call.__init__(print, make, layouts=Layout)
