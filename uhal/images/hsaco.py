"""Reads HSACO, AMD's code objects: the target, kernels, their arguments and resources.

A code object is an ELF file with its metadata in a note, as MessagePack. Versions 4, 5 and 6 are
read; older versions encode their target differently, and no current compiler writes them. Source:
LLVM's "User Guide for AMDGPU Backend", "Code Object Metadata" and "Kernel Descriptor".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NoReturn

from uhal.dtypes import from_c_spelling
from uhal.errors import InvalidImageError
from uhal.images import elf, header_signature, msgpack
from uhal.images.amd_target import TargetId, generic_version
from uhal.images.msgpack import Value
from uhal.signature import POINTER_BYTES, Parameter, Signature

MAX_KERNELS = 1 << 16
MAX_ARGUMENTS = 4096
MAX_KERNARG_BYTES = 1 << 20
MAX_ALIGNMENT = 4096

Extent = tuple[int, int, int]

_VERSION_OF_ABI = {2: 4, 3: 5, 4: 6}
"""The ABI version in the ELF header to the code object version."""
_OLDEST_ABI = min(_VERSION_OF_ABI)
_OS_ABI = 64
_METADATA_NOTE = ("AMDGPU", 32)
_DESCRIPTOR_SUFFIX = ".kd"
_DESCRIPTOR = struct.Struct("<III")  # bytes of LDS, of scratch and of arguments
_DESCRIPTOR_BYTES = 64
_HIDDEN = "hidden_"
_POINTER = "global_buffer"
_BY_VALUE = "by_value"

Map = dict[str | int, Value]


@dataclass(frozen=True)
class HiddenArgument:
    """An argument that the launcher fills and no caller sees."""

    kind: str
    """Kind in the metadata, such as `hidden_block_count_x`."""
    offset: int
    """Bytes from the start of the kernel's arguments."""
    size: int


@dataclass(frozen=True)
class HsacoKernel:
    """A kernel of a code object. Sizes are in bytes."""

    name: str
    symbol: str
    """Name of the kernel's descriptor, by which the runtime finds the kernel."""
    exported: bool
    """False if the runtime cannot find the kernel: hidden descriptor or stripped symbols."""
    signature: Signature
    """Arguments that a caller passes, with the offsets that the file states."""
    hidden: tuple[HiddenArgument, ...]
    foreign: tuple[str, ...]
    """Kinds of arguments that only another runtime can make, such as OpenCL's `image`."""
    kernarg_bytes: int
    kernarg_alignment: int
    group_bytes: int
    """LDS of a work-group, without a launch's dynamic part."""
    private_bytes: int
    """Scratch of a work-item."""
    wavefront: int
    """Work-items of a wavefront: 32 or 64."""
    max_block_threads: int
    required_block: Extent | None
    """The only work-group size that the kernel may be launched with."""
    vector_registers: int | None
    """Registers of one work-item."""
    vector_spills: int | None
    """Registers of a work-item that are spilled to scratch."""
    dynamic_stack: bool
    """True if the kernel may need more scratch than `private_bytes`."""
    uniform_blocks: bool
    """True if the kernel was compiled for grids that are multiples of the work-group."""


@dataclass(frozen=True)
class HsacoImage:
    """Description of a code object, from the file."""

    target: TargetId
    generic_version: int
    """Version of a generic target; 0 otherwise."""
    version: int
    """Code object version: 4, 5 or 6."""
    kernels: tuple[HsacoKernel, ...]
    stripped: bool
    """True if the symbol table that the runtime uses is empty."""

    @property
    def signatures(self) -> dict[str, Signature]:
        """Kernel name to signature, in the file's order."""
        return {kernel.name: kernel.signature for kernel in self.kernels}


def is_hsaco(image: bytes) -> bool:
    """Say whether the bytes begin like a code object."""
    return image[:4] == elf.MAGIC and image[18:20] == elf.EM_AMDGPU.to_bytes(2, "little")


