"""Code that counts, in a kernel translated with `count`.

Instructions are counted by basic block: a thread counts each entry into a block, and a table lists
the block's instructions. Each access to memory and each conditional branch is
passed to the run time (runtime/count.c), which groups them by warp.

Nothing here changes the code of a kernel that does not count, and the cache's key of such a kernel
does not depend on this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layout import BLOCK, COUNTING, MAX_THREADS
from .program import Instruction
from .sites import Site

if TYPE_CHECKING:
    from .operands import Operands
    from .unit import Unit

CLASSES = (
    *("int", "int64", "int_mul64", "int_div", "int_div64"),
    *("fp16", "fp32", "fp64", "fp_div", "fp_special", "tensor"),
    *("convert", "move", "compare", "control", "barrier", "warp"),
    *("load_global", "store_global", "load_shared", "store_shared", "matrix_shared", "async_copy"),
    *("load_generic", "store_generic", "local", "constant", "parameter", "atomic", "other"),
)
"""Classes of PTX instructions. A division, or an instruction on 64-bit integers, is many
instructions of a GPU."""

_SPECIAL = {"ex2", "lg2", "sin", "cos", "rsqrt", "rcp", "sqrt", "tanh"}
_WARP = {"shfl", "vote", "match", "redux", "activemask", "elect", "movmatrix"}
_CONTROL = {"bra", "brx", "ret", "exit", "call", "trap", "brkpt"}
_ENDS = {"bra", "brx", "ret", "exit", "trap", "brkpt", "call"}
_BY_NAME = {
    **dict.fromkeys(("atom", "red"), "atomic"),
    **dict.fromkeys(_CONTROL, "control"),
    **dict.fromkeys(("bar", "barrier", "membar", "fence"), "barrier"),
    **dict.fromkeys(_WARP, "warp"),
    **dict.fromkeys(("ldmatrix", "stmatrix"), "matrix_shared"),
    **dict.fromkeys(("setp", "selp", "set", "slct", "testp"), "compare"),
    **dict.fromkeys(("mov", "cvta"), "move"),
    "mma": "tensor",
    "cp": "async_copy",
    "cvt": "convert",
}
_SPACES = {"global", "shared", "local", "const", "param"}


def class_of(i: Instruction) -> str:
    """The class of an instruction: one of `CLASSES`."""
    if i.name in ("ld", "ldu", "st"):
        return _access_class("store" if i.name == "st" else "load", _space(i))
    if i.name == "wmma":
        kind = i.modifiers[0]
        space = _space(i)
        return "tensor" if kind == "mma" else _access_class(kind, space)
    if i.name == "cp" and not i.has("global"):
        return "barrier"  # cp.async.commit_group, cp.async.wait_group
    return _BY_NAME.get(i.name) or _arithmetic_class(i)


def _space(i: Instruction) -> str:
    named = (one.partition("::")[0] for one in i.modifiers)
    return next((one for one in named if one in _SPACES), "generic")


def _access_class(what: str, space: str) -> str:
    if space in ("global", "shared", "generic"):
        return f"{what}_{space}"
    return {"local": "local", "const": "constant"}.get(space, "parameter")


def _arithmetic_class(i: Instruction) -> str:
    if not i.types:
        return "other"
    kind = i.type
    if kind.is_float or kind.kind == "packed":
        if i.name in _SPECIAL or (i.name == "div" and i.has("approx")):
            return "fp_div" if i.has("rn") else "fp_special"
        if i.name == "div":
            return "fp_div"
        return {64: "fp64", 32: "fp32"}.get(kind.width, "fp16") if kind.is_float else "fp16"
    wide = kind.width == 64
    if i.name in ("div", "rem"):
        return "int_div64" if wide else "int_div"
    if i.name in ("mul", "mad") and wide and not i.has("wide"):
        return "int_mul64"
    return "int64" if wide or i.has("wide") else "int"


class BasicBlocks:
    """Counts the instructions of a function that is being emitted, block by block."""

    def __init__(self, e: Operands) -> None:
        self._e = e
        self._block: int | None = None

    def end(self) -> None:
        """Note a possible entry or exit of control here."""
        self._block = None

    def add(self, i: Instruction) -> None:
        """Count an instruction, also if its predicate is false."""
        unit = self._e.unit
        if self._block is None:
            self._block = unit.counted_blocks
            unit.counted_blocks += 1
            self._count(self._block)
        unit.counted.append((i.line, self._block, CLASSES.index(class_of(i))))
        if i.name in _ENDS:
            self.end()

    def _count(self, block: int) -> None:
        e = self._e
        index = e.value(f"add i64 {self._thread()}, {block * MAX_THREADS}")
        counts = count_field(e, "counts")
        where = e.value(f"getelementptr i32, ptr {counts}, i64 {index}")
        more = e.value(f"add i32 {e.value(f'load i32, ptr {where}')}, 1")
        e.line(f"store i32 {more}, ptr {where}")

    def _thread(self) -> str:
        """The thread's number in its block."""
        e = self._e
        width, height = (
            e.value(f"load i32, ptr {_at(e, BLOCK['threads'] + 4 * axis)}, !invariant.load !0")
            for axis in range(2)
        )
        row = e.value(f"add i32 {e.value(f'mul i32 {height}, %tz')}, %ty")
        linear = e.value(f"add i32 {e.value(f'mul i32 {width}, {row}')}, %tx")
        return e.value(f"zext i32 {linear} to i64")


def count_field(e: Operands, name: str) -> str:
    """A pointer that lies behind the block's other fields."""
    return e.value(f"load ptr, ptr {_at(e, COUNTING[name])}")


def _at(e: Operands, offset: int) -> str:
    return e.value(f"getelementptr i8, ptr %block, i64 {offset}")


def count_access(e: Operands, number: int, address: str) -> None:
    """Report an access of a site: its address, or its offset in shared memory."""
    function = count_field(e, "count")
    e.line(
        f"call void {function}(ptr %block, i32 {number}, i64 {address}, i32 %tx, i32 %ty, i32 %tz)"
    )


def count_branch(e: Operands, line: int, taken: str) -> None:
    """Report a conditional branch, and whether this thread takes it (i1)."""
    number = e.unit.add_site(Site(line, 1, "branch", "generic"))
    count_access(e, number, e.value(f"zext i1 {taken} to i64"))


def counted_table(unit: Unit) -> str:
    """The symbol of a counting kernel: struct uptx_counted of runtime/count.h."""
    names = [
        f'@class.{at} = private constant [{len(one) + 1} x i8] c"{one}\\00"'
        for at, one in enumerate(CLASSES)
    ]
    pointers = ", ".join(f"ptr @class.{at}" for at in range(len(CLASSES)))
    entry = "{ i32, i32, i32 }"
    entries = ", ".join(
        f"{entry} {{ i32 {line}, i32 {block}, i32 {kind} }}" for line, block, kind in unit.counted
    )
    return "\n".join(
        [
            *names,
            f"@classes = private constant [{len(CLASSES)} x ptr] [{pointers}]",
            f"@instructions = private constant [{len(unit.counted)} x {entry}] [{entries}]",
            "@uptx_counted = constant { i32, i32, i32, i32, ptr, ptr } "
            f"{{ i32 {unit.counted_blocks}, i32 {len(unit.counted)}, i32 {len(CLASSES)}, i32 0, "
            "ptr @classes, ptr @instructions }",
        ]
    )
