"""Reads `.topsfb` files, Enflame's compiled kernels: architectures, kernels and parameters.

A `.topsfb` is a clang offload bundle of one GCU ELF file or several. The ELF's note describes every
kernel parameter: C type, size, offset, and whether it is a pointer, but not its name. The vendor
does not document the format; the layout here was found in files that Ubridge ships.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from uhal import dtypes
from uhal.dtypes import DType
from uhal.errors import InvalidImageError
from uhal.images import elf, msgpack
from uhal.images.offload_bundle import MAGIC, is_offload_bundle, read_offload_bundle
from uhal.signature import POINTER_BYTES, Parameter, ParameterKind, Signature

EM_GCU = 0xF8
OS_ABI_GCU = 0x43
MAX_PARAMETERS = 4096
MAX_PARAMETER_BYTES = 1 << 16

_STT_KERNEL = 10
_STB_GLOBAL = 1
_NOTE_NAME = "TOPSDTU"
_NOTE_TYPE = 0x20
_TARGET_OF_FLAGS = {2: "gcu200", 3: "gcu210", 4: "gcu300"}
"""ELF flags to target. For objects of 2022 and later chips, which have no entry here, the note
names the target."""
_TARGET = re.compile(r"gcu\d{3,4}[a-z]?\Z")
_HOST_ID = b"host-x86_64-unknown-linux"
_ENTRY = struct.Struct("<QQQ")

# TopsCC's names of types, in addition to C's.
_TYPES_OF_TOPSCC = {
    "tops::half": dtypes.f16,
    "tops::bfloat": dtypes.bf16,
    "u_int8_t": dtypes.u8,
    "u_int16_t": dtypes.u16,
    "u_int32_t": dtypes.u32,
    "u_int64_t": dtypes.u64,
}
# I16 is missing, because a half by value is I16 too. Struct stands for bool and bf16.
_TYPES_OF_METADATA = {
    "I8": dtypes.i8,
    "I32": dtypes.i32,
    "I64": dtypes.i64,
    "U8": dtypes.u8,
    "U16": dtypes.u16,
    "U32": dtypes.u32,
    "U64": dtypes.u64,
    "F16": dtypes.f16,
    "F32": dtypes.f32,
    "F64": dtypes.f64,
}


@dataclass(frozen=True)
class GcuKernel:
    """A kernel of a GCU image."""

    name: str
    signature: Signature | None
    """`None` if the metadata lacks the signature."""


@dataclass(frozen=True)
class GcuImage:
    """Description of a GCU ELF file, from the file."""

    target: str | None
    """`gcu300`; `None` if neither the flags nor the note name the target."""
    relocatable: bool
    """True for an unlinked object, which the runtime of 2022 also accepted."""
    kernels: tuple[GcuKernel, ...]

    @property
    def signatures(self) -> dict[str, Signature]:
        """Kernel name to signature, for kernels with a signature, in the file's order."""
        return {
            kernel.name: kernel.signature for kernel in self.kernels if kernel.signature is not None
        }


@dataclass(frozen=True)
class TopsfbEntry:
    """One device image of a `.topsfb`."""

    id: str
    """Spelling of the compiler: `tops-dtu-enflame-tops--gcu300`."""
    target: str | None
    """The architecture that the id names."""
    payload: bytes
    """A GCU ELF file; `read_gcu` reads it."""


def is_gcu(image: bytes) -> bool:
    """Say whether the bytes begin as a GCU ELF file does."""
    return (
        image[:4] == elf.MAGIC
        and image[7:8] == bytes([OS_ABI_GCU])
        and image[18:20] == EM_GCU.to_bytes(2, "little")
    )


def is_topsfb(image: bytes) -> bool:
    """Say whether the bytes are an offload bundle, which other vendors use too."""
    return is_offload_bundle(image)


def read_topsfb(image: bytes) -> tuple[TopsfbEntry, ...]:
    """List the device images of a `.topsfb`, in the file's order.

    Raises `InvalidImageError` when the bytes are no bundle, are damaged, or hold no GCU image.
    """
    entries = read_offload_bundle(image)
    found = tuple(
        TopsfbEntry(entry.id, target_of_id(entry.id), entry.payload)
        for entry in entries
        if not entry.for_host
    )
    if not any(is_gcu(entry.payload) for entry in found):
        reported = ", ".join(repr(entry.id[:80]) for entry in entries[:8]) or "nothing"
        raise InvalidImageError(f"this offload bundle is not for GCUs: it holds {reported}")
    return found


def target_of_id(identifier: str) -> str | None:
    """Return `gcu300` of `tops-dtu-enflame-tops--gcu300`; `None` without such an ending."""
    last = identifier.rpartition("--")[2]
    return last if _TARGET.match(last) else None


def write_topsfb(entry: TopsfbEntry) -> bytes:
    """Return a `.topsfb` of one image, in the form the vendor's compiler writes."""
    identifier = entry.id.encode()
    start = len(MAGIC) + 8 + 2 * _ENTRY.size + len(_HOST_ID) + len(identifier)
    return b"".join(
        (
            MAGIC,
            (2).to_bytes(8, "little"),
            _ENTRY.pack(start, 0, len(_HOST_ID)),
            _HOST_ID,
            _ENTRY.pack(start, len(entry.payload), len(identifier)),
            identifier,
            entry.payload,
        )
    )


def read_gcu(image: bytes) -> GcuImage:
    """Read a GCU ELF file. Raises `InvalidImageError` for other and damaged files."""
    if not is_gcu(image):
        _fail("it is no ELF file for GCUs")
    return _Reader(elf.Elf(image, "this GCU image")).read()


