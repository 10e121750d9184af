"""Barriers of a kernel: the memory that each must order, and exchanges with two buffers.

SPIR-V's barrier orders shared memory and storage. WGSL has a barrier for each, and each costs as
much as the original. A barrier is written only where accesses before and after it conflict.

An exchange is a store of each work-item to its own place of a shared array, a barrier, loads of
other places, and a barrier before the next store. With two arrays in turn, the second barrier is
not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webgpu_backend.translator.analysis import (
    ATOMIC_STORE,
    ATOMICS,
    CASTS,
    CHAINS,
    COMPARES,
    CONTROL_BARRIER,
    COPY_SIZED,
    EXTRACT,
    LOAD,
    LOW_HALF,
    RESIZES,
    SELECT,
    STORE,
    WHOLE,
    Analysis,
    Root,
)
from webgpu_backend.translator.calls import Instruction

STORAGE = Root("storage", 0)
"""All storage: two bindings may be one buffer."""
TWIN = "twin"
"""The tag of a second array, which takes turns with a shared array."""
_IN_STORAGE = frozenset(("binding", "indirect"))
_MOST_BARRIERS = 1000
"""A kernel with more barriers keeps all: the search takes time for each."""
_MOST_SHARED_BYTES = 16384
"""Shared memory that every device has."""

_PURE = CASTS | CHAINS | LOW_HALF | WHOLE | COMPARES | RESIZES | {EXTRACT, SELECT}
_MOST_DEEP = 64
"""Most instructions between a pointer and the values that it is computed from."""

Position = tuple[int, int]
"""A block, and the index of an instruction in it."""


class Access(NamedTuple):
    """A read or a write of memory that work-items share."""

    root: Root
    is_write: bool


class Barriers:
    """Facts about the barriers of one kernel."""

    def __init__(self, analysis: Analysis) -> None:
        """Find the exchanges, then the conflicts."""
        self._analysis = analysis
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[int, int | None] = {}
        self._predecessors: dict[int, list[int]] = {block: [] for block in analysis.order}
        for block in analysis.order:
            for successor in analysis.successors[block]:
                self._predecessors[successor].append(block)
        self._twins: frozenset[Position] = frozenset().union(*self._turns())
        self._events = {block: list(self._events_of(block)) for block in analysis.order}
        barriers = [
            event
            for events in self._events.values()
            for event in events
            if not isinstance(event, Access)
        ]
        self._needed = {
            is_storage: self._conflicting(barriers, is_storage) for is_storage in (False, True)
        }

    def root_at(self, position: Position, root: Root) -> Root:
        """Return the array that an instruction accesses: a root, or its twin."""
        return Root(TWIN, root.id) if position in self._twins else root

    def barriers_at(self, position: Position) -> list[str]:
        """Return WGSL's barriers for a barrier of SPIR-V."""
        texts = {False: "workgroupBarrier();", True: "storageBarrier();"}
        return [text for is_storage, text in texts.items() if position in self._needed[is_storage]]

    # -- accesses ----------------------------------------------------------------------------------

    def _accesses(self, one: Instruction) -> Iterator[Access]:
        opcode, words = one
        found: Sequence[tuple[int, bool]] = ()
        if opcode == STORE:
            found = ((words[1], True),)
        elif opcode == LOAD:
            found = ((words[3], False),)
        elif opcode == COPY_SIZED:
            found = ((words[1], True), (words[2], False))
        elif opcode in ATOMICS:
            found = ((words[1 if opcode == ATOMIC_STORE else 3], True),)
        for pointer, is_write in found:
            for root in self._analysis.roots.get(pointer, ()):
                if root.tag in _IN_STORAGE:
                    yield Access(STORAGE, is_write)
                elif root.tag == "shared":
                    yield Access(root, is_write)

    def _events_of(self, block: int) -> Iterator[Access | Position]:
        """Yield a block's accesses and its barriers' places, in order."""
        for index, one in enumerate(self._analysis.blocks[block]):
            if one.opcode == CONTROL_BARRIER:
                yield block, index
            for access in self._accesses(one):
                yield Access(self.root_at((block, index), access.root), access.is_write)

    # -- exchanges ---------------------------------------------------------------------------------

    def _turns(self) -> Iterator[frozenset[Position]]:
        """Yield the instructions that access the twin of an exchange's array."""
        accesses: dict[Root, list[tuple[Position, Instruction]]] = {}
        for block in self._analysis.order:
            for index, one in enumerate(self._analysis.blocks[block]):
                for access in self._accesses(one):
                    if access.root.tag == "shared":
                        accesses.setdefault(access.root, []).append(((block, index), one))
        sizes = {root: self._bytes_of(root) for root in accesses}
        used = sum(sizes.values())
        for root in sorted(accesses):
            if not sizes[root] or used + sizes[root] > _MOST_SHARED_BYTES:
                continue
            if not self._is_exchange(root, accesses[root]):
                continue
            turns = self._turns_of(
                {position for position, one in accesses[root] if one.opcode == STORE}
            )
            if turns is not None:
                used += sizes[root]
                yield frozenset(position for position, _ in accesses[root] if turns[position])

    def _bytes_of(self, root: Root) -> int:
        """Return the bytes of a shared array, 0 for memory whose size the launch states."""
        if root.id in self._analysis.parameters:
            return 0
        kinds = self._analysis.kinds
        return kinds.size(kinds.kind_of(root.id).element)

    def _is_exchange(self, root: Root, accesses: Sequence[tuple[Position, Instruction]]) -> bool:
        """Return whether each work-item writes only one place, always before a barrier.

        All work-items reach a barrier, and so every store in the barrier's block. So no load finds
        an older value than the last store's.
        """
        pointers: set[int | None] = set()
        for (block, index), one in accesses:
            if one.opcode not in (LOAD, STORE):
                return False
            pointer = one.words[1 if one.opcode == STORE else 3]
            if self._analysis.roots[pointer] != {root}:
                return False
            if one.opcode == STORE:
                pointers.add(self._fixed(pointer))
                rest = self._analysis.blocks[block][index:]
                if not any(later.opcode == CONTROL_BARRIER for later in rest):
                    return False
        return len(pointers) == 1 and None not in pointers

    def _fixed(self, value: int, depth: int = 0) -> int | None:
        """Return a number that equal values share, `None` for a value that may vary in a kernel.

        Such values are computed from constants, arguments and built-in variables alone.
        """
        if value not in self._known:
            self._known[value] = None  # of a damaged value that needs itself
            self._known[value] = self._fixed_anew(value, depth)
        return self._known[value]

    def _fixed_anew(self, value: int, depth: int) -> int | None:
        kinds = self._analysis.kinds
        one = self._analysis.definitions.get(value)
        key: tuple[object, ...]
        if value in kinds.constants:
            bits = kinds.constants[value]
            key = (
                "constant",
                kinds.type_of[value],
                tuple(bits) if isinstance(bits, list) else bits,
            )
        elif one is None:
            key = ("global", value)
        elif one.opcode == LOAD and one.words[3] in kinds.built_ins:
            key = ("global", one.words[3])
        elif one.opcode in _PURE and depth < _MOST_DEEP:
            count = 1 if one.opcode == EXTRACT else len(one.words)
            operands = [self._fixed(operand, depth + 1) for operand in one.words[3 : 3 + count]]
            if None in operands:
                return None
            key = (one.opcode, *operands, *one.words[3 + count :])
        else:
            return None
        return self._numbers.setdefault(key, len(self._numbers))

    def _turns_of(self, stores: set[Position]) -> Mapping[Position, bool] | None:
        """Return for each instruction whether the last store is an odd one; `None` if it varies."""
        begins: dict[int, bool] = {self._analysis.order[0]: False}
        turns: dict[Position, bool] = {}
        for block in self._analysis.order:
            is_odd = begins[block]
            for index in range(len(self._analysis.blocks[block])):
                is_odd ^= (block, index) in stores
                turns[block, index] = is_odd
            for successor in self._analysis.successors[block]:
                if begins.setdefault(successor, is_odd) != is_odd:
                    return None
        return turns

    # -- conflicts ---------------------------------------------------------------------------------

    def _conflicting(self, barriers: Sequence[Position], is_storage: bool) -> set[Position]:
        """Return the barriers with conflicting accesses to a kind of memory around them.

        A barrier that is not needed is passed over when the next barriers are considered.
        """
        needed = set(barriers)
        if len(barriers) > _MOST_BARRIERS:
            return needed
        for barrier in barriers:
            before = self._accesses_around(barrier, False, needed, is_storage)
            after = self._accesses_around(barrier, True, needed, is_storage)
            if not any(
                one.root == other.root and (one.is_write or other.is_write)
                for one in before
                for other in after
            ):
                needed.discard(barrier)
        return needed

    def _accesses_around(
        self, barrier: Position, forward: bool, needed: set[Position], is_storage: bool
    ) -> set[Access]:
        """Return the accesses from a barrier on, up to the needed barriers on every path."""
        found: set[Access] = set()
        edges = self._analysis.successors if forward else self._predecessors
        block = barrier[0]
        own = self._events[block]
        at = own.index(barrier)
        seen: set[int] = set()
        waiting = [(block, own[at + 1 :] if forward else own[:at])]
        while waiting:
            block, events = waiting.pop()
            for event in events if forward else reversed(events):
                if isinstance(event, Access):
                    if (event.root == STORAGE) == is_storage:
                        found.add(event)
                elif event in needed:
                    break
            else:
                for other in edges[block]:
                    if other not in seen:
                        seen.add(other)
                        waiting.append((other, self._events[other]))
        return found
