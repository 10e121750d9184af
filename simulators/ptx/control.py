"""Branches, calls and the end of a thread (ISA manual §9.7.12, §9.7.19)."""

from __future__ import annotations

from .emitter import Emitter
from .errors import PtxSyntaxError
from .program import Group, Instruction, Operand, Symbol
from .table import instruction
from .types import U32, U64
from .unit import PROVIDED, callee

CHAPTER = "9.7.12 Control Flow: "
THREAD = "i32 %tx, i32 %ty, i32 %tz"


@instruction("bra")
def branch(e: Emitter, i: Instruction) -> None:
    target = i.operands[0]
    if not isinstance(target, Symbol):
        raise PtxSyntaxError("a branch needs a label", i.line)
    e.line(f'br label %"{e.target(target.name)}"')
    e.begin(e.label())


@instruction("brx.idx")
def indexed_branch(e: Emitter, i: Instruction) -> None:
    """An index beyond the list is undefined: the run ends with a message."""
    targets = i.operands[1]
    if not isinstance(targets, Symbol):
        raise PtxSyntaxError("an indexed branch needs a list of labels", i.line)
    beyond = e.label()
    cases = " ".join(
        f'i32 {index}, label %"{e.target(name)}"'
        for index, name in enumerate(e.branch_targets(targets.name))
    )
    e.line(f"switch i32 {e.read(i.operands[0], U32)}, label %{beyond} [{cases}]")
    e.begin(beyond)
    _trap(e, i)


@instruction("ret")
def leave_function(e: Emitter, i: Instruction) -> None:
    e.leave_function()


@instruction("exit")
def end_thread(e: Emitter, i: Instruction) -> None:
    if not e.is_entry:
        raise e.unsupported(f"exit within a called function (§{CHAPTER}exit)")
    e.line('br label %"done"')
    e.begin(e.label())


@instruction("trap", "brkpt")
def stop(e: Emitter, i: Instruction) -> None:
    _trap(e, i)


@instruction("hint")
def nothing_to_do(e: Emitter, i: Instruction) -> None:
    """Time and registers are not modelled; a grid starts when earlier grids have ended."""


def _trap(e: Emitter, i: Instruction) -> None:
    function = e.field("trap", "ptr")
    e.line(f"call void {function}(ptr %block, i32 %tx, i32 %ty, i32 %tz, i32 {i.line})")
    e.line("unreachable")
    e.begin(e.label())


def _fail_assertion(e: Emitter, i: Instruction, pointers: list[str]) -> None:
    if len(pointers) < 4:
        raise PtxSyntaxError("__assertfail takes message, file, line and function", i.line)
    message, file, function = (e.value(f"load i64, ptr {pointers[at]}") for at in (0, 1, 3))
    number = e.value(f"load i32, ptr {pointers[2]}")
    fail = e.field("assert_failed", "ptr")
    e.line(
        f"call void {fail}(ptr %block, i32 %tx, i32 %ty, i32 %tz, i32 {i.line}, "
        f"i64 {message}, i64 {file}, i32 {number}, i64 {function})"
    )
    e.line("unreachable")
    e.begin(e.label())


@instruction("call")
def call(e: Emitter, i: Instruction) -> None:
    target = callee(i)
    groups = [_names(one) for one in i.operands if isinstance(one, Group)]
    pointers = [e.parameter_memory(name) for group in groups for name in group]
    if not isinstance(target, Symbol):
        _call_through(e, i, target, pointers)
    elif target.name in PROVIDED:
        _call_system(e, i, target.name, pointers)
    else:
        _call_function(e, i, target.name, pointers)


def _call_through(e: Emitter, i: Instruction, target: Operand | None, pointers: list[str]) -> None:
    """Branch to a call of the address's function; an unknown address ends the run."""
    address = e.read(target, U64)
    # A function that waits is inlined, so it cannot call itself.
    names = [
        name
        for name in e.unit.possible_callees(e.function, i)
        if not (e.unit.must_inline(name) and e.is_within(name))
    ]
    cases = [(e.unit.program.function_addresses[name], name, e.label()) for name in names]
    wrong, after = e.label(), e.label()
    listed = " ".join(f"i64 {number}, label %{label}" for number, _, label in cases)
    e.line(f"switch i64 {address}, label %{wrong} [{listed}]")
    for _, name, label in cases:
        e.begin(label)
        _call_function(e, i, name, pointers)
        e.line(f"br label %{after}")
    e.begin(wrong)
    refuse = e.field("no_function", "ptr")
    e.line(f"call void {refuse}(ptr %block, {THREAD}, i32 {i.line}, i64 {address})")
    e.line("unreachable")
    e.begin(after)


def _call_function(e: Emitter, i: Instruction, name: str, pointers: list[str]) -> None:
    function = e.unit.function(name)
    slots = (*function.results, *function.parameters)
    if len(slots) != len(pointers):
        raise PtxSyntaxError(f"{name} takes {len(slots)} parameters and results", i.line)
    if e.unit.must_inline(name):
        after = e.label()
        names = {slot.name: pointer for slot, pointer in zip(slots, pointers, strict=True)}
        e.body(function, names, after)
        e.begin(after)
        return
    e.called.add(name)
    given = "".join(f", ptr {pointer}" for pointer in pointers)
    e.line(f'call void @"f.{name}"(ptr %block, i32 %tx, i32 %ty, i32 %tz{given})')


def _names(operand: Group) -> list[str]:
    return [one.name for one in operand.elements if isinstance(one, Symbol)]


def _call_system(e: Emitter, i: Instruction, name: str, pointers: list[str]) -> None:
    if name == "__assertfail":
        _fail_assertion(e, i, pointers)
        return
    words = [e.value(f"load i64, ptr {one}") for one in pointers[1 if name != "free" else 0 :]]
    if name == "vprintf":
        function = e.field("print", "ptr")
        count = e.value(f"call i32 {function}(ptr %block, i64 {words[0]}, i64 {words[1]})")
        e.line(f"store i32 {count}, ptr {pointers[0]}")
    elif name == "malloc":
        function = e.field("heap_allocate", "ptr")
        memory = e.value(f"call ptr {function}(ptr %block, i64 {words[0]})")
        e.line(f"store ptr {memory}, ptr {pointers[0]}")
    else:
        function = e.field("heap_free", "ptr")
        memory = e.value(f"inttoptr i64 {words[0]} to ptr")
        e.line(f"call void {function}(ptr %block, ptr {memory})")
