"""A reducible control flow graph as `if`, `loop` and blocks with exits.

A follow is the code where paths join or a loop ends. A follow stands behind the block or loop that
ends there, in reverse postorder. A jump to the next code is omitted; a jump to another follow is a
`break`, with a flag to leave several levels. WGSL has no labelled break: a block is a `switch` of
one case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from webgpu_backend.translator.kinds import refuse

_DEEPEST = 200
"""Maximum nesting of blocks and loops: shader compilers fail on deeper code."""


@dataclass(frozen=True)
class Graph:
    """A function's blocks, in reverse postorder, the entry first."""

    order: Sequence[int]
    successors: Mapping[int, Sequence[int]]
    code: Mapping[int, Sequence[str]]
    choices: Callable[[int], Sequence[tuple[str, int]]]
    """(condition, target) of each exit of a block; the last is taken if no condition
    holds."""
    moves: Callable[[int, int], Sequence[str]]
    """Assignments on the edge from one block to another."""


@dataclass
class _Frame:
    """A loop or block around the current position."""

    is_loop: bool
    header: int
    """Target of a loop's `continue`."""
    follow: int | None
    """Target of an exit from the loop or block."""
    used: bool = False


@dataclass
class _Jump:
    to: int
    back: bool
    frame: _Frame | None = None


@dataclass
class _If:
    condition: str
    then: list[_Node]
    otherwise: list[_Node]


@dataclass
class _Body:
    frame: _Frame
    inner: list[_Node]


_Node = str | _Jump | _If | _Body


def structured(graph: Graph) -> list[str]:
    """Return the function's lines. Refuses irreducible control flow."""
    structure = _Structure(graph)
    tree = structure.region(graph.order[0], None, 0)
    _resolve(tree, [])
    return _Writer().lines(tree)


