"""Structures, arrays and vectors, whose scalars are separate variables of the text."""

from __future__ import annotations

from webgpu_backend.translator.analysis import EXTENDED
from webgpu_backend.translator.arithmetic import Arithmetic
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import I64, Kind, refuse


class Aggregates(Arithmetic):
    """Instructions whose operands or results have parts."""

    def define(self, result: int, text: str, kind: Kind) -> str:
        """Return a statement that gives a scalar a name.

        The name is a variable if another block uses the scalar.
        """
        if result not in self.analysis.crossing:
            return f"let v{result} = {text};"
        wide = self.is_wide(result) or kind != I64
        self.declare(f"v{result}", self.kinds.spelling(kind, wide))
        return f"v{result} = {text};"

    def all_parts(self, value: int) -> list[str]:
        """Return the scalars of a value: for a scalar, only the scalar itself."""
        aggregate = self.kinds.kind_of(value).is_aggregate
        wide = True if self.kinds.kind_of(value) == I64 else None
        return self.parts(value) if aggregate else [self.value(value, wide)]

    def keep_parts(self, words: Words, parts: list[str], out: list[str]) -> None:
        """Name the scalars of an aggregate."""
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

    def extract(self, words: Words, out: list[str]) -> None:
        """Take a part of an aggregate (OpCompositeExtract)."""
        result, source = words[2], words[3]
        kind = self.kinds.kind(words[1])
        at, type_ = self._offset_and_type(self.kinds.type_of[source], words[4:])
        parts = self.parts(source)
        if kind.is_aggregate:
            self.keep_parts(words, parts[at : at + len(self.kinds.scalars(type_))], out)
            return
        text = parts[at]
        if kind == I64 and (source in self.narrow_parts) == self.is_wide(result):
            text = f"u64({text})" if self.is_wide(result) else f"u32({text} & 0xfffffffflu)"
        out.append(self.define(result, text, kind))

    def _offset_and_type(self, type_: int, indices: Words) -> tuple[int, int]:
        """A part's first index among the scalars, and its type."""
        at = 0
        for index in indices:
            first, type_ = self.kinds.part(type_, index)
            at += first
        return at, type_

    def insert(self, words: Words, out: list[str]) -> None:
        """Replace a part of an aggregate (OpCompositeInsert)."""
        value, source = words[3], words[4]
        parts = list(self.parts(source))
        at, _ = self._offset_and_type(words[1], words[5:])
        inserted = self.all_parts(value)
        parts[at : at + len(inserted)] = inserted
        self.keep_parts(words, parts, out)

    def each_element(self, opcode: int, words: Words, kind: Kind) -> list[str]:
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

    def with_carry(self, opcode: int, words: Words) -> list[str]:
        """Return the two results of an addition, subtraction or product with a carry."""
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
