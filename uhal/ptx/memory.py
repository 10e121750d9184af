"""Memory of a kernel: pointers with a space, arrays, vectors, atomics, asynchronous copies.

`p[i]` loads and `p[i] = v` stores an element; `p.load(i, 4)` and `p.store(i, (a, b, c, d))` move
vectors by one instruction, whose address must be a multiple of the vector's bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from uhal.ptx.builder import MOST_STATIC_SHARED, Builder, braces, current, refuse, refuse_value
from uhal.ptx.instructions import find
from uhal.ptx.types import INTEGERS, Type, as_type, i32, u32, u64
from uhal.ptx.values import Operand, Value, check, emitted, emitted_list, expect, one_of, operand

Index = Any
"""An integer, an integer value, or a tuple of them for an array of several extents."""


@dataclass(frozen=True)
class Pointer:
    """Pointer to elements of one type in one memory space. Made by arrays and parameters."""

    of: Type
    space: str
    """`global`, `shared`, `const`, `local` or `generic`, which is any of them."""
    base: Value
    """64-bit address; for shared memory a 32-bit address within the block's memory."""
    offset: int = 0
    """Bytes behind the base."""
    is_const: bool = False
    extents: tuple[int, ...] = ()
    name: str = ""

    def __getitem__(self, index: Index) -> Value:
        """Load an element."""
        return self.load(index)  # type: ignore[no-any-return]

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Store an element of the pointer's type."""
        self.store(index, value)

    def __add__(self, elements: Index) -> Pointer:
        """Return the pointer advanced by a number of elements."""
        return self.at(elements)

    def __iter__(self) -> NoReturn:
        refuse("for: expected a range, got a pointer. Use `loop` over its indices.")

    def at(self, index: Index) -> Pointer:
        """Return a pointer to an element."""
        constant, value = self._split(index)
        moved = replace(self, offset=self.offset + constant * self.of.bytes, extents=())
        return moved if value is None else replace(moved, base=self._moved(value))

    def load(self, index: Index = 0, count: int = 1, how: str = "") -> Any:
        """Load an element, or a tuple of `count` adjacent elements.

        `how` is PTX's word for order or cache: `volatile`, `relaxed.gpu`, `cg`, `nc`.
        """
        builder = check(self.base, "load")
        spelling, of = self._spelling("ld", self._count(count, "load"), how), self.of.value_type
        if count == 1:
            return emitted(builder, of, spelling, self.address(index))
        return emitted_list(builder, of, count, spelling, self.address(index))

    def store(self, index: Index, value: Operand | Sequence[Operand], how: str = "") -> None:
        """Store an element, or 2 or 4 adjacent elements.

        `how` is PTX's word for order or cache: `volatile`, `relaxed.gpu`, `release.gpu`, `cs`.
        """
        builder = check(self.base, "store")
        self._require_writable("store")
        values: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
        count = self._count(len(values), "store")
        texts = [self._stored(one) for one in values]
        source = texts[0] if count == 1 else braces(texts)
        builder.emit(self._spelling("st", count, how), self.address(index), source)

    def atomic(
        self,
        operation: str,
        index: Index,
        value: Operand,
        compare: Operand | None = None,
        how: str = "",
    ) -> Value:
        """Change an element by one atomic operation; return its previous value.

        Operations: `add min max and or xor exch inc dec`, and `cas`, which stores `value` where
        the element equals `compare`. `how` is PTX's order and scope, for example `relaxed.cta`.
        """
        builder = check(self.base, "atomic")
        self._require_writable("atomic")
        untyped = operation in ("and", "or", "xor", "exch", "cas")
        kind = self.of.register if untyped else self.of.ptx
        if operation == "add" and self.of.name == "i64":
            kind = "u64"  # the sum has the same bits; PTX has no other
        narrow = ".noftz" if self.of.is_float and self.of.bits == 16 and operation == "add" else ""
        order = f".{how}" if how else ""
        spelling = f"atom{order}{self._space}.{operation}{narrow}.{kind}"
        if find(spelling) is None:
            known = f"an operation that PTX has for {self.of}"
            refuse(f"atomic: expected {known}, got {spelling!r}. Use `cas` in a loop.")
        if (operation == "cas") != (compare is not None):
            refuse("atomic: expected compare=… with `cas`, got one without the other. See `cas`.")
        given = [value] if compare is None else [compare, value]
        texts = [operand(one, self.of, f"atomic {operation}") for one in given]
        return emitted(builder, self.of.value_type, spelling, self.address(index), *texts)

    def generic(self) -> Pointer:
        """Return the generic address of the pointer, which device functions take."""
        if self.space == "generic":
            return self
        builder, base = check(self.base, "generic"), self.base
        if self.space == "shared":
            base = emitted(builder, u64, "cvt.u64.u32", base.text)
        wide = emitted(builder, u64, f"cvta.{self.space}.u64", base.text)
        return replace(self, space="generic", base=wide, extents=())

    # -- pieces ------------------------------------------------------------------------------------

    @property
    def _space(self) -> str:
        return "" if self.space == "generic" else f".{self.space}"

    def address(self, index: Index = 0) -> str:
        """The text of an element's address."""
        constant, value = self._split(index)
        base = self.base if value is None else self._moved(value)
        offset = self.offset + constant * self.of.bytes
        return f"[{base.text}+{offset}]" if offset else f"[{base.text}]"

    def _moved(self, index: Value) -> Value:
        of = self.base.type
        spelling = f"mad.wide.{index.type.ptx}"
        if of is not u64 or index.type.bits != 32:
            spelling, index = f"mad.lo.{of.ptx}", of(index)
        texts = index.text, str(self.of.bytes), self.base.text
        return emitted(check(self.base, "index"), of, spelling, *texts)

    def _split(self, index: Index) -> tuple[int, Value | None]:
        """An index as a constant part and a value."""
        if not isinstance(index, tuple):
            return self._along(index, math.prod(self.extents) if self.extents else None)
        if len(index) != len(self.extents):
            count = f"{len(self.extents) or 1} indices, got {len(index)}"
            refuse(f"index: expected {count}. Give one for each extent of the array.")
        constant, value = 0, None
        for extent, one in zip(self.extents, index, strict=True):
            more, changing = self._along(one, extent)
            constant = constant * extent + more
            value = None if value is None else value * extent
            if changing is not None:
                value = changing if value is None else value + value.type(changing)
        return constant, value

    def _along(self, index: object, extent: int | None) -> tuple[int, Value | None]:
        """An index along one extent, as a constant part and a value."""
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            if extent is not None and not 0 <= index < extent:
                within = f"0 … {extent - 1} within {self.name}"
                refuse_value(f"index: expected {within}, got {index}. Make the array larger.")
            return int(index), None
        expect(index, "index", "an integer", INTEGERS, "Convert it: i32(…).")
        assert isinstance(index, Value)
        return 0, index if index.type.bits >= 32 else i32(index)

    def _count(self, count: int, operation: str) -> int:
        if count not in (1, 2, 4) or count * self.of.bytes > 16:
            wanted = "1, 2 or 4 elements of at most 16 bytes together"
            refuse_value(f"{operation}: expected {wanted}, got {count} of {self.of}. Split it.")
        return count

    def _spelling(self, name: str, count: int, how: str) -> str:
        vector = f".v{count}" if count > 1 else ""
        tail = f"{vector}.{self.of.in_memory}"
        if not how:
            return f"{name}{self._space}{tail}"
        for spelling in (f"{name}.{how}{self._space}{tail}", f"{name}{self._space}.{how}{tail}"):
            if find(spelling) is not None:
                return spelling
        known = f"an order or a cache that PTX has for {self.space} memory"
        refuse_value(f"{name}: expected {known}, got {how!r}. Leave it out.")

    def _stored(self, value: Operand) -> str:
        if self.of.bits == 8 and isinstance(value, Value):
            expect(value, "store", "i32 or u32", (i32, u32))
            return value.text
        return operand(value, self.of, "store")

    def _require_writable(self, operation: str) -> None:
        if self.is_const or self.space == "const":
            given = f"{self.name or 'the pointer'}, which is const"
            hint = "Leave `const` out of the signature."
            refuse(f"{operation}: expected memory that the kernel may write, got {given}. {hint}")


