"""A unit of compilation: a kernel, the functions it reaches and its variables' offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .errors import PtxSyntaxError
from .parser import read_function
from .program import (
    Function,
    Group,
    Instruction,
    Label,
    Operand,
    Program,
    Symbol,
    Variable,
)
from .sites import Check, Site
from .table import find

PROVIDED = {"vprintf", "malloc", "free", "__assertfail"}
"""Functions every device has without defining them (CUDA's system calls)."""

_SPINS = {"atom", "fence", "membar", "nanosleep"}
_WATCHES = {"volatile", "acquire", "relaxed"}


class Unit:
    """One kernel of a program, ready to be emitted."""

    def __init__(self, program: Program, entry: str, check: Check) -> None:
        self.program = program
        self.entry = entry
        self.check = check
        self.sites: list[Site] = []
        self.counted: list[tuple[int, int, int]] = []
        """Line, basic block and class of each instruction, in a kernel that counts."""
        self.counted_blocks = 0
        self._functions: dict[str, Function] = {}
        self._callees: dict[str, set[str]] = {}
        self._gather(entry)
        self._waiting = self._closure(self._waits_itself)
        self._spinning = self._closure(_spins)
        self.variable_offsets, self.variable_bytes = variable_offsets(program.variables)
        self._module_shared: dict[str, int] = {}
        self._own_shared: dict[tuple[str, str], int] = {}
        self.static_shared_bytes = self._lay_out_shared()

    @property
    def waits(self) -> bool:
        """Whether a thread of the kernel may wait for another thread."""
        return self.entry in self._waiting or self.entry in self._spinning

    def function(self, name: str) -> Function:
        """A function the kernel reaches."""
        return self._functions[name]

    def add_site(self, site: Site) -> int:
        """Note an instruction that accesses memory; return its number."""
        self.sites.append(site)
        return len(self.sites) - 1

    def must_inline(self, name: str) -> bool:
        """Whether a callee may wait, so that it must be inlined into the kernel."""
        return name in self._waiting or name in self._spinning

    def spins(self, name: str) -> bool:
        """Whether a function has loops that may wait for another thread's write."""
        return name in self._spinning

    def _gather(self, name: str) -> None:
        pending = [name]
        while pending:
            current = pending.pop()
            if current in self._functions:
                continue
            function = read_function(self.program, current)
            self._functions[current] = function
            self._callees[current] = set(self._called_by(function)) - PROVIDED
            pending += sorted(self._callees[current])

    def _called_by(self, function: Function) -> Iterator[str]:
        for one in function.statements:
            if isinstance(one, Instruction) and one.name == "call":
                target = callee(one)
                if isinstance(target, Symbol):
                    yield target.name
                else:
                    yield from self.possible_callees(function, one)

    def possible_callees(self, function: Function, call: Instruction) -> tuple[str, ...]:
        """The functions that a call through a register may reach: a list, or all that fit.

        A function fits if it has the prototype and the program takes its address.
        """
        listed = call.operands[-1]
        label = listed.name if isinstance(listed, Symbol) else ""
        targets = function.call_targets.get(label)
        if targets is not None:
            return targets
        prototype = function.prototypes.get(label)
        if prototype is None:
            raise PtxSyntaxError("a call through a register needs a prototype", call.line)
        taken = self.program.functions_with_taken_address
        functions = self.program.functions
        return tuple(name for name in taken if functions[name].head.prototype == prototype)

    def _waits_itself(self, function: Function) -> bool:
        return any(
            find(one).suspends for one in function.statements if isinstance(one, Instruction)
        )

    def _closure(self, holds: Callable[[Function], bool]) -> set[str]:
        found = {name for name, function in self._functions.items() if holds(function)}
        grew = True
        while grew:
            more = {name for name, callees in self._callees.items() if callees & found} - found
            found |= more
            grew = bool(more)
        return found

    # -- shared memory -----------------------------------------------------------------------------

    def _lay_out_shared(self) -> int:
        end = 0
        open_ended: list[str] = []
        used = self._names_used()
        for name, variable in self.program.variables.items():
            if variable.space != "shared" or name not in used:
                continue
            if not variable.size:
                open_ended.append(name)
                continue
            self._module_shared[name] = _aligned(end, variable.alignment)
            end = self._module_shared[name] + variable.size
        for function in self._functions.values():
            for name, variable in function.variables.items():
                if variable.space == "shared":
                    start = _aligned(end, variable.alignment)
                    self._own_shared[function.name, name] = start
                    end = start + variable.size
        # Dynamic shared memory begins at the end of static shared memory, for all its names.
        start = _aligned(end, 16)
        self._module_shared.update(dict.fromkeys(open_ended, start))
        return start if open_ended else end

    def _names_used(self) -> set[str]:
        used: set[str] = set()
        for function in self._functions.values():
            for one in function.statements:
                if isinstance(one, Instruction):
                    used.update(symbols(one.operands))
        return used

    def shared_offset(self, function: Function, name: str) -> int | None:
        """The offset of a shared variable in the block's shared memory; None for any other."""
        own = self._own_shared.get((function.name, name))
        if own is not None:
            return own
        return None if name in function.variables else self._module_shared.get(name)

    def variable_offset(self, name: str) -> int | None:
        """The offset of a global or constant variable in the module's area."""
        return self.variable_offsets.get(name)


def variable_offsets(variables: Mapping[str, Variable]) -> tuple[dict[str, int], int]:
    """Offsets of a module's global and constant variables in one area, and the area's bytes."""
    offsets: dict[str, int] = {}
    end = 0
    for name, variable in variables.items():
        if variable.space in ("global", "const"):
            # Apart as a device's allocations are, so that vector accesses stay aligned.
            offsets[name] = _aligned(end, max(variable.alignment, 16))
            end = offsets[name] + variable.size
    return offsets, end


def symbols(operands: object) -> Iterator[str]:
    """The symbols that operands name, at any depth."""
    if isinstance(operands, Symbol):
        yield operands.name
    elif isinstance(operands, tuple):
        for one in operands:
            yield from symbols(one)
    elif hasattr(operands, "__dataclass_fields__"):
        for name in operands.__dataclass_fields__:
            yield from symbols(getattr(operands, name))


def callee(call: Instruction) -> Operand | None:
    """Target of a call: a function, or a register that holds a function's address."""
    return next((one for one in call.operands if not isinstance(one, Group)), None)


def _spins(function: Function) -> bool:
    """Say whether a function has a loop, and accesses that synchronize threads."""
    placed: set[str] = set()
    loops = False
    tells = False
    for one in function.statements:
        if isinstance(one, Label):
            placed.add(one.name)
            continue
        target = one.operands[0] if one.name == "bra" and one.operands else None
        loops |= isinstance(target, Symbol) and target.name in placed
        tells |= one.name in _SPINS
        tells |= one.name == "ld" and not _WATCHES.isdisjoint(one.modifiers)
    return loops and tells


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
