"""Loads, stores, moves and addresses (ISA manual §9.7.9)."""

from __future__ import annotations

from .emitter import Emitter
from .program import Address, Instruction, Operand, Register, Vector
from .table import instruction
from .types import B32, BITS, PRED, U64, PtxType

CHAPTER = "9.7.9 Data Movement and Conversion: "


def space_of(i: Instruction) -> str:
    """The state space in an instruction's name; `generic` if there is none."""
    for modifier in i.modifiers:
        base = modifier.partition("::")[0]
        if base in ("global", "shared", "local", "const", "param"):
            return base
    return "generic"


def elements(operand: Operand | None) -> tuple[Operand | None, ...]:
    """The registers of a vector operand, or the one register."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


@instruction("ld")
def load(e: Emitter, i: Instruction) -> None:
    kind = i.type
    count = len(elements(i.operands[0]))
    if (
        i.used_bytes is not None
        and i.used_bytes & (1 << kind.bytes * count) - 1 != (1 << kind.bytes * count) - 1
    ):
        _load_in_part(e, i, i.used_bytes)
        return
    where = e.reach(
        i.operands[1], space_of(i), kind.bytes * count, "load", synchronizes=_synchronizes(i)
    )
    ordered = _ordering(i, "acquire")
    # The parameters of a kernel do not change while it runs.
    constant = ", !invariant.load !0" if e.names_parameter(i.operands[1]) else ""
    values = []
    for index in range(count):
        at = e.value(f"getelementptr i8, ptr {where}, i64 {index * kind.bytes}") if index else where
        values.append(
            e.value(
                f"load {ordered[0]} {kind.llvm}, ptr {at}{ordered[1]}, align {kind.bytes}{constant}"
            )
        )
    for register, value in zip(elements(i.operands[0]), values, strict=True):
        e.write(register, value, kind)


def _load_in_part(e: Emitter, i: Instruction, used: int) -> None:
    """Load only the used bytes; the others may lie outside the allocation, and become 0."""
    kind, source = i.type, i.operands[1]
    assert isinstance(source, Address)
    for index, register in enumerate(elements(i.operands[0])):
        value = "0"
        for byte in range(kind.bytes):
            offset = index * kind.bytes + byte
            if not used >> offset & 1:
                continue
            byte_at = Address(source.base, source.offset + offset)
            where = e.reach(byte_at, space_of(i), 1, "load", synchronizes=_synchronizes(i))
            one = e.value(f"load i8, ptr {where}")
            if kind.bytes > 1:
                one = e.value(f"zext i8 {one} to i{kind.width}")
            moved = e.value(f"shl i{kind.width} {one}, {8 * byte}") if byte else one
            value = moved if value == "0" else e.value(f"or i{kind.width} {value}, {moved}")
        e.write(register, value, BITS[kind.width] if kind.is_float else kind)


@instruction("st")
def store(e: Emitter, i: Instruction) -> None:
    kind = i.type
    values = [e.read(one, kind) for one in elements(i.operands[1])]
    size = kind.bytes * len(values)
    where = e.reach(
        i.operands[0],
        space_of(i),
        size,
        "store",
        synchronizes=_synchronizes(i),
        watched_after=True,
    )
    ordered = _ordering(i, "release")
    for index, value in enumerate(values):
        at = e.value(f"getelementptr i8, ptr {where}, i64 {index * kind.bytes}") if index else where
        e.line(f"store {ordered[0]} {kind.llvm} {value}, ptr {at}{ordered[1]}, align {kind.bytes}")
    e.watch_stores()


def _synchronizes(i: Instruction) -> bool:
    """Whether threads may synchronize by this access (§8.4)."""
    return any(i.has(one) for one in ("volatile", "relaxed", "acquire", "release", "mmio"))


def _ordering(i: Instruction, strong: str) -> tuple[str, str]:
    """LLVM's text before the type and after the address of an access.

    A `volatile` access counts too: other threads see it, and all threads are in this process.
    """
    if i.type.width > 64:
        return "volatile", ""
    if i.has(strong):
        return "atomic", f" {strong}"
    if i.has("relaxed") or i.has("mmio"):
        return "atomic", " monotonic"
    return ("atomic volatile", " monotonic") if i.has("volatile") else ("", "")


@instruction("mov")
def move(e: Emitter, i: Instruction) -> None:
    kind = i.type
    if kind is PRED:
        e.write_predicate(i.operands[0], e.read(i.operands[1], PRED))
        return
    bits = kind if kind.is_float else BITS[kind.width]
    e.write(i.operands[0], e.read(i.operands[1], bits), bits)


@instruction("cvta")
def convert_address(e: Emitter, i: Instruction) -> None:
    """Only shared memory has a separate address space: offsets in the block's part of it."""
    operand = i.operands[1]
    address = e.read(operand, U64)
    if space_of(i) == "shared":
        start = e.value(f"ptrtoint ptr {e.field('shared', 'ptr')} to i64")
        address = e.value(f"{'sub' if i.has('to') else 'add'} i64 {address}, {start}")
    e.write(i.operands[0], e.resized(address, 64, i.type.width, signed=False), BITS[i.type.width])