def require(value: object, operation: str, space: str) -> None:
    """Refuse anything but a pointer into a space."""
    if not isinstance(value, Pointer):
        refuse(f"{operation}: expected a pointer, got {value!r}. Use `p.at(i)`.")
    if value.space != space:
        refuse(f"{operation}: expected {space} memory, got {value.space} memory. Copy it first.")


# -- arrays ----------------------------------------------------------------------------------------


def _elements(of: object, extents: tuple[int, ...], operation: str) -> tuple[Type, int]:
    kind = as_type(of)
    if kind is None:
        refuse(f"{operation}: expected an element type such as f32, got {of!r}.")
    for extent in extents:
        if not isinstance(extent, (int, np.integer)) or extent < 1:
            known = "extents known while the kernel is built, each at least 1"
            refuse(f"{operation}: expected {known}, got {extent!r}. Use a constant.")
    return kind, int(np.prod(extents, dtype=np.int64)) * kind.bytes


def named_array(
    builder: Builder, of: Type, space: str, symbol: str, extents: tuple[int, ...], name: str
) -> Pointer:
    """An array that is declared under a name in PTX, usable in the whole function."""
    wide = u32 if space == "shared" else u64
    base = Value(builder, wide, builder.register(wide), builder.scopes[0])
    builder.prologue.append(f"mov.{wide.ptx} {base.text}, {symbol};")
    return Pointer(of, space, base, 0, space == "const", extents, name)


