"""Plans that are kept, so that `uhal._lane` launches a function on tensors again without Python.

The key of a plan is the function that makes it, the dtype and layout of each tensor, and each
constant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import update_wrapper
from math import copysign
from typing import Any, TypeVar, cast

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.definitions.calls import named, renamed
from ubridge.device.executor import EXECUTORS, Answer, Executor
from ubridge.device.tensor_data import TensorData, make
from ubridge.ops.engine import Parts, Plan, Value
from uhal import DeviceBuffer, DType
from uhal.device import DeviceLike
from uhal.frameworks import (
    Creation,
    NumberReader,
    RememberedCall,
    RememberedCreation,
    RememberedView,
)
from uhal.interop import StreamLike

Function = TypeVar("Function", bound=Callable[..., Any])


class _NeedsMemory(Exception):
    """Planning read elements of a tensor, for example to print."""


class _Given:
    """Placeholder for the memory of a call's tensor, or for a part of it, during planning."""

    __slots__ = ("index", "start")

    def __init__(self, index: int, start: int = 0) -> None:
        self.index = index
        self.start = start
        """Elements before the part."""

    def __getattr__(self, name: str) -> Any:
        raise _NeedsMemory(name)

    def __getitem__(self, part: slice) -> Any:
        if part.stop is not None or part.step is not None:
            raise _NeedsMemory(part)
        return _Given(self.index, self.start + part.start)


_GIVEN = tuple(_Given(index) for index in range(16))


def answering(plan: Callable[..., Value], changes: bool = False) -> Callable[..., Answer | None]:
    """Return the launch of a call, from a plan that is made once for equal arguments.

    Return `None` where the function has to be called: for arguments that are neither tensors nor
    constants, and for calls that launch nothing.
    """

    def answer(*given: Any, **settings: Any) -> Answer | None:
        key: list[Any] = [plan]
        tensors: list[TensorData] = []
        for one in given:
            if isinstance(one, TensorData):
                key += (one._dtype.code, one._layout.words)
                tensors.append(one)
            elif not _note(key, one, tensors):
                return None
        for name, one in settings.items():
            key.append(name)
            if not _note(key, one, tensors):
                return None
        executor: Any = tensors[0]._executor
        for one in tensors[1:]:
            if one._executor is not executor:
                return None
        found: Answer | None = executor.answer(
            tuple(key), _planned, plan, given, settings, len(tensors), changes
        )
        return found

    return answer


def _note(key: list[Any], given: Any, tensors: list[TensorData]) -> bool:
    """Add a tensor, a constant or a tuple of them to a key; return whether it is one."""
    kind = type(given)
    if isinstance(given, TensorData):
        key += (given._dtype.code, given._layout.words)
        tensors.append(given)
    elif kind is float:
        # These compare equal, but their results differ: 0, 0.0 and -0.0.
        key += (kind, given, copysign(1, given))
    elif kind in (int, bool, str, type(None), DType) or isinstance(given, type):
        key += (kind, given)
    elif kind is tuple:
        key += (kind, len(given))
        return all([_note(key, one, tensors) for one in given])
    else:
        return False
    return True


def _planned(
    executor: Executor,
    plan: Callable[..., Value],
    given: tuple[Any, ...],
    settings: dict[str, Any],
    tensors: int,
    changes: bool,
) -> Answer | None:
    """The answer to a call; the plan has only the layouts of its tensors."""
    memory = iter(_GIVEN)
    try:
        planned = plan(*[_stand_in(one, memory, executor) for one in given], **settings)
        if type(planned) is Parts and planned._layout.size and not changes:
            return Answer(_in_parts(executor, planned), planned._layout, planned._dtype)
        if type(planned) is not Plan or planned.question.result[1].size == 0:
            return None
        if (planned.target is not None) is not changes:
            return None
        return _answer(executor, planned, tensors)
    except _NeedsMemory:
        return None


def _stand_in(one: Any, memory: Iterator[_Given], executor: Executor) -> Any:
    """An argument for a plan: a tensor without memory, a tuple of them, or a constant."""
    if isinstance(one, TensorData):
        return make(type(one), next(memory), one._layout.from_start, one._dtype, executor)
    if type(one) is tuple:
        return tuple([_stand_in(part, memory, executor) for part in one])
    return one


def _answer(executor: Executor, planned: Plan, tensors: int) -> Answer | None:
    """The answer of a plan: one launch if its operands are the call's tensors, in this order."""
    layout, dtype, numbers = planned._layout, planned._dtype, planned.numbers
    sources = tuple([one if type(one) is Plan else _memory_of(one) for one in planned.operands])
    # The lane passes the memory of a changed tensor as the result.
    changed = int(planned.target is not None)
    wanted = _GIVEN[changed:tensors]
    if planned.question.is_in_place and not changed:
        return None
    if sources == wanted:
        return Answer(executor.enqueuing(planned.question), layout, dtype, (), numbers)
    first = sources.index(wanted[0]) if wanted and wanted[0] in sources else 0
    last = first + len(wanted)
    ahead, behind = sources[:first], sources[last:]
    are_constant = all(isinstance(one, DeviceBuffer) for one in (*ahead, *behind))
    if are_constant and sources[first:last] == wanted:
        launch = executor.enqueuing(planned.question)
        return Answer(launch, layout, dtype, ahead, (*behind, *numbers))
    return Answer(_chained(executor, planned, changed), layout, dtype)


