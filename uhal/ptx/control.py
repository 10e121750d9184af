"""Structured control flow: `if_`, `else_`, `while_`, `loop`.

A plain Python `if` or `for` acts while the kernel is built: it chooses or repeats statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from uhal.ptx.builder import Builder, Scope, current, refuse, refuse_value
from uhal.ptx.types import i32, pred
from uhal.ptx.values import Operand, Value, Variable, expect, operand, variable


def _unless(condition: Value, end: str, operation: str) -> None:
    builder = expect(condition, operation, "a predicate", (pred,), "Compare something.")
    builder.branch(end, f"@!{condition.text} ")


@contextmanager
def if_(condition: Value) -> Iterator[None]:
    """Make a body that runs if a predicate is true.

    Write `with if_(i < n):`.
    """
    builder = current("if_")
    end, unset = builder.label(), dict(builder.unset)
    _unless(condition, end, "if_")
    with builder.scope(Scope("if_")):
        yield
    builder.mark(end)
    # A variable set in only one of two branches may have no value after them.
    builder.ended_if = (len(builder.lines), end, unset, builder.unset)
    builder.unset = dict(unset)


@contextmanager
def else_() -> Iterator[None]:
    """Make the alternative to the `if_` directly before it.

    Write `with else_():`.
    """
    builder = current("else_")
    if builder.ended_if is None or builder.ended_if[0] != len(builder.lines):
        refuse_value("else_: expected to stand directly behind an `if_`, got other statements.")
    _, label, before, unset = builder.ended_if
    end = builder.label()
    builder.lines.pop()
    builder.branch(end)
    builder.mark(label)
    builder.unset = dict(before)
    with builder.scope(Scope("else_")):
        yield
    builder.mark(end)
    builder.unset = {**unset, **builder.unset}


@contextmanager
def while_(condition: Callable[[], Value]) -> Iterator[None]:
    """Make a body that runs while a condition is true.

    Write `with while_(lambda: i < n):`. The condition is built once and runs before every
    iteration.
    """
    builder = current("while_")
    if not callable(condition):
        refuse(f"while_: expected a function that makes the condition, got {condition!r}.")
    scope, unset = Scope("loop", builder.label(), builder.label()), dict(builder.unset)
    builder.mark(scope.again)
    with builder.scope(scope):
        _unless(condition(), scope.end, "while_")
        yield
        builder.branch(scope.again)
    builder.mark(scope.end)
    builder.unset = unset


def loop(
    start: Operand, stop: Operand | None = None, step: Operand = 1, unroll: int = 1
) -> Iterator[Value]:
    """Range that the device iterates over, for a `for` statement.

    The range counts upward only. Its type comes from the values, or is `i32` if all values are
    Python numbers. `unroll` repeats the body that many times in an iteration. Python's `range`
    unrolls a constant range completely.
    """
    if stop is None:
        start, stop = 0, start
    builder = current("loop")
    of = next((one.type for one in (start, stop, step) if isinstance(one, Value)), i32)
    if not of.is_integer:
        refuse(f"loop: expected integers, got {of}. Convert the bounds.")
    if not isinstance(unroll, int) or unroll < 1:
        refuse_value(f"loop: expected unroll of at least 1, got {unroll!r}.")
    if not isinstance(step, Value) and step <= 0:
        refuse_value(f"loop: expected a step above 0, got {step!r}. Count down from the end.")
    counter = variable(of, start)
    end, by = (
        operand(one.copy() if isinstance(one, Variable) else one, of, "loop")
        for one in (stop, step)
    )
    head, scope, unset = builder.label(), Scope("loop", end=builder.label()), dict(builder.unset)
    builder.mark(head)
    builder.scopes.append(scope)
    for _ in range(unroll):
        scope.again = builder.label()
        ended = builder.register(pred)
        builder.emit(f"setp.ge.{of.ptx}", ended, counter.text, end)
        builder.branch(scope.end, f"@{ended} ")
        try:
            # Each copy of the body gets its own value, which the step does not change.
            yield counter.copy() if unroll > 1 else Value(builder, of, counter.text)
        except GeneratorExit:
            builder.abandoned = scope
            raise
        if not scope.is_open:
            return  # left by an error on the way
        builder.mark(scope.again)
        builder.emit(f"add.{of.ptx}", counter.text, counter.text, by)
    builder.branch(head)
    builder.leave(scope)
    builder.mark(scope.end)
    builder.unset = unset


def break_() -> None:
    """Leave the innermost loop."""
    builder, scope = _innermost_loop("break_")
    builder.branch(scope.end)


def continue_() -> None:
    """Continue with the next iteration of the innermost loop."""
    builder, scope = _innermost_loop("continue_")
    builder.branch(scope.again)


def _innermost_loop(operation: str) -> tuple[Builder, Scope]:
    builder = current(operation)
    for scope in reversed(builder.scopes):
        if scope.kind == "loop":
            return builder, scope
    hint = "Put it into `while_` or `loop`."
    refuse_value(f"{operation}: expected to stand in a loop of the kernel, got none. {hint}")


def exit_() -> None:
    """End this thread; barriers no longer wait for it."""
    current("exit_").emit("exit")
