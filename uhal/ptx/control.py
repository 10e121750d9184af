"""Structured control flow: `if_`, `else_`, `while_`, `loop`.

A plain Python `if` or `for` acts while the kernel is built: it chooses or repeats statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import Builder, Loop, Scope, current, refuse
from uhal.ptx.types import Type, i32, pred
from uhal.ptx.values import Operand, Value, Variable, check, describe, operand, variable


def _predicate(value: object, operation: str) -> Value:
    if not isinstance(value, Value) or value.type is not pred:
        refuse(f"{operation}: expected a predicate, got {describe(value)}. Compare something.")
    check(value, operation)
    return value


class if_:
    """A body that runs where a predicate holds: `with if_(i < n):`."""

    def __init__(self, condition: Value) -> None:
        self._condition = _predicate(condition, "if_")
        self._scope = Scope("if_")

    def __enter__(self) -> None:
        builder = self._builder = current("if_")
        self._end = builder.label()
        builder.branch(self._end, f"@!{self._condition.text} ")
        self._unset = dict(builder.unset)
        builder.enter(self._scope)

    def __exit__(self, *raised: object) -> None:
        builder = self._builder
        builder.leave(self._scope)
        builder.mark(self._end)
        # What one way sets and the other does not may have no value behind both.
        builder.ended_if = (len(builder.lines), self._end, self._unset, builder.unset)
        builder.unset = dict(self._unset)


class else_:
    """The alternative to the `if_` directly before it: `with else_():`."""

    def __enter__(self) -> None:
        builder = self._builder = current("else_")
        ended = builder.ended_if
        if ended is None or ended[0] != len(builder.lines):
            refuse(
                "else_: expected to stand directly behind an `if_`, got other statements between "
                "them.",
                ArgumentValueError,
            )
        _, label, before, self._unset = ended
        self._end = builder.label()
        builder.lines.pop()
        builder.branch(self._end)
        builder.mark(label)
        builder.unset = dict(before)
        self._scope = Scope("else_")
        builder.enter(self._scope)

    def __exit__(self, *raised: object) -> None:
        builder = self._builder
        builder.leave(self._scope)
        builder.mark(self._end)
        builder.unset = {**self._unset, **builder.unset}


class while_:
    """A body that runs as long as a condition holds: `with while_(lambda: i < n):`.

    The condition is built once and runs before every turn.
    """

    def __init__(self, condition: Callable[[], Value]) -> None:
        if not callable(condition):
            refuse(
                f"while_: expected a function that makes the condition, got {describe(condition)}. "
                "Write `while_(lambda: …)`."
            )
        self._condition = condition

    def __enter__(self) -> None:
        builder = self._builder = current("while_")
        head, end = builder.label(), builder.label()
        self._scope = Loop(head, end)
        self._unset = dict(builder.unset)
        builder.mark(head)
        builder.enter(self._scope)
        condition = _predicate(self._condition(), "while_")
        builder.branch(end, f"@!{condition.text} ")

    def __exit__(self, *raised: object) -> None:
        builder = self._builder
        builder.branch(self._scope.again)
        builder.leave(self._scope)
        builder.mark(self._scope.end)
        builder.unset = self._unset


def loop(
    start: Operand, stop: Operand | None = None, step: Operand = 1, unroll: int = 1
) -> Iterator[Value]:
    """Range that the device counts through, for a `for` statement.

    Upward only; the type comes from the values, or is `i32` when all are numbers. `unroll` repeats
    the body that many times within a turn. For a range known now, Python's `range` unrolls it all.
    """
    if stop is None:
        start, stop = 0, start
    builder = current("loop")
    of = next((one.type for one in (start, stop, step) if isinstance(one, Value)), i32)
    if not of.is_integer:
        refuse(f"loop: expected integers, got {of}. Convert the bounds.")
    if not isinstance(unroll, int) or unroll < 1:
        refuse(f"loop: expected unroll of at least 1, got {unroll!r}.", ArgumentValueError)
    if not isinstance(step, Value) and step <= 0:
        refuse(
            f"loop: expected a step above 0, got {step!r}. Count down from the end.",
            ArgumentValueError,
        )
    counter = variable(of, of(start) if isinstance(start, Value) else start)
    end = operand(of(stop) if isinstance(stop, Variable) else stop, of, "loop")
    by = operand(of(step) if isinstance(step, Variable) else step, of, "loop")
    return _turns(builder, of, counter, end, by, unroll)


def _turns(
    builder: Builder, of: Type, counter: Variable, stop: str, step: str, unroll: int
) -> Iterator[Value]:
    head, behind = builder.label(), builder.label()
    scope = Loop("", behind)
    unset = dict(builder.unset)
    builder.mark(head)
    builder.enter(scope)
    for _ in range(unroll):
        scope.again = builder.label()
        ended = builder.register(pred)
        builder.emit(f"setp.ge.{of.ptx}", ended, counter.text, stop)
        builder.branch(behind, f"@{ended} ")
        try:
            # A value of its own for each copy of the body, which the step does not change.
            yield counter.copy() if unroll > 1 else Value(builder, of, counter.text)
        except GeneratorExit:
            builder.abandoned = scope.where
            raise
        if not scope.is_open:
            return  # left by an error on the way
        builder.mark(scope.again)
        builder.emit(f"add.{of.ptx}", counter.text, counter.text, step)
    builder.branch(head)
    builder.leave(scope)
    builder.mark(behind)
    builder.unset = unset


def break_() -> None:
    """Leave the innermost loop."""
    builder = current("break_")
    builder.branch(builder.innermost_loop("break_").end)


def continue_() -> None:
    """Go on with the next turn of the innermost loop."""
    builder = current("continue_")
    builder.branch(builder.innermost_loop("continue_").again)


def exit_() -> None:
    """End this thread; barriers no longer wait for it."""
    current("exit_").emit("exit")
