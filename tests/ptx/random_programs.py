"""Random kernels as trees: the builder makes PTX of a tree, and numpy computes it.

A program has two variables of each type. Its statements assign expressions, branch, loop, exchange
values through shared memory, shuffle, vote and add atomically. Lanes of numpy's arrays are threads;
a mask says which threads run.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from uhal import ptx
from uhal.ptx import Type, Value

THREADS = 64
TYPES = (ptx.i16, ptx.u16, ptx.i32, ptx.u32, ptx.i64, ptx.u64, ptx.f16, ptx.f32, ptx.f64)
INTEGERS = TYPES[:6]
FLOATS = TYPES[6:]
VARIABLES = 2
Tree = tuple[Any, ...]
Array = np.ndarray[Any, Any]


def numpy_type(of: Type) -> np.dtype[Any]:
    return np.dtype({"i": "i", "u": "u", "f": "f"}[of.name[0]] + str(of.bits // 8))


# -- trees -----------------------------------------------------------------------------------------


class Generator:
    """Draws programs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def program(self, size: int = 4) -> list[Tree]:
        return self.block(size, depth=0, is_uniform=True)

    def block(self, size: int, depth: int, is_uniform: bool, in_loop: bool = False) -> list[Tree]:
        return [self.statement(depth, is_uniform, in_loop) for _ in range(size)]

    def statement(self, depth: int, is_uniform: bool, in_loop: bool) -> Tree:
        rng = self.rng
        kinds = ["assign"] * 5
        if depth < 3:
            kinds += ["if", "if", "loop", "while"]
        if is_uniform:
            kinds += ["exchange", "shuffle", "vote", "atomic", "repeat"]
        if in_loop:
            kinds += ["break", "continue"]
        kind = rng.choice(kinds)
        of = rng.choice(TYPES)
        target = (of, rng.randrange(VARIABLES))
        if kind == "if":
            body, other = (
                self.block(rng.randint(least, 2), depth + 1, False, in_loop) for least in (1, 0)
            )
            return "if", self.condition(1), body, other
        if kind in ("loop", "while"):
            body = self.block(rng.randint(1, 3), depth + 1, False, True)
            return kind, rng.randint(1, 4), rng.randint(1, 3), body
        if kind == "repeat":
            body = self.block(rng.randint(1, 2), depth + 2, True)
            return kind, rng.randint(1, 4), rng.randint(1, 3), body
        if kind in ("break", "continue"):
            return kind, self.condition(1)
        if kind == "exchange":
            return "exchange", target, self.expression(of, 1), rng.randrange(1, THREADS)
        if kind == "shuffle":
            mode, width = rng.choice(("up", "down", "bfly", "idx")), rng.choice((8, 16, 32))
            return "shuffle", target, self.expression(of, 1), mode, rng.randrange(width), width
        if kind == "vote":
            return "vote", rng.randrange(VARIABLES), self.condition(1)
        if kind == "atomic":
            of = rng.choice(INTEGERS[2:])
            operation = rng.choice(("add", "min", "max", "and", "or", "xor"))
            return "atomic", (of, target[1]), operation, self.expression(of, 1)
        return "assign", target, self.expression(of, 2)

    def condition(self, depth: int) -> Tree:
        rng = self.rng
        if depth and rng.random() < 0.3:
            return (
                rng.choice(("and", "or", "xor")),
                self.condition(depth - 1),
                self.condition(depth - 1),
            )
        if rng.random() < 0.1:
            return "not", self.condition(depth)
        of = rng.choice(TYPES)
        compare = rng.choice(("lt", "le", "gt", "ge", "eq", "ne"))
        return "compare", compare, self.expression(of, depth), self.expression(of, depth)

    def expression(self, of: Type, depth: int) -> Tree:
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            if rng.random() < 0.7:
                return "variable", of, rng.randrange(VARIABLES)
            if of.is_float:
                return "number", of, rng.choice((0.0, -0.0, 0.5, 1.0, -3.25, 100.0))
            return "number", of, rng.randrange(0, 128)
        first = self.expression(of, depth - 1)
        if rng.random() < 0.15:
            return "select", self.condition(1), first, self.expression(of, depth - 1)
        if rng.random() < 0.2:
            source = rng.choice(TYPES)
            return "convert", of, source, self.expression(source, depth - 1)
        second = self.expression(of, depth - 1)
        if of.is_float:
            names = ["add", "sub", "mul", "min", "max", "neg", "abs", "floor"]
            names += ["div", "sqrt"] * (of.bits > 16)
            return rng.choice(names), first, second
        names = ["add", "sub", "mul", "min", "max", "and", "or", "xor", "invert", "shl", "shr"]
        names += ["quotient", "remainder"] + ["abs", "neg"] * (of.kind == "int")
        name = rng.choice(names)
        if name in ("shl", "shr"):
            return name, first, rng.randrange(of.bits + 4)
        return name, first, second


# -- as the builder has it -------------------------------------------------------------------------

