"""Pointers as an offset and a tag, and the values that they point to.

The tag says which of several roots a pointer has: a binding, a variable, shared memory.
"""

from __future__ import annotations

from webgpu_backend.translator.aggregates import Aggregates
from webgpu_backend.translator.analysis import CASTS, CHAINS, IF_IN_STORAGE, SELECT, VARIABLE, Root
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import refuse

_INTEGER_SUMS = {128: "+", 130: "-"}


class Pointers(Aggregates):
    """Instructions that make pointers, read values and write values."""

    def pointer(self, opcode: int, words: Words, out: list[str]) -> None:
        """Name the offset of a pointer, and its tag if it has several roots."""
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
        """Return offset and tag of a pointer into the given storage, else nulls."""
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

    def read_value(self, words: Words, out: list[str]) -> None:
        """Read a value from memory (OpLoad)."""
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
                refuse("a pointer that is read from memory, whose target is unknown")
            return
        roots = self._roots_here(pointer)
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
            self.keep(result, name, spelling, pointer, roots, texts, out)
        if kind.is_aggregate:
            self.parts_of[result] = names

    def _roots_here(self, pointer: int) -> list[Root]:
        return [self.barriers.root_at(self.position, root) for root in self.real_roots(pointer)]

    def _beginning(self, pointer: int) -> int:
        """Return the pointer before casts and zero indices, which points to the same byte."""
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

    def write_value(self, words: Words, out: list[str]) -> None:
        """Write a value to memory (OpStore)."""
        pointer, value = words[1], words[2]
        type_ = self.kinds.type_of[value]
        kind = self.kinds.kind(type_)
        if kind.tag == "pointer":
            refuse("a pointer that is written to memory")
        roots = self._roots_here(pointer)
        offset, aligned = self.offset(pointer), self.alignment(words, 3)
        texts = self.all_parts(value)
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

    def keep(
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

    @staticmethod
    def _behind(offset: str, count: int) -> str:
        return f"({offset} + {count}u)" if count else offset