def read_hsaco(image: bytes, *, dynamic: bool = False) -> HsacoImage:
    """Read a code object. Raises `InvalidImageError` for other and damaged files.

    AMD's runtime looks up kernels in `.symtab`, or in `.dynsym` if LOADER_USE_DYNSYM is set;
    `dynamic` selects the second table. The runtime finds only global objects. A linker makes hidden
    objects local.
    """
    if not is_hsaco(image):
        _fail("it is no ELF file for AMD devices")
    file = elf.Elf(image, "this code object")
    version = _version(file)
    metadata = _metadata(file)
    listed = _list(metadata, "amdhsa.kernels")
    if len(listed) > MAX_KERNELS:
        _fail(f"it claims {len(listed)} kernels")
    symbols = file.dynamic_symbols if dynamic else file.full_symbols
    objects = [
        one for one in symbols if one.type == elf.STT_OBJECT and one.binding != elf.STB_LOCAL
    ]
    _check_loaded(file, objects)
    descriptors = {
        symbol.name: symbol.value for symbol in objects if symbol.name.endswith(_DESCRIPTOR_SUFFIX)
    }
    constants = {
        symbol.name.removeprefix(header_signature.PREFIX): file.read(symbol.value, symbol.size)
        for symbol in objects
        if symbol.name.startswith(header_signature.PREFIX)
        and symbol.size <= header_signature.MAX_BYTES
    }
    kernels: dict[str, HsacoKernel] = {}
    for one in listed:
        kernel = _kernel(_as_map(one, "a kernel"), descriptors)
        reported = header_signature.with_header(kernel.signature, constants)
        kernel = replace(kernel, signature=reported)
        if kernel.name in kernels:
            _fail(f"it describes {kernel.name!r} twice")
        if kernel.exported:
            _check_descriptor(file, kernel, descriptors[kernel.symbol])
        kernels[kernel.name] = kernel
    target = _target(file, metadata)
    found = tuple(kernels.values())
    return HsacoImage(target, generic_version(file.flags), version, found, not symbols)


def _check_loaded(file: elf.Elf, objects: list[elf.Symbol]) -> None:
    """Every object must have a section and an address, or ROCr 7.2 ends the process."""
    loaded = [
        range(segment.address, segment.address + segment.memory_size)
        for segment in file.segments
        if segment.type == elf.PT_LOAD
    ]
    for symbol in objects:
        if not 0 < symbol.section < len(file.sections):
            _fail(f"{symbol.name[:80]!r} is not defined in it")
        if not any(symbol.value in addresses for addresses in loaded):
            _fail(f"it loads nothing at {symbol.value:#x}, where {symbol.name[:80]!r} is")


def _version(file: elf.Elf) -> int:
    if file.os_abi != _OS_ABI:
        _fail(f"it is made for another system than ROCm (ELF OS ABI {file.os_abi})")
    if file.type != elf.ET_DYN:
        _fail("it has not been linked")
    version = _VERSION_OF_ABI.get(file.abi_version)
    if version is None and file.abi_version < _OLDEST_ABI:
        _fail("its code object version is below 4: build it with -mcode-object-version=4 or later")
    if version is None:
        _fail(f"its code object version is unknown (ELF ABI version {file.abi_version})")
    return version


def _metadata(file: elf.Elf) -> Map:
    found = [note for note in file.notes if (note.name, note.type) == _METADATA_NOTE]
    if len(found) != 1:
        _fail(f"it has {len(found)} notes of metadata")
    value = msgpack.unpack(found[0].description, "the metadata of this code object")
    return _as_map(value, "the metadata")


def _target(file: elf.Elf, metadata: Map) -> TargetId:
    """Target from the header, which the runtime uses; from the metadata for a newer chip."""
    reported = TargetId.parse(_text(metadata, "amdhsa.target"))
    by_flags = TargetId.from_flags(file.flags)
    if by_flags is not None and by_flags != reported:
        _fail(f"its header is for {by_flags} and its metadata for {reported}")
    return reported


