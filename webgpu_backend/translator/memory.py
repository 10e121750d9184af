"""Loads and stores: memory is arrays of 32-bit words, and an access may mean part of a word.

A store of fewer than 32 bits keeps concurrent writes to the other bits: the array consists of
atomic words, and an atomic operation exchanges the bits that differ.
"""

from __future__ import annotations

from webgpu_backend.translator.analysis import Root
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import BOOL, F16, F32, Kind, refuse
from webgpu_backend.translator.names import Names

_ALIGNED = 2
"""Bit in the memory operands: the next word is the alignment."""
_MOST_COPIED = 4096
"""Most bytes of a copy that is written out as statements."""
_BYTES_IN_WORD = {1: "3u", 2: "2u"}
_MASKS = {1: "0xffu", 2: "0xffffu"}


class Memory(Names):
    """Instructions that read and write memory."""

    @staticmethod
    def alignment(words: Words, at: int) -> int:
        """Return the alignment that an instruction states, else 1."""
        stated = len(words) > at + 1 and words[at] & _ALIGNED
        return words[at + 1] if stated else 1

    def word(self, root: Root, index: str) -> str:
        """Return a word of a root."""
        name = self.root_name(root)
        return f"atomicLoad(&{name}[{index}])" if root in self.atomic else f"{name}[{index}]"

    def load_bits(self, root: Root, offset: str, size: int, aligned: int) -> str:
        """Return 1, 2 or 4 bytes as a `u32`."""
        if size == 4 and aligned >= 4:
            return self.word(root, f"{offset} >> 2u")
        if size == 4 or (size == 2 and aligned < 2):
            half = size // 2
            low = self.load_bits(root, offset, half, aligned)
            high = self.load_bits(root, f"({offset} + {half}u)", half, aligned)
            return f"({low} | ({high} << {8 * half}u))"
        word = self.word(root, f"{offset} >> 2u")
        return f"(({word} >> (({offset} & {_BYTES_IN_WORD[size]}) << 3u)) & {_MASKS[size]})"

    def load(self, root: Root, offset: str, kind: Kind, aligned: int, wide: bool) -> str:
        """Return a scalar of memory."""
        if kind.bits == 64:
            low = self.load_bits(root, offset, 4, aligned)
            if kind.tag == "int" and not wide:
                return low
            high = self.load_bits(root, f"({offset} + 4u)", 4, aligned)
            return f"(u64({low}) | (u64({high}) << 32u))"
        if kind == BOOL:
            return f"({self.load_bits(root, offset, 1, 1)} != 0u)"
        if kind.tag not in ("int", "float") or kind.bits not in (8, 16, 32):
            refuse(f"a load of the kind {kind.tag} of {kind.bits} bits")
        bits = self.load_bits(root, offset, kind.bits // 8, aligned)
        if kind == F32:
            return f"bitcast<f32>({bits})"
        if kind == F16:
            self.need("half")
            return f"half_of({bits})"
        return bits

    def store(
        self, root: Root, offset: str, kind: Kind, value: str, aligned: int, out: list[str]
    ) -> None:
        """Write a scalar to memory."""
        if kind.bits == 64:
            self._store_bits(root, offset, 4, f"u32({value} & 0xfffffffflu)", aligned, out)
            high = f"u32({value} >> 32u)"
            self._store_bits(root, f"({offset} + 4u)", 4, high, aligned, out)
        elif kind == BOOL:
            self._store_bits(root, offset, 1, f"u32({value})", 1, out)
        elif kind == F32:
            self._store_bits(root, offset, 4, f"bitcast<u32>({value})", aligned, out)
        elif kind == F16:
            self.need("half")
            self._store_bits(root, offset, 2, f"half_bits({value})", aligned, out)
        elif kind.tag == "int" and kind.bits in (8, 16, 32):
            self._store_bits(root, offset, kind.bits // 8, value, aligned, out)
        else:
            refuse(f"a store of the kind {kind.tag} of {kind.bits} bits")

    def _store_bits(
        self, root: Root, offset: str, size: int, value: str, aligned: int, out: list[str]
    ) -> None:
        target = f"{self.root_name(root)}[{offset} >> 2u]"
        if size == 4 and aligned >= 4:
            atomic = root in self.atomic
            out.append(f"atomicStore(&{target}, {value});" if atomic else f"{target} = {value};")
            return
        if size == 4 or (size == 2 and aligned < 2):
            half = size // 2
            self._store_bits(root, offset, half, f"({value} & {_MASKS[half]})", aligned, out)
            high = f"(({value} >> {8 * half}u) & {_MASKS[half]})"
            self._store_bits(root, f"({offset} + {half}u)", half, high, aligned, out)
            return
        shift = f"(({offset} & {_BYTES_IN_WORD[size]}) << 3u)"
        mask = _MASKS[size]
        if root.tag == "local":
            out.append(f"{target} = ({target} & ~({mask} << {shift})) | ({value} << {shift});")
            return
        self.atomic.add(root)
        old = f"(atomicLoad(&{target}) >> {shift})"
        out.append(f"atomicXor(&{target}, (({old} ^ {value}) & {mask}) << {shift});")

    def copy(self, words: Words, out: list[str]) -> None:
        """Write out a copy of this number of bytes (OpCopyMemorySized)."""
        target, source = self.only_root(words[1]), self.only_root(words[2])
        count = self.kinds.number(words[3])
        if count > _MOST_COPIED:
            refuse(f"a copy of {count} bytes")
        aligned = self.alignment(words, 4)
        to, start = self.offset(words[1]), self.offset(words[2])
        at = 0
        while at < count:
            step = next(size for size in (4, 2, 1) if at + size <= count)
            value = self.load_bits(source, f"({start} + {at}u)", step, aligned)
            self._store_bits(target, f"({to} + {at}u)", step, value, aligned, out)
            at += step
