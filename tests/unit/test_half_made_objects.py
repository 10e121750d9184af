"""Compiled objects without `__init__`: no use of them ends in a signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uhal
from tests.children import run_child
from uhal import _lane

ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    (),
    (None,),
    (0,),
    ("x",),
    (1, "u8"),
    (None, None, None),
    (0, 0, "x", "f32* x", None),
)
LEFT_OUT = {"__new__", "__class__", "__init__", "__init_subclass__", "__subclasshook__"}


def classes() -> list[type]:
    """Return every class of the lane, and subclasses without an `__init__` where allowed."""
    found = [one for one in vars(_lane).values() if isinstance(one, type) and is_compiled(one)]
    found.sort(key=lambda one: one.__name__)
    derivable = [one for one in found if one.__flags__ & 1 << 10]  # Py_TPFLAGS_BASETYPE
    made = [type(one.__name__, (one,), {"__init__": lambda self: None}) for one in derivable]
    return found + made


def is_compiled(one: type) -> bool:
    return one.__module__ in ("uhal", "uhal._lane") and not issubclass(one, BaseException)


def acts(thing: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield all uses of an object: its attributes, its methods, and calls that take it."""
    zeros = partial(uhal.DeviceBuffer.zeros, 3, "u8")
    for name in sorted(set(dir(thing)) - LEFT_OUT):
        yield name, partial(getattr, thing, name)
        try:
            found = getattr(thing, name)
        except Exception:
            continue
        for arguments in (*ARGUMENTS, (thing,)) if callable(found) else ():
            yield f"{name} of {len(arguments)}", partial(found, *arguments)
    for act in (repr, str, hash, len, iter, bool, int, memoryview):
        yield act.__name__, partial(act, thing)
    yield "call", lambda: thing()
    yield "bind", lambda: thing[1, 1]
    yield "launch", partial(uhal.launch, thing, 1, 1)
    yield "config", partial(uhal.launch, thing, config=uhal.LaunchConfig(1, 1))
    yield "compare", lambda: (thing == object(), thing < object())
    yield "stream", partial(zeros, stream=thing)
    yield "device", partial(zeros, device=thing)
    yield "copy from", lambda: zeros().copy_from(thing)
    yield "copy to", lambda: zeros().copy_to(thing)
    yield "wait", lambda: uhal.Stream().wait_event(thing)
    yield "record", lambda: uhal.Stream().record_event(thing)
    yield "sequence", lambda: uhal.LaunchSequence([(thing, (thing,))])


def try_all(classes: list[Any]) -> None:
    """Print the acts that fail to raise; stderr names each act before it is done."""
    for of in classes:
        try:
            thing = of.__new__(of)
        except TypeError:
            continue
        for name, act in acts(thing):
            print(of.__name__, name, file=sys.stderr, flush=True)
            try:
                act()
            except SystemError as failure:
                print(f"{of.__name__} {name}: {failure!r}")
            except AttributeError as failure:
                if "NoneType" in str(failure):
                    print(f"{of.__name__} {name}: {failure!r}")
            except Exception:
                pass
        print(of.__name__, "del", file=sys.stderr, flush=True)
        del thing, act


def child() -> None:
    """Test each class in a separate process, so that a crash hides no other class."""
    for first in classes():
        process = os.fork()
        if process == 0:
            uhal.Api.quick_init(0, "host")
            try_all([first])
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if status:
            print(f"{first.__name__} ended its process with status {status}")
            print(f"{first.__name__} ended with {status}", file=sys.stderr)


def test_half_made_objects_refuse_and_do_not_crash() -> None:
    result = run_child(child)
    assert result.returncode == 0, result.stderr[-2000:]
    assert not result.stdout, f"{result.stdout}\n{result.stderr[-2000:]}"
    tried = {line.split()[0] for line in result.stderr.splitlines()}
    assert {"Stream", "Event", "DeviceBuffer", "HostBuffer", "Function", "Device"} <= tried


def test_objects_that_only_the_lane_makes_are_made_by_it_alone() -> None:
    for of in (uhal.Plan, uhal.PlanSlot, uhal.Passed, uhal.BoundLaunch):
        for make in (of, lambda of=of: of.__new__(of)):
            try:
                make()
            except uhal.ArgumentTypeError as error:
                assert "made by" in str(error)
            else:
                raise AssertionError(f"{of.__name__} was made")