def _kernel(facts: Map, descriptors: dict[str, int]) -> HsacoKernel:
    name = _text(facts, ".name")
    symbol = _text(facts, ".symbol")
    total = _size(facts, ".kernarg_segment_size", MAX_KERNARG_BYTES)
    alignment = _size(facts, ".kernarg_segment_align", MAX_ALIGNMENT)
    wavefront = _size(facts, ".wavefront_size", 64)
    if alignment == 0 or alignment & (alignment - 1) or wavefront not in (32, 64):
        _fail(f"{name!r} has impossible properties")
    arguments = [_as_map(one, "an argument") for one in _list(facts, ".args", optional=True)]
    if len(arguments) > MAX_ARGUMENTS:
        _fail(f"{name!r} has {len(arguments)} arguments")
    _check_offsets(name, arguments, total)
    kinds = [_text(one, ".value_kind") for one in arguments]
    pairs = list(zip(kinds, arguments, strict=True))
    explicit = [(kind, one) for kind, one in pairs if not kind.startswith(_HIDDEN)]
    registers, spills = facts.get(".vgpr_count"), facts.get(".vgpr_spill_count")
    return HsacoKernel(
        name=name,
        symbol=symbol,
        exported=symbol in descriptors,
        signature=Signature(
            (_parameter(index, kind, one) for index, (kind, one) in enumerate(explicit)), name
        ),
        hidden=tuple(
            HiddenArgument(kind, _size(one, ".offset"), _size(one, ".size"))
            for kind, one in pairs
            if kind.startswith(_HIDDEN)
        ),
        foreign=tuple(kind for kind, _ in explicit if kind not in (_POINTER, _BY_VALUE)),
        kernarg_bytes=total,
        kernarg_alignment=alignment,
        group_bytes=_size(facts, ".group_segment_fixed_size"),
        private_bytes=_size(facts, ".private_segment_fixed_size"),
        wavefront=wavefront,
        max_block_threads=_size(facts, ".max_flat_workgroup_size"),
        required_block=_extent(facts, ".reqd_workgroup_size"),
        vector_registers=registers if isinstance(registers, int) else None,
        vector_spills=spills if isinstance(spills, int) else None,
        dynamic_stack=facts.get(".uses_dynamic_stack") is True,
        uniform_blocks=facts.get(".uniform_work_group_size") == 1,
    )


def _check_offsets(name: str, arguments: list[Map], total: int) -> None:
    """Check that arguments lie inside the kernel's argument block and do not overlap."""
    end = 0
    for offset, size in sorted((_size(one, ".offset"), _size(one, ".size")) for one in arguments):
        if offset < end or size == 0 or offset + size > total:
            _fail(f"an argument of {name!r} cannot be: {size} bytes at {offset} of {total}")
        end = offset + size


def _parameter(index: int, kind: str, facts: Map) -> Parameter:
    size = _size(facts, ".size")
    offset = _size(facts, ".offset")
    name = facts.get(".name")
    label = name if isinstance(name, str) and name else None
    words = facts.get(".type_name")
    type_name = words if isinstance(words, str) else ""
    if kind == _POINTER:
        if size != POINTER_BYTES:
            _fail(f"a pointer of {size} bytes")
        reads_only = facts.get(".actual_access") == "read_only" or facts.get(".is_const") is True
        return Parameter(
            index,
            label,
            "pointer",
            size,
            offset,
            dtype=from_c_spelling(type_name.removesuffix("*")) if "*" in type_name else None,
            is_const=True if reads_only else None,
            source="code object",
        )
    dtype = from_c_spelling(type_name)
    if kind == _BY_VALUE and dtype is not None and dtype.itemsize == size:
        return Parameter(index, label, "scalar", size, offset, dtype, source="code object")
    simple = size in (1, 2, 4, 8)
    return Parameter(
        index, label, "unknown" if simple else "aggregate", size, offset, source="code object"
    )


def _check_descriptor(file: elf.Elf, kernel: HsacoKernel, address: int) -> None:
    """Check that the descriptor, which the device uses, agrees with the metadata."""
    found = _DESCRIPTOR.unpack_from(file.read(address, _DESCRIPTOR_BYTES))
    reported = (kernel.group_bytes, kernel.private_bytes, kernel.kernarg_bytes)
    if found != reported:
        _fail(
            f"the descriptor of {kernel.name!r} says {found} bytes of LDS, scratch and arguments, "
            f"the metadata {reported}"
        )


# -- values of the metadata ------------------------------------------------------------------------


def _as_map(value: Value, what: str) -> Map:
    if not isinstance(value, dict):
        _fail(f"{what} is no map")
    return value


def _list(facts: Map, key: str, *, optional: bool = False) -> list[Value]:
    value = facts.get(key, [] if optional else None)
    if not isinstance(value, list):
        _fail(f"{key} is no list")
    return value


def _text(facts: Map, key: str) -> str:
    value = facts.get(key)
    if not isinstance(value, str) or not value:
        _fail(f"{key} is no text")
    return value


def _size(facts: Map, key: str, most: int = 0xFFFFFFFF) -> int:
    value = facts.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        _fail(f"{key} is no number in 0…{most}")
    return value


def _extent(facts: Map, key: str) -> Extent | None:
    value = facts.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        _fail(f"{key} is no list of three numbers")
    x, y, z = (_size({key: one}, key) for one in value)
    return x, y, z


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this code object cannot be read: {problem}")
