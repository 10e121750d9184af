"""`save`: tensors and quantized weights to a file of safetensors or GGUF."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from ubridge.core.block_formats import BlockFormat
from ubridge.core.fits import require
from ubridge.files import gguf_writing, safetensors
from ubridge.quantized import QuantizedWeight
from ubridge.tensor import DeviceTensor
from uhal import DType
from uhal.dtypes import as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.images.regular_file import path_of

Saved: TypeAlias = DeviceTensor | QuantizedWeight | npt.NDArray[Any]


@dataclass(frozen=True)
class Later:
    """A tensor that is made when it is written, so few are in memory at a time."""

    kind: DType | BlockFormat
    shape: tuple[int, ...]
    make: Callable[[], Saved]
    """Returns a tensor of this kind and shape, or its bytes."""


SUFFIXES = (".safetensors", ".gguf")


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Saved | Later],
    *,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write tensors by name to a `.safetensors` or `.gguf` file.

    The suffix of the path decides the format.

    Values may be numpy arrays, too; quantized weights need GGUF. Metadata for safetensors are
    texts. Metadata for GGUF are numbers, texts, and arrays of either. Values keep numpy's types; a
    Python int becomes u32, i32, u64 or i64, a Python float f32. Tensors are copied from the device
    one by one. An existing file is only replaced when the new one is complete.

    Raises `OSError`, and `ArgumentTypeError` or `ArgumentValueError` for values that the format
    cannot hold, before anything is written.
    """
    target = path_of("save, path", path)
    given = dict(metadata or {})
    unchecked: object = tensors
    if not isinstance(unchecked, Mapping):
        kind = type(unchecked).__name__
        raise ArgumentTypeError(
            f"save: expected a mapping of names to tensors, got {kind}. "
            'Write save(path, {"x": tensor}).'
        )
    told = [(name, *_told(name, tensor)) for name, tensor in tensors.items()]
    if target.suffix == ".gguf":
        with replacing(target) as out:
            lengths = gguf_writing.write_head(out, told, given)
            for tensor, length in zip(tensors.values(), lengths, strict=True):
                raw = _bytes_of(tensor)
                out.write(raw)
                out.write(bytes(length - len(raw)))
    elif target.suffix == ".safetensors":
        _require_plain(told, given)
        # The widest types first, so that every tensor is aligned.
        plain = [(name, kind, shape) for name, kind, shape in told if isinstance(kind, DType)]
        order = sorted(plain, key=lambda one: -one[1].itemsize)
        with replacing(target) as out:
            out.write(safetensors.header_bytes(order, given))
            for name, *_ in order:
                out.write(_bytes_of(tensors[name]))
    else:
        raise ArgumentValueError(
            f"save: expected a path that ends in {' or '.join(SUFFIXES)}, got {os.fspath(path)!r}"
        )


def _told(name: str, tensor: Saved | Later) -> tuple[DType | BlockFormat, tuple[int, ...]]:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"save: expected names of tensors, got {name!r:.80}")
    if isinstance(tensor, Later):
        return tensor.kind, tensor.shape
    if isinstance(tensor, QuantizedWeight):
        return tensor.format, tuple(tensor.shape)
    if isinstance(tensor, (DeviceTensor, np.ndarray)):
        return as_dtype(tensor.dtype), tuple(tensor.shape)
    raise ArgumentTypeError(
        f"save: {name}: expected a tensor, a quantized weight or an array of numpy, got "
        f"{type(tensor).__name__}"
    )


def _require_plain(
    told: Sequence[tuple[str, DType | BlockFormat, tuple[int, ...]]], metadata: Mapping[str, Any]
) -> None:
    for name, kind, _ in told:
        require(
            name != safetensors.METADATA,
            f"save: expected names of tensors, got the format's own {name}",
        )
        if isinstance(kind, BlockFormat):
            raise ArgumentTypeError(
                f"save: {name}: safetensors have no {kind.name}; save as .gguf, or dequantize()"
            )
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError(
                f"save: metadata {key!r:.80}: safetensors hold texts, got {type(value).__name__}"
            )


def _bytes_of(tensor: Saved | Later) -> memoryview:
    if isinstance(tensor, Later):
        tensor = tensor.make()
    if isinstance(tensor, QuantizedWeight):
        return tensor.blocks.to_numpy().data
    values = tensor if isinstance(tensor, np.ndarray) else tensor.to_numpy()
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a new file beside the target; without an error it then replaces the target."""
    require(target.name, f"save, path: expected the name of a file, got {os.fspath(target)!r}")
    name = target.with_name(f".{target.name[:50]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(name, flags, 0o666)
    except FileNotFoundError as error:
        # The user did not choose the new file's name.
        raise FileNotFoundError(error.errno, "no such folder", os.fspath(target.parent)) from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
