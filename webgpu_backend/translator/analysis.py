"""Facts about a kernel before translation: blocks, roots of pointers, values that need 64 bits.

In WGSL a pointer into storage cannot be a value. A pointer is therefore an offset in bytes in a
root: the memory behind a parameter or behind a pointer in a module variable, the block's shared
memory, a variable, or a constant table. A pointer with several possible roots also has a tag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import Entry
from webgpu_backend.translator.calls import Inliner, Instruction, Words
from webgpu_backend.translator.kinds import I64, Kinds, refuse

PHI, LOAD, STORE = 245, 61, 62
BRANCH, BRANCH_IF, SWITCH, RETURN, UNREACHABLE = 249, 250, 251, 253, 255
VARIABLE, SELECT, COPY_SIZED, EXTENDED = 59, 169, 64, 12
EXTRACT, ATOMIC_STORE = 81, 228
RESIZES = frozenset((113, 114))
"""Integers to another size: OpUConvert, OpSConvert."""
CHAINS = frozenset((65, 66, 67, 70))
CASTS = frozenset((83, 117, 120, 121, 122, 124))
"""Casts of pointers: OpCopyObject, conversions, casts of their storage, OpBitcast."""
IF_IN_STORAGE = 123
"""Returns the pointer if it points into memory of a given kind, else the null pointer."""
CONTROL_BARRIER = 224
_TAGS_OF_STORAGE = {5: ("binding", "indirect"), 4: ("shared",), 7: ("local",)}
_BARRIERS_AND_HINTS = (CONTROL_BARRIER, 225, ATOMIC_STORE, 246, 247, 252, 254, 256, 257)
NO_RESULT = frozenset(
    (STORE, COPY_SIZED, BRANCH, BRANCH_IF, SWITCH, RETURN, UNREACHABLE, *_BARRIERS_AND_HINTS)
)
COMPARES = frozenset((170, 171, *range(172, 180)))
LOW_HALF = frozenset((126, 128, 130, 132, 196, 197, 198, 199, 200))
"""Operations whose low half needs only the low halves of their operands."""
WHOLE = frozenset((134, 135, 137, 138, 139, 194, 195))
"""Divisions and shifts to the right."""
ATOMICS = frozenset((227, 228, 229, 230, 234, 235, 236, 237, 238, 239, 240, 241, 242))
_AND = 199
_ADD, _SUBTRACT = 128, 130
_FUNCTION, _CROSS, _WORKGROUP, _CONSTANT = 7, 5, 4, (0, 2)
_MOST_INSTRUCTIONS = 1 << 17


class Root(NamedTuple):
    """The memory that a pointer's offset refers to."""

    tag: str
    """binding, shared, local, table, indirect, or null for no memory."""
    id: int


NULL = Root("null", 0)


