"""Quantizes numbers to ggml's blocks, and back, on the host's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.core.block_formats import BlockFormat, block_format
from ubridge.core.fits import require
from ubridge.device.host import HOST
from ubridge.device.images import load_module
from ubridge.ops.blocks import launch_dequantize
from uhal import Device, DeviceBuffer, Stream, launch
from uhal.dtypes import bf16, f32

Array = npt.NDArray[Any]


def quantize(values: Array, format: BlockFormat | str) -> npt.NDArray[np.uint8]:
    """Quantize the last axis of an array: the bytes of its blocks, row after row.

    Takes f32 and bf16 directly, other numbers as f32. Formats of 32 elements and TQ1_0, TQ2_0 get
    ggml's bytes. Other formats search for scales by least squares; their root mean square error is
    at most 2 percent above ggml's. All cores of the host's CPU compute. Raises `ArgumentValueError`
    for rows that are no whole number of blocks, and for read-only formats, which need a search in a
    codebook.
    """
    told = block_format(format)
    require(
        told.name in ENCODED,
        f"quantize: no way to {told.name} is known; there are {', '.join(ENCODED)}",
    )
    values = np.asarray(values)
    if values.dtype != f32 and values.dtype.name != "bfloat16":
        values = values.astype(np.float32)
    told.row_bytes(values.shape[-1] if values.ndim else 1)
    count = values.size // told.elements
    blocks = np.empty(count * told.block_bytes, np.uint8)
    if not count:
        return blocks
    values = np.ascontiguousarray(values).ravel()
    is_wide = values.dtype == f32
    with Device(0, backend=HOST) as host, Stream() as stream:
        # Use the array's memory: a copy would take as long as making blocks of 32.
        given = DeviceBuffer.from_dlpack(values if is_wide else values.view(np.uint16))
        x = given if is_wide else given.view(bf16)
        out = DeviceBuffer.from_dlpack(blocks)
        kernel = load_module("quantize_blocks", device=host).get_function(
            f"quantize_{told.name}_{x.dtype.name}"
        )
        # A work-item makes one block or more, which takes many instructions.
        launch(kernel, grid=min(count, _PIECES), block=1, stream=stream, args=(count, x, out))
        stream.synchronize()
    return blocks


def dequantize(blocks: Array | bytes, format: BlockFormat | str) -> npt.NDArray[np.float32]:
    """Return the elements of blocks, one after the other. They are computed on the host's CPU."""
    told = block_format(format)
    raw = np.frombuffer(blocks, np.uint8)
    require(
        not raw.size % told.block_bytes,
        f"{told.name}: expected whole blocks of {told.block_bytes} bytes, got {raw.size}",
    )
    count = raw.size // told.block_bytes
    with Device(0, backend=HOST) as host:
        weight = DeviceBuffer.from_numpy(raw, device=host)
        elements = launch_dequantize(told, weight, count, told.elements)
        return elements[: count * told.elements].to_numpy()


ENCODED = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
    *("q8_K", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4"),
)
"""Formats that `quantize` writes."""
_PIECES = 256
"""Elements of a weight quantized at once: enough for many cores, each a run of blocks."""
