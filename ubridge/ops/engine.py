"""The engine of functions on tensors: it launches a function's plan and delivers the result.

`plan_x(...)` takes the function's arguments except `out` and `stream`, checks them, and returns a
`Plan`: one question with its operands, which may be plans themselves. `plan_x` returns a tensor
instead if there is nothing to compute. `run` launches a plan, `change` launches an operation in
place, and `remembering` lets `uhal._lane` launch the same plan again without Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.promotion import storage_of
from ubridge.core.question import Known, Question
from ubridge.core.rows import rows_of
from ubridge.definitions.elementwise import ASTYPE, COPY
from ubridge.definitions.memory import COPY2D, FILL
from ubridge.device.spans import require_no_conflict, span_of
from ubridge.device.tensor_data import TensorData, make, start_of
from ubridge.ops.results import may_write, require_out, require_size
from uhal import DeviceBuffer, DType
from uhal.dtypes import i16, i32, i64, u8
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike

Value = Any
"""A tensor, or the plan of a tensor."""
Result = TypeVar("Result")
"""The class of tensors that a function returns."""
_UNTOLD = Layout.contiguous(())
MOVED_AS = {"i8": u8, "u16": i16, "u64": i64}
"""Element types used to copy and fill elements of types without arithmetic in kernels."""
_CARRIED = {"i8": i16, "u16": i32, "u64": i64}
"""Element types in which kernels compute for types they lack; results are converted back, which
wraps. Functions that depend on the order of u64 elements do more."""


def kind_of(like: Value) -> type[TensorData]:
    """Return the class of a tensor, or of a plan's future tensor."""
    found: type[TensorData] = like.kind if isinstance(like, (Plan, Parts)) else type(like)
    return found


class Plan(TensorData):
    """A question about tensors, and its future result.

    A plan has the layout, dtype and executor of its result. Therefore a plan may be an operand of
    another plan, and views of a plan are plans.
    """

    __slots__ = ("kind", "numbers", "operands", "question", "target")

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
        self.kind = kind_of(like)
        """The class of the resulting tensor."""
        self.target: TensorData | None = None
        """The tensor that is changed; None: the result is a new tensor."""
        self._layout = layout
        """The places of the tensor's elements in the memory of the question's result."""
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


class Parts(TensorData):
    """Questions that each write a part of a new tensor."""

    __slots__ = ("kind", "parts")

    def __init__(
        self,
        parts: tuple[tuple[Question, int, Value], ...],
        layout: Layout,
        dtype: DType,
        like: Value,
    ) -> None:
        """`parts` are questions, their first element of the result, and their operands."""
        self.parts = parts
        self.kind = kind_of(like)
        self._layout = layout
        self._dtype = dtype
        self._executor = like._executor

    def _viewed(self, layout: Layout) -> Parts:
        """The same parts, seen in another shape."""
        return Parts(self.parts, layout, self._dtype, self)

    def enqueue(
        self,
        stream: StreamLike | None,
        enqueues: Sequence[Callable[..., Any]],
        operands: Iterable[DeviceBuffer],
    ) -> DeviceBuffer:
        """Enqueue all parts; return the result's buffer."""
        buffer = self._executor.allocate(self._layout.size, storage_of(self._dtype), stream)
        moved = MOVED_AS.get(self._dtype.name)
        target = buffer if moved is None else buffer.view(moved)
        for (_, start, _), enqueue, operand in zip(self.parts, enqueues, operands, strict=True):
            source = operand if moved is None else operand.view(moved)
            enqueue(stream, target[start:] if start else target, source)
        return buffer


# -- asking ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _question(
    op: Op,
    operands: tuple[Known, ...],
    result: Known,
    attributes: tuple[tuple[str, Any], ...],
    numbers: int,
) -> Question:
    question = Question(op, operands, result, attributes, numbers)
    if op.family.rule is not None:
        shape = op.family.rule(question)
        if shape != question.shape:
            dtype, _ = result
            made = (dtype, Layout.contiguous(shape))
            question = Question(op, operands, made, attributes, numbers)
    return question


