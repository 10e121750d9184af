"""The engine of functions on tensors: what a function plans is launched, delivered and remembered.

`plan_x(...)` takes the function's arguments but `out` and `stream`, checks them, and returns a
`Plan`: one question with its operands, which may be plans themselves. A tensor in place of a plan
is a result that needs no question. `run` launches a plan; `remembered(plan_x)` lets `uhal._lane`
launch the same plan again for the same constants and layouts, without Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache, update_wrapper
from math import copysign
from typing import Any, TypeVar, cast

from ubridge.buffers import launches
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.promotion import storage_of
from ubridge.core.question import Known, Question
from ubridge.definitions.calls import named
from ubridge.definitions.elementwise import ASTYPE, COPY
from ubridge.definitions.memory import FILL
from ubridge.device.executor import Answer, DeviceExecutor, Executor
from ubridge.device.tensor_data import TensorData, make, start_of
from ubridge.ops.results import may_write, require_out
from uhal import DeviceBuffer, DType
from uhal.frameworks import RememberedCall
from uhal.interop import StreamLike

Function = TypeVar("Function", bound=Callable[..., Any])
Value = Any
"""A tensor, or the plan of one."""


class Plan(TensorData):
    """A question about tensors, and the tensor that its result will be.

    It has the layout, the dtype and the executor of that tensor, so it may be an operand of another
    plan, and views of it are plans.
    """

    __slots__ = ("kind", "numbers", "operands", "question")

    def __init__(
        self,
        question: Question,
        operands: Sequence[Value],
        numbers: tuple[Any, ...],
        layout: Layout,
        dtype: DType,
        like: Value,
    ) -> None:
        """`like` is a tensor or plan of the same class and executor."""
        self.question = question
        self.operands = operands
        self.numbers = numbers
        self.kind: type[Any] = like.kind if type(like) is Plan else type(like)
        """The class of the resulting tensor."""
        self._layout = layout
        """Where the tensor's elements lie in the memory of the question's result."""
        self._dtype = dtype
        self._executor = like._executor

    def _viewed(self, layout: Layout) -> Plan:
        """The same question, with another view of its result."""
        return Plan(self.question, self.operands, self.numbers, layout, self._dtype, self)

    @property
    def dtype(self) -> DType:
        """The element type of the result."""
        return self._dtype

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self._layout.shape


# -- asking ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _question(
    op: Op,
    operands: tuple[Known, ...],
    result: Known,
    attributes: tuple[tuple[str, Any], ...],
    numbers: int,
) -> Question:
    return Question(op, operands, result, attributes, numbers)


def ask(
    op: Op,
    operands: Sequence[Value],
    dtype: DType,
    layout: Layout,
    numbers: tuple[Any, ...] = (),
    asked: Layout | None = None,
    **attributes: Any,
) -> Plan:
    """Plan one question, whose result is of `dtype` and begins with its memory.

    `layout` is the resulting tensor's, `asked` that of the question where it is another one.
    """
    known = tuple([(storage_of(one._dtype), one._layout.from_start) for one in operands])
    result = (storage_of(dtype), layout if asked is None else asked)
    question = _question(op, known, result, tuple(attributes.items()), len(numbers))
    return Plan(question, operands, numbers, layout, dtype, operands[0])


def of_each(op: Op, operands: Sequence[Value], dtype: DType, numbers: tuple[Any, ...] = ()) -> Plan:
    """Plan an operation element by element on operands of one shape."""
    layout = operands[0]._layout
    if not layout.is_whole:
        layout = Layout.contiguous(layout.shape)
    return ask(op, operands, dtype, layout, numbers)


def plan_copy(x: Value) -> Plan:
    """Plan a contiguous copy."""
    has_kernel = storage_of(x._dtype).name in COPY.dtypes
    return of_each(COPY if has_kernel else ASTYPE, (x,), x._dtype)


def contiguous(x: Value) -> Value:
    """Return the tensor itself where it is contiguous, else the plan of a copy."""
    return x if x._layout.is_contiguous else plan_copy(x)


def reshaped(x: Value, shape: int | Sequence[int]) -> Value:
    """Return the elements in another shape: a view, or the plan of a copy."""
    layout = x._layout.reshape(shape)
    if layout is not None:
        return x._viewed(layout)
    copied = plan_copy(x)
    return copied._viewed(copied._layout.reshape(shape))  # type: ignore[arg-type]


def filled(like: Value, dtype: DType, shape: Sequence[int], number: float) -> Plan:
    """Plan a new tensor of one number, for results that no element is read for."""
    layout = Layout.contiguous(shape)
    question = _question(FILL, (), (storage_of(dtype), layout), (), 1)
    return Plan(question, (), (number,), layout, dtype, like)


def constant(like: Value, dtype: DType, element: bytes, shape: Shape) -> TensorData:
    """Return one element, kept on the device, as a tensor of a shape."""
    buffer = like._executor.constants.get((storage_of(dtype).name, element))
    kind = like.kind if type(like) is Plan else type(like)
    made: TensorData = make(kind, buffer, _spread(shape), dtype, like._executor)
    return made


@lru_cache(maxsize=4096)
def _spread(shape: Shape) -> Layout:
    """The layout of one element broadcast to a shape."""
    if max(shape, default=1) == 1:
        return Layout.contiguous(shape)
    return Layout(shape, (0,) * len(shape))


# -- running --------------------------------------------------------------------------------------


def run(plan: Value, out: Any = None, stream: StreamLike | None = None) -> Any:
    """Launch a plan; return the resulting tensor, which is `out` if that is given.

    The result is as if `out` were memory of its own. Raises as `require_out` does.
    """
    if not isinstance(plan, Plan):
        if out is None:
            return plan
        plan = plan_copy(plan)
    executor, question = plan._executor, plan.question
    tensors = [run(one, None, stream) if type(one) is Plan else one for one in plan.operands]

    def enqueue(target: DeviceBuffer | None) -> DeviceBuffer:
        dtype, layout = question.result
        if target is None and (layout.size == 0 or question.is_in_place):
            target = executor.allocate(layout.size, dtype, stream)
        if layout.size == 0:
            assert target is not None
            return target
        given = (*map(start_of, tensors), *plan.numbers)
        made: DeviceBuffer = executor.run(question, stream, target, *given)
        return made

    if out is None:
        return make(plan.kind, enqueue(None), plan._layout, plan._dtype, executor)
    require_out(question.op.name, out, plan._layout.shape, plan._dtype, plan)
    whole = plan._layout.is_whole and out._layout.is_contiguous
    if whole and may_write(question.op, out, *tensors):
        enqueue(start_of(out))
    else:
        made = enqueue(None)
        launches.launch_copy(
            made, plan._layout, out._buffer, out._layout, stream=stream, executor=executor
        )
    return out


def run_into(plan: Plan, out: DeviceBuffer | None, stream: StreamLike | None) -> DeviceBuffer:
    """Launch a plan of `launch_*`; return its buffer, which is `out` if that is given."""
    launches.require_room(plan.question.op, out, plan._layout.size)
    target = None
    if out is not None:
        target = make(plan.kind, out, plan._layout, plan._dtype, plan._executor)
    made: TensorData = run(plan, target, stream)
    return made._buffer


# -- remembering ----------------------------------------------------------------------------------


class _NeedsMemory(Exception):
    """A plan asked for the elements of a tensor, as errors do that print it."""


class _Given:
    """Stands for the memory of a tensor that a call is given, while the call is planned."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __getattr__(self, name: str) -> Any:
        raise _NeedsMemory(name)

    def __getitem__(self, part: Any) -> Any:
        raise _NeedsMemory(part)


