"""Writes one function of a program as LLVM IR text.

Registers are stack slots; LLVM turns them into values. A kernel whose threads wait for each other
becomes a coroutine (LLVM's `presplitcoroutine`): at a barrier or a warp operation a thread leaves
its request in its record, suspends, and the run time resumes it with the answer in the same record.
"""

from __future__ import annotations

from collections.abc import Mapping

from .checks import Checks
from .count import BasicBlocks, count_branch
from .errors import PtxSyntaxError
from .layout import FUEL, MAX_THREADS, REQUESTS, THREAD
from .program import Address, Function, Instruction, Label, Operand, Register, Symbol
from .sites import LOCAL_ALIGNMENT
from .special import read_special
from .table import find
from .trace import trace_instruction, trace_result
from .turns import Counter, Turns, pointer_roots
from .types import BITS, PtxType
from .unit import Unit

TURN = "turn.middle"


class Emitter(Checks):
    """Emits statements; the argument of the table's handlers."""

    def __init__(self, unit: Unit, *, is_coroutine: bool) -> None:
        super().__init__(unit)
        self.is_coroutine = is_coroutine
        self.is_entry = False
        self.has_spinning_loops = False
        self.called: set[str] = set()
        self.turns: Turns | None = None
        self.blocks = BasicBlocks(self) if unit.check == "count" else None
        self._inlined: list[str] = []
        self._return_label = ""
        self._written: list[tuple[str, PtxType]] = []

    def write(self, operand: Operand | None, bits: str, kind: PtxType) -> None:
        """Store bits of a type into a register, extended as the type's sign says."""
        super().write(operand, bits, kind)
        if isinstance(operand, Register):
            self._written.append((operand.name, kind))

    def special(self, name: str, width: int) -> str:
        """The value of a predefined register."""
        return read_special(self, name, width)

    # -- waiting -----------------------------------------------------------------------------------

    def word(self, index: int) -> str:
        """A pointer to a word of the thread's request."""
        return self.value(f"getelementptr i8, ptr %self, i64 {THREAD['words'] + 8 * index}")

    def ask(self, request: str, operation: int, *words: str) -> None:
        """Leave a request with its words (i64) and suspend until the run time has answered."""
        for index, word in enumerate(words):
            self.line(f"store i64 {word}, ptr {self.word(index)}")
        for name, value in (
            ("request", REQUESTS[request]),
            ("line", self._line),
            ("operation", operation),
        ):
            where = self.value(f"getelementptr i8, ptr %self, i64 {THREAD[name]}")
            self.line(f"store i32 {value}, ptr {where}")
        self._suspend()

    def answer(self, index: int, width: int) -> str:
        """A word of the run time's answer."""
        whole = self.value(f"load i64, ptr {self.word(index)}")
        return self.resized(whole, 64, width, signed=False)

    def _suspend(self) -> None:
        if not self.is_coroutine:
            raise AssertionError("only a coroutine waits")
        resumed = self.label()
        state = self.value("call i8 @llvm.coro.suspend(token none, i1 false)")
        self.line(f"switch i8 {state}, label %leave [i8 0, label %{resumed} i8 1, label %leave]")
        self.begin(resumed)

    def _let_others_run(self) -> None:
        """In a loop that may wait for another thread, pause regularly to let others run."""
        where = self.value(f"getelementptr i8, ptr %self, i64 {THREAD['fuel']}")
        left = self.value(f"load i32, ptr {where}")
        less = self.value(f"sub i32 {left}, 1")
        self.line(f"store i32 {less}, ptr {where}")
        empty = self.value(f"icmp eq i32 {less}, 0")
        pause, go_on = self.label(), self.label()
        self.line(f"br i1 {empty}, label %{pause}, label %{go_on}")
        self.begin(pause)
        self.line(f"store i32 {FUEL}, ptr {where}")
        self.ask("pause", 0)
        self.fall_into(go_on)

    # -- functions ---------------------------------------------------------------------------------

    def body(self, function: Function, pointers: Mapping[str, str], return_label: str) -> None:
        """Emit a function's statements here; it ends by branching to `return_label`."""
        if function.name in self._inlined:
            raise self.unsupported(f"{function.name} calls itself and waits for other threads")
        before = (self._prefix, self._line, self._return_label, dict(self._parameter_pointers))
        roots = self._roots
        outer = self._function if self._inlined else None
        self._inlined.append(function.name)
        self._count += 1
        self._prefix = f"{self._count}." if outer is not None else ""
        self._function = function
        self._roots = pointer_roots(function) if self.check == "off" else {}
        self._return_label = return_label
        self._parameter_pointers = dict(pointers)
        self._declare(function)
        placed: set[str] = set()
        for statement in function.statements:
            self._line = statement.line
            if isinstance(statement, Label):
                if self.blocks is not None:
                    self.blocks.end()
                placed.add(statement.name)
                self.fall_into(self.target(statement.name))
                if self.turns is not None and self.turns.label == statement.name:
                    self._end_turn(self.turns)
            else:
                self._guarded(statement, placed)
        self.line(f'br label %"{return_label}"')
        if self.blocks is not None:
            self.blocks.end()
        self._inlined.pop()
        self._prefix, self._line, self._return_label, self._parameter_pointers = before
        self._roots = roots
        if outer is not None:
            self._function = outer

    # -- turns -------------------------------------------------------------------------------------
    # Their functions have `ptr %state, i32 %linear, i32 %turn` and return whether there is another.

    def _end_turn(self, turns: Turns) -> None:
        if self._prefix:
            return  # a label of a callee
        for name, kind in turns.state:
            held = self.value(f"load {kind.llvm}, ptr {self._register(name)}")
            self.line(f"store {kind.llvm} {held}, ptr {self._kept(turns, name)}")
        self.line("ret i1 true")
        self.begin(TURN)

    def opening_of_turn(self, function: Function, turns: Turns) -> list[str]:
        """Lines that restore the last turn's values and continue in the function's middle."""
        self._function = function
        self._parameter_pointers = {slot.name: f'%"a.{slot.name}"' for slot in function.parameters}
        for name, kind in turns.state:
            held = self.value(f"load {kind.llvm}, ptr {self._kept(turns, name)}")
            self.line(f"store {kind.llvm} {held}, ptr {self._register(name)}")
        for one in turns.before:
            self._emit(one)
        for counter in turns.counters:
            self._count_to_turn(counter)
        for one in turns.after:
            self._emit(one)
        self.line(f'br label %"{TURN}"')
        opening = self.lines
        self.lines = []
        return opening

    def _emit(self, one: Instruction) -> None:
        self._line = one.line
        find(one).handler(self, one)

    def _count_to_turn(self, counter: Counter) -> None:
        kind = self._function.registers[counter.name]
        step = self.read(counter.step, kind)
        turn = self.resized("%turn", 32, kind.width, signed=False)
        steps = self.value(f"mul {kind.llvm} {step}, {turn}")
        first = self.read(Register(counter.name), kind)
        self.write(Register(counter.name), self.value(f"add {kind.llvm} {first}, {steps}"), kind)

    def _kept(self, turns: Turns, name: str) -> str:
        """Place of a thread's register: one array per register, so that neighbors lie together."""
        before = 0
        for each, kind in turns.state:
            if each == name:
                break
            before += kind.bytes
        start = self.value(f"getelementptr i8, ptr %state, i64 {before * MAX_THREADS}")
        kind = self._function.registers[name]
        index = self.value("zext i32 %linear to i64")
        return self.value(f"getelementptr i{8 * kind.bytes}, ptr {start}, i64 {index}")

    def _declare(self, function: Function) -> None:
        for name, kind in function.registers.items():
            self.slots.append(f"{self._register(name)} = alloca {kind.llvm}")
        for name, variable in function.variables.items():
            if variable.space in ("local", "param"):
                alignment = max(variable.alignment, LOCAL_ALIGNMENT)
                size = max(variable.size, 8)
                memory = f'%"m.{self._prefix}{name}"'
                self.slots.append(f"{memory} = alloca [{size} x i8], align {alignment}")

    def _guarded(self, one: Instruction, placed: set[str]) -> None:
        row = find(one)
        target = one.operands[0] if one.name == "bra" and one.operands else None
        if self.has_spinning_loops and isinstance(target, Symbol) and target.name in placed:
            self._let_others_run()
        after = ""
        if self.blocks is not None:
            self.blocks.add(one)
        if one.guard is not None:
            run, after = self.label(), self.label()
            taken = self.read(one.guard, BITS[1])
            if self.blocks is not None and one.name == "bra":
                count_branch(self, one.line, taken)
            self.line(f"br i1 {taken}, label %{run}, label %{after}")
            self.begin(run)
        if self.check == "trace":
            trace_instruction(self, one.line)
        self._written.clear()
        try:
            row.handler(self, one)
        except (IndexError, KeyError, ValueError) as error:
            raise PtxSyntaxError(f"{one.spelling}: wrong operands ({error})", one.line) from error
        if self.check == "trace":
            for name, kind in list(self._written):
                trace_result(self, one.line, name, kind)
        if after:
            self.fall_into(after)

    @property
    def function(self) -> Function:
        """The function whose statements are being emitted."""
        return self._function

    def is_within(self, name: str) -> bool:
        """Say whether a function is being emitted here, inlined into the kernel."""
        return name in self._inlined

    def target(self, label: str) -> str:
        """The LLVM label of a PTX label."""
        return f"L.{self._prefix}{label}"

    def leave_function(self) -> None:
        """Return from the function being emitted."""
        self.line(f'br label %"{self._return_label}"')
        self.begin(self.label())

    def branch_targets(self, name: str) -> tuple[str, ...]:
        """The labels of a list for an indexed branch."""
        found = self._function.branch_targets.get(name)
        if found is None:
            raise PtxSyntaxError(f"{name} is no list of branch targets", self._line)
        return found

    def names_parameter(self, operand: Operand | None) -> bool:
        """Whether an address names a parameter of the kernel itself."""
        base = operand.base if isinstance(operand, Address) else None
        own = self.is_entry and not self._prefix
        return own and isinstance(base, Symbol) and base.name in self._parameter_pointers

    def parameter_memory(self, name: str) -> str:
        """A pointer to the memory of a `.param` variable of the function."""
        return self._own_memory(name)