def ask(
    op: Op,
    operands: Sequence[Value],
    dtype: DType,
    layout: Layout | None = None,
    numbers: tuple[Any, ...] = (),
    asked: Layout | None = None,
    like: Value = None,
    **attributes: Any,
) -> Plan:
    """Plan one question, whose result is of `dtype` and begins with its memory.

    The family's rule gives the shape of the result. `layout` is the resulting tensor's layout where
    it differs from the rule's layout. `asked` has the lengths that operands and attributes leave
    open. `like` is a tensor of the result's class and device, by default the first operand. Raises
    as the rule does.
    """
    if op is not ASTYPE and (
        dtype.name in _CARRIED or [one for one in operands if one._dtype.name in _CARRIED]
    ):
        carried = _carried(op, operands, dtype)
        if carried is not None:
            operands, wide = carried
            plan = ask(op, operands, wide, layout, numbers, asked, like, **attributes)
            return plan if wide is dtype else of_each(ASTYPE, (plan,), dtype)
    known = tuple([(storage_of(one._dtype), one._layout.from_start) for one in operands])
    result = (storage_of(dtype), asked or layout or _UNTOLD)
    question = _question(op, known, result, tuple(attributes.items()), len(numbers))
    whole = question.result[1] if layout is None else layout
    return Plan(question, operands, numbers, whole, dtype, operands[0] if like is None else like)


def _carried(op: Op, operands: Sequence[Value], dtype: DType) -> tuple[list[Value], DType] | None:
    """Return operands and the result's dtype in types that kernels have, if that changes any."""

    def lacks(one: DType) -> bool:
        wide = _CARRIED.get(one.name)
        return wide is not None and one.name not in op.dtypes and wide.name in op.dtypes

    found = [
        of_each(ASTYPE, (one,), _CARRIED[one._dtype.name]) if lacks(one._dtype) else one
        for one in operands
    ]
    wide = _CARRIED[dtype.name] if lacks(dtype) else dtype
    return (found, wide) if wide is not dtype or found != list(operands) else None


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
        return x if layout is x._layout else x._viewed(layout)
    copied = plan_copy(x)
    return copied._viewed(copied._layout.reshape(shape))  # type: ignore[arg-type]


def filled(like: Value, dtype: DType, shape: Sequence[int], number: float) -> Plan:
    """Plan a new tensor filled with one number, for results without input elements."""
    return ask(FILL, (), dtype, Layout.contiguous(shape), (number,), like=like)


def constant(like: Value, dtype: DType, element: bytes, shape: Shape) -> TensorData:
    """Return one element, kept on the device, as a tensor of a shape."""
    buffer = like._executor.constants.get((storage_of(dtype).name, element))
    return make(kind_of(like), buffer, _spread(shape), dtype, like._executor)


@lru_cache(maxsize=4096)
def _spread(shape: Shape) -> Layout:
    """The layout of one element broadcast to a shape."""
    if max(shape, default=1) == 1:
        return Layout.contiguous(shape)
    return Layout(shape, (0,) * len(shape))


# -- running --------------------------------------------------------------------------------------


def run(plan: Value, out: Result | None = None, stream: StreamLike | None = None) -> Result:
    """Launch a plan; return the resulting tensor, which is `out` if that is given.

    The result is the same whether or not `out` shares memory with operands. Raises as `require_out`
    does.
    """
    if type(plan) is Parts:
        plan = _whole(plan, stream)
    if not isinstance(plan, Plan):
        if out is None:
            whole: Result = plan
            return whole
        plan = plan_copy(plan)
    target: Any = out
    if out is not None:
        require_out(plan.question.op.name, out, plan._layout.shape, plan._dtype, plan)
    tensors = _operands(plan, stream)
    is_direct = (
        out is not None
        and plan._layout.is_whole
        and target._layout.is_contiguous
        and may_write(plan.question.op, target, *tensors)
    )
    made = _enqueue(plan, tensors, start_of(target) if is_direct else None, stream)
    result: Any = target
    if not is_direct:
        result = make(plan.kind, made, plan._layout, plan._dtype, plan._executor)
        if out is not None:
            write(result, target, stream)
    delivered: Result = result if out is None else out
    return delivered


def _whole(plan: Parts, stream: StreamLike | None) -> TensorData:
    """The tensor of parts."""
    enqueues = [plan._executor.enqueuing(question) for question, _, _ in plan.parts]
    operands: list[TensorData] = [run(operand, None, stream) for _, _, operand in plan.parts]
    buffer = plan.enqueue(stream, enqueues, map(start_of, operands))
    return make(plan.kind, buffer, plan._layout, plan._dtype, plan._executor)


def run_into(plan: Plan, out: DeviceBuffer | None, stream: StreamLike | None) -> DeviceBuffer:
    """Launch a plan of `launch_*`; return its buffer, which is `out` if that is given."""
    target = tensor_in(out, plan.question.op, plan._layout, plan._dtype, plan)
    made: TensorData = run(plan, target, stream)
    return made._buffer


