"""Cuts one kernel out of a SPIR-V module, for the driver to build.

A driver builds all kernels of a module at once, which takes seconds for a module of hundreds of
kernels; a program uses few. So a kernel is built on its first use, from only the functions, types
and constants that the kernel uses. The device needs only the capabilities of that kernel.

Two things become additional arguments, because OpenCL has no call to find a variable and sizes
shared memory only through arguments:

* module variables, which all kernels of a module share: one allocation by uhal;
* `uhal_dynamic_shared`, the launch's shared bytes.

A module cannot be cut if a variable has an initial value, or if a function that was not inlined
uses a variable. The module then stays whole, and its variables have no address.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    COMPILED_AS_HIP,
    DECORATION_CONSTANT,
    DECORATION_LINKAGE,
    HEADER_WORDS,
    OP_CAPABILITY,
    OP_CONSTANT,
    OP_CONSTANT_NULL,
    OP_DECORATE,
    OP_ENTRY_POINT,
    OP_EXT_INST,
    OP_FUNCTION,
    OP_FUNCTION_PARAMETER,
    OP_NAME,
    OP_TYPE_FLOAT,
    OP_TYPE_FUNCTION,
    OP_TYPE_INT,
    OP_TYPE_POINTER,
    OP_VARIABLE,
    STORAGE_CROSS_WORKGROUP,
    STORAGE_WORKGROUP,
    Entry,
    Function,
    Instruction,
    pack_words,
)
from uhal.kept import kept_property

DYNAMIC_SHARED = "uhal_dynamic_shared"
SHARED = 0
"""An additional argument: the launch's shared bytes, not a variable."""

_OP_LOAD, _OP_STORE, _OP_COPY_SIZED, _OP_FUNCTION_CALL = 61, 62, 64, 57
_OP_CONVERT_POINTER, _OP_CONVERT_TO_POINTER = 117, 120
_DONT_INLINE = 2
"""Among an OpFunction's controls."""
_MEMBER_NAME, _MEMBER_DECORATE, _EXECUTION_MODE, _EXECUTION_MODE_ID = 6, 72, 16, 331

# Identifier words of instructions in functions; a missing opcode has only identifiers after word 0.
_NAMING = {
    _OP_LOAD: slice(1, 4),
    _OP_STORE: slice(1, 3),
    _OP_COPY_SIZED: slice(1, 4),
    79: slice(1, 5),  # OpVectorShuffle
    81: slice(1, 4),  # OpCompositeExtract
    82: slice(1, 5),  # OpCompositeInsert
    246: slice(1, 1),  # OpLoopMerge
    247: slice(1, 1),  # OpSelectionMerge
    249: slice(1, 1),  # OpBranch
    250: slice(1, 2),  # OpBranchConditional
    251: slice(1, 2),  # OpSwitch
    256: slice(1, 2),  # OpLifetimeStart
    257: slice(1, 2),  # OpLifetimeStop
}
_OUTSIDE_NAMING = {
    OP_CONSTANT: slice(1, 2),
    OP_TYPE_INT: slice(1, 1),
    OP_TYPE_FLOAT: slice(1, 1),
    23: slice(2, 3),  # OpTypeVector
    OP_TYPE_POINTER: slice(3, 4),
    50: slice(1, 2),  # OpSpecConstant
}
_OF_WIDTH = {
    9: (OP_TYPE_FLOAT, 16),
    8: (OP_TYPE_FLOAT, 16),
    10: (OP_TYPE_FLOAT, 64),
    11: (OP_TYPE_INT, 64),
    22: (OP_TYPE_INT, 16),
    39: (OP_TYPE_INT, 8),
}
"""Float16, Float16Buffer, Float64, Int64, Int16, Int8 → the kind of number and its bits."""


@dataclass(frozen=True)
class Slice:
    """A kernel as a separate module."""

    image: bytes
    capabilities: tuple[int, ...]
    hidden: tuple[int, ...]
    """Hidden arguments after the caller's: module variables by identifier, or `SHARED`."""
    indirect: bool
    """Whether the kernel reaches memory through pointers that are not arguments."""


@dataclass
class _Use:
    """Identifiers that a function's instructions use."""

    names: set[int]
    calls: set[int]
    indirect: bool


