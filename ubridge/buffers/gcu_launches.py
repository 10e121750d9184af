"""What GCUs have kernels for and other backends have not: paged caches, quantized blocks, weights.

Buffers are contiguous and begin with their first element; everything is on one GCU. Each function
enqueues one launch, after checking that the buffers hold what the sizes say. `NotSupportedError` on
other backends.
"""

from __future__ import annotations

import numpy as np

from ubridge.buffers.launches import require_size
from ubridge.core.op_table import OPS
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.lowering import GcuLowering
from uhal import DeviceBuffer
from uhal.dtypes import i8, u8
from uhal.errors import ArgumentValueError, NotSupportedError
from uhal.interop import StreamLike

_CACHE = OPS["reshape_and_cache"]
_DEQUANTIZE = OPS["dequantize_q8_0"]
_PAGED_ATTENTION = OPS["paged_attention"]
_QUANTIZE = OPS["quantize_q8_0"]
_ROTARY = OPS["rotary"]
_ROTARY_F32 = OPS["rotary_f32"]
Q8_0_ELEMENTS = 32
"""Elements of a block of q8_0, which share a scale of f16."""


def launch_quantized_matmul(
    a: DeviceBuffer,
    weight: DeviceBuffer,
    scales: DeviceBuffer,
    zeros: DeviceBuffer,
    m: int,
    k: int,
    n: int,
    group: int,
    *,
    bits: int,
    transposed: bool = False,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
) -> DeviceBuffer:
    """Multiply (m, k) of f16 or bf16 by a weight (k, n) of 4 or 8 bits.

    An element of the weight is `(quantized - zero) * scale`; scales and zeros are (k / group, n).
    Two elements of 4 bits along k share a byte, the first in its low half. `transposed` weights are
    stored (n, k).
    """
    op = OPS[f"matmul_{bits}bit"] if bits in (4, 8) else None
    if op is None or group < 1 or k % group or (bits == 4 and k % 2):
        raise ArgumentValueError(
            f"matmul: expected 4 or 8 bits and groups that divide k = {k}, got {bits} and {group}"
        )
    at, lowering = _gcu(op.name, a)
    require_size(op, "x", a, m * k)
    require_size(op, "weight", weight, k * n * bits // 8)
    for name, buffer in (("scales", scales), ("zeros", zeros)):
        require_size(op, name, buffer, k // group * n)
    out = _target(at, a, m * n, out, stream)
    if m * n:
        stored = weight.view(u8 if bits == 4 else i8)
        lowering.quantized_matmul(
            op, a, stored, out, scales, zeros, (1, m, k, n), transposed, group, stream
        )
    return out


def launch_rotary(
    query: DeviceBuffer,
    key: DeviceBuffer,
    cos_sin: DeviceBuffer,
    positions: DeviceBuffer,
    tokens: int,
    q_heads: int,
    k_heads: int,
    head_size: int,
    *,
    rotated: int | None = None,
    interleaved: bool = False,
    stream: StreamLike | None = None,
) -> None:
    """Rotate queries and keys (tokens, heads, head size) in place.

    A row of `cos_sin` holds the cosines and then the sines of a position; it may be f32 for halves.
    Positions (i64) without a row are an `IndexError`: they are read back and checked, as the kernel
    would leave tokens out.
    """
    op = _ROTARY if cos_sin.dtype is query.dtype else _ROTARY_F32
    at, _ = _gcu(op.name, query)
    width = head_size if rotated is None else rotated
    if not 0 < width <= head_size or width % 2:
        raise ArgumentValueError(f"rotary: expected an even part of {head_size}, got {width}")
    require_size(op, "query", query, tokens * q_heads * head_size)
    require_size(op, "key", key, tokens * k_heads * head_size)
    require_size(op, "positions", positions, tokens)
    rows = cos_sin.size // width
    if tokens == 0:
        return
    wanted = positions[:tokens].to_numpy(stream=stream)
    if (wanted < 0).any() or (wanted >= rows).any():
        raise IndexError(f"rotary: expected positions in 0…{rows - 1}, got {wanted}")
    sizes = (tokens, q_heads, k_heads, head_size, width, int(not interleaved))
    arguments = (query, key, cos_sin, rows, width, positions, *sizes)
    at.kernel(op, query.dtype).launch(arguments, stream)


def launch_reshape_and_cache(
    key: DeviceBuffer,
    value: DeviceBuffer,
    key_cache: DeviceBuffer,
    value_cache: DeviceBuffer,
    slots: DeviceBuffer,
    tokens: int,
    heads: int,
    head_size: int,
    block_size: int,
    *,
    stream: StreamLike | None = None,
) -> None:
    """Store keys and values (tokens, heads, head size) at slots of the caches.

    A cache is (blocks, heads, block size, head size); token t goes to place `slots[t] % block size`
    of block `slots[t] // block size`, nowhere if that is negative. A slot past the caches is an
    `IndexError`.
    """
    at, _ = _gcu(_CACHE.name, key)
    width = heads * head_size
    require_size(_CACHE, "key", key, tokens * width)
    require_size(_CACHE, "value", value, tokens * width)
    require_size(_CACHE, "slots", slots, tokens)
    blocks = min(key_cache.size, value_cache.size) // (width * block_size)
    if tokens == 0:
        return
    wanted = slots[:tokens].to_numpy(stream=stream)
    if (wanted >= blocks * block_size).any():
        raise IndexError(
            f"reshape_and_cache: expected slots below {blocks * block_size}, got {wanted.max()}"
        )
    sizes = (tokens, heads, head_size, blocks, block_size, 1, width, width)
    at.kernel(_CACHE, key.dtype).launch((key, value, key_cache, value_cache, slots, *sizes), stream)


def launch_paged_attention(
    query: DeviceBuffer,
    key_cache: DeviceBuffer,
    value_cache: DeviceBuffer,
    block_tables: DeviceBuffer,
    context_lengths: DeviceBuffer,
    sequences: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    block_size: int,
    scale: float,
    *,
    softcap: float = 0.0,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
) -> DeviceBuffer:
    """Attend from one token a sequence (sequences, heads, head size) to its cached ones.

    Caches are (blocks, kv heads, block size, head size); a row of `block_tables` (i32) lists a
    sequence's blocks, `context_lengths` (i32) its tokens. Both are read back and checked.
    """
    op = _PAGED_ATTENTION
    at, _ = _gcu(op.name, query)
    require_size(op, "query", query, sequences * heads * head_size)
    require_size(op, "context_lengths", context_lengths, sequences)
    out = _target(at, query, sequences * heads * head_size, out, stream)
    if out.size == 0 or sequences == 0:
        return out
    blocks = min(key_cache.size, value_cache.size) // (kv_heads * block_size * head_size)
    columns = block_tables.size // sequences
    lengths = context_lengths[:sequences].to_numpy(stream=stream)
    tables = block_tables[: sequences * columns].to_numpy(stream=stream)
    needed = -(-lengths // block_size)
    used = np.arange(columns) < needed[:, None]
    wrong = tables.reshape(sequences, columns)[used]
    if (lengths < 1).any() or (needed > columns).any() or heads % kv_heads:
        raise ArgumentValueError(
            f"paged_attention: expected 1 to {columns * block_size} tokens a sequence and a "
            f"multiple of the kv heads, got {lengths} and {heads} of {kv_heads}"
        )
    if ((wrong < 0) | (wrong >= blocks)).any():
        raise IndexError(f"paged_attention: expected blocks in 0…{blocks - 1}, got {wrong}")
    head_pitch = block_size * head_size
    sizes = (
        *(block_size, int(lengths.max()), sequences, heads, head_size, columns),
        *(heads * head_size, kv_heads * head_pitch, head_pitch, blocks, softcap),
    )
    arguments = (
        *(out, query, key_cache, value_cache, kv_heads, scale, block_tables, context_lengths),
        *sizes,
    )
    at.kernel(op, query.dtype).launch(arguments, stream)
    return out


def launch_quantize_q8_0(buffer: DeviceBuffer, *, stream: StreamLike | None = None) -> DeviceBuffer:
    """Quantize elements to blocks of 32: all scales (f16) first, then all bytes. As i8."""
    at, _ = _gcu(_QUANTIZE.name, buffer)
    blocks = _blocks(buffer.size)
    out = at.allocate(blocks * (2 + Q8_0_ELEMENTS), i8, stream)
    if blocks:
        arguments = (buffer, out, buffer.nbytes, out.nbytes)
        at.kernel(_QUANTIZE, buffer.dtype).launch(arguments, stream)
    return out


def launch_dequantize_q8_0(
    blocks: DeviceBuffer,
    elements: int,
    out: DeviceBuffer,
    *,
    stream: StreamLike | None = None,
) -> DeviceBuffer:
    """Turn blocks of `launch_quantize_q8_0` into elements of the output's dtype."""
    at, _ = _gcu(_DEQUANTIZE.name, blocks)
    require_size(_DEQUANTIZE, "blocks", blocks, _blocks(elements) * (2 + Q8_0_ELEMENTS))
    require_size(_DEQUANTIZE, "out", out, elements)
    if elements:
        at.kernel(_DEQUANTIZE, out.dtype).launch((blocks.view(i8), out, elements), stream)
    return out


def _blocks(elements: int) -> int:
    if elements % Q8_0_ELEMENTS:
        raise ArgumentValueError(
            f"q8_0: expected whole blocks of {Q8_0_ELEMENTS} elements, got {elements}"
        )
    return elements // Q8_0_ELEMENTS


def _gcu(name: str, buffer: DeviceBuffer) -> tuple[DeviceExecutor, GcuLowering]:
    at = DeviceExecutor.of(buffer.device)
    if not isinstance(at.lowering, GcuLowering):
        raise NotSupportedError(
            f"{name}: only GCUs have this kernel, not {at.device!r}", backend=at.device.backend
        )
    return at, at.lowering


def _target(
    at: DeviceExecutor,
    like: DeviceBuffer,
    size: int,
    out: DeviceBuffer | None,
    stream: StreamLike | None,
) -> DeviceBuffer:
    if out is None:
        return at.allocate(size, like.dtype, stream)
    require_size(OPS["copy"], "out", out, size)
    return out
