"""Weights of a model on a device: their types, formats and memory, and errors about files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import ubridge as ub
from ubridge.core.block_formats import BlockFormat
from ubridge.definitions.products import QUANTIZED_PRODUCT
from ubridge.files.entries import TensorEntry
from ubridge.recipes import Recipe, recipe_of
from uhal import Device, DType
from uhal.dtypes import bf16, f16, f32
from uhal.errors import NotSupportedError, OutOfMemoryError
from uhal.progress import Progress, in_units

_SHOWN = 6
"""Most wrong tensors that an error lists."""


def require_fitting(what: str, wrong: Sequence[str]) -> None:
    """Raise `InvalidFileError` that lists the first wrong tensors, if there are any."""
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ub.InvalidFileError(f"{what}{'; '.join(wrong[:_SHOWN])}{more}")


def usual_dtype(entries: Mapping[str, TensorEntry]) -> DType:
    """Return the element type of most weights if kernels compute in it, else f32."""
    sizes: Counter[object] = Counter()
    for one in entries.values():
        sizes[one.kind] += one.nbytes
    most = max(sizes, key=lambda kind: sizes[kind], default=f32)
    return most if isinstance(most, DType) and most in (f16, bf16) else f32


def multiplies_blocks(device: Device) -> bool:
    """Return whether a device has ggml's quantized products; GCUs have another kind."""
    return ub.DeviceExecutor.of(device).has(QUANTIZED_PRODUCT)


def recipe_for(quantize: str | None, device: Device) -> Recipe | None:
    """Return the recipe of a name.

    Raises `ArgumentValueError` for a format that cannot be written, `NotSupportedError` where the
    device has no products of blocks.
    """
    recipe = None if quantize is None else recipe_of(quantize)
    if recipe is not None and not multiplies_blocks(device):
        raise NotSupportedError(
            f"quantize={quantize!r}: {device!r} has no products of quantized weights, which "
            "would take as much memory as dense ones. Load without quantize=."
        )
    return recipe


def nbytes_of(shape: Sequence[int], kind: DType | BlockFormat) -> int:
    """Return the bytes of a weight of an element type or a format."""
    if isinstance(kind, DType):
        return prod(shape) * kind.itemsize
    return prod(shape[:-1]) * kind.row_bytes(shape[-1])


def in_kind(
    values: ub.DeviceTensor, kind: DType | BlockFormat
) -> ub.DeviceTensor | ub.QuantizedWeight:
    """Return dense values in an element type, perhaps on the same memory, or in a format."""
    if isinstance(kind, DType):
        return values.astype(kind, copy=False)
    wide = values.astype(f32, copy=False).to_numpy()
    return ub.QuantizedWeight.from_numpy(wide, kind, device=values.device)


def require_room(what: str, allocated: int, device: Device, progress: Progress) -> None:
    """Print the memory that a model needs, if `progress` is True; refuse too large a model.

    `allocated` are bytes of device memory. Raises `OutOfMemoryError`.
    """
    words, free = f"{what}, on {device!r}", device.memory_info().free
    if progress is True:
        print(words, file=sys.stderr, flush=True)
    if allocated > free:
        raise OutOfMemoryError(f"{words}; there are {in_units(free)} free; nothing was read")