@instruction("isspacep")
def is_in_space(e: Emitter, i: Instruction) -> None:
    address = e.read(i.operands[1], U64)
    space = space_of(i)
    if space not in ("shared", "local", "global"):
        raise e.unsupported(
            f"{i.spelling}: only global, shared and local memory are told apart "
            f"(§{CHAPTER}isspacep)"
        )
    truth = ""
    if space != "local":
        start = e.value(f"ptrtoint ptr {e.field('shared', 'ptr')} to i64")
        size = e.value(f"zext i32 {e.field('total_shared_bytes', 'i32')} to i64")
        truth = e.value(f"icmp ult i64 {e.value(f'sub i64 {address}, {start}')}, {size}")
    if space != "shared":
        answer = e.value(f"call i32 {e.field('is_local', 'ptr')}(ptr %block, i64 {address})")
        is_local = e.value(f"icmp ne i32 {answer}, 0")
        truth = e.value(f"or i1 {truth}, {is_local}") if truth else is_local
    if space == "global":
        # All other spaces.
        truth = e.value(f"xor i1 {truth}, true")
    e.write_predicate(i.operands[0], truth)


@instruction("cache")
def only_a_hint(e: Emitter, i: Instruction) -> None:
    """Caches are not modelled."""


@instruction("cp.async")
def copy_to_shared(e: Emitter, i: Instruction) -> None:
    """Copy at once: the manual allows any time until the following wait."""
    operands = i.operands[:-1] if i.has("L2::cache_hint") else i.operands
    size = e.constant(operands[2])
    target = e.reach(i.operands[0], "shared", size, "store")
    e.declarations["llvm.memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    e.declarations["llvm.memcpy.p0.p0.i32"] = (
        "declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)"
    )
    after = ""
    if len(operands) > 3:
        given = _bytes_asked_for(e, operands[3], size)
        e.line(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")
        whole, part, after = e.label(), e.label(), e.label()
        is_whole = e.value(f"icmp eq i32 {given}, {size}")
        e.line(f"br i1 {is_whole}, label %{whole}, label %{part}")
        e.begin(part)
        _copy_part(e, i.operands[1], target, given, size)
        e.line(f"br label %{after}")
        e.begin(whole)
    source = e.reach(i.operands[1], "global", size, "load")
    e.line(f"call void @llvm.memcpy.p0.p0.i32(ptr {target}, ptr {source}, i32 {size}, i1 false)")
    if after:
        e.fall_into(after)


def _bytes_asked_for(e: Emitter, operand: Operand | None, size: int) -> str:
    """Number of source bytes to read, from an operand that is a size or an ignore predicate."""
    if isinstance(operand, Register) and e.register_type(operand) is PRED:
        return e.value(f"select i1 {e.read(operand, PRED)}, i32 0, i32 {size}")
    return e.call("i32", "llvm.umin.i32", f"i32 {e.read(operand, B32)}", f"i32 {size}")


def _copy_part(e: Emitter, source: Operand | None, target: str, given: str, size: int) -> None:
    """Copy byte by byte, so that no other byte is touched."""
    for index in range(size):
        wanted, after = e.label(), e.label()
        is_wanted = e.value(f"icmp ugt i32 {given}, {index}")
        e.line(f"br i1 {is_wanted}, label %{wanted}, label %{after}")
        e.begin(wanted)
        assert isinstance(source, Address)
        byte_at = Address(source.base, source.offset + index)
        byte = e.value(f"load i8, ptr {e.reach(byte_at, 'global', 1, 'load')}")
        at = e.value(f"getelementptr i8, ptr {target}, i64 {index}")
        e.line(f"store i8 {byte}, ptr {at}")
        e.fall_into(after)


@instruction("createpolicy")
def create_policy(e: Emitter, i: Instruction) -> None:
    """Cache policies are ignored."""
    e.write(i.operands[0], "0", BITS[64])


@instruction("cp.async.wait")
def wait_for_copies(e: Emitter, i: Instruction) -> None:
    """Nothing to wait for: copies are done at once."""


# -- atomics ---------------------------------------------------------------------------------------

_LLVM = {
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "add": "add",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


@instruction("atom")
def atomic(e: Emitter, i: Instruction) -> None:
    old = _update(e, i, i.operands[1], i.operands[2])
    e.write(i.operands[0], old, BITS[i.type.width])


@instruction("red")
def reduce(e: Emitter, i: Instruction) -> None:
    _update(e, i, i.operands[0], i.operands[1])


@instruction("atom.cas")
def compare_and_swap(e: Emitter, i: Instruction) -> None:
    kind = i.type
    where = _reach_atomic(e, i, i.operands[1])
    expected, wanted = e.read(i.operands[2], kind), e.read(i.operands[3], kind)
    both = e.value(
        f"cmpxchg ptr {where}, {kind.llvm} {expected}, {kind.llvm} {wanted} seq_cst seq_cst"
    )
    e.write(i.operands[0], e.value(f"extractvalue {{{kind.llvm}, i1}} {both}, 0"), kind)


def _reach_atomic(e: Emitter, i: Instruction, address: Operand | None) -> str:
    return e.reach(address, space_of(i), i.type.bytes, "atomic", synchronizes=True)


@instruction("atom.vector", "red.vector")
def vector_of_atomics(e: Emitter, i: Instruction) -> None:
    """Each element is atomic, the vector as a whole is not."""
    kind = i.type
    returns = i.name == "atom"
    address, operand = i.operands[returns : returns + 2]
    values = elements(operand)
    size = kind.bytes * len(values)
    start = e.reach(address, space_of(i), size, "atomic", synchronizes=True)
    for index, value in enumerate(values):
        at = e.value(f"getelementptr i8, ptr {start}, i64 {index * kind.bytes}")
        old = _updated(e, i, at, value)
        if returns:
            e.write(elements(i.operands[0])[index], old, BITS[kind.width])


def _update(e: Emitter, i: Instruction, address: Operand | None, operand: Operand | None) -> str:
    return _updated(e, i, _reach_atomic(e, i, address), operand)


def _updated(e: Emitter, i: Instruction, where: str, operand: Operand | None) -> str:
    kind = i.type
    operation = i.one_of(*_LLVM, "min", "max")
    if kind.name in ("f32", "f64"):
        value = e.real(operand, kind)
        old = e.value(f"atomicrmw fadd ptr {where}, {kind.real} {value} seq_cst")
        return e.from_real(old, kind)
    if kind.name in ("f16", "bf16", "f16x2", "bf16x2"):
        return _add_narrow(e, kind, where, e.read(operand, BITS[kind.width]))
    name = _LLVM.get(operation) or ("" if kind.is_signed else "u") + operation
    return e.value(f"atomicrmw {name} ptr {where}, {kind.llvm} {e.read(operand, kind)} seq_cst")


def _add_narrow(e: Emitter, kind: PtxType, where: str, operand: str) -> str:
    part = kind.element if kind.kind == "packed" else kind
    first = e.value(f"load atomic {kind.llvm}, ptr {where} monotonic, align {kind.bytes}")
    seen = e.slot(kind.llvm)
    e.line(f"store {kind.llvm} {first}, ptr {seen}")
    again, done = e.label(), e.label()
    e.fall_into(again)
    old = e.value(f"load {kind.llvm}, ptr {seen}")
    total = "0"
    for shift in range(0, kind.width, 16):
        halves = []
        for whole in (old, operand):
            moved = e.value(f"lshr {kind.llvm} {whole}, {shift}")
            halves.append(e.to_real(e.resized(moved, kind.width, 16, signed=False), part))
        bits = e.from_real(e.value(f"fadd float {halves[0]}, {halves[1]}"), part)
        wide = e.resized(bits, 16, kind.width, signed=False)
        total = e.value(f"or {kind.llvm} {total}, {e.value(f'shl {kind.llvm} {wide}, {shift}')}")
    both = e.value(f"cmpxchg ptr {where}, {kind.llvm} {old}, {kind.llvm} {total} seq_cst seq_cst")
    e.line(
        f"store {kind.llvm} {e.value(f'extractvalue {{{kind.llvm}, i1}} {both}, 0')}, ptr {seen}"
    )
    swapped = e.value(f"extractvalue {{{kind.llvm}, i1}} {both}, 1")
    e.line(f"br i1 {swapped}, label %{done}, label %{again}")
    e.begin(done)
    return old


@instruction("fence")
def fence(e: Emitter, i: Instruction) -> None:
    e.line("fence seq_cst")