BUILT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": ptx.minimum,
    "max": ptx.maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: ptx.absolute(a),
    "floor": lambda a, b: ptx.floor(a),
    "sqrt": lambda a, b: ptx.sqrt(ptx.absolute(a)),
    "invert": lambda a, b: ~a,
    # A divisor of 1, 3, 5 or 7: PTX does not define a division by zero.
    "quotient": lambda a, b: a // (b & 7 | 1),
    "remainder": lambda a, b: a % (b & 7 | 1),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


class Built:
    """Emits a program."""

    def __init__(self, first: dict[Type, list[Value]]) -> None:
        self.thread = ptx.thread_index()
        self.variables = {
            of: [ptx.variable(of, one) for one in values] for of, values in first.items()
        }

    def block(self, statements: list[Tree]) -> None:
        for one in statements:
            getattr(self, f"do_{one[0]}".rstrip("_"))(*one[1:])

    def do_assign(self, target: Tree, tree: Tree) -> None:
        self.variables[target[0]][target[1]].set(self.value(tree))

    def do_if(self, condition: Tree, body: list[Tree], other: list[Tree]) -> None:
        with ptx.if_(self.value(condition)):
            self.block(body)
        if other:
            with ptx.else_():
                self.block(other)

    def do_loop(self, turns: int, step: int, body: list[Tree]) -> None:
        for _ in ptx.loop(0, ptx.i32(self.thread & 3) + turns, step, unroll=step):
            self.block(body)

    def do_while(self, turns: int, step: int, body: list[Tree]) -> None:
        count = ptx.variable(ptx.i32, ptx.i32(self.thread & 3) + turns)
        with ptx.while_(lambda: count > 0):
            count -= step
            self.block(body)

    def do_repeat(self, turns: int, step: int, body: list[Tree]) -> None:
        for _ in ptx.loop(0, turns, step):
            self.block(body)

    def do_break(self, condition: Tree) -> None:
        with ptx.if_(self.value(condition)):
            ptx.break_()

    def do_continue(self, condition: Tree) -> None:
        with ptx.if_(self.value(condition)):
            ptx.continue_()

    def do_exchange(self, target: Tree, tree: Tree, distance: int) -> None:
        tile = ptx.shared(target[0], THREADS)
        tile[self.thread] = self.value(tree)
        ptx.barrier()
        self.variables[target[0]][target[1]].set(tile[(self.thread + distance) & (THREADS - 1)])
        ptx.barrier()

    def do_shuffle(self, target: Tree, tree: Tree, mode: str, lane: int, width: int) -> None:
        value = self.value(tree)
        self.variables[target[0]][target[1]].set(ptx.shuffle(mode, value, lane, width))

    def do_vote(self, index: int, condition: Tree) -> None:
        self.variables[ptx.u32][index].set(ptx.vote("ballot", self.value(condition)))

    def do_atomic(self, target: Tree, operation: str, tree: Tree) -> None:
        tile = ptx.shared(target[0], 1)
        with ptx.if_(self.thread == 0):
            tile[0] = target[0](77)
        ptx.barrier()
        tile.atomic(operation, 0, self.value(tree))
        ptx.barrier()
        self.variables[target[0]][target[1]].set(tile[0])
        ptx.barrier()

    def value(self, tree: Tree) -> Any:
        match tree:
            case ("variable", of, index):
                return self.variables[of][index]
            case ("number", of, number):
                return of(number)
            case ("select", condition, a, b):
                return ptx.select(self.value(condition), self.value(a), self.value(b))
            case ("convert", of, source, inner):
                value = self.value(inner)
                if source.is_float and of.is_integer:
                    value = ptx.select(value == value, value, source(0))
                return of(value)
            case ("compare", how, a, b):
                return BUILT[how](self.value(a), self.value(b))
            case ("not", inner):
                return ~self.value(inner)
            case (("shl" | "shr") as how, a, amount):
                return BUILT[how](self.value(a), amount)
        return BUILT[tree[0]](self.value(tree[1]), self.value(tree[2]))


# -- as numpy has it -------------------------------------------------------------------------------


def extreme(a: Array, b: Array, *, smaller: bool) -> Array:
    """PTX's minimum and maximum: a NaN gives the other operand, and -0 is less than +0."""
    if a.dtype.kind != "f":
        return np.minimum(a, b) if smaller else np.maximum(a, b)
    first = (a < b) | ((a == b) & np.signbit(a))
    chosen = np.where(first == smaller, a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))


def quotient(a: Array, b: Array) -> Array:
    floor = a // b
    return floor + ((a % b != 0) & (a < 0)).astype(a.dtype)


def divisor(b: Array) -> Array:
    return b & b.dtype.type(7) | b.dtype.type(1)


COMPUTED = {
    **BUILT,
    "min": lambda a, b: extreme(a, b, smaller=True),
    "max": lambda a, b: extreme(a, b, smaller=False),
    "abs": lambda a, b: np.abs(a),
    "floor": lambda a, b: np.floor(a),
    "sqrt": lambda a, b: np.sqrt(np.abs(a)),
    "quotient": lambda a, b: quotient(a, divisor(b)),
    "remainder": lambda a, b: a - quotient(a, divisor(b)) * divisor(b),
}