def tensor_in(out: DeviceBuffer | None, op: Op, layout: Layout, dtype: DType, like: Value) -> Any:
    """Return the tensor in a caller's buffer that a result goes to, if one is given.

    Refuses a buffer of another dtype or of too few elements.
    """
    if out is None:
        return None
    stored = storage_of(dtype)
    if isinstance(out, DeviceBuffer) and out.dtype is not stored:
        raise ArgumentTypeError(f"{op.name}, out: expected {stored}, got {out.dtype}")
    require_size(op, "out", out, layout.size)
    return make(kind_of(like), out, layout, dtype, like._executor)


def plan_change(
    op: Op,
    x: TensorData,
    operands: Sequence[Value],
    numbers: tuple[Any, ...] = (),
    asked: Layout | None = None,
    **attributes: Any,
) -> Plan | None:
    """Plan an operation that changes `x`, a tensor; `None` if there is nothing to change in place.

    There is nothing for tensors without elements, and for strides that the operation does not take.
    """
    if 0 in (x._layout.size, *[one._layout.size for one in operands]):
        return None
    if not (x._layout.is_contiguous or op.family.may_have_gaps):
        return None
    layout = x._layout.from_start
    plan = ask(op, operands, x._dtype, layout, numbers, asked, like=x, **attributes)
    plan.target = x
    return plan


def apply(plan: Plan, stream: StreamLike | None) -> Any:
    """Launch a plan that changes a tensor; return the tensor."""
    target: Any = plan.target
    _enqueue(plan, _operands(plan, stream), start_of(target), stream)
    return target


def change(
    op: Op,
    x: Result,
    operands: Sequence[Value],
    stream: StreamLike | None,
    numbers: tuple[Any, ...] = (),
    asked: Layout | None = None,
    **attributes: Any,
) -> Result:
    """Launch an operation that changes `x`, a tensor, and return it.

    `asked` is the question's layout of the elements, by default x's own. Where the operation takes
    no strides, a strided `x` is copied, and the changed copy is written back. Raises
    `ArgumentValueError` for operands in the memory that is written.
    """
    tensor: Any = x
    is_direct = tensor._layout.is_contiguous or op.family.may_have_gaps
    target = tensor if is_direct else run(plan_copy(tensor), None, stream)
    plan = plan_change(op, target, operands, numbers, asked, **attributes)
    if plan is None:
        return x
    apply(plan, stream)
    if not is_direct:
        write(target, tensor, stream)
    return x


def write(source: TensorData, target: TensorData, stream: StreamLike | None) -> None:
    """Copy elements to other memory of the same shape and dtype, strided or not.

    Kernels read strides but write rows, so a strided target takes a launch for each of its outer
    elements. Raises `ArgumentValueError` where both share memory.
    """
    source, target = bits_of(source), bits_of(target)
    layout = target._layout
    if layout.is_contiguous:
        _enqueue(plan_copy(source), (source,), start_of(target), stream)
        return
    if isinstance(source._buffer, DeviceBuffer) and isinstance(target._buffer, DeviceBuffer):
        operands = [span_of(source._buffer, source._layout)]
        require_no_conflict(COPY2D, span_of(target._buffer, layout), operands)
    whole: TensorData = run(contiguous(source), None, stream)
    rows, columns, pitch, starts = rows_of(layout)
    taken = whole._layout.start_offset
    for start in starts:
        part = _viewed(whole, Layout((rows, columns), (columns, 1), taken))
        change(COPY2D, _viewed(target, Layout((rows, columns), (pitch, 1), start)), (part,), stream)
        taken += rows * columns


def bits_of(x: TensorData) -> TensorData:
    """Return the tensor viewed as an element type of the same size that kernels copy and fill."""
    kind = MOVED_AS.get(x._dtype.name)
    return x if kind is None else make(type(x), x._buffer.view(kind), x._layout, kind, x._executor)


def _viewed(x: TensorData, layout: Layout) -> TensorData:
    return make(type(x), x._buffer, layout, x._dtype, x._executor)


def _operands(plan: Plan, stream: StreamLike | None) -> list[TensorData]:
    """Launch the operands that are plans."""
    return [run(one, None, stream) if type(one) is Plan else one for one in plan.operands]


def _enqueue(
    plan: Plan,
    tensors: Sequence[TensorData],
    target: DeviceBuffer | None,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Enqueue the question, unless its result is empty; return the result's buffer."""
    question, executor = plan.question, plan._executor
    dtype, layout = question.result
    if target is None and (layout.size == 0 or question.is_in_place):
        target = executor.allocate(layout.size, dtype, stream)
    if target is not None and layout.size == 0:
        return target
    return executor.run(question, stream, target, *map(start_of, tensors), *plan.numbers)
