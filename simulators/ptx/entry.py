"""The code of a kernel's entry, which runs its threads.

Threads that wait for each other are coroutines, which the run time resumes. Threads that never wait
run in a loop over the block: in one turn, or in several turns if they stride over the grid
(turns.py). That loop is marked: its accesses are independent of each other, like accesses of
threads, so that LLVM may make vector code of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .emitter import Emitter
from .layout import BLOCK, BLOCK_BYTES, MAX_THREADS, REQUESTS, THREAD
from .turns import Turns, find_turns
from .unit import Unit

COROUTINE = """\
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare void @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
"""
METADATA = """\
!0 = !{}
!1 = !{!"branch_weights", i32 1048576, i32 1}
!2 = distinct !{}
!3 = !{!"llvm.loop.parallel_accesses", !2}
!4 = distinct !{!4, !3}
!5 = distinct !{!5, !3}
"""


def metadata(unit: Unit) -> str:
    """Names that the lines of a module refer to."""
    extent = max(unit.function(unit.entry).parameter_bytes, 1)
    return f"{METADATA}!6 = !{{i64 {extent}}}\n!7 = !{{i64 8}}\n"


# Declared as dereferenceable, so that loads of its fields can be moved before a loop.
_BLOCK = f"ptr dereferenceable({BLOCK_BYTES}) align 8 %block"
_THREAD = "i32 %tx, i32 %ty, i32 %tz"
_ACCESS = re.compile(r"(?:%\S+ = load|store) (?!atomic|volatile)")


def entry_text(unit: Unit) -> tuple[str, list[Emitter]]:
    """The LLVM text of a kernel's entry and the emitters that wrote it."""
    if unit.waits:
        return _coroutine(unit)
    # A trace follows one thread, from its start to its end; counts are of the kernel as written.
    turns = None if unit.check in ("trace", "count") else find_turns(unit.function(unit.entry))
    first = _emitter(unit, turns)
    texts = [_thread(first, "thread", [])]
    emitters = [first]
    if turns is not None:
        other = _emitter(unit, turns)
        opening = other.opening_of_turn(unit.function(unit.entry), turns)
        texts.append(_thread(other, "turn", opening))
        emitters.append(other)
    return "\n".join([*texts, "\n".join(_run_block(turns))]), emitters


def _emitter(unit: Unit, turns: Turns | None) -> Emitter:
    emitter = Emitter(unit, is_coroutine=unit.waits)
    emitter.has_spinning_loops = unit.spins(unit.entry)
    emitter.is_entry = True
    emitter.turns = turns
    return emitter


def _body(e: Emitter) -> tuple[list[str], list[str]]:
    """Code that finds the parameters, and the statements."""
    function = e.unit.function(e.unit.entry)
    e.body(function, {slot.name: f'%"a.{slot.name}"' for slot in function.parameters}, "done")
    statements = e.lines
    e.lines = []
    block = e.field("parameters", "ptr")
    # The line before loads it; a known extent lets LLVM read parameters before a loop.
    e.lines[-1] += ", !dereferenceable !6, !align !7"
    for slot in function.parameters:
        e.line(f'%"a.{slot.name}" = getelementptr i8, ptr {block}, i64 {slot.offset}')
    return e.lines, statements


# -- threads that never wait -----------------------------------------------------------------------


def _thread(e: Emitter, name: str, opening: list[str]) -> str:
    parameters, statements = _body(e)
    if opening:
        statements = [*opening, '"start":', *statements]
    lines = [*e.slots, *parameters, *statements]
    # All threads of the loop share the memory of a thread's variables, so these accesses depend.
    variables = e.unit.function(e.unit.entry).variables.values()
    independent = not any(one.space in ("local", "param") for one in variables)
    if independent:
        lines = [f"{one}, !llvm.access.group !2" if _ACCESS.match(one) else one for one in lines]
    thread = f"{_THREAD}, ptr %state, i32 %linear, i32 %turn"
    head = f"define internal i1 @{name}({_BLOCK}, {thread}) alwaysinline"
    return "\n".join([f"{head} {{", "entry:", *lines, "done:", "ret i1 false", "}"])


def _run_block(turns: Turns | None) -> Iterator[str]:
    kept = sum(kind.bytes for _, kind in turns.state) if turns is not None else 0
    yield f"define void @run_block({_BLOCK}) {{"
    yield "entry:"
    for index, axis in enumerate("xyz"):
        yield f"%at.{axis} = getelementptr i8, ptr %block, i64 {BLOCK['threads'] + 4 * index}"
        yield f"%n{axis} = load i32, ptr %at.{axis}, !invariant.load !0"
    yield f"%state = alloca [{max(kept * MAX_THREADS, 1)} x i8], align 64"
    yield f"%alive = alloca [{MAX_THREADS} x i8], align 64"
    yield from _loops("first", "thread", "entry", "end" if turns is None else "next", 4)
    if turns is not None:
        yield "next:"
        yield "%more = phi i1 [%first.any, %first.plane.next], [%other.any, %other.plane.next]"
        yield "%turn = phi i32 [0, %first.plane.next], [%turn1, %other.plane.next]"
        yield "%turn1 = add i32 %turn, 1"
        yield "br i1 %more, label %other, label %end"
        yield "other:"
        yield from _loops("other", "turn", "other", "next", 5)
    yield "end:"
    yield "ret void"
    yield "}"