class Cutter:
    """Cuts the kernels of a module. Any thread may use a cutter."""

    def __init__(self, module: SpirvModule) -> None:
        """Examine the module's variables; may raise `InvalidImageError`."""
        self._module = module
        self._uses: dict[int, _Use] = {}
        self.variables: dict[int, str] = {}
        """Maps the identifier of a module variable to its linkage name, "" without a name."""
        self._shared: set[int] = set()
        self.whole = not self._note_variables()
        """Whether the module cannot be cut."""

    def size_of(self, variable: int) -> int:
        """Return the bytes of a module variable."""
        return self._module.size_and_alignment(self._pointee(variable))[0]

    def variable_named(self, name: str) -> int | None:
        """Return the identifier of the module variable with this name, if there is one."""
        found = (variable for variable, known in self.variables.items() if name and known == name)
        return next(found, None)

    def _pointee(self, variable: int) -> int:
        pointer = self._module.operands(self._module.operands(variable)[1])
        return pointer[3]

    def _note_variables(self) -> bool:
        module = self._module
        for identifier, one in module.globals.items():
            if one.opcode != OP_VARIABLE or one.end - one.start < 4:
                continue
            words = module.words[one.start : one.end]
            name = module.linkage_name(identifier)
            if words[3] == STORAGE_WORKGROUP and name == DYNAMIC_SHARED:
                self._shared.add(identifier)
            if words[3] != STORAGE_CROSS_WORKGROUP or name == COMPILED_AS_HIP:
                continue
            if any(kind == DECORATION_CONSTANT for kind, _ in module.decorations(identifier)):
                continue
            if len(words) > 4 and module.opcode(words[4]) != OP_CONSTANT_NULL:
                return False
            self.variables[identifier] = name or ""
        arguments = self.variables.keys() | self._shared
        entries = {entry.function for entry in module.entries.values()}
        if not arguments:
            return True
        for one in module.globals.values():
            if one.opcode != OP_VARIABLE and not arguments.isdisjoint(self._outside_names(one)):
                return False
        return all(
            arguments.isdisjoint(self._use(function).names)
            for identifier, function in module.functions.items()
            if identifier not in entries
        )

    # -- used words --------------------------------------------------------------------------------

    def _outside_names(self, one: Instruction) -> array[int]:
        words = self._module.words[one.start : one.end]
        if one.opcode == OP_VARIABLE:
            return array("I", (words[1], *words[4:]))
        return words[_OUTSIDE_NAMING.get(one.opcode, slice(1, None))]

    def _use(self, function: Function) -> _Use:
        found = self._uses.get(function.id)
        if found is None:
            found = self._uses[function.id] = self._read(function)
        return found

    def _read(self, function: Function) -> _Use:
        words = self._module.words
        names: set[int] = {words[function.start + 1], function.id, function.type}
        calls: set[int] = set()
        numbers_of_pointers: set[int] = set()
        indirect = False
        pointers = self._pointer_types
        position = function.start + 5
        while position < function.end:
            opcode = words[position] & 0xFFFF
            end = position + (words[position] >> 16)
            used = words[position:end]
            if opcode == OP_EXT_INST:
                names.update(used[1:4])
                names.update(used[5:])
            else:
                names.update(used[_NAMING.get(opcode, slice(1, None))])
            if opcode == _OP_FUNCTION_CALL and len(used) > 3:
                calls.add(used[3])
            elif opcode == _OP_LOAD and used[1] in pointers:
                indirect = True
            elif opcode == _OP_CONVERT_POINTER and len(used) > 2:
                numbers_of_pointers.add(used[2])
            elif opcode == _OP_CONVERT_TO_POINTER and used[-1] not in numbers_of_pointers:
                indirect = True
            position = end
        return _Use(names, calls, indirect)

    @kept_property
    def _pointer_types(self) -> frozenset[int]:
        return frozenset(
            identifier
            for identifier, one in self._module.globals.items()
            if one.opcode == OP_TYPE_POINTER
        )

    def _reached(self, entry: Entry) -> list[Function]:
        """The kernel's function and its callees, in the module's order."""
        module = self._module
        wanted = [module.function_of(entry)]
        reached: set[int] = set()
        while wanted:
            function = wanted.pop()
            if function.id in reached:
                continue
            reached.add(function.id)
            calls = self._use(function).calls
            wanted += [module.functions[one] for one in calls if one in module.functions]
        return [one for identifier, one in module.functions.items() if identifier in reached]

    # -- written words -----------------------------------------------------------------------------

    def cut(self, entry: Entry) -> Slice:
        """Return the module of one kernel. May raise `InvalidImageError`."""
        functions = self._reached(entry)
        names: set[int] = set().union(*(self._use(one).names for one in functions))
        hidden = sorted((self.variables.keys() | self._shared) & names)
        kept = self._kept(names.difference(hidden))
        for identifier in hidden:
            # The pointer type stays: it is the type of the argument that replaces the variable.
            kept |= self._kept({self._module.operands(identifier)[1]})
        named = names | kept
        capabilities = self._capabilities(kept)
        words = self._module.words[:HEADER_WORDS]
        for capability in capabilities:
            words.extend((2 << 16 | OP_CAPABILITY, capability))
        general, decorations = self._preamble
        used = [one for name in decorations.keys() & named for one in decorations[name]]
        for one in sorted((*general, *used), key=lambda one: one.start):
            words.extend(self._preamble_part(one, entry, named, frozenset(hidden)))
        for identifier, one in self._module.globals.items():
            if identifier in kept:
                words.extend(self._module.words[one.start : one.end])
        self._append_functions(words, entry, functions, hidden)
        indirect = any(self._use(one).indirect for one in functions)
        passed = tuple(SHARED if one in self._shared else one for one in hidden)
        return Slice(pack_words(words), capabilities, passed, indirect)

    @kept_property
    def _preamble(self) -> tuple[list[Instruction], dict[int, list[Instruction]]]:
        """Declarations of the whole module, and the decorations of each identifier."""
        general: list[Instruction] = []
        decorations: dict[int, list[Instruction]] = {}
        for one in self._module.preamble:
            if one.opcode in (OP_DECORATE, _MEMBER_DECORATE):
                decorations.setdefault(self._module.words[one.start + 1], []).append(one)
            elif one.opcode not in (OP_CAPABILITY, OP_NAME, _MEMBER_NAME):
                general.append(one)
        return general, decorations

    def _kept(self, names: set[int]) -> set[int]:
        """Identifiers of types, constants and variables that are used, directly or not."""
        module = self._module
        kept: set[int] = set()
        wanted = [one for one in names if one in module.globals]
        while wanted:
            identifier = wanted.pop()
            if identifier in kept:
                continue
            kept.add(identifier)
            one = module.globals[identifier]
            wanted += [name for name in self._outside_names(one) if name in module.globals]
        return kept

    def _capabilities(self, kept: set[int]) -> tuple[int, ...]:
        module = self._module
        widths = set()
        for identifier in kept:
            one = module.globals[identifier]
            if one.opcode in (OP_TYPE_INT, OP_TYPE_FLOAT):
                widths.add((one.opcode, module.words[one.start + 2]))
        idle = {number for number, width in _OF_WIDTH.items() if width not in widths}
        return tuple(one for one in module.capabilities if one not in idle)

    def _preamble_part(
        self, one: Instruction, entry: Entry, named: set[int], hidden: frozenset[int]
    ) -> array[int]:
        """Return the words of a declaration for the slice; none if another kernel owns it."""
        words = self._module.words[one.start : one.end]
        nothing = words[:0]
        if one.opcode == OP_ENTRY_POINT:
            if one.start != entry.start:
                return nothing
            interface = [name for name in entry.interface if name in named and name not in hidden]
            text = words[: len(words) - len(entry.interface)]
            text[0] = (len(text) + len(interface)) << 16 | OP_ENTRY_POINT
            text.extend(interface)
            return text
        if one.opcode in (_EXECUTION_MODE, _EXECUTION_MODE_ID):
            return words if words[1] == entry.function else nothing
        if one.opcode in (OP_DECORATE, _MEMBER_DECORATE):
            linked = one.opcode == OP_DECORATE and words[2] == DECORATION_LINKAGE
            return nothing if linked and words[1] in hidden else words
        return words

    def _append_functions(
        self, words: array[int], entry: Entry, functions: list[Function], hidden: list[int]
    ) -> None:
        module = self._module
        own = module.function_of(entry)
        if hidden:
            kind = module.bound
            pointers = [module.operands(identifier)[1] for identifier in hidden]
            reported = module.operands(own.type)
            words.extend(((len(reported) + len(hidden)) << 16 | OP_TYPE_FUNCTION, kind))
            words.extend((*reported[2:], *pointers))
            words[3] = kind + 1
        for one in functions:
            takes_more = one.id == own.id and hidden
            # The compiler kept this function as a call; a driver may inline it.
            control = module.words[one.start + 3] & ~_DONT_INLINE
            words.extend((5 << 16 | OP_FUNCTION, *module.words[one.start + 1 : one.start + 3]))
            words.extend((control, kind if takes_more else one.type))
            if not takes_more:
                words.extend(module.words[one.start + 5 : one.end])
                continue
            words.extend(module.words[one.start + 5 : one.parameters_end])
            for pointer, identifier in zip(pointers, hidden, strict=True):
                words.extend((3 << 16 | OP_FUNCTION_PARAMETER, pointer, identifier))
            words.extend(module.words[one.parameters_end : one.end])
