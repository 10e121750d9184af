"""GGUF files, read: a header, metadata, a list of tensors, and then their bytes.

The format is described in ggml's docs/gguf.md. Values of a file are checked before use: counts
against the remaining bytes, offsets against the file's size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from ubridge.core.block_formats import FORMATS, BlockFormat
from ubridge.files.entries import ElementType, TensorEntry, bytes_of
from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.gguf_values import Metadata, Reader
from ubridge.files.mapped import MappedFile
from uhal import DType
from uhal.dtypes import bf16, f16, f32, f64, i8, i16, i32, i64
from uhal.errors import ArgumentValueError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_ALIGNMENT = 1 << 16
"""Largest accepted alignment, a huge page: with more, a small file could ask for terabytes."""
MOST_AXES = 4
MOST_TENSORS = 1 << 16
"""Limit above any model's number of tensors; a list of this length takes about 30 MB."""
MOST_KEYS = 1 << 16
MOST_NAME_BYTES = 65535
_LEAST_KEY_BYTES, _LEAST_TENSOR_BYTES = 13, 24

TYPES: Mapping[int, DType | BlockFormat] = {
    **{0: f32, 1: f16, 30: bf16, 28: f64, 24: i8, 25: i16, 26: i32, 27: i64},
    **{one.ggml_type: one for one in FORMATS.values()},
}
"""Maps numbers in files to element types and formats."""
_UNKNOWN_TYPES = {41: ("q1_0", 128, 18)}
"""Types that ubridge does not support: name, elements and bytes of a block."""
_PART = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True)
class GGUFFile:
    """The contents of one file."""

    version: int
    metadata: Metadata
    entries: list[TensorEntry]
    alignment: int


def is_gguf(file: MappedFile) -> bool:
    """Return whether a file begins like a GGUF file."""
    return file.pages[:4].tobytes() == MAGIC