def _loops(name: str, function: str, before: str, after: str, metadata: int) -> Iterator[str]:
    """A loop over the block's threads; `%NAME.any`: some thread needs another turn."""
    axes = (("plane", "z", before), ("row", "y", f"{name}.plane"), ("one", "x", f"{name}.row"))
    outer = "false"
    yield f"br label %{name}.plane"
    for loop, axis, coming_from in axes:
        end = f"{name}.{loop}.next"
        yield f"{name}.{loop}:"
        yield f"%{name}.{axis} = phi i32 [0, %{coming_from}], [%{name}.{axis}1, %{end}]"
        yield f"%{name}.any.{axis} = phi i1 [{outer}, %{coming_from}], [%{name}.any, %{end}]"
        outer = f"%{name}.any.{axis}"
        if axis == "y":
            yield f"%{name}.rows = mul i32 %{name}.z, %ny"
            yield f"%{name}.row0 = add i32 %{name}.rows, %{name}.y"
            yield f"%{name}.start = mul i32 %{name}.row0, %nx"
        if loop != "one":
            yield f"br label %{name}.{'row' if loop == 'plane' else 'one'}"
    yield f"%{name}.linear = add i32 %{name}.start, %{name}.x"
    yield f"%{name}.index = zext i32 %{name}.linear to i64"
    yield f"%{name}.alive = getelementptr i8, ptr %alive, i64 %{name}.index"
    call = (
        f"call i1 @{function}(ptr %block, i32 %{name}.x, i32 %{name}.y, i32 %{name}.z, "
        f"ptr %state, i32 %{name}.linear, i32 {'0' if name == 'first' else '%turn'})"
    )
    if name == "first":
        yield f"%{name}.again = {call}"
        yield f"br label %{name}.one.next"
        yield f"{name}.one.next:"
    else:
        yield f"%{name}.was = load i1, ptr %{name}.alive, !llvm.access.group !2"
        yield f"br i1 %{name}.was, label %{name}.run, label %{name}.one.next"
        yield f"{name}.run:"
        yield f"%{name}.result = {call}"
        yield f"br label %{name}.ran"
        yield f"{name}.ran:"
        yield f"br label %{name}.one.next"
        yield f"{name}.one.next:"
        yield f"%{name}.again = phi i1 [false, %{name}.one], [%{name}.result, %{name}.ran]"
    yield f"store i1 %{name}.again, ptr %{name}.alive, !llvm.access.group !2"
    yield f"%{name}.any = or i1 %{name}.any.x, %{name}.again"
    for loop, axis, following in (
        ("one", "x", f"{name}.row.next"),
        ("row", "y", f"{name}.plane.next"),
        ("plane", "z", after),
    ):
        hint = f", !llvm.loop !{metadata}" if loop == "one" else ""
        yield f"%{name}.{axis}1 = add nuw nsw i32 %{name}.{axis}, 1"
        yield f"%{name}.more.{axis} = icmp ult i32 %{name}.{axis}1, %n{axis}"
        yield f"br i1 %{name}.more.{axis}, label %{name}.{loop}, label %{following}{hint}"
        if loop != "plane":
            yield f"{following}:"


# -- threads that wait for each other --------------------------------------------------------------


def _coroutine(unit: Unit) -> tuple[str, list[Emitter]]:
    e = _emitter(unit, None)
    parameters, statements = _body(e)
    text = [
        f"define ptr @start(ptr %block, ptr %self, {_THREAD}) presplitcoroutine {{",
        "entry:",
        *e.slots,
        "%identity = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)",
        "%bytes = call i64 @llvm.coro.size.i64()",
        f"%allocate.at = getelementptr i8, ptr %block, i64 {BLOCK['allocate']}",
        "%allocate = load ptr, ptr %allocate.at",
        "%memory = call ptr %allocate(ptr %block, i64 %bytes)",
        "%handle = call ptr @llvm.coro.begin(token %identity, ptr %memory)",
        *parameters,
        *statements,
        "done:",
        f"%request.at = getelementptr i8, ptr %self, i64 {THREAD['request']}",
        f"store i32 {REQUESTS['exit']}, ptr %request.at",
        "br label %leave",
        "leave:",
        "call void @llvm.coro.end(ptr %handle, i1 false, token none)",
        "ret ptr %handle",
        "}",
        "define void @resume(ptr %handle) {",
        "call void @llvm.coro.resume(ptr %handle)",
        "ret void",
        "}",
        COROUTINE,
    ]
    return "\n".join(text), [e]
