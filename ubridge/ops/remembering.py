"""Plans that are kept, so that `uhal._lane` launches a function on tensors again without Python.

The key of a plan is the function that makes it, the dtype and layout of each tensor, and each
constant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from math import copysign
from typing import Any, TypeVar, cast

from ubridge.core.layout import Layout
from ubridge.definitions.calls import named
from ubridge.device.executor import Answer, DeviceExecutor, Executor
from ubridge.device.tensor_data import TensorData, make
from ubridge.ops.engine import Plan, Value
from uhal import DeviceBuffer, DType
from uhal.frameworks import RememberedCall, RememberedView
from uhal.interop import StreamLike

Function = TypeVar("Function", bound=Callable[..., Any])


class _NeedsMemory(Exception):
    """Planning read elements of a tensor, for example to print, or took a part of the tensor."""


class _Given:
    """Placeholder for the memory of a call's tensor during planning."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __getattr__(self, name: str) -> Any:
        raise _NeedsMemory(name)

    def __getitem__(self, part: Any) -> Any:
        raise _NeedsMemory(part)


_GIVEN = tuple(_Given(index) for index in range(8))


def answering(plan: Callable[..., Value]) -> Callable[..., Answer | None]:
    """Return the launch of a call, from a plan that is made once for equal arguments.

    Return `None` where the function has to be called: for arguments that are neither tensors nor
    constants, and for calls that launch nothing.
    """

    def answer(*given: Any, **settings: Any) -> Answer | None:
        executor: DeviceExecutor = given[0]._executor
        key: list[Any] = [plan]
        tensors = 0
        for one in given:
            if isinstance(one, TensorData):
                if one._executor is not executor:
                    return None
                key += (one._dtype.code, one._layout.words)
                tensors += 1
            elif not _note(key, one):
                return None
        for name, one in settings.items():
            key.append(name)
            if not _note(key, one):
                return None
        return executor.answer(tuple(key), _planned, plan, given, settings, tensors)

    return answer


def _note(key: list[Any], given: Any) -> bool:
    """Add a constant to a key; return whether it is one."""
    kind = type(given)
    if kind is float:
        # These compare equal, but their results differ: 0, 0.0 and -0.0.
        key += (kind, given, copysign(1, given))
    elif kind in (int, bool, str, type(None), DType) or isinstance(given, type):
        key += (kind, given)
    elif kind is tuple:
        return all(_note(key, one) for one in given)
    else:
        return False
    return True


def _planned(
    executor: Executor,
    plan: Callable[..., Value],
    given: tuple[Any, ...],
    settings: dict[str, Any],
    tensors: int,
) -> Answer | None:
    """The answer to a call; the plan has only the layouts of its tensors."""
    memory = iter(_GIVEN)
    stand_ins = [
        make(type(one), next(memory), one._layout.from_start, one._dtype, executor)
        if isinstance(one, TensorData)
        else one
        for one in given
    ]
    try:
        planned = plan(*stand_ins, **settings)
        if type(planned) is not Plan or planned.question.result[1].size == 0:
            return None
        if planned.question.is_in_place:
            return None
        return _answer(executor, planned, tensors)
    except _NeedsMemory:
        return None


def _answer(executor: Executor, planned: Plan, tensors: int) -> Answer:
    """The answer of a plan: one launch if its operands are the call's tensors, in this order."""
    layout, dtype, numbers = planned._layout, planned._dtype, planned.numbers
    sources = tuple([one if type(one) is Plan else _memory_of(one) for one in planned.operands])
    if sources == _GIVEN[:tensors]:
        return Answer(executor.enqueuing(planned.question), layout, dtype, (), numbers)
    first = sources.index(_GIVEN[0]) if _GIVEN[0] in sources else 0
    last = first + tensors
    ahead, behind = sources[:first], sources[last:]
    are_constant = all(isinstance(one, DeviceBuffer) for one in (*ahead, *behind))
    if are_constant and sources[first:last] == _GIVEN[:tensors]:
        launch = executor.enqueuing(planned.question)
        return Answer(launch, layout, dtype, ahead, (*behind, *numbers))
    return Answer(_chained(executor, planned), layout, dtype)


def _memory_of(operand: TensorData) -> Any:
    """The memory of an operand; a call passes a tensor's memory from its first element on."""
    memory: Any = operand._buffer
    if operand._layout.start_offset and type(memory) is _Given:
        raise _NeedsMemory("a part of a tensor")
    return memory


def _chained(executor: Executor, plan: Plan) -> Callable[..., Any]:
    """Launcher of a plan after the plans of its operands."""
    question, numbers = plan.question, plan.numbers
    launch = executor.enqueuing(question)
    needs_memory = question.is_in_place
    sources: list[Any] = [
        _chained(executor, one) if type(one) is Plan else _memory_of(one) for one in plan.operands
    ]

    def launch_all(stream: StreamLike | None, out: DeviceBuffer | None, *given: Any) -> Any:
        passed = [
            given[one.index]
            if type(one) is _Given
            else one
            if isinstance(one, DeviceBuffer)
            else one(stream, None, *given)
            for one in sources
        ]
        if needs_memory and out is None:
            out = executor.allocate(question.result[1].size, question.result[0], stream)
        return launch(stream, out, *passed, *numbers)

    return launch_all


def remembered(
    plan: Callable[..., Value],
    writes_over: bool = False,
    asks: Callable[..., Answer | None] | None = None,
) -> Callable[[Function], Function]:
    """Let `uhal._lane` launch the plans of a function or method of tensors again.

    Names of arguments are the function's. `asks` is by default `answering(plan)`. With
    `writes_over`, for operations element by element, a call with an `out` of the operands' layout
    is remembered, too.
    """

    def decorated(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        settings = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
        answer = named(asks or answering(plan), function.__name__)
        call = RememberedCall(
            named(function),
            answer,
            make,
            tuple(settings),
            writes_over,
            layouts=(Layout, "words", "start_offset"),
            executors=(Executor, "remembered"),
            answers=(Answer, "launch", "layout", "dtype", "ahead", "behind"),
        )
        return cast(Function, update_wrapper(call, function))

    return decorated


def remembered_view(function: Function) -> Function:
    """Let `uhal._lane` make views that a function or method of tensors made before."""
    call = RememberedView(function, make, layouts=Layout)
    return cast(Function, update_wrapper(call, function))