def begins_as_gguf(path: Path) -> bool:
    """Return whether a path is a GGUF file, under any name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_gguf(file: MappedFile) -> GGUFFile:
    """Return the contents of a file. Raises `InvalidFileError`."""
    reader = Reader(file)
    reader.take(len(MAGIC), "magic")
    version = reader.u32("version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        require_valid(
            swapped not in VERSIONS,
            file.path,
            "expected a little-endian file, got a big-endian file. "
            "Convert it with gguf_convert_endian.py of llama.cpp.",
        )
        older = "; version 1 has not been written since August 2023" if version == 1 else ""
        raise InvalidFileError(
            f"{file.path}: expected version 2 or 3 of GGUF, got {version}{older}"
        )
    tensors, keys = reader.u64("number of tensors"), reader.u64("number of keys")
    for what, count, least, most in (
        ("tensors", tensors, _LEAST_TENSOR_BYTES, MOST_TENSORS),
        ("keys", keys, _LEAST_KEY_BYTES, MOST_KEYS),
    ):
        require_valid(
            count <= most and count * least <= reader.left,
            file.path,
            f"expected at most {min(most, reader.left // least)} {what} in "
            f"{reader.left} bytes, got {count}",
        )
    metadata = _metadata(reader, keys)
    alignment = _alignment(file, metadata)
    told = [_tensor(reader) for _ in range(tensors)]
    start = -(-reader.position // alignment) * alignment
    entries: dict[str, TensorEntry] = {}
    for name, kind, shape, nbytes, offset in told:
        require_valid(
            name not in entries,
            file.path,
            f"there are two tensors {name!r:.80}",
        )
        require_valid(
            offset % alignment == 0 and start + offset + nbytes <= file.size,
            file.path,
            f"{name!r:.80}: expected {nbytes} bytes at a multiple of {alignment} "
            f"within the {max(file.size - start, 0)} of the data, got offset {offset}",
        )
        entries[name] = TensorEntry(name, kind, shape, file, start + offset, nbytes)
    return GGUFFile(version, metadata, list(entries.values()), alignment)


def _metadata(reader: Reader, count: int) -> Metadata:
    metadata = Metadata(reader.file)
    for _ in range(count):
        key = _name(reader, "key")
        kind = reader.u32(key)
        require_valid(
            key not in metadata,
            reader.file.path,
            f"the key {key!r:.80} stands twice",
        )
        metadata.add(key, kind, reader.position)
        reader.skip_value(kind, key)
    return metadata


def _name(reader: Reader, what: str) -> str:
    start = reader.position
    length = reader.u64(what)
    require_valid(
        length <= MOST_NAME_BYTES,
        reader.file.path,
        f"expected a {what} of at most {MOST_NAME_BYTES} bytes at {start}, got {length}",
    )
    reader.position = start
    return reader.text(what)


def _alignment(file: MappedFile, metadata: Metadata) -> int:
    found = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    require_valid(
        is_alignment(found),
        file.path,
        f"general.alignment: expected a power of two of at most {MOST_ALIGNMENT}, "
        f"got {found!r:.80}",
    )
    return int(found)


def is_alignment(value: object) -> bool:
    """Return whether a value is valid as the alignment of tensors."""
    return type(value) is int and 0 < value <= MOST_ALIGNMENT and not value & (value - 1)


def _tensor(reader: Reader) -> tuple[str, ElementType, tuple[int, ...], int, int]:
    """Name, element type, shape, bytes and offset of one tensor."""
    file = reader.file
    name = _name(reader, "tensor's name")
    axes = reader.u32(name)
    require_valid(
        axes <= MOST_AXES,
        file.path,
        f"{name!r:.80}: expected at most {MOST_AXES} axes, got {axes}",
    )
    # Files have the innermost axis first.
    shape = tuple(reversed([reader.u64(name) for _ in range(axes)]))
    number, offset = reader.u32(name), reader.u64(name)
    require_valid(
        prod(shape) < 1 << 63 and all(one < 1 << 63 for one in shape),
        file.path,
        f"{name!r:.80}: its shape {shape} is too large",
    )
    kind: ElementType
    if number in TYPES:
        known = TYPES[number]
        try:
            return name, known, shape, bytes_of(known, shape), offset
        except ArgumentValueError as error:
            raise InvalidFileError(f"{file.path}: {name!r:.80}: {error}") from error
    if number in _UNKNOWN_TYPES:
        kind, elements, block_bytes = _UNKNOWN_TYPES[number]
        return name, kind, shape, prod(shape) // elements * block_bytes, offset
    raise InvalidFileError(
        f"{file.path}: {name!r:.80}: expected a type of ggml, got {number}; ids that ggml has "
        "retired (4, 5, 31 to 33, 36 to 38) are read by no program of today"
    )


def parts_of(path: Path) -> list[Path]:
    """Return all files of a split model, in order, if the name belongs to a part."""
    match = _PART.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    return [
        path.with_name(f"{match['stem']}-{part:05}-of-{count:05}.gguf")
        for part in range(1, count + 1)
    ]


def require_parts(files: list[tuple[MappedFile, GGUFFile]]) -> None:
    """Refuse files unless they are all parts of one model, in order."""
    tensors = sum(len(contents.entries) for _, contents in files)
    for number, (file, contents) in enumerate(files):
        given = contents.metadata
        count = given.get("split.count", len(files))
        require_valid(
            len(files) != 1 or count in (0, 1),
            file.path,
            f"split.count: this is one of {count!r:.20} parts, and its name does not lead to "
            "the others. Name them NAME-00001-of-00003.gguf and so on, or give all.",
        )
        expected = {"split.no": number, "split.count": len(files), "split.tensors.count": tensors}
        for key, value in expected.items():
            told = given.get(key, value)
            require_valid(
                len(files) == 1 or told == value,
                file.path,
                f"{key}: expected {value}, as there are {len(files)} files with {tensors} tensors, "
                f"got {told!r:.80}",
            )
