"""One kernel as WGSL: its instructions, its parameters, the module around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import Entry
from webgpu_backend.translator.analysis import (
    ATOMICS,
    BRANCH,
    BRANCH_IF,
    CASTS,
    CHAINS,
    EXTENDED,
    IF_IN_STORAGE,
    LOAD,
    NO_RESULT,
    PHI,
    SELECT,
    STORE,
    SWITCH,
    VARIABLE,
    Analysis,
    Root,
)
from webgpu_backend.translator.arithmetic import Arithmetic
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.control_flow import Graph, structured
from webgpu_backend.translator.kinds import BOOL, F16, F32, F64, I32, I64, Kind, refuse
from webgpu_backend.translator.library import library

VERSION = "8"
"""Part of the cache's key: increase it when the translation changes."""

GRID_WORDS = 4
"""The grid's x, y, z, and the first block's x, for a dispatch that is part of a launch."""
NOWHERE = 0xFFFFFFFF
_COPY_SIZED, _CONTROL_BARRIER, _MEMORY_BARRIER = 64, 224, 225
_EXTRACT, _INSERT, _COMPOSE, _SHUFFLE = 81, 82, 80, 79
_WITH_CARRY = frozenset((149, 150, 151))
"""OpIAddCarry, OpISubBorrow, OpUMulExtended."""
_LIFETIMES = frozenset((246, 247, 256, 257))
_COMPARE_EXCHANGE, _ATOMIC_LOAD, _ATOMIC_STORE, _EXCHANGE = 230, 227, 228, 229
_FETCH = {234: "Add", 235: "Sub", 237: "Min", 239: "Max", 240: "And", 241: "Or", 242: "Xor"}
_INTEGER_SUMS = {128: "+", 130: "-"}
_SIGNED_FETCH = {236: "smallest", 238: "largest"}
_CROSS, _FUNCTION = 5, 7
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Argument:
    """A parameter of the native kernel, or a table behind them."""

    kind: str
    """value, pointer, shared, table, or indirect: the memory behind a module variable."""
    index: int
    """Index among the native parameters, or among the tables."""
    size: int = 8
    word: int = NOWHERE
    """Index in the parameter words: a value, or a pointer's offset and its tag."""
    tag: int = 0
    binding: int = NOWHERE


@dataclass(frozen=True)
class Translation:
    """A kernel in WGSL, and how it is launched."""

    text: str
    words: int
    """Words of parameters, a multiple of 4."""
    arguments: tuple[Argument, ...]
    bindings: int
    tables: tuple[bytes, ...]
    shared_bytes: int
    """Static."""
    has_shared: bool
    """Whether it has the launch's shared memory, too."""
    has_uniform: bool


def translate(
    module: SpirvModule, entry: Entry, immediate_bytes: int, hidden: int = 0
) -> Translation:
    """Return a kernel that `spirv_slices.Cutter` cut out, as WGSL.

    Its parameters are immediates if the device has room; the last `hidden` of them are variables of
    the module. Raises `NotSupportedError`
    with the reason for a kernel that cannot be written, `InvalidImageError` for a damaged one.
    """
    try:
        analysis = Analysis(module, entry)
        atomic: set[Root] = set()
        while True:
            writer = Writer(analysis, hidden)
            writer.atomic = set(atomic)
            found = writer.write(immediate_bytes)
            if writer.atomic == atomic:
                return found
            atomic = writer.atomic
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        refuse(f"its instructions are damaged ({type(error).__name__})")