def converted(value: Array, source: Type, of: Type) -> Array:
    kind = numpy_type(of)
    if source.is_float and of.is_integer:
        numbers = np.where(np.isnan(value), 0, value).astype("f8")
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        whole = [
            (high if one > 0 else low) if np.isinf(one) else min(max(int(one), low), high)
            for one in numbers
        ]
        return np.array(whole, object).astype(kind)
    # numpy casts to f16 through f32, which rounds twice.
    return (value.astype("f8") if of is ptx.f16 else value).astype(kind)


class Computed:
    """Runs a program on arrays, where each lane is a thread."""

    def __init__(self, first: dict[Type, list[Array]]) -> None:
        self.lanes = np.arange(THREADS)
        self.variables = {of: [one.copy() for one in values] for of, values in first.items()}
        self.left: list[tuple[Array, Array]] = []
        """For each loop, the lanes that executed `break` and the lanes that executed `continue`."""

    def block(self, statements: list[Tree], mask: Array) -> Array:
        """Run statements; return the lanes that reach the end."""
        for one in statements:
            mask = getattr(self, f"do_{one[0]}")(mask, *one[1:])
        return mask

    def assign(self, mask: Array, target: Tree, value: Array) -> Array:
        values = self.variables[target[0]]
        values[target[1]] = np.where(mask, value.astype(values[target[1]].dtype), values[target[1]])
        return mask

    def do_assign(self, mask: Array, target: Tree, tree: Tree) -> Array:
        return self.assign(mask, target, self.value(tree))

    def do_if(self, mask: Array, condition: Tree, body: list[Tree], other: list[Tree]) -> Array:
        truth = self.value(condition)
        reached = self.block(body, mask & truth)
        return reached | self.block(other, mask & ~truth)

    def turns(self, mask: Array, counts: Array, body: list[Tree]) -> Array:
        active, turn = mask, 0
        while (active := active & (turn < counts)).any():
            self.left.append((np.zeros_like(mask), np.zeros_like(mask)))
            reached = self.block(body, active)
            _, continued = self.left.pop()
            active = reached | continued
            turn += 1
        return mask

    def do_loop(self, mask: Array, turns: int, step: int, body: list[Tree]) -> Array:
        return self.turns(mask, -(-((self.lanes & 3) + turns) // step), body)

    do_while = do_loop

    def do_repeat(self, mask: Array, turns: int, step: int, body: list[Tree]) -> Array:
        return self.turns(mask, np.full(THREADS, -(-turns // step)), body)

    def do_break(self, mask: Array, condition: Tree) -> Array:
        return mask & ~self.value(condition)

    def do_continue(self, mask: Array, condition: Tree) -> Array:
        leaving = mask & self.value(condition)
        self.left[-1][1][leaving] = True
        return mask & ~leaving

    def do_exchange(self, mask: Array, target: Tree, tree: Tree, distance: int) -> Array:
        return self.assign(mask, target, np.roll(self.value(tree), -distance))

    def do_shuffle(
        self, mask: Array, target: Tree, tree: Tree, mode: str, lane: int, width: int
    ) -> Array:
        value, own = self.value(tree), self.lanes
        first = own // width * width
        source = {
            "up": np.where(own - lane < first, own, own - lane),
            "down": np.where(own + lane >= first + width, own, own + lane),
            "bfly": own ^ lane,
            "idx": first + lane,
        }[mode]
        return self.assign(mask, target, value[source])

    def do_vote(self, mask: Array, index: int, condition: Tree) -> Array:
        truth = self.value(condition).reshape(-1, 32)
        words = (truth.astype("u8") << np.arange(32, dtype="u8")).sum(1).astype("u4")
        return self.assign(mask, (ptx.u32, index), np.repeat(words, 32))

    def do_atomic(self, mask: Array, target: Tree, operation: str, tree: Tree) -> Array:
        value = self.value(tree)
        total = value.dtype.type(77)
        for one in value:
            total = COMPUTED[operation](np.array(total), np.array(one))
        return self.assign(mask, target, np.full(THREADS, total))

    def value(self, tree: Tree) -> Array:
        match tree:
            case ("variable", of, index):
                return self.variables[of][index]
            case ("number", of, number):
                return np.full(THREADS, number, numpy_type(of))
            case ("select", condition, a, b):
                return np.where(self.value(condition), self.value(a), self.value(b))
            case ("convert", of, source, inner):
                return converted(self.value(inner), source, of)
            case ("compare", how, a, b):
                return COMPUTED[how](self.value(a), self.value(b))
            case ("not", inner):
                return ~self.value(inner)
            case (("shl" | "shr") as how, a, amount):
                return self.shifted(how, self.value(a), amount)
        return COMPUTED[tree[0]](self.value(tree[1]), self.value(tree[2]))

    @staticmethod
    def shifted(how: str, value: Array, amount: int) -> Array:
        bits = 8 * value.itemsize
        if amount >= bits:
            if how == "shr" and value.dtype.kind == "i":
                return value >> value.dtype.type(bits - 1)
            return np.zeros_like(value)
        by = value.dtype.type(amount)
        return value << by if how == "shl" else value >> by
