"""Atomic operations on words of 32 bits."""

from __future__ import annotations

from webgpu_backend.translator.analysis import ATOMIC_STORE, Analysis, Root
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import I32, refuse
from webgpu_backend.translator.pointers import Pointers

_COMPARE_EXCHANGE, _ATOMIC_LOAD, _EXCHANGE = 230, 227, 229
_FETCH = {234: "Add", 235: "Sub", 237: "Min", 239: "Max", 240: "And", 241: "Or", 242: "Xor"}
_SIGNED_FETCH = {236: "smallest", 238: "largest"}
_LOOPS = {
    "exchanged": "select(old, value, old == expected)",
    "smallest": "bitcast<u32>(min(bitcast<i32>(old), bitcast<i32>(value)))",
    "largest": "bitcast<u32>(max(bitcast<i32>(old), bitcast<i32>(value)))",
}
"""New value of a word that is `old`. WGSL's own exchange may fail spuriously."""


class Atomics(Pointers):
    """Instructions that change a word of memory at once."""

    def __init__(self, analysis: Analysis) -> None:
        """Begin."""
        super().__init__(analysis)
        self._loops: dict[str, None] = {}
        """Functions that repeat an exchange until it succeeds."""

    @property
    def loop_functions(self) -> list[str]:
        """The text of the functions that the operations call."""
        return [_loop_function(name) for name in self._loops]

    def atomic_operation(self, opcode: int, words: Words, out: list[str]) -> None:
        """Write an atomic instruction."""
        if opcode == ATOMIC_STORE:
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
        self.keep(result, f"v{result}", "u32", words[3], roots, texts, out)

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

    def _atomic_roots(self, pointer: int, value: int) -> list[Root]:
        """Return the roots of an atomic operation's pointer; their arrays become arrays of atomic
        words.
        """
        roots = self.real_roots(pointer)
        if self.kinds.kind_of(value) != I32:
            refuse("an atomic operation on other words than of 32 bits")
        if any(root.tag not in ("binding", "indirect", "shared") for root in roots):
            refuse("an atomic operation on memory of one work-item")
        self.atomic.update(roots)
        return roots

    def _loop(self, kind: str, array: str, at: str, value: int, expected: int) -> str:
        self._loops[f"{kind}_{array}"] = None
        return f"{kind}_{array}({at}, {self.value(value)}, {self.value(expected)})"


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
