"""Translates a kernel to LLVM IR, and LLVM IR to object code."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import llvmlite.binding as llvm

from . import families  # noqa: F401
from .count import counted_table
from .emitter import Emitter
from .entry import entry_text, metadata
from .errors import PtxError, UnsupportedPtxError
from .layout import ABI, CHECKS
from .program import Program
from .sites import Check
from .unit import Unit

NEWEST_TARGET = 90
"""Compute capability, times ten, of the newest targets that are executed."""

_FUNCTION = "ptr %block, i32 %tx, i32 %ty, i32 %tz"


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
    _check_target(program)
    unit = Unit(program, entry, check)
    texts: list[str] = []
    declarations: dict[str, str] = {}
    text, emitters = entry_text(unit)
    texts.append(text)
    pending: list[str] = []
    for one in emitters:
        declarations.update(one.declarations)
        pending += sorted(one.called)
    done: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in done:
            done.add(name)
            callee = Emitter(unit, is_coroutine=False)
            texts.append(_function(callee, unit, name))
            declarations.update(callee.declarations)
            pending += sorted(callee.called)
    texts.append(_descriptor(unit))
    if check == "count":
        texts.append(counted_table(unit))
    ir = "\n".join([*texts, *declarations.values(), metadata(unit)])
    return Translation(ir, unit.waits, unit.static_shared_bytes)


def _function(e: Emitter, unit: Unit, name: str) -> str:
    function = unit.function(name)
    slots = (*function.results, *function.parameters)
    pointers = {slot.name: f"%p{index}" for index, slot in enumerate(slots)}
    e.body(function, pointers, "done")
    given = "".join(f", ptr %p{index}" for index in range(len(slots)))
    head = f'define internal void @"f.{name}"({_FUNCTION}{given}) {{'
    return "\n".join([head, "entry:", *e.slots, *e.lines, "done:", "ret void", "}"])


def _descriptor(unit: Unit) -> str:
    """The object's only export: struct uptx_kernel of runtime/ptx.h."""
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


def _check_target(program: Program) -> None:
    found = re.match(r"sm_(\d+)", program.target)
    if found is None or int(found[1]) > NEWEST_TARGET:
        raise UnsupportedPtxError(
            f".target {program.target}: at most sm_{NEWEST_TARGET} is executed here "
            "(PTX ISA §11.1.2 PTX Module Directives: .target)",
            program.target_line,
        )


@functools.cache
def _machine(level: int) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=cpu_features(),
        opt=level,
        reloc="pic",
        codemodel="small",
    )


def cpu_features() -> str:
    """LLVM's names of this processor's features."""
    return str(llvm.get_host_cpu_features().flatten())


def compile_object(translation: Translation) -> bytes:
    """Optimize a kernel and return an object file for this processor.

    Threads that wait run one at a time, so LLVM has no loop over threads to vectorize. All passes
    would triple the time to compile such a kernel and make it little faster. Nor does a kernel run
    faster with code generation above level 0, which takes five times as long.
    """
    machine = _machine(0 if translation.waits else 2)
    module = llvm.parse_assembly(translation.ir)
    module.triple = llvm.get_default_triple()
    module.data_layout = str(machine.target_data)
    module.verify()
    if translation.waits:
        _simplify(module, machine)
        _run_usual_passes(module, machine, 0)  # they split the coroutine
        _simplify(module, machine)
    else:
        _run_usual_passes(module, machine, 3)
    code: bytes = machine.emit_object(module)
    return code


def _run_usual_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = level > 0
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _simplify(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
