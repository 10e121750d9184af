"""Objects of classes with slots that are made in one call."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from uhal._lane import SlotMaker


class Pair:
    __slots__ = ("__weakref__", "first", "second", "third")

    first: object
    second: object
    third: object


class Derived(Pair):
    __slots__ = ("fourth",)


class Unslotted(Pair):
    """A class with a `__dict__` in addition to the slots of its base."""


@pytest.mark.parametrize("cls", [Pair, Derived, Unslotted])
def test_slots_hold_the_values_in_the_order_named(cls: type[Pair]) -> None:
    make = SlotMaker(Pair, "third", "first")
    one, other = object(), object()
    before = sys.getrefcount(one)
    made = make(cls, one, other)
    assert type(made) is cls
    assert (made.third, made.first) == (one, other)
    assert sys.getrefcount(one) == before + 1
    with pytest.raises(AttributeError):
        made.second  # noqa: B018
    made.second = made
    watch = weakref.ref(made)
    del made
    gc.collect()
    assert watch() is None
    assert sys.getrefcount(one) == before


def test_what_is_wrong_is_refused() -> None:
    make = SlotMaker(Pair, "first", "second")
    for wrong in ((), (Pair,), (Pair, 1), (Pair, 1, 2, 3)):
        with pytest.raises(TypeError, match="expected a class and 2 values"):
            make(*wrong)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="expected a class and 2 values, and no keywords"):
        make(Pair, 1, 2, third=3)  # type: ignore[call-arg]
    for other in (object, int, Pair(), None):
        with pytest.raises(TypeError, match="expected Pair or a class derived from it"):
            make(other, 1, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Pair.__doc__ is no slot"):
        SlotMaker(Pair, "first", "__doc__")
    with pytest.raises(ValueError, match=r"range.start is no slot"):
        SlotMaker(range, "start")
    for names in ((), ("first",) * 9):
        with pytest.raises(ValueError, match="expected 1 to 8 of slots"):
            SlotMaker(Pair, *names)
    with pytest.raises(RuntimeError, match="initialised once"):
        make.__init__(Pair, "first")  # type: ignore[misc]
    with pytest.raises(TypeError):
        SlotMaker.__new__(SlotMaker)(Pair)
