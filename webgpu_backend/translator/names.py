"""Names of values in the text, and the library functions it needs."""

from __future__ import annotations

from webgpu_backend.translator.analysis import LOAD, VARIABLE, Analysis, Root
from webgpu_backend.translator.barriers import TWIN, Barriers, Position
from webgpu_backend.translator.kinds import I64, Kind, refuse

_LETTERS = {"indirect": "i", TWIN: "s"}
"""First letters of names of arrays; other arrays have `r`."""
_FIRST_ELEMENT = 1 << 31
"""First number after every possible identifier of a module."""


class Names:
    """A kernel's text in progress. Values are the module's ids; their texts are expressions."""

    def __init__(self, analysis: Analysis) -> None:
        """Begin a text."""
        self.analysis = analysis
        self.kinds = analysis.kinds
        self.barriers = Barriers(analysis)
        self.position: Position = (0, 0)
        """The instruction that is written."""
        self.needs: set[str] = set()
        """Functions of the library."""
        self.declared: dict[str, None] = {}
        """Variables of the function, as their declarations."""
        self.parts_of: dict[int, list[str]] = {}
        """The scalars of aggregates."""
        self.narrow_parts: set[int] = set()
        """Aggregates of 64-bit integers with 32-bit parts: the built-in variables."""
        self.offset_names: dict[int, str] = {}
        """Names of the parameters that are pointers."""
        self.tag_names: dict[Root, str] = {}
        self.numbers: dict[Root, int] = {}
        """The tag of each root; 0 is the null pointer's."""
        self.atomic: set[Root] = set()
        """Roots with bytes that are written, or atomic words."""
        self.used_roots: dict[Root, None] = {}
        self._elements: dict[int, str] = {}
        """Elements of vectors, as separate values."""

    def need(self, function: str) -> None:
        """Add a function of the library to the text."""
        self.needs.add(function)

    def declare(self, name: str, spelling: str) -> None:
        """Add a variable to the function."""
        self.declared[f"var {name}: {spelling};"] = None

    # -- values ------------------------------------------------------------------------------------

    def is_wide(self, value: int) -> bool:
        """Return whether the text of a 64-bit integer has all 64 bits."""
        return value in self.analysis.wide or value in self._elements

    def element_of(self, type_: int, text: str) -> int:
        """Return a value of a type that has a text."""
        value = _FIRST_ELEMENT + len(self._elements)
        self._elements[value] = text
        self.kinds.type_of[value] = type_
        return value

    def value(self, value: int, wide: bool | None = None) -> str:
        """Return a scalar's text; `wide` asks for a `u64` or a `u32` of an integer of 64 bits."""
        kind = self.kinds.kind_of(value)
        if value in self.kinds.constants:
            bits = self.kinds.constants[value]
            if isinstance(bits, list):
                refuse("an aggregate where a number is expected")
            chosen = self.is_wide(value) or kind != I64 if wide is None else wide
            return self.literal(kind, bits or 0, chosen)
        if kind.tag == "pointer" or self.analysis.is_pointer(value):
            text = self.offset(value)
            return f"u64({text})" if wide else text
        text = self._elements.get(value) or f"v{value}"
        if kind == I64 and wide is not None and wide != self.is_wide(value):
            return f"u64({text})" if wide else f"u32({text})"
        return text

    def literal(self, kind: Kind, bits: int, wide: bool = True) -> str:
        """Return a constant's text."""
        text = self.kinds.literal(kind, bits, wide)
        if "nothing" in text:
            self.need("nothing")
        return text

    def parts(self, value: int) -> list[str]:
        """Return the texts of an aggregate's scalars."""
        if value in self.kinds.constants:
            bits = self.kinds.constants[value]
            scalars = self.kinds.scalars(self.kinds.type_of[value])
            numbers = bits if isinstance(bits, list) else [0] * len(scalars)
            return [
                self.literal(one.kind, number)
                for one, number in zip(scalars, numbers, strict=False)
            ]
        found = self.parts_of.get(value)
        if found is None:
            refuse(f"value {value} is used before it is made")
        return found

    @staticmethod
    def signed(text: str, bits: int) -> str:
        """Return an integer as an `i32` or `i64`."""
        if bits == 64:
            return f"bitcast<i64>({text})"
        if bits == 32:
            return f"bitcast<i32>({text})"
        return f"(bitcast<i32>({text} << {32 - bits}u) >> {32 - bits}u)"

    @staticmethod
    def cut(text: str, bits: int) -> str:
        """Return a number's low bits, as an integer of this width has them."""
        return f"({text} & {(1 << bits) - 1}u)" if bits < 32 else text

    # -- pointers ----------------------------------------------------------------------------------

    def offset(self, value: int) -> str:
        """Return a pointer's offset in its root."""
        if self.analysis.is_null(value):
            return "0u"
        if value in self.offset_names:
            return self.offset_names[value]
        alias = self.kinds.aliases.get(value)
        if alias is not None:
            base, indices = alias
            return self.chain(base, tuple(indices)) if indices else self.offset(base)
        definition = self.analysis.definitions.get(value)
        if definition is None:
            return "0u"
        if definition.opcode == VARIABLE:
            return "0u"
        if definition.opcode == LOAD:
            return f"oi{self.only_root(value).id}"
        return f"v{value}"

    def tag(self, value: int) -> str:
        """Return the tag of a pointer's root, 0 for the null pointer."""
        if self.analysis.is_null(value):
            return "0u"
        roots = self.analysis.roots.get(value, frozenset())
        if len(roots) != 1:
            return f"t{value}"
        (root,) = roots
        return self.tag_names.get(root, f"{self.number(root)}u")

    def number(self, root: Root) -> int:
        """Return the tag of a root."""
        if root.tag == "null":
            return 0
        return self.numbers.setdefault(root, len(self.numbers) + 1)

    def only_root(self, value: int) -> Root:
        """Return the one root of a pointer."""
        roots = self.analysis.roots.get(value, frozenset())
        if len(roots) != 1:
            refuse("a pointer that is read from memory, whose target is unknown")
        (root,) = roots
        return root

    def real_roots(self, value: int) -> list[Root]:
        """Return the roots of a pointer that have memory; none for a constant null pointer."""
        found = sorted(self.analysis.roots.get(value, frozenset()))
        if not found:
            refuse("a pointer whose target is unknown")
        return [root for root in found if root.tag != "null"]

    def root_name(self, root: Root) -> str:
        """Return the name of a root's array."""
        self.used_roots[root] = None
        return f"{_LETTERS.get(root.tag, 'r')}{root.id}"

    def chain(self, base: int, indices: tuple[int, ...]) -> str:
        """Return the offset of the element at the end of a chain of indices."""
        type_ = self.kinds.kind_of(base).element
        text = self.offset(base)
        terms = [] if text == "0u" else [text]
        fixed = 0
        for number, index in enumerate(indices):
            if number == 0:
                step = self.kinds.size(type_)
            else:
                kind = self.kinds.kind(type_)
                if kind.tag == "struct":
                    member = self.kinds.number(index)
                    fixed += self.kinds.member_offset(type_, member)
                    type_ = kind.members[member]
                    continue
                if kind.tag not in ("array", "vector"):
                    refuse(f"an index into a value of the kind {kind.tag}")
                type_ = kind.element
                step = self.kinds.size(type_)
            if index in self.kinds.constants:
                fixed += self.kinds.number(index) * step
            else:
                terms.append(f"{self._index(index)} * {step}u" if step != 1 else self._index(index))
        fixed &= 0xFFFFFFFF
        if fixed or not terms:
            terms.append(f"{fixed}u")
        text = " + ".join(terms)
        return f"({text})" if " " in text else text

    def _index(self, value: int) -> str:
        kind = self.kinds.kind_of(value)
        if kind.bits == 64:
            return self.value(value, False)
        if kind.bits < 32:
            return f"bitcast<u32>({self.signed(self.value(value), kind.bits)})"
        return self.value(value)