class Writer(Arithmetic):
    """Writes one kernel."""

    def __init__(self, analysis: Analysis, hidden: int) -> None:
        """Begin."""
        super().__init__(analysis)
        self._own = len(analysis.parameters) - hidden
        self._words = GRID_WORDS
        self._prologue: list[str] = []
        self._copies: list[tuple[Root, list[str]]] = []
        """Statements that copy a structure passed by value into its variable."""
        self._arguments: list[Argument] = []
        self._tables: list[bytes] = []
        self._loops: dict[str, None] = {}
        """Functions that repeat an exchange until it succeeds."""

    def write(self, immediate_bytes: int) -> Translation:
        """Return the whole text."""
        self._lay_out()
        code = {block: self._code(block) for block in self.analysis.order}
        lines = structured(
            Graph(self.analysis.order, self.analysis.successors, code, self._choices, self._moves)
        )
        return self._module(lines, immediate_bytes)

    # -- parameters --------------------------------------------------------------------------------

    def _word(self, index: int) -> str:
        return f"P.w[{index >> 2}].{'xyzw'[index & 3]}"

    def _take_words(self, count: int) -> int:
        self._words += count
        return self._words - count

    def _lay_out(self) -> None:
        for index, parameter in enumerate(self.analysis.parameters):
            kind = self.kinds.kind_of(parameter)
            if kind.tag != "pointer":
                self._value_parameter(index, parameter, kind)
            elif kind.storage == _CROSS:
                root = Root("binding", parameter)
                self._pointer_parameter(index, "pointer", root, f"{parameter}")
            elif kind.storage == _FUNCTION:
                self._structure_parameter(index, parameter, kind)
            else:
                self._arguments.append(Argument("shared", index))
        reached = {root for roots in self.analysis.roots.values() for root in roots}
        for root in sorted(reached):
            if root.tag == "indirect":
                index = self.analysis.parameters.index(root.id)
                if index < self._own:
                    refuse("a pointer to pointers among its parameters")
                self._pointer_parameter(index, "indirect", root, f"i{root.id}")

    def _pointer_parameter(self, index: int, kind: str, root: Root, name: str) -> None:
        word = self._take_words(2)
        self._prologue += [
            f"let o{name} = {self._word(word)};",
            f"let t{name} = {self._word(word + 1)};",
        ]
        if kind == "pointer":
            self.offset_names[root.id] = f"o{name}"
        self.tag_names[root] = f"t{name}"
        self._arguments.append(Argument(kind, index, 8, word, self.number(root)))

    def _structure_parameter(self, index: int, parameter: int, kind: Kind) -> None:
        size = self.kinds.size(kind.element)
        count = -(-size // 4)
        word = self._take_words(count)
        copies = [f"r{parameter}[{at}] = {self._word(word + at)};" for at in range(count)]
        self._copies.append((Root("local", parameter), copies))
        self._arguments.append(Argument("value", index, size, word))

    def _value_parameter(self, index: int, parameter: int, kind: Kind) -> None:
        word = self._take_words(2 if kind.bits == 64 else 1)
        low, name = self._word(word), f"v{parameter}"
        if kind == F64 or (kind == I64 and self.is_wide(parameter)):
            text = f"u64({low}) | (u64({self._word(word + 1)}) << 32u)"
        elif kind == F32:
            text = f"bitcast<f32>({low})"
        elif kind == F16:
            self.need("half")
            text = f"half_of({low} & 0xffffu)"
        elif kind == BOOL:
            text = f"({low} & 0xffu) != 0u"
        elif kind.tag == "int":
            text = self.cut(low, kind.bits)
        else:
            refuse(f"parameter {index} of the kind {kind.tag}")
        self._prologue.append(f"let {name} = {text};")
        size = max(kind.bits // 8, 1)
        self._arguments.append(Argument("value", index, size, word))

    # -- control flow ------------------------------------------------------------------------------

    def _choices(self, block: int) -> list[tuple[str, int]]:
        opcode, words = self.analysis.blocks[block][-1]
        if opcode == BRANCH:
            return [("", words[1])]
        if opcode == BRANCH_IF:
            if words[2] == words[3]:
                return [("", words[2])]
            return [(self.value(words[1]), words[2]), ("", words[3])]
        if opcode != SWITCH:
            return []
        kind = self.kinds.kind_of(words[1])
        wide = True if kind.bits == 64 else None
        chosen = self.value(words[1], wide)
        cases = self.analysis.cases(words).items()
        listed = [(f"({chosen} == {self.literal(kind, value)})", target) for value, target in cases]
        return [*listed, ("", words[2])]

    def _moves(self, source: int, target: int) -> list[str]:
        """Simultaneous assignments to a block's phis, on an edge from another block."""
        moves: list[tuple[str, str]] = []
        for opcode, words in self.analysis.blocks[target]:
            if opcode != PHI:
                break
            if self.analysis.uses.get(words[2]):
                moves += self._moved(words, source)
        moves = [(to, text) for to, text in moves if to != text]
        targets = {to for to, _ in moves}
        clash = any(set(_WORD.findall(text)) & (targets - {to}) for to, text in moves)
        if not clash:
            return [f"{to} = {text};" for to, text in moves]
        edge = f"{source}_{target}"
        return [
            *(f"let n{index}_{edge} = {text};" for index, (_, text) in enumerate(moves)),
            *(f"{to} = n{index}_{edge};" for index, (to, _) in enumerate(moves)),
        ]

    def _moved(self, words: Words, source: int) -> list[tuple[str, str]]:
        result = words[2]
        pairs = range(3, len(words) - 1, 2)
        given = next((words[at] for at in pairs if words[at + 1] == source), None)
        if given is None:
            refuse(f"a phi without a value for block {source}")
        if self.analysis.is_pointer(result):
            moves = [(f"v{result}", self.offset(given))]
            if len(self.analysis.roots[result]) > 1:
                moves.append((f"t{result}", self.tag(given)))
            return moves
        kind = self.kinds.kind(words[1])
        if kind.is_aggregate:
            return [(f"v{result}_{at}", text) for at, text in enumerate(self.parts(given))]
        return [(f"v{result}", self.value(given, self.is_wide(result) if kind == I64 else None))]

    # -- instructions ------------------------------------------------------------------------------

    def _code(self, block: int) -> list[str]:
        out: list[str] = []
        for opcode, words in self.analysis.blocks[block][:-1]:
            if opcode == PHI:
                self._declare_phi(words)
            else:
                self._emit(opcode, words, out)
        return out

    def _declare_phi(self, words: Words) -> None:
        result = words[2]
        if not self.analysis.uses.get(result):
            return
        kind = self.kinds.kind(words[1])
        if kind.is_aggregate:
            scalars = self.kinds.scalars(words[1])
            self.parts_of[result] = [f"v{result}_{at}" for at in range(len(scalars))]
            for at, one in enumerate(scalars):
                self.declare(f"v{result}_{at}", self.kinds.spelling(one.kind))
        elif self.analysis.is_pointer(result):
            self.declare(f"v{result}", "u32")
            if len(self.analysis.roots[result]) > 1:
                self.declare(f"t{result}", "u32")
        else:
            wide = self.is_wide(result) or kind != I64
            self.declare(f"v{result}", self.kinds.spelling(kind, wide))

    def _define(self, result: int, text: str, kind: Kind) -> str:
        if result not in self.analysis.crossing:
            return f"let v{result} = {text};"
        wide = self.is_wide(result) or kind != I64
        self.declare(f"v{result}", self.kinds.spelling(kind, wide))
        return f"v{result} = {text};"

    def _emit(self, opcode: int, words: Words, out: list[str]) -> None:
        if opcode in _LIFETIMES or opcode == _MEMORY_BARRIER:
            return  # a fence orders what WGSL's relaxed atomics and barriers order already
        if opcode == _CONTROL_BARRIER:
            out += ["workgroupBarrier();", "storageBarrier();"]
        elif opcode == STORE:
            self._store(words, out)
        elif opcode == _COPY_SIZED:
            self.copy(words, out)
        elif opcode in ATOMICS:
            self._atomic(opcode, words, out)
        elif opcode in NO_RESULT:
            refuse(f"instruction {opcode}")
        elif self.analysis.uses.get(words[2]):
            self._compute(opcode, words, out)

    def _compute(self, opcode: int, words: Words, out: list[str]) -> None:
        result, kind = words[2], self.kinds.kind(words[1])
        if self.analysis.is_pointer(result) and opcode != LOAD:
            self._pointer(opcode, words, out)
        elif opcode == LOAD:
            self._load(words, out)
        elif opcode == _EXTRACT:
            self._extract(words, out)
        elif opcode == _INSERT:
            self._insert(words, out)
        elif opcode == _COMPOSE:
            parts = [text for one in words[3:] for text in self._all_parts(one)]
            self._keep_parts(words, parts, out)
        elif opcode == SELECT and kind.is_aggregate:
            yes, no = self.parts(words[4]), self.parts(words[5])
            choice = self.value(words[3])
            pairs = zip(no, yes, strict=True)
            self._keep_parts(words, [f"select({a}, {b}, {choice})" for a, b in pairs], out)
        elif opcode == _SHUFFLE:
            parts = [*self.parts(words[3]), *self.parts(words[4])]
            self._keep_parts(words, [parts[at] for at in words[5:]], out)
        elif opcode in _WITH_CARRY:
            self._keep_parts(words, self._with_carry(opcode, words), out)
        elif kind.tag == "vector":
            self._keep_parts(words, self._each(opcode, words, kind), out)
        elif kind.is_aggregate:
            refuse(f"instruction {opcode} on structures")
        else:
            out.append(self._define(result, self.expression(opcode, words, kind), kind))

    # -- pointers ----------------------------------------------------------------------------------

    def _pointer(self, opcode: int, words: Words, out: list[str]) -> None:
        result, tag_if_kept = words[2], ""
        if opcode == VARIABLE:
            if len(words) > 4:
                refuse("a variable with a value to begin with")
            return
        if opcode in CHAINS:
            offset = self.chain(words[3], tuple(words[4:]))
        elif opcode in CASTS:
            offset = self.offset(words[3])
        elif opcode == SELECT:
            offset = (
                f"select({self.offset(words[5])}, {self.offset(words[4])}, {self.value(words[3])})"
            )
        elif opcode in _INTEGER_SUMS:
            left, right = self.value(words[3], False), self.value(words[4], False)
            offset = f"({left} {_INTEGER_SUMS[opcode]} {right})"
        elif opcode == IF_IN_STORAGE:
            offset, tag_if_kept = self._if_in_storage(words)
        else:
            refuse(f"a pointer made by instruction {opcode}")
        names = [(f"v{result}", offset)]
        if len(self.analysis.roots[result]) > 1:
            tag = self.tag(words[3])
            if opcode == SELECT:
                tag = f"select({self.tag(words[5])}, {self.tag(words[4])}, {self.value(words[3])})"
            if opcode == IF_IN_STORAGE:
                tag = tag_if_kept
            names.append((f"t{result}", tag))
        for name, text in names:
            if result in self.analysis.crossing:
                self.declare(name, "u32")
                out.append(f"{name} = {text};")
            else:
                out.append(f"let {name} = {text};")

    def _if_in_storage(self, words: Words) -> tuple[str, str]:
        """Offset and tag of a pointer; both null unless it points into memory of a kind."""
        roots, offset, tag = (
            self.analysis.roots[words[2]],
            self.offset(words[3]),
            self.tag(words[3]),
        )
        kept = sorted(self.number(root) for root in roots if root.tag != "null")
        if not kept:
            return "0u", "0u"
        if len(kept) == len(roots):
            return offset, tag
        is_kept = " || ".join(f"({tag} == {number}u)" for number in kept)
        return f"select(0u, {offset}, {is_kept})", f"select(0u, {tag}, {is_kept})"

    # -- memory ------------------------------------------------------------------------------------

    @staticmethod
    def _behind(offset: str, count: int) -> str:
        return f"({offset} + {count}u)" if count else offset

    def _load(self, words: Words, out: list[str]) -> None:
        type_, result, pointer = words[1], words[2], words[3]
        kind = self.kinds.kind(type_)
        if pointer in self.kinds.built_ins:
            name = self.kinds.built_ins[pointer]
            if not name:
                refuse("a built-in variable that is no index of a work-item or a block")
            self.parts_of[result] = [f"{name}.{axis}" for axis in "xyz"]
            self.narrow_parts.add(result)
            return
        if kind.tag == "pointer":
            if self._beginning(pointer) != self.only_root(result).id:
                refuse("a pointer that is read from memory, of which nothing is known")
            return
        roots = self.real_roots(pointer)
        offset, aligned = self.offset(pointer), self.alignment(words, 4)
        wide = self.is_wide(result) or kind.is_aggregate
        names: list[str] = []
        for index, one in enumerate(self.kinds.scalars(type_)):
            name = f"v{result}_{index}" if kind.is_aggregate else f"v{result}"
            names.append(name)
            near = min(aligned, (one.offset & -one.offset) or aligned)
            texts = [
                self.load(root, self._behind(offset, one.offset), one.kind, near, wide)
                for root in roots
            ]
            spelling = self.kinds.spelling(one.kind, wide)
            self._keep(result, name, spelling, pointer, roots, texts, out)
        if kind.is_aggregate:
            self.parts_of[result] = names

    def _beginning(self, pointer: int) -> int:
        """Return the pointer behind casts and zero indices: it points to the same byte."""
        while True:
            alias = self.kinds.aliases.get(pointer)
            if alias is not None:
                base, indices = alias
            else:
                one = self.analysis.definitions.get(pointer)
                if one is None or one.opcode not in CASTS | CHAINS:
                    return pointer
                base, indices = one.words[3], () if one.opcode in CASTS else tuple(one.words[4:])
            if any(self.kinds.constants.get(index) != 0 for index in indices):
                return pointer
            pointer = base

    def _keep(
        self,
        result: int,
        name: str,
        spelling: str,
        pointer: int,
        roots: list[Root],
        texts: list[str],
        out: list[str],
    ) -> None:
        """Name a value read from one of several roots; 0 without roots."""
        if not roots:
            texts = [f"{spelling}()"]
        if len(roots) > 1:
            self.declare(name, spelling)
            tag = self.tag(pointer)
            for root, text in zip(roots, texts, strict=True):
                out.append(f"if ({tag} == {self.number(root)}u) {{ {name} = {text}; }}")
        elif result in self.analysis.crossing:
            self.declare(name, spelling)
            out.append(f"{name} = {texts[0]};")
        else:
            out.append(f"let {name} = {texts[0]};")

    def _store(self, words: Words, out: list[str]) -> None:
        pointer, value = words[1], words[2]
        type_ = self.kinds.type_of[value]
        kind = self.kinds.kind(type_)
        if kind.tag == "pointer":
            refuse("a pointer that is written to memory")
        roots = self.real_roots(pointer)
        offset, aligned = self.offset(pointer), self.alignment(words, 3)
        texts = self._all_parts(value)
        scalars = self.kinds.scalars(type_)
        for root in roots:
            lines: list[str] = []
            for one, text in zip(scalars, texts, strict=True):
                near = min(aligned, (one.offset & -one.offset) or aligned)
                position = self._behind(offset, one.offset)
                self.store(root, position, one.kind, text, near, lines)
            if len(roots) > 1:
                lines = [
                    f"if ({self.tag(pointer)} == {self.number(root)}u) {{ {' '.join(lines)} }}"
                ]
            out += lines

    def _atomic_roots(self, pointer: int, value: int) -> list[Root]:
        """The word of an atomic operation; the arrays are of atomic words."""
        roots = self.real_roots(pointer)
        if self.kinds.kind_of(value) != I32:
            refuse("an atomic operation on other words than of 32 bits")
        if any(root.tag not in ("binding", "indirect", "shared") for root in roots):
            refuse("an atomic operation on memory of one work-item")
        self.atomic.update(roots)
        return roots

    def _atomic(self, opcode: int, words: Words, out: list[str]) -> None:
        if opcode == _ATOMIC_STORE:
            roots = self._atomic_roots(words[1], words[4])
            at, value = f"{self.offset(words[1])} >> 2u", self.value(words[4])
            for root in roots:
                line = f"atomicStore(&{self.root_name(root)}[{at}], {value});"
                if len(roots) > 1:
                    line = f"if ({self.tag(words[1])} == {self.number(root)}u) {{ {line} }}"
                out.append(line)
            return
        result = words[2]
        roots = self._atomic_roots(words[3], result)
        texts = [self._atomic_text(opcode, words, root) for root in roots]
        self._keep(result, f"v{result}", "u32", words[3], roots, texts, out)

    def _atomic_text(self, opcode: int, words: Words, root: Root) -> str:
        name, at = self.root_name(root), f"{self.offset(words[3])} >> 2u"
        if opcode == _ATOMIC_LOAD:
            return f"atomicLoad(&{name}[{at}])"
        if opcode == _COMPARE_EXCHANGE:
            return self._loop("exchanged", name, at, words[7], words[8])
        value = self.value(words[6])
        if opcode in _SIGNED_FETCH:
            return self._loop(_SIGNED_FETCH[opcode], name, at, words[6], words[6])
        if opcode == _EXCHANGE:
            return f"atomicExchange(&{name}[{at}], {value})"
        if opcode in _FETCH:
            return f"atomic{_FETCH[opcode]}(&{name}[{at}], {value})"
        refuse(f"atomic instruction {opcode}")

    def _loop(self, kind: str, array: str, at: str, value: int, expected: int) -> str:
        self._loops[f"{kind}_{array}"] = None
        return f"{kind}_{array}({at}, {self.value(value)}, {self.value(expected)})"

    # -- aggregates --------------------------------------------------------------------------------

    def _all_parts(self, value: int) -> list[str]:
        aggregate = self.kinds.kind_of(value).is_aggregate
        wide = True if self.kinds.kind_of(value) == I64 else None
        return self.parts(value) if aggregate else [self.value(value, wide)]

    def _offset_and_type(self, type_: int, indices: Words) -> tuple[int, int]:
        """A part's first index among the scalars, and its type."""
        at = 0
        for index in indices:
            first, type_ = self.kinds.part(type_, index)
            at += first
        return at, type_

    def _extract(self, words: Words, out: list[str]) -> None:
        result, source = words[2], words[3]
        kind = self.kinds.kind(words[1])
        at, type_ = self._offset_and_type(self.kinds.type_of[source], words[4:])
        parts = self.parts(source)
        if kind.is_aggregate:
            self._keep_parts(words, parts[at : at + len(self.kinds.scalars(type_))], out)
            return
        text = parts[at]
        if kind == I64 and (source in self.narrow_parts) == self.is_wide(result):
            text = f"u64({text})" if self.is_wide(result) else f"u32({text} & 0xfffffffflu)"
        out.append(self._define(result, text, kind))

    def _insert(self, words: Words, out: list[str]) -> None:
        value, source = words[3], words[4]
        parts = list(self.parts(source))
        at, _ = self._offset_and_type(words[1], words[5:])
        inserted = self._all_parts(value)
        parts[at : at + len(inserted)] = inserted
        self._keep_parts(words, parts, out)

    def _each(self, opcode: int, words: Words, kind: Kind) -> list[str]:
        """Result of an instruction on vectors, element by element."""
        first = 5 if opcode == EXTENDED else 3
        found: list[str] = []
        for at in range(kind.length):
            one = words[:]
            one[1] = kind.element
            one[2] = self.element_of(kind.element, "")
            for position in range(first, len(one)):
                given = self.kinds.kind_of(one[position])
                if given.tag == "vector":
                    text = self.parts(one[position])[at]
                    one[position] = self.element_of(given.element, text)
            found.append(self.expression(opcode, one, self.kinds.kind(kind.element)))
        return found

    def _with_carry(self, opcode: int, words: Words) -> list[str]:
        a, b = (self.value(one, True) for one in words[3:5])
        kind = self.kinds.kind_of(words[3])
        one, none = ("1lu", "0lu") if kind.bits == 64 else ("1u", "0u")
        if kind.bits < 32 or (opcode == 151 and kind.bits != 32):
            refuse(f"instruction {opcode} on integers of {kind.bits} bits")
        if opcode == 149:
            return [f"({a} + {b})", f"select({none}, {one}, ({a} + {b}) < {a})"]
        if opcode == 150:
            return [f"({a} - {b})", f"select({none}, {one}, {a} < {b})"]
        return [f"({a} * {b})", f"u32((u64({a}) * u64({b})) >> 32u)"]

    def _keep_parts(self, words: Words, parts: list[str], out: list[str]) -> None:
        result = words[2]
        if result in self.analysis.crossing:
            names = []
            for at, (one, text) in enumerate(zip(self.kinds.scalars(words[1]), parts, strict=True)):
                name = f"v{result}_{at}"
                self.declare(name, self.kinds.spelling(one.kind))
                out.append(f"{name} = {text};")
                names.append(name)
            parts = names
        self.parts_of[result] = parts

    # -- the module --------------------------------------------------------------------------------

    def _module(self, body: list[str], immediate_bytes: int) -> Translation:
        words = -(-self._words // 4) * 4
        has_uniform = words * 4 > immediate_bytes
        space = "@group(0) @binding(0) var<uniform>" if has_uniform else "var<immediate>"
        head = [f"struct Params {{ w: array<vec4<u32>, {words // 4}> }}", f"{space} P: Params;"]
        for axis in "xyz":
            head.append(f"override block_{axis}: u32 = 1u;")
        bindings: dict[Root, int] = {}
        shared_bytes, has_shared = 0, False
        local: list[str] = []
        for root in sorted(self.used_roots):
            name = self.root_name(root)
            element = "atomic<u32>" if root in self.atomic else "u32"
            if root.tag in ("binding", "indirect", "table"):
                number = bindings[root] = len(bindings)
                where = f"@group(0) @binding({number + 1}) var<storage, read_write>"
                head.append(f"{where} {name}: array<{element}>;")
                if root.tag == "table":
                    self._table(root, number)
            elif root.tag == "local":
                local.append(f"var {name}: array<u32, {self._words_of(root)}>;")
            elif root.id in self.analysis.parameters:
                has_shared = True
                head.append("override shared_words: u32 = 1u;")
                head.append(f"var<workgroup> {name}: array<{element}, shared_words>;")
            else:
                shared_bytes += 4 * self._words_of(root)
                head.append(f"var<workgroup> {name}: array<{element}, {self._words_of(root)}>;")
        copies = [line for root, lines in self._copies if root in self.used_roots for line in lines]
        text = "\n".join(
            [
                *head,
                library(self.needs),
                *map(_loop_function, self._loops),
                "@compute @workgroup_size(block_x, block_y, block_z)",
                "fn kernel(@builtin(local_invocation_id) thread_id: vec3<u32>,",
                "          @builtin(workgroup_id) dispatched: vec3<u32>) {",
                "let grid = P.w[0].xyz;",
                # No constant: naga would refuse sums of it that wrap around.
                "var block = vec3<u32>(block_x, block_y, block_z);",
                "let block_id = dispatched + vec3<u32>(P.w[0].w, 0u, 0u);",
                *self._prologue,
                *local,
                *copies,
                *self.declared,
                *body,
                "}\n",
            ]
        )
        arguments = tuple(self._bound(one, bindings) for one in self._arguments)
        return Translation(
            text,
            words,
            arguments,
            len(bindings),
            tuple(self._tables),
            shared_bytes,
            has_shared,
            has_uniform,
        )

    def _bound(self, argument: Argument, bindings: dict[Root, int]) -> Argument:
        if argument.kind not in ("pointer", "indirect"):
            return argument
        tag = "binding" if argument.kind == "pointer" else "indirect"
        root = Root(tag, self.analysis.parameters[argument.index])
        binding = bindings.get(root, NOWHERE)
        return Argument(
            argument.kind, argument.index, argument.size, argument.word, argument.tag, binding
        )

    def _words_of(self, root: Root) -> int:
        """Words of a variable, or of a parameter that is passed by value."""
        return max(1, -(-self.kinds.size(self.kinds.kind_of(root.id).element) // 4))

    def _table(self, root: Root, binding: int) -> None:
        words = self.analysis.module.operands(root.id)
        if len(words) < 5:
            refuse("a constant variable without a value")
        data = self.kinds.packed(self.kinds.kind_of(root.id).element, words[4])
        index = len(self._tables)
        self._tables.append(data + bytes(-len(data) % 4))
        self._arguments.append(Argument("table", index, 8, NOWHERE, 0, binding))


_LOOPS = {
    "exchanged": "select(old, value, old == expected)",
    "smallest": "bitcast<u32>(min(bitcast<i32>(old), bitcast<i32>(value)))",
    "largest": "bitcast<u32>(max(bitcast<i32>(old), bitcast<i32>(value)))",
}
"""New value of a word that is `old`. WGSL's own exchange may fail spuriously."""


def _loop_function(name: str) -> str:
    kind, _, array = name.partition("_")
    return f"""fn {name}(at: u32, value: u32, expected: u32) -> u32 {{
  var old = atomicLoad(&{array}[at]);
  loop {{
    let wanted = {_LOOPS[kind]};
    let found = atomicCompareExchangeWeak(&{array}[at], old, wanted);
    if (found.exchanged) {{ break; }}
    old = found.old_value;
  }}
  return old;
}}"""
