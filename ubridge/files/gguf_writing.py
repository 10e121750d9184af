"""GGUF files, written: version 3, little-endian."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ubridge.core.block_formats import BlockFormat
from ubridge.core.fits import require
from ubridge.files.entries import bytes_of
from ubridge.files.gguf_reading import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MOST_ALIGNMENT,
    MOST_AXES,
    MOST_NAME_BYTES,
    TYPES,
    is_alignment,
)
from ubridge.files.gguf_values import ARRAY, BOOL, NUMBERS, TEXT
from uhal import DType
from uhal.errors import ArgumentTypeError, ArgumentValueError

VERSION = 3
MOST_TENSOR_NAME_BYTES = 63
"""ggml keeps a name in 64 bytes, the last of which is 0 (`GGML_MAX_NAME`)."""
_ALIGNMENT_KEY = "general.alignment"
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBER_OF = {kind: number for number, kind in TYPES.items()}
_KIND_OF = {dtype.newbyteorder("="): kind for kind, dtype in NUMBERS.items()}

Told = tuple[str, DType | BlockFormat, tuple[int, ...]]
"""Name, element type or format, and shape of a tensor, outermost axis first."""


def write_head(out: BinaryIO, tensors: Sequence[Told], metadata: Mapping[str, Any]) -> list[int]:
    """Write everything before the first tensor.

    Returns the bytes of each tensor, with its padding. Python's values get the types that ggml's
    programs expect: bool, f32 and texts. An integer gets the first of u32, i32, u64 and i64 that
    holds it. numpy's scalars and arrays keep their type. Raises `ArgumentTypeError` and
    `ArgumentValueError` for values without a GGUF type.
    """
    alignment = alignment_of(metadata)
    head = [MAGIC, _U32.pack(VERSION), _U64.pack(len(tensors)), _U64.pack(len(metadata))]
    for key, value in metadata.items():
        kind, packed = _packed(value, key)
        head += [_text(key, "key", MOST_NAME_BYTES), _U32.pack(kind), packed]
    offset, lengths = 0, []
    for name, kind_of, shape in tensors:
        require(
            len(shape) <= MOST_AXES,
            f"{name}: GGUF holds at most {MOST_AXES} axes, got {shape}",
        )
        if kind_of not in _NUMBER_OF:
            raise ArgumentTypeError(
                f"{name}: GGUF has no type for {kind_of.name}; astype() to one of "
                f"{', '.join(one.name for one in TYPES.values() if isinstance(one, DType))}"
            )
        head.append(_text(name, "tensor's name", MOST_TENSOR_NAME_BYTES))
        head.append(_U32.pack(len(shape)))
        head += [_U64.pack(length) for length in reversed(shape)]
        head += [_U32.pack(_NUMBER_OF[kind_of]), _U64.pack(offset)]
        lengths.append(-(-bytes_of(kind_of, shape) // alignment) * alignment)
        offset += lengths[-1]
    whole = b"".join(head)
    out.write(whole + bytes(-len(whole) % alignment))
    return lengths


def alignment_of(metadata: Mapping[str, Any]) -> int:
    """Return the alignment of tensors. `ArgumentValueError` when it is invalid."""
    found = metadata.get(_ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    value = found.item() if isinstance(found, np.integer) else found
    require(
        is_alignment(value),
        f"{_ALIGNMENT_KEY}: expected a power of two of at most {MOST_ALIGNMENT}, got {found!r}",
    )
    return int(value)


def _text(value: str, what: str, most: int) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    require(len(raw) <= most, f"{what} {value!r:.80}: expected at most {most} bytes")
    return _U64.pack(len(raw)) + raw


def _packed(value: Any, key: str) -> tuple[int, bytes]:
    """Return the kind and the bytes of a value."""
    if isinstance(value, str):
        return TEXT, _text(value, key, 1 << 62)
    if isinstance(value, bytes):
        return TEXT, _U64.pack(len(value)) + value
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "?biuf":
        return ARRAY, _array_of_numbers(value, key)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return ARRAY, _array(value, key)
    number = value if isinstance(value, np.generic) else _number(value, key)
    kind = _kind(number.dtype, key)
    return kind, number.astype(NUMBERS[kind]).tobytes()


def _kind(dtype: np.dtype[Any], key: str) -> int:
    kind = _KIND_OF.get(dtype.newbyteorder("="))
    if kind is None:
        raise ArgumentTypeError(f"{key}: GGUF has no kind of value for numpy's {dtype}")
    return kind


def _number(value: Any, key: str) -> Any:
    """Return a Python number as a numpy number."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if isinstance(value, int):
        return _holding([value], key).type(value)
    raise ArgumentTypeError(
        f"{key}: expected a number, a text, or a list of either, got {type(value).__name__}"
    )


def _holding(values: Iterable[int], key: str) -> np.dtype[Any]:
    """The first integer type that holds all."""
    least, most = min(values, default=0), max(values, default=0)
    for dtype in (np.uint32, np.int32, np.uint64, np.int64):
        if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise ArgumentValueError(f"{key}: expected integers of at most 64 bits, got {least} to {most}")


def _array_of_numbers(values: np.ndarray[Any, Any], key: str) -> bytes:
    kind = _kind(values.dtype, key)
    raw = np.ascontiguousarray(values.astype(NUMBERS[kind])).tobytes()
    return _U32.pack(kind) + _U64.pack(values.size) + raw


def _array(values: Sequence[Any], key: str) -> bytes:
    if values and all(isinstance(one, bool) for one in values):
        return _array_of_numbers(np.array(values, np.bool_), key)
    if all(isinstance(one, int) and not isinstance(one, bool) for one in values):
        return _array_of_numbers(np.array(values, _holding(values, key)), key)
    if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        return _array_of_numbers(np.array(values, np.float32), key)
    packed = [_packed(one, key) for one in values]
    kinds = {kind for kind, _ in packed}
    if len(kinds) != 1 or kinds <= set(NUMBERS) - {BOOL}:
        names = sorted({type(one).__name__ for one in values})
        raise ArgumentTypeError(f"{key}: expected a list of one kind, got {', '.join(names)}")
    return _U32.pack(kinds.pop()) + _U64.pack(len(values)) + b"".join(raw for _, raw in packed)