_GIVEN = tuple(_Given(index) for index in range(8))


def answering(plan: Callable[..., Value]) -> Callable[..., Answer | None]:
    """Return what says how a call is launched, by a plan that is made once for equal arguments.

    `None` where the function has to be called: for arguments that are neither tensors nor
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
        # 0 == 0.0 == -0.0, but their results differ.
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
    """The answer to a call, whose tensors the plan has only the layouts of."""
    memory = iter(_GIVEN)
    stand_ins = [
        make(type(one), next(memory), one._layout.from_start, one._dtype, executor)
        if isinstance(one, TensorData)
        else one
        for one in given
    ]
    try:
        planned = plan(*stand_ins, **settings)
    except _NeedsMemory:
        return None
    if type(planned) is not Plan or planned.question.result[1].size == 0:
        return None
    if planned.question.is_in_place:
        return None
    sources = [None if type(one) is Plan else one._buffer for one in planned.operands]
    order = [one.index if type(one) is _Given else -1 for one in sources]
    first = order.index(0) if 0 in order else 0
    last = first + tensors
    if order[first:last] == list(range(tensors)) and None not in sources:
        constants = (*order[:first], *order[last:])
        if all(one == -1 for one in constants):
            launch = executor.enqueuing(planned.question)
            behind = (*sources[last:], *planned.numbers)
            ahead = tuple(sources[:first])
            return Answer(launch, planned._layout, planned._dtype, ahead, behind)
    return Answer(_chained(executor, planned), planned._layout, planned._dtype)


def _chained(executor: Executor, plan: Plan) -> Callable[..., Any]:
    """What launches a plan after the plans of its operands."""
    question, numbers = plan.question, plan.numbers
    launch = executor.enqueuing(question)
    needs_memory = question.is_in_place
    sources: list[Any] = [
        _chained(executor, one) if type(one) is Plan else one._buffer for one in plan.operands
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


__all__ = [
    "Plan",
    "Value",
    "answering",
    "ask",
    "constant",
    "contiguous",
    "filled",
    "of_each",
    "plan_copy",
    "remembered",
    "reshaped",
    "run",
    "run_into",
]