class _Reader:
    def __init__(self, file: elf.Elf) -> None:
        self._file = file
        self._described: dict[str, Signature] = {}
        self._processors: set[str] = set()

    def read(self) -> GcuImage:
        # Not all headers are needed here; reading all of them detects a truncated file.
        self._file.segments  # noqa: B018
        for note in self._file.notes:
            if note.name == _NOTE_NAME and note.type == _NOTE_TYPE:
                self._read_note(note.description)
        kernels = [GcuKernel(name, self._described.get(name)) for name in self._kernel_names()]
        return GcuImage(self._target(), self._file.type == elf.ET_REL, tuple(kernels))

    def _kernel_names(self) -> list[str]:
        names: dict[str, None] = {}
        for symbol in self._file.dynamic_symbols or self._file.symbols:
            is_kernel = symbol.type == _STT_KERNEL and symbol.binding == _STB_GLOBAL
            if not is_kernel or symbol.section == elf.SHN_UNDEF:
                continue
            if symbol.name in names:
                _fail(f"it defines {symbol.name[:80]!r} twice")
            names[symbol.name] = None
        return list(names)

    def _target(self) -> str | None:
        by_flags = _TARGET_OF_FLAGS.get(self._file.flags)
        reported = self._processors | ({by_flags} if by_flags else set())
        if len(reported) > 1:
            _fail(f"it says it is for {' and '.join(sorted(reported))}")
        return next(iter(reported), None)

    def _read_note(self, description: bytes) -> None:
        metadata = _map(msgpack.unpack(description, "the note of this GCU image"), "the note")
        processor = metadata.get("Processor")
        if isinstance(processor, str) and _TARGET.match(processor):
            self._processors.add(processor)
        for described in _array(metadata.get("Kernels", []), "Kernels"):
            kernel = _map(described, "a kernel")
            name = _text(kernel, "Name")
            if name in self._described:
                _fail(f"it describes {name[:80]!r} twice")
            self._described[name] = _signature(name, _array(kernel.get("Args", []), "Args"))


def _signature(name: str, arguments: list[msgpack.Value]) -> Signature:
    if len(arguments) > MAX_PARAMETERS:
        _fail(f"it gives {name[:80]!r} {len(arguments)} parameters")
    return Signature(_parameters(name, arguments), name)


def _parameters(kernel: str, arguments: list[msgpack.Value]) -> Iterator[Parameter]:
    end = 0
    for index, value in enumerate(arguments):
        argument = _map(value, "a parameter")
        size = _number(argument, "Size")
        offset = _number(argument, "Offset")
        where = f"parameter {index} of {kernel[:80]!r}"
        if not size or offset < end or offset + size > MAX_PARAMETER_BYTES:
            _fail(f"{where} cannot be: {size} bytes at {offset}, {end} are taken")
        end = offset + size
        kind, dtype, is_const = _type(argument, size, where)
        yield Parameter(
            index,
            _argument_name(argument),
            kind,
            size,
            offset,
            dtype,
            is_const=is_const,
            source="topsfb",
        )


def _argument_name(argument: dict[str | int, msgpack.Value]) -> str | None:
    name = argument.get("Name")
    known = isinstance(name, str) and name != "Unknown" and name.isidentifier()
    return str(name) if known else None


def _type(
    argument: dict[str | int, msgpack.Value], size: int, where: str
) -> tuple[ParameterKind, DType | None, bool | None]:
    """Return (kind, dtype, constness) of a parameter."""
    value_kind = _text(argument, "ValueKind")
    value_type = argument.get("ValueType")
    spelling = argument.get("TypeName")
    spelled = parse_type(spelling) if isinstance(spelling, str) else None
    if value_kind == "GlobalBuffer":
        if size != POINTER_BYTES:
            _fail(f"{where} is a pointer of {size} bytes")
        if spelled is not None and spelled.is_pointer:
            return "pointer", spelled.dtype, spelled.is_const or None
        return "pointer", None, None
    if value_kind != "ByValue":
        return "unknown", None, None
    dtype = spelled.dtype if spelled is not None and not spelled.is_pointer else None
    if dtype is None and isinstance(value_type, str):
        dtype = _TYPES_OF_METADATA.get(value_type)
    if dtype is not None:
        if dtype.itemsize != size:
            _fail(f"{where} is a {dtype} of {size} bytes")
        return "scalar", dtype, None
    if value_type == "Struct" or size not in (1, 2, 4, 8):
        return "aggregate", None, None
    return "unknown", None, None


@dataclass(frozen=True)
class SpelledType:
    """A parameter's type as TopsCC spells it."""

    dtype: DType | None
    """Type of the scalar or of the pointer's target; `None` for a type that uhal lacks."""
    is_pointer: bool
    is_const: bool


def parse_type(spelling: str) -> SpelledType:
    """Read `float*`, `const tops::half *`, `size_t`, `u_int32_t*`."""
    is_pointer = "*" in spelling
    before, _, after = spelling.partition("*")
    words = [word for word in before.split() if word not in ("volatile", "restrict")]
    is_const = is_pointer and "const" in words
    name = " ".join(word for word in words if word != "const")
    dtype = _TYPES_OF_TOPSCC.get(name) or dtypes.from_c_spelling(name)
    return SpelledType(None if "*" in after else dtype, is_pointer, is_const)


def _map(value: msgpack.Value, what: str) -> dict[str | int, msgpack.Value]:
    if not isinstance(value, dict):
        _fail(f"{what} is no map")
    return value


def _array(value: msgpack.Value, what: str) -> list[msgpack.Value]:
    if not isinstance(value, list):
        _fail(f"{what} is no array")
    return value


def _text(fields: dict[str | int, msgpack.Value], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        _fail(f"its metadata has no {key}")
    return value


def _number(fields: dict[str | int, msgpack.Value], key: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _fail(f"its metadata has no {key}")
    return value


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this GCU image cannot be read: {problem}")