class _Structure:
    """Makes the tree."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.number = {block: index for index, block in enumerate(graph.order)}
        self.predecessors: dict[int, list[int]] = {block: [] for block in graph.order}
        for block in graph.order:
            for successor in graph.successors[block]:
                self.predecessors[successor].append(block)
        self.dominator = self._dominators()
        self.loops = self._loops()
        self.behind_block: dict[int, list[int]] = {}
        self.behind_loop: dict[int, list[int]] = {}
        self.follows: set[int] = set()
        self._set_follows()

    def _dominators(self) -> dict[int, int]:
        first, *others = self.graph.order
        found = {first: first}
        changed = True
        while changed:
            changed = False
            for block in others:
                known = [one for one in self.predecessors[block] if one in found]
                new = known[0]
                for one in known[1:]:
                    new = self._common(found, one, new)
                if found.get(block) != new:
                    found[block] = new
                    changed = True
        return found

    def _common(self, dominator: Mapping[int, int], a: int, b: int) -> int:
        while a != b:
            while self.number[a] > self.number[b]:
                a = dominator[a]
            while self.number[b] > self.number[a]:
                b = dominator[b]
        return a

    def _loops(self) -> dict[int, set[int]]:
        """The blocks of each loop by its header."""
        found: dict[int, set[int]] = {}
        for block in self.graph.order:
            for header in self.graph.successors[block]:
                if self.number[header] > self.number[block]:
                    continue
                if self._common(self.dominator, header, block) != header:
                    refuse("its control flow cannot be written with loops and branches")
                body = found.setdefault(header, {header})
                waiting = [block]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += self.predecessors[one]
        return found

    def _set_follows(self) -> None:
        for block in self.graph.order[1:]:
            dominator = self.dominator[block]
            left = [
                header
                for header, body in self.loops.items()
                if dominator in body and block not in body
            ]
            before = sum(self.number[one] < self.number[block] for one in self.predecessors[block])
            if left:
                outermost = max(left, key=lambda header: len(self.loops[header]))
                self.behind_loop.setdefault(outermost, []).append(block)
            elif before > 1:
                self.behind_block.setdefault(dominator, []).append(block)
            else:
                continue
            self.follows.add(block)

    def region(self, block: int, following: int | None, depth: int) -> list[_Node]:
        """The tree of a block and all blocks it dominates; `following` is the next block."""
        if depth > _DEEPEST:
            refuse("its blocks are nested too deeply")
        found: list[_Node] = []
        while True:
            is_loop = block in self.loops
            behind = (self.behind_loop if is_loop else self.behind_block).get(block, [])
            ends = sorted(behind, key=self.number.__getitem__)
            innermost = ends[0] if ends else following
            inner: list[_Node]
            if is_loop:
                inner = [_Body(_Frame(True, block, innermost), self._loop_body(block, depth))]
            else:
                inner = self._block(block, innermost, depth)
            if not ends:
                return found + inner
            for index, end in enumerate(ends[:-1]):
                inner = [
                    _Body(_Frame(False, 0, end), inner),
                    *self.region(end, ends[index + 1], depth + 1),
                ]
            found.append(_Body(_Frame(False, 0, ends[-1]), inner))
            block = ends[-1]

    def _loop_body(self, header: int, depth: int) -> list[_Node]:
        """The body of a loop: its header's region without the loop's follows."""
        behind = self.behind_block.get(header, [])
        ends = sorted(behind, key=self.number.__getitem__)
        inner = self._block(header, ends[0] if ends else header, depth + 1)
        for index, end in enumerate(ends):
            after = ends[index + 1] if index + 1 < len(ends) else header
            inner = [
                _Body(_Frame(False, 0, end), inner),
                *self.region(end, after, depth + 1),
            ]
        return inner

    def _block(self, block: int, following: int | None, depth: int) -> list[_Node]:
        found: list[_Node] = list(self.graph.code[block])
        choices = self.graph.choices(block)
        if not choices:
            return [*found, "return;"]
        *conditions, (_, default) = choices
        inside = depth + 1 if conditions else depth
        rest = self._go(block, default, following, inside)
        for condition, target in reversed(conditions):
            rest = [_If(condition, self._go(block, target, following, inside), rest)]
        return found + rest

    def _go(self, block: int, target: int, following: int | None, depth: int) -> list[_Node]:
        found: list[_Node] = list(self.graph.moves(block, target))
        back = self.number[target] <= self.number[block]
        if back or target in self.follows:
            return found if following == target else [*found, _Jump(target, back)]
        return found + self.region(target, following, depth + 1)


def _resolve(tree: Sequence[_Node], frames: Sequence[_Frame]) -> None:
    """Find the loop or block that each jump continues or leaves."""
    for one in tree:
        if isinstance(one, _If):
            _resolve(one.then, frames)
            _resolve(one.otherwise, frames)
        elif isinstance(one, _Body):
            _resolve(one.inner, [*frames, one.frame])
        elif isinstance(one, _Jump):
            for frame in reversed(frames):
                goal = frame.header if one.back else frame.follow
                if goal == one.to and (frame.is_loop or not one.back):
                    frame.used = True
                    one.frame = frame
                    break
            else:
                refuse("a branch leaves its block other than to a follow or a loop's header")


@dataclass
class _Writer:
    """Writes the tree; jumps that leave several levels at once get numbers."""

    numbers: dict[tuple[int, bool], int] = field(default_factory=dict)

    def lines(self, tree: Sequence[_Node]) -> list[str]:
        found, left = self._write(tree, [])
        if left:
            refuse("a branch leads out of the function")
        return ["var leave: u32 = 0u;", *found] if self.numbers else found

    def _write(
        self, tree: Sequence[_Node], frames: Sequence[_Frame]
    ) -> tuple[list[str], dict[int, _Jump]]:
        """Lines, and the numbered jumps that leave more than the innermost frame."""
        found: list[str] = []
        left: dict[int, _Jump] = {}
        for one in tree:
            if isinstance(one, str):
                found.append(one)
            elif isinstance(one, _If):
                then, more = self._write(one.then, frames)
                otherwise, most = self._write(one.otherwise, frames)
                left |= more | most
                found += _if(one.condition, then, otherwise)
            elif isinstance(one, _Body):
                if not one.frame.used and not one.frame.is_loop:
                    inner, escaped = self._write(one.inner, frames)
                    found += inner
                    left |= escaped
                    continue
                inner, escaped = self._write(one.inner, [*frames, one.frame])
                head = "loop {" if one.frame.is_loop else "switch 0u { default: {"
                found += [head, *inner, "}" if one.frame.is_loop else "} }"]
                for number, jump in sorted(escaped.items()):
                    lines, further = self._jump(jump, frames, number)
                    found += [f"if (leave == {number}u) {{", *lines, "}"]
                    left |= further
            else:
                lines, further = self._jump(one, frames, 0)
                found += lines
                left |= further
        return found, left

    def _jump(
        self, jump: _Jump, frames: Sequence[_Frame], number: int
    ) -> tuple[list[str], dict[int, _Jump]]:
        """Lines of a jump from within frames; `number` is set for a jump in progress."""
        frame = jump.frame
        assert frame is not None
        nearest = (one for one in reversed(frames) if one.is_loop or not jump.back)
        if next(nearest, None) is frame:
            reset = ["leave = 0u;"] if number else []
            return [*reset, "continue;" if jump.back else "break;"], {}
        key = (id(frame), jump.back)
        own = self.numbers.setdefault(key, len(self.numbers) + 1)
        mark = [] if number else [f"leave = {own}u;"]
        return [*mark, "break;"], {own: jump}


def _if(condition: str, then: list[str], otherwise: list[str]) -> list[str]:
    if not then and not otherwise:
        return []
    if not then:
        return [f"if (!({condition})) {{", *otherwise, "}"]
    if not otherwise:
        return [f"if ({condition}) {{", *then, "}"]
    return [f"if ({condition}) {{", *then, "} else {", *otherwise, "}"]
