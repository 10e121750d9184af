"""Memory of a kernel: pointers with a space, arrays, vectors, atomics, asynchronous copies.

`p[i]` loads and `p[i] = v` stores an element; `p.load(i, 4)` and `p.store(i, (a, b, c, d))` move
vectors by one instruction, whose address must be a multiple of the vector's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import MOST_STATIC_SHARED, Builder, current, refuse
from uhal.ptx.instructions import find
from uhal.ptx.types import Type, as_type, i32, u32, u64
from uhal.ptx.values import Operand, Value, check, describe, operand, unary

Index = Any
"""An integer, an integer value, or a tuple of them for an array of several extents."""

_WIDE_SPACES = ("global", "const", "local", "generic")


@dataclass(frozen=True)
class Pointer:
    """An address of elements of one type in one space of memory. Made by arrays and parameters."""

    of: Type
    space: str
    """`global`, `shared`, `const`, `local` or `generic`, which is any of them."""
    base: Value
    """64 bits; of shared memory 32 bits, within the block's."""
    offset: int = 0
    """Bytes behind the base."""
    is_const: bool = False
    extents: tuple[int, ...] = ()
    name: str = ""

    def __getitem__(self, index: Index) -> Value:
        """Load an element."""
        made: Value = self.load(index)
        return made

    def __setitem__(self, index: Index, value: Operand) -> None:
        """Store an element of the pointer's type."""
        self.store(index, value)

    def __add__(self, elements: Index) -> Pointer:
        """Return the pointer that many elements further."""
        return self.at(elements)

    def __iter__(self) -> NoReturn:
        refuse("for: expected a range, got a pointer. Use `loop` over its indices.")

    def at(self, index: Index) -> Pointer:
        """Return a pointer to an element."""
        constant, value = self._split(index)
        moved = replace(self, offset=self.offset + constant * self.of.bytes, extents=())
        if value is None:
            return moved
        base = self._moved(value)
        return replace(moved, base=base)

    def load(self, index: Index = 0, count: int = 1, how: str = "") -> Any:
        """Load an element, or a tuple of `count` that lie side by side.

        `how` is PTX's word for order or cache: `volatile`, `relaxed.gpu`, `cg`, `nc`.
        """
        builder = check(self.base, "load")
        made = [builder.register(self.of.value_type) for _ in range(self._count(count, "load"))]
        target = made[0] if count == 1 else f"{{{', '.join(made)}}}"
        builder.emit(self._spelling("ld", count, how), target, self.address(index))
        values = tuple(Value(builder, self.of.value_type, one) for one in made)
        return values[0] if count == 1 else values

    def store(self, index: Index, value: Operand | Sequence[Operand], how: str = "") -> None:
        """Store an element, or a sequence of 2 or 4 side by side.

        `how` is PTX's word for order or cache: `volatile`, `relaxed.gpu`, `release.gpu`, `cs`.
        """
        builder = check(self.base, "store")
        self._require_writable("store")
        values: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
        count = self._count(len(values), "store")
        texts = [self._stored(one) for one in values]
        source = texts[0] if count == 1 else f"{{{', '.join(texts)}}}"
        builder.emit(self._spelling("st", count, how), self.address(index), source)

    def atomic(
        self,
        operation: str,
        index: Index,
        value: Operand,
        compare: Operand | None = None,
        how: str = "",
    ) -> Value:
        """Change an element by one atomic operation; return its value from before.

        Operations: `add min max and or xor exch inc dec`, and `cas`, which stores `value` where
        the element equals `compare`. `how` is PTX's order and scope, as `relaxed.cta`.
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
            refuse(
                f"atomic: expected an operation that PTX has for {self.of}, got {operation!r}"
                f"{f' with {how!r}' if how else ''}. Use `cas` in a loop, or another type."
            )
        texts = [operand(value, self.of, f"atomic {operation}")]
        if operation == "cas":
            if compare is None:
                refuse("atomic cas: expected compare=…, the value to be replaced, got none.")
            texts.insert(0, operand(compare, self.of, "atomic cas"))
        made = builder.register(self.of.value_type)
        builder.emit(spelling, made, self.address(index), *texts)
        return Value(builder, self.of.value_type, made)

    def generic(self) -> Pointer:
        """Return the same address as one of any space, which device functions take."""
        if self.space == "generic":
            return self
        base = self.base if self.space != "shared" else unary("cvt.u64.u32", self.base, u64)
        wide = unary(f"cvta.{self.space}.u64", base)
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
        builder = check(self.base, "index")
        made = builder.register(self.base.type)
        if self.base.type is u64 and index.type.bits == 32:
            spelling = f"mad.wide.{index.type.ptx}"
        else:
            spelling = f"mad.lo.{self.base.type.ptx}"
            index = self.base.type(index)
        builder.emit(spelling, made, index.text, str(self.of.bytes), self.base.text)
        return Value(builder, self.base.type, made)

    def _split(self, index: Index) -> tuple[int, Value | None]:
        """An index as a constant part and a value."""
        if isinstance(index, tuple):
            return self._flat(index)
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
            if self.extents and not 0 <= index < int(np.prod(self.extents)):
                refuse(
                    f"index: expected 0 … {int(np.prod(self.extents)) - 1} within {self.name}, got "
                    f"{index}. Make the array larger.",
                    ArgumentValueError,
                )
            return int(index), None
        if not isinstance(index, Value) or not index.type.is_integer:
            refuse(f"index: expected an integer, got {describe(index)}. Convert it: i32(…).")
        check(index, "index")
        return 0, index if index.type.bits >= 32 else i32(index)

    def _flat(self, indices: tuple[Index, ...]) -> tuple[int, Value | None]:
        if len(indices) != len(self.extents):
            refuse(
                f"index: expected {len(self.extents) or 1} indices, got {len(indices)}. Only "
                "arrays made with several extents take several."
            )
        constant, value = 0, None
        for extent, index in zip(self.extents, indices, strict=True):
            if isinstance(index, (int, np.integer)) and not 0 <= index < extent:
                refuse(
                    f"index: expected 0 … {extent - 1} within {self.name}, got {index}. Make the "
                    "array larger.",
                    ArgumentValueError,
                )
            part = replace(self, extents=())._split(index)
            constant = constant * extent + part[0]
            value = None if value is None else value * extent
            if part[1] is not None:
                value = part[1] if value is None else value + value.type(part[1])
        return constant, value

    def _count(self, count: int, operation: str) -> int:
        if count not in (1, 2, 4) or count * self.of.bytes > 16:
            refuse(
                f"{operation}: expected 1, 2 or 4 elements of at most 16 bytes together, got "
                f"{count} of {self.of}. Split it.",
                ArgumentValueError,
            )
        return count

    def _spelling(self, name: str, count: int, how: str) -> str:
        vector = f".v{count}" if count > 1 else ""
        tail = f"{vector}.{self.of.in_memory}"
        if not how:
            return f"{name}{self._space}{tail}"
        for spelling in (f"{name}.{how}{self._space}{tail}", f"{name}{self._space}.{how}{tail}"):
            if find(spelling) is not None:
                return spelling
        refuse(
            f"{name}: expected an order or a cache that PTX has for {self.space} memory, got "
            f"{how!r}. Leave it out, or see the reference of instructions.",
            ArgumentValueError,
        )

    def _stored(self, value: Operand) -> str:
        if self.of.bits == 8 and isinstance(value, Value) and value.type in (i32, u32):
            check(value, "store")
            return value.text
        if self.of.bits == 8 and not isinstance(value, Value) and not self.of.holds(value):
            refuse(f"store: expected a number of type {self.of}, got {value!r}.")
        return operand(value, self.of.value_type, "store")

    def _require_writable(self, operation: str) -> None:
        if self.is_const or self.space == "const":
            what = self.name or "the pointer"
            refuse(
                f"{operation}: expected memory that the kernel may write, got {what}, which is "
                "const. Leave `const` out of the signature."
            )


def require(value: object, operation: str, *spaces: str) -> Pointer:
    """Refuse anything but a pointer into one of the spaces."""
    if not isinstance(value, Pointer):
        refuse(f"{operation}: expected a pointer, got {describe(value)}. Use `p.at(i)`.")
    if spaces and value.space not in spaces:
        hint = "Copy it to an array of `shared` first." if spaces == ("shared",) else "Use another."
        refuse(
            f"{operation}: expected {' or '.join(spaces)} memory, got {value.space} memory. {hint}"
        )
    return value


# -- arrays ----------------------------------------------------------------------------------------


def _elements(of: object, extents: tuple[int, ...], operation: str) -> tuple[Type, int]:
    kind = as_type(of)
    if kind is None:
        refuse(f"{operation}: expected an element type such as f32, got {of!r}.")
    for extent in extents:
        if not isinstance(extent, (int, np.integer)) or extent < 1:
            refuse(
                f"{operation}: expected extents known while the kernel is built, each at least 1, "
                f"got {describe(extent)}. Use a constant."
            )
    return kind, int(np.prod(extents, dtype=np.int64)) * kind.bytes


def _array(
    builder: Builder, of: Type, space: str, symbol: str, extents: tuple[int, ...], name: str
) -> Pointer:
    wide = space in _WIDE_SPACES
    base = Value(builder, u64 if wide else u32, "", builder.scopes[0])
    base.text = builder.register(base.type)
    builder.prologue.append(f"mov.{base.type.ptx} {base.text}, {symbol};")
    return Pointer(of, space, base, 0, space == "const", extents, name)


def shared(of: Type, *extents: int) -> Pointer:
    """Make an array in the block's shared memory, of extents known now.

    At most 48 KiB in all arrays of a kernel; `dynamic_shared` has more. Its content is undefined
    when the block begins.
    """
    builder = current("shared")
    kind, nbytes = _elements(of, extents, "shared")
    builder.shared_bytes = -(-builder.shared_bytes // 16) * 16 + nbytes
    if builder.shared_bytes > MOST_STATIC_SHARED:
        refuse(
            f"shared: expected at most {MOST_STATIC_SHARED} bytes in all arrays, got "
            f"{builder.shared_bytes}. Use `dynamic_shared` and give the bytes to the launch.",
            ArgumentValueError,
        )
    symbol = builder.symbol("shared")
    builder.prologue.append(f".shared .align 16 .b8 {symbol}[{nbytes}];")
    return _array(builder, kind, "shared", symbol, extents, "the shared array")


def dynamic_shared(of: Type) -> Pointer:
    """Return the shared memory whose bytes each launch gives: `f[grid, block, shared](…)`."""
    builder = current("dynamic_shared")
    kind, _ = _elements(of, (), "dynamic_shared")
    line = ".extern .shared .align 16 .b8 uhal_dynamic_shared[];"
    builder.program.declarations.setdefault("uhal_dynamic_shared", line)
    return _array(builder, kind, "shared", "uhal_dynamic_shared", (), "the dynamic shared memory")


def local(of: Type, *extents: int) -> Pointer:
    """Make an array of each thread's own, in local memory; undefined until it is written."""
    builder = current("local")
    kind, nbytes = _elements(of, extents, "local")
    symbol = builder.symbol("local")
    builder.prologue.append(f".local .align 16 .b8 {symbol}[{nbytes}];")
    return _array(builder, kind, "local", symbol, extents, "the local array")