def _memory_of(operand: TensorData) -> Any:
    """The memory of an operand; a call passes a tensor's memory from its first element on."""
    memory: Any = operand._buffer
    start = operand._layout.start_offset
    return memory[start:] if start else memory


def _chained(executor: Executor, plan: Plan, changed: int = 0) -> Callable[..., Any]:
    """Launcher of a plan after the plans of its operands."""
    question, numbers = plan.question, plan.numbers
    launch = executor.enqueuing(question)
    needs_memory = question.is_in_place
    sources = [_source(executor, one, changed) for one in plan.operands]

    def launch_all(stream: StreamLike | None, out: DeviceBuffer | None, *given: Any) -> Any:
        passed = [source(stream, given) for source in sources]
        if needs_memory and out is None:
            out = executor.allocate(question.result[1].size, question.result[0], stream)
        return launch(stream, out, *passed, *numbers)

    return launch_all


def _in_parts(executor: Executor, plan: Parts) -> Callable[..., Any]:
    """Launcher of the parts of a tensor."""
    enqueues = [executor.enqueuing(question) for question, _, _ in plan.parts]
    sources = [_source(executor, operand, 0) for _, _, operand in plan.parts]

    def launch_all(stream: StreamLike | None, out: None, *given: Any) -> DeviceBuffer:
        return plan.enqueue(stream, enqueues, [source(stream, given) for source in sources])

    return launch_all


def _source(
    executor: Executor, operand: Value, changed: int
) -> Callable[[StreamLike | None, tuple[Any, ...]], DeviceBuffer]:
    """Return a function from a call's stream and memory to an operand's memory.

    A call passes the tensors after the `changed` first.
    """
    if type(operand) is Plan:
        launch = _chained(executor, operand, changed)
        start = operand._layout.start_offset
        if start:
            return lambda stream, given: launch(stream, None, *given)[start:]
        return lambda stream, given: launch(stream, None, *given)
    memory = _memory_of(operand)
    if type(memory) is not _Given:
        return lambda stream, given: memory
    index, start = memory.index - changed, memory.start
    if index < 0:
        raise _NeedsMemory("the tensor that the call changes")
    if start:
        return lambda stream, given: given[index][start:]
    return lambda stream, given: given[index]


def remembered(
    plan: Callable[..., Value],
    writes_over: bool = False,
    changes: bool = False,
    asks: Callable[..., Answer | None] | None = None,
) -> Callable[[Function], Function]:
    """Let `uhal._lane` launch the plans of a function or method of tensors again.

    Arguments have the function's names. `asks` is by default `answering(plan)`. With `writes_over`,
    for operations element by element, a call with an `out` of the operands' layout is remembered,
    too. A function that `changes` its first tensor returns it; its plans have this tensor as their
    target.
    """

    def decorated(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        settings = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            settings += [""] * len(_GIVEN)
        answer = _asking(asks or answering(plan, changes), function.__name__)
        call = RememberedCall(
            named(function),
            answer,
            make,
            tuple(settings),
            writes_over,
            changes,
            layouts=(Layout, "words", "start_offset"),
            executors=(Executor, "remembered"),
            answers=(Answer, "launch", "layout", "dtype", "ahead", "behind"),
        )
        return cast(Function, update_wrapper(call, function))

    return decorated


def _asking(answer: Callable[..., Answer | None], called: str) -> Callable[..., Answer | None]:
    """Let errors of planning begin with the function's name.

    For wrong numbers or names of arguments there is no answer; the function refuses them.
    """

    def asking(*given: Any, **settings: Any) -> Answer | None:
        try:
            return answer(*given, **settings)
        except Exception as error:
            if type(error) is TypeError:
                return None
            renamed(error, called)
            raise

    return asking


def remembered_view(function: Function) -> Function:
    """Let `uhal._lane` make views that a function or method of tensors made before."""
    call = RememberedView(function, make, layouts=Layout)
    return cast(Function, update_wrapper(call, function))


def remembered_creation(
    kind: type[TensorData], asks: Callable[..., Creation | None], of_arrays: bool = False
) -> Callable[[Function], Function]:
    """Let `uhal._lane` make tensors that a function made before, on the current device.

    `asks` has an executor as its first parameter. Its other parameters are the function's, except
    `device` and `stream`. It returns `None` for tensors that only the function makes. It may raise
    for wrong arguments; the function then raises its own error. With `of_arrays` the first argument
    is an array, and the creation depends only on its dtype and shape.
    """
    settings = [*inspect.signature(asks).parameters][1:]

    def creation(
        executor: Executor, *given: Any, device: DeviceLike | None = None, **others: Any
    ) -> Creation | None:
        if device is not None or isinstance(given[0], np.ndarray) is not of_arrays:
            return None
        try:
            return asks(executor, *given, **others)
        except Exception:
            return None

    def decorated(function: Function) -> Function:
        call = RememberedCreation(
            named(function),
            creation,
            kind,
            make,
            (*settings, "device"),
            EXECUTORS,
            layouts=(Layout, "words", Shape),
            executors=(Executor, "remembered"),
        )
        return cast(Function, update_wrapper(call, function))

    return decorated


def read_number(kind: type | None = None, *codes: str) -> Callable[[Function], Function]:
    """Let `uhal._lane` read the only element of a tensor as a number of a kind.

    Without a kind, the number has the element's kind. The function runs for tensors of other sizes,
    and for element types whose code is not in `codes`.
    """

    def decorated(function: Function) -> Function:
        call = NumberReader(function, make, kind, *codes, layouts=(Layout, "size", "start_offset"))
        return cast(Function, update_wrapper(call, function))

    return decorated
