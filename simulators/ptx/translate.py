"""A kernel of a program to LLVM IR, and that to object code."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm

from simulators.ptx import bits, compare, control, convert, floating, integer, memory, warp
from simulators.ptx.checks import Check
from simulators.ptx.emitter import Emitter
from simulators.ptx.errors import PtxError
from simulators.ptx.layout import ABI, BLOCK, CHECKS, REQUESTS, THREAD
from simulators.ptx.program import Program
from simulators.ptx.unit import Unit

FAMILIES = (bits, compare, control, convert, floating, integer, memory, warp)
"""Importing them fills the table."""

_COROUTINE = """\
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare void @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
"""
_THREAD = "ptr %block, ptr %self, i32 %tx, i32 %ty, i32 %tz"
_FUNCTION = "ptr %block, i32 %tx, i32 %ty, i32 %tz"


_METADATA = """\
!0 = !{}
!1 = !{!"branch_weights", i32 1048576, i32 1}
"""


@dataclass(frozen=True)
class Translation:
    """A kernel as LLVM IR."""

    ir: str
    waits: bool
    static_shared_bytes: int


def translate(program: Program, entry: str, check: Check = "on") -> Translation:
    """Translate one kernel with all it calls; `check` says which accesses are checked.

    Raises `PtxSyntaxError` or `UnsupportedPtxError`, which name the line.
    """
    if entry not in program.functions or not program.functions[entry].is_entry:
        raise PtxError(f"there is no kernel {entry}")
    unit = Unit(program, entry, check)
    texts: list[str] = []
    declarations: dict[str, str] = {}
    main = Emitter(unit, is_coroutine=unit.waits)
    main.has_spinning_loops = unit.spins(entry)
    main.is_entry = True
    texts.append(_entry(main, unit))
    declarations.update(main.declarations)
    done: set[str] = set()
    pending = sorted(main.called)
    while pending:
        name = pending.pop()
        if name not in done:
            done.add(name)
            callee = Emitter(unit, is_coroutine=False)
            texts.append(_function(callee, unit, name))
            declarations.update(callee.declarations)
            pending += sorted(callee.called)
    texts.append(_descriptor(unit))
    if unit.waits:
        texts.append(_COROUTINE)
    ir = "\n".join([*texts, *declarations.values(), _METADATA])
    return Translation(ir, unit.waits, unit.static_shared_bytes)


def _entry(e: Emitter, unit: Unit) -> str:
    function = unit.function(unit.entry)
    parameters = {}
    for slot in function.parameters:
        name = f'%"a.{slot.name}"'
        parameters[slot.name] = name
    e.body(function, parameters, "done")
    start = e.lines
    e.lines = []
    block = e.field("parameters", "ptr")
    for slot in function.parameters:
        e.line(f'%"a.{slot.name}" = getelementptr i8, ptr {block}, i64 {slot.offset}')
    opening = e.lines
    if unit.waits:
        return _coroutine(e, [*opening, *start])
    text = [f"define internal void @thread({_THREAD}) alwaysinline {{", "entry:"]
    text += [*e.slots, *opening, *start, "done:", "ret void", "}", _RUN_BLOCK]
    return "\n".join(text)


def _coroutine(e: Emitter, lines: list[str]) -> str:
    request = THREAD["request"]
    text = [
        f"define ptr @start({_THREAD}) presplitcoroutine {{",
        "entry:",
        *e.slots,
        "%identity = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)",
        "%bytes = call i64 @llvm.coro.size.i64()",
        f"%allocate.at = getelementptr i8, ptr %block, i64 {BLOCK['allocate']}",
        "%allocate = load ptr, ptr %allocate.at",
        "%memory = call ptr %allocate(ptr %block, i64 %bytes)",
        "%handle = call ptr @llvm.coro.begin(token %identity, ptr %memory)",
        *lines,
        "done:",
        f"%request.at = getelementptr i8, ptr %self, i64 {request}",
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
    ]
    return "\n".join(text)


_RUN_BLOCK = f"""\
define void @run_block(ptr %block) {{
entry:
  %at.x = getelementptr i8, ptr %block, i64 {BLOCK["threads"]}
  %at.y = getelementptr i8, ptr %block, i64 {BLOCK["threads"] + 4}
  %at.z = getelementptr i8, ptr %block, i64 {BLOCK["threads"] + 8}
  %nx = load i32, ptr %at.x, !invariant.load !0
  %ny = load i32, ptr %at.y, !invariant.load !0
  %nz = load i32, ptr %at.z, !invariant.load !0
  br label %plane
plane:
  %z = phi i32 [0, %entry], [%z1, %plane.next]
  br label %row
row:
  %y = phi i32 [0, %plane], [%y1, %row.next]
  br label %one
one:
  %x = phi i32 [0, %row], [%x1, %one]
  call void @thread(ptr %block, ptr null, i32 %x, i32 %y, i32 %z)
  %x1 = add nuw i32 %x, 1
  %more.x = icmp ult i32 %x1, %nx
  br i1 %more.x, label %one, label %row.next
row.next:
  %y1 = add nuw i32 %y, 1
  %more.y = icmp ult i32 %y1, %ny
  br i1 %more.y, label %row, label %plane.next
plane.next:
  %z1 = add nuw i32 %z, 1
  %more.z = icmp ult i32 %z1, %nz
  br i1 %more.z, label %plane, label %end
end:
  ret void
}}"""
"""Threads that never wait run one after the other, in a loop LLVM may turn into vector code."""


def _function(e: Emitter, unit: Unit, name: str) -> str:
    function = unit.function(name)
    slots = (*function.results, *function.parameters)
    pointers = {slot.name: f"%p{index}" for index, slot in enumerate(slots)}
    e.body(function, pointers, "done")
    given = "".join(f", ptr %p{index}" for index in range(len(slots)))
    head = f'define internal void @"f.{name}"({_FUNCTION}{given}) {{'
    return "\n".join([head, "entry:", *e.slots, *e.lines, "done:", "ret void", "}"])


def _descriptor(unit: Unit) -> str:
    """The one thing the object exports: struct uptx_kernel of runtime/ptx.h."""
    code = (
        "ptr @start, ptr @resume, ptr null" if unit.waits else "ptr null, ptr null, ptr @run_block"
    )
    start, resume, run = code.split(", ")
    sites = ", ".join(one.constant for one in unit.sites)
    layout = "{ i32, i32, i8, i8, i8, i8 }"
    return (
        f"@sites = internal constant [{len(unit.sites)} x {layout}] [{sites}]\n"
        "@uptx_kernel = constant { i32, i32, i32, i32, i32, i32, ptr, ptr, ptr, ptr } "
        f"{{ i32 {ABI}, i32 {unit.function(unit.entry).parameter_bytes}, "
        f"i32 {unit.static_shared_bytes}, i32 {CHECKS[unit.check]}, "
        f"i32 {len(unit.sites)}, i32 0, ptr @sites, "
        f"{start}, {resume}, {run} }}"
    )


@functools.cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=cpu_features(), opt=2, reloc="pic", codemodel="small"
    )


def cpu_features() -> str:
    """What LLVM calls the features of the processor this runs on."""
    return str(llvm.get_host_cpu_features().flatten())


def compile_object(ir: str) -> bytes:
    """Optimize IR and return an object file for this processor."""
    machine = _machine()
    module = llvm.parse_assembly(ir)
    module.triple = llvm.get_default_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    code: bytes = machine.emit_object(module)
    return code