def constant(of: Type, values: Sequence[float] | np.ndarray[Any, Any]) -> Pointer:
    """Make a table of constants in constant memory: 64 KiB in all tables of a module."""
    builder = current("constant")
    table = np.asarray(values)
    kind, nbytes = _elements(of, table.shape or (1,), "constant")
    if nbytes > 64 << 10:
        refuse(f"constant: expected at most 65536 bytes, got {nbytes}.", ArgumentValueError)
    flat = table.reshape(-1).tolist()
    wrong = [one for one in flat if not kind.holds(one)]
    if wrong:
        refuse(f"constant: expected numbers of type {kind}, got {wrong[0]!r}.")
    bits = ", ".join(f"0x{kind.pattern(one):X}" for one in flat)
    symbol = builder.symbol("table")
    builder.program.declarations[symbol] = (
        f".const .align 16 .b{kind.bits} {symbol}[{len(flat)}] = {{{bits}}};"
    )
    return _array(builder, kind, "const", symbol, table.shape, "the constant table")


def module_variable(of: Type, count: int, name: str) -> Pointer:
    """Make an array in global memory that lives with the module: `module.get_global(name)`.

    It begins as zeros.
    """
    builder = current("module_variable")
    kind, nbytes = _elements(of, (count,), "module_variable")
    line = f".visible .global .align 16 .b8 {name}[{nbytes}];"
    if builder.program.declarations.setdefault(name, line) != line:
        refuse(f"module_variable: expected one size of {name}, got two.", ArgumentValueError)
    return _array(builder, kind, "global", name, (count,), name)


# -- asynchronous copies ---------------------------------------------------------------------------


def copy_async(to: Pointer, source: Pointer, nbytes: int = 16, used: Operand | None = None) -> None:
    """Begin to copy 4, 8 or 16 bytes from global to shared memory.

    Only the first `used` bytes are read; zeros fill up the others. Done after `copies_wait`, for
    other threads after a `barrier` too.
    """
    builder = current("copy_async")
    require(to, "copy_async", "shared")
    require(source, "copy_async", "global")
    if nbytes not in (4, 8, 16):
        refuse(f"copy_async: expected 4, 8 or 16 bytes, got {nbytes!r}.", ArgumentValueError)
    operands = [to.address(), source.address(), str(nbytes)]
    if used is not None:
        operands.append(operand(used, u32, "copy_async"))
    cache = "cg" if nbytes == 16 else "ca"
    builder.emit(f"cp.async.{cache}.shared.global", *operands)


def copies_commit() -> None:
    """Make the copies begun since the last call one group."""
    current("copies_commit").emit("cp.async.commit_group")


def copies_wait(pending: int = 0) -> None:
    """Wait until at most that many of this thread's latest groups are still under way."""
    current("copies_wait").emit("cp.async.wait_group", str(pending))