def shared(of: Type, *extents: int) -> Pointer:
    """Make an array in the block's shared memory, with extents fixed at compile time.

    All shared arrays of a kernel have at most 48 KiB; `dynamic_shared` has more. Its content is
    undefined when the block begins.
    """
    builder = current("shared")
    kind, nbytes = _elements(of, extents, "shared")
    builder.shared_bytes = -(-builder.shared_bytes // 16) * 16 + nbytes
    if builder.shared_bytes > MOST_STATIC_SHARED:
        most = f"at most {MOST_STATIC_SHARED} bytes in all arrays"
        hint = "Use `dynamic_shared` and give the bytes to the launch."
        refuse_value(f"shared: expected {most}, got {builder.shared_bytes}. {hint}")
    symbol = builder.symbol("shared")
    builder.prologue.append(f".shared .align 16 .b8 {symbol}[{nbytes}];")
    return named_array(builder, kind, "shared", symbol, extents, "the shared array")


def dynamic_shared(of: Type) -> Pointer:
    """Return the shared memory whose size each launch sets: `f[grid, block, shared](…)`."""
    builder = current("dynamic_shared")
    kind, _ = _elements(of, (), "dynamic_shared")
    line = ".extern .shared .align 16 .b8 uhal_dynamic_shared[];"
    builder.program.declarations.setdefault("uhal_dynamic_shared", line)
    return named_array(
        builder, kind, "shared", "uhal_dynamic_shared", (), "the dynamic shared memory"
    )


def local(of: Type, *extents: int) -> Pointer:
    """Make an array for each thread, in local memory; undefined until it is written."""
    builder = current("local")
    kind, nbytes = _elements(of, extents, "local")
    symbol = builder.symbol("local")
    builder.prologue.append(f".local .align 16 .b8 {symbol}[{nbytes}];")
    return named_array(builder, kind, "local", symbol, extents, "the local array")


def constant(of: Type, values: Sequence[float] | np.ndarray[Any, Any]) -> Pointer:
    """Make a table in constant memory; all tables of a module have at most 64 KiB."""
    builder = current("constant")
    table = np.asarray(values)
    kind, nbytes = _elements(of, table.shape or (1,), "constant")
    if nbytes > 64 << 10:
        refuse_value(f"constant: expected at most 65536 bytes, got {nbytes}.")
    flat = table.reshape(-1).tolist()
    for one in flat:
        if not kind.holds(one):
            refuse(f"constant: expected numbers of type {kind}, got {one!r}.")
    bits = ", ".join(f"0x{kind.pattern(one):X}" for one in flat)
    symbol = builder.symbol("table")
    head = f".const .align 16 .b{kind.bits} {symbol}[{len(flat)}]"
    builder.program.declarations[symbol] = f"{head} = {{{bits}}};"
    return named_array(builder, kind, "const", symbol, table.shape, "the constant table")


def module_variable(of: Type, count: int, name: str) -> Pointer:
    """Make an array in global memory that lives with the module: `module.get_global(name)`.

    It begins as zeros.
    """
    builder = current("module_variable")
    kind, nbytes = _elements(of, (count,), "module_variable")
    line = f".visible .global .align 16 .b8 {name}[{nbytes}];"
    if builder.program.declarations.setdefault(name, line) != line:
        refuse_value(f"module_variable: expected one size of {name}, got two.")
    return named_array(builder, kind, "global", name, (count,), name)


# -- asynchronous copies ---------------------------------------------------------------------------


def copy_async(to: Pointer, source: Pointer, nbytes: int = 16, used: Operand | None = None) -> None:
    """Begin to copy 4, 8 or 16 bytes from global to shared memory.

    Only the first `used` bytes are read; zeros fill up the others. The copy is done after
    `copies_wait`; other threads also need a `barrier`.
    """
    builder = current("copy_async")
    require(to, "copy_async", "shared")
    require(source, "copy_async", "global")
    one_of(nbytes, (4, 8, 16), "copy_async")
    read = [] if used is None else [operand(used, u32, "copy_async")]
    spelling = f"cp.async.{'cg' if nbytes == 16 else 'ca'}.shared.global"
    builder.emit(spelling, to.address(), source.address(), str(nbytes), *read)


def copies_commit() -> None:
    """Group the copies begun since the last call."""
    current("copies_commit").emit("cp.async.commit_group")


def copies_wait(pending: int = 0) -> None:
    """Wait until at most `pending` of this thread's latest groups are unfinished."""
    current("copies_wait").emit("cp.async.wait_group", str(pending))