class Analysis:
    """One kernel's function. May refuse the kernel; errors of the SPIR-V reader pass through."""

    def __init__(self, module: SpirvModule, entry: Entry) -> None:
        """Read the function and derive its facts."""
        self.module = module
        self.kinds = Kinds(module)
        self.function = module.function_of(entry)
        self.parameters = list(self.function.parameters)
        types = module.parameter_types(self.function)
        self.kinds.type_of.update(zip(self.parameters, types, strict=True))
        self.blocks = Inliner(module, _MOST_INSTRUCTIONS).blocks(self.function)
        self._note_results()
        self.successors = {block: self._successors(block) for block in self.blocks}
        self.order = self._reverse_postorder()
        self.definitions: dict[int, Instruction] = {}
        self.block_of: dict[int, int] = {}
        for block in self.order:
            for one in self.blocks[block]:
                if one.opcode not in NO_RESULT:
                    self.definitions[one.words[2]] = one
                    self.block_of[one.words[2]] = block
        self.roots: dict[int, frozenset[Root]] = {}
        self._find_roots()
        self.wide = self._wide_values()
        self.uses: dict[int, int] = defaultdict(int)
        self.crossing: set[int] = set()
        """Values that another block uses, or a phi: in WGSL they need variables."""
        self._count_uses()

    # -- blocks ------------------------------------------------------------------------------------

    def _note_results(self) -> None:
        for instructions in self.blocks.values():
            for opcode, words in instructions:
                if opcode not in NO_RESULT:
                    if len(words) < 3:
                        refuse(f"instruction {opcode} breaks off")
                    self.kinds.type_of[words[2]] = words[1]

    def _successors(self, block: int) -> list[int]:
        found = self.blocks[block]
        if not found:
            refuse("a block is empty")
        opcode, words = found[-1]
        if opcode == BRANCH:
            targets = [words[1]]
        elif opcode == BRANCH_IF:
            targets = [words[2], words[3]]
        elif opcode == SWITCH:
            targets = [words[2], *self.cases(words).values()]
        elif opcode in (RETURN, UNREACHABLE):
            targets = []
        else:
            refuse(f"a block ends with instruction {opcode}")
        for target in targets:
            if target not in self.blocks:
                refuse(f"a branch to {target}, which is no block")
        return list(dict.fromkeys(targets))

    def cases(self, words: Words) -> Mapping[int, int]:
        """Return the target of each value of an OpSwitch."""
        wide = self.kinds.kind_of(words[1]) == I64
        step = 3 if wide else 2
        return {
            words[at] | (words[at + 1] << 32 if wide else 0): words[at + step - 1]
            for at in range(3, len(words) - step + 1, step)
        }

    def _reverse_postorder(self) -> list[int]:
        first = next(iter(self.blocks))
        seen, left = {first}, []
        stack = [(first, iter(self.successors[first]))]
        while stack:
            block, rest = stack[-1]
            for successor in rest:
                if successor not in seen:
                    seen.add(successor)
                    stack.append((successor, iter(self.successors[successor])))
                    break
            else:
                left.append(block)
                stack.pop()
        return left[::-1]

    def _count_uses(self) -> None:
        for block in self.order:
            for opcode, words in self.blocks[block]:
                for value in words[1:]:
                    if value in self.block_of:
                        self.uses[value] += 1
                        if self.block_of[value] != block or opcode == PHI:
                            self.crossing.add(value)

    # -- pointers ----------------------------------------------------------------------------------

    def is_null(self, value: int) -> bool:
        """Return whether a value is the null pointer."""
        return value in self.kinds.constants and self.kinds.constants[value] is None

    def is_pointer(self, value: int) -> bool:
        """Whether a value points into known memory, or is a number computed from such a pointer."""
        return bool(self.roots.get(value))

    def _find_roots(self) -> None:
        roots = self.roots
        for parameter in self.parameters:
            kind = self.kinds.kind_of(parameter)
            if kind.tag == "pointer":
                tags = {_FUNCTION: "local", _CROSS: "binding", _WORKGROUP: "shared"}
                roots[parameter] = frozenset((Root(tags.get(kind.storage, "local"), parameter),))
        for identifier, one in self.module.globals.items():
            if one.opcode == VARIABLE and identifier not in self.kinds.built_ins:
                storage = self.module.words[one.start + 3]
                tag = "shared" if storage == _WORKGROUP else "table"
                roots[identifier] = frozenset((Root(tag, identifier),))
        for identifier, (base, _) in self.kinds.aliases.items():
            roots[identifier] = roots.get(base, frozenset())
        changed = True
        while changed:
            changed = False
            for value, definition in self.definitions.items():
                found = self._roots_of(value, definition)
                if found is not None and not found <= roots.get(value, frozenset()):
                    roots[value] = roots.get(value, frozenset()) | found
                    changed = True

    def _roots_of(self, value: int, one: Instruction) -> frozenset[Root] | None:
        opcode, words = one
        kind = self.kinds.kind(words[1])
        if opcode == VARIABLE:
            return frozenset((Root("local", value),))
        if opcode in CHAINS or opcode in CASTS:
            return self._union(words[3:4], kind.tag == "pointer")
        if opcode == IF_IN_STORAGE:
            given = self.roots.get(words[3], frozenset())
            tags = _TAGS_OF_STORAGE.get(words[4], ())
            kept = frozenset(root for root in given if root.tag in tags)
            return kept if kept == given else kept | {NULL}
        if opcode == SELECT:
            return self._union(words[4:6], kind.tag == "pointer")
        if opcode == PHI:
            return self._union(words[3::2], kind.tag == "pointer")
        if opcode in (_ADD, _SUBTRACT) and kind == I64:
            return self._union(words[3:5], False)
        if opcode == LOAD and kind.tag == "pointer":
            base = self.roots.get(words[3], frozenset())
            return frozenset(Root("indirect", root.id) for root in base if root.tag == "binding")
        return None

    def _union(self, values: Sequence[int], with_null: bool) -> frozenset[Root]:
        found = frozenset().union(*(self.roots.get(value, frozenset()) for value in values))
        if with_null and any(self.is_null(value) for value in values):
            found |= {NULL}
        return found

    # -- widths ------------------------------------------------------------------------------------

    def is_long(self, value: int) -> bool:
        """Return whether a value is an integer of 64 bits."""
        type_ = self.kinds.type_of.get(value)
        return type_ is not None and self.kinds.kind(type_) == I64

    def _wide_values(self) -> frozenset[int]:
        """64-bit integers whose upper half is needed; others keep only the lower half."""
        wide: set[int] = set()
        waiting: list[int] = []

        def want(values: Sequence[int]) -> None:
            for value in values:
                if self.is_long(value) and value not in wide:
                    wide.add(value)
                    waiting.append(value)

        for block in self.order:
            for opcode, words in self.blocks[block]:
                want(self._demanded(opcode, words))
        while waiting:
            value = waiting.pop()
            one = self.definitions.get(value)
            if one is not None:
                want(self._operands_needed(one))
        return frozenset(wide)

    def _demanded(self, opcode: int, words: Words) -> Sequence[int]:
        """Operands whose upper half an instruction always needs."""
        if opcode == STORE:
            return words[2:3]
        if opcode in COMPARES or opcode == 82:
            return words[3:5]
        if opcode in (111, 112) or opcode == SWITCH:  # conversions to floats
            return words[1:2] if opcode == SWITCH else words[3:4]
        if opcode == 124 and self.kinds.kind(words[1]) != I64:
            return words[3:4]
        if opcode == EXTENDED:
            return words[5:]
        if opcode in ATOMICS:
            return words[2:] if opcode == 228 else words[3:]
        if opcode in WHOLE and self.kinds.kind(words[1]) == I64:
            return (words[2], *words[3:5])
        return ()

    def _operands_needed(self, one: Instruction) -> Sequence[int]:
        """Operands whose upper half is needed for the upper half of a result."""
        opcode, words = one
        if opcode == _AND:
            masks = [self.kinds.constants.get(value) for value in words[3:5]]
            small = any(isinstance(mask, int) and mask < 1 << 32 for mask in masks)
            return () if small else words[3:5]
        if opcode in LOW_HALF or opcode in WHOLE:
            return words[3:5]
        if opcode == SELECT:
            return words[4:6]
        if opcode == PHI:
            return words[3::2]
        return words[3:4] if opcode == 83 or opcode in RESIZES else ()
