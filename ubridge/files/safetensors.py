"""Files of safetensors: a header of JSON, then the tensors, one after the other.

The format is described at https://github.com/huggingface/safetensors. As in its package, tensors
may not overlap or have gaps between them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from ubridge.files.entries import ElementType, TensorEntry, bytes_of
from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.mapped import MappedFile
from uhal import DType
from uhal.dtypes import bf16, bool_, f8e4m3, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

MOST_HEADER_BYTES = 100_000_000
"""The limit of the format's own package."""
METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")

DTYPES: Mapping[str, DType] = {
    "BOOL": bool_,
    "U8": u8,
    "I8": i8,
    "U16": u16,
    "I16": i16,
    "U32": u32,
    "I32": i32,
    "U64": u64,
    "I64": i64,
    "F16": f16,
    "BF16": bf16,
    "F32": f32,
    "F64": f64,
    "F8_E4M3": f8e4m3,
}
"""Maps names in files to element types."""
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "C64": 64,
}
"""Element types that ubridge does not support."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def is_safetensors(file: MappedFile) -> bool:
    """Return whether a file may be safetensors: its header begins with a brace."""
    return file.size > _LENGTH.size and file.pages[_LENGTH.size] == ord("{")


def read_safetensors(file: MappedFile) -> tuple[dict[str, str], list[TensorEntry]]:
    """Return the metadata and the tensors of a file. Raises `InvalidFileError`."""
    require_valid(
        file.size >= _LENGTH.size,
        file.path,
        f"expected a header's length, got {file.size} bytes",
    )
    length = _LENGTH.unpack(file.view(0, _LENGTH.size).tobytes())[0]
    require_valid(
        length <= min(MOST_HEADER_BYTES, file.size - _LENGTH.size),
        file.path,
        f"expected a header of at most {MOST_HEADER_BYTES} bytes that the file "
        f"has, got one of {length}",
    )
    start = _LENGTH.size + length
    header = _header(file, file.view(_LENGTH.size, length).tobytes())
    metadata = header.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InvalidFileError(f"{file.path}: expected metadata of texts, got {metadata!r:.80}")
    entries = [_entry(file, name, told, start) for name, told in header.items()]
    _require_dense(file, start, entries)
    return metadata, entries


def _header(file: MappedFile, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError(f"{file.path}: the header is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidFileError(f"{file.path}: expected a header of names, got {found!r:.80}")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _entry(file: MappedFile, name: str, told: Any, start: int) -> TensorEntry:
    def refuse(expected: str) -> InvalidFileError:
        return InvalidFileError(
            f"{file.path}: {name!r:.80}: expected {expected}, got {told!r:.120}"
        )

    if not isinstance(told, dict) or set(told) != {"dtype", "shape", "data_offsets"}:
        raise refuse("dtype, shape and data_offsets")
    shape, offsets, dtype = told["shape"], told["data_offsets"], told["dtype"]
    if not isinstance(shape, list) or not all(_is_count(one) for one in shape):
        raise refuse("a shape of numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise refuse("two offsets")
    begin, end = offsets
    kind: ElementType = DTYPES.get(dtype) or dtype if isinstance(dtype, str) else ""
    if isinstance(kind, DType):
        nbytes = bytes_of(kind, tuple(shape))
    elif kind in _BITS:
        nbytes = -(-bytes_of(u8, tuple(shape)) * _BITS[kind] // 8)
    else:
        raise refuse(f"a dtype among {', '.join((*DTYPES, *_BITS))}")
    if begin > end or start + end > file.size:
        raise refuse(f"offsets within the {file.size - start} bytes behind the header")
    if end - begin != nbytes:
        raise refuse(f"{nbytes} bytes of it")
    return TensorEntry(name, kind, tuple(shape), file, start + begin, nbytes)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _require_dense(file: MappedFile, start: int, entries: Iterable[TensorEntry]) -> None:
    at = start
    for entry in sorted(entries, key=lambda one: (one.start, one.nbytes)):
        require_valid(
            entry.start == at,
            file.path,
            f"{entry.name!r:.80}: expected it at byte {at - start} of the data, "
            f"where the one before ends, got {entry.start - start}",
        )
        at += entry.nbytes
    require_valid(
        at == file.size,
        file.path,
        f"expected the last tensor to end with the file, at {file.size}, got {at}",
    )


def header_bytes(
    tensors: Iterable[tuple[str, DType, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """Return the header of a file with these tensors in this order.

    The header's length is a multiple of 8, so tensors are aligned if the widest types come first.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, dtype, shape in tensors:
        nbytes = bytes_of(dtype, shape)
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [at, at + nbytes],
        }
        at += nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return _LENGTH.pack(len(text)) + text
