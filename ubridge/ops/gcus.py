"""Operations with kernels only for GCUs: paged caches, quantized blocks and weights.

Buffers are contiguous and begin with their first element; all are on one GCU. Each function checks
the buffers' sizes and enqueues one launch. `NotSupportedError` on other backends.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.gcus import (
    DEQUANTIZE_Q8_0,
    MATMUL_4BIT,
    MATMUL_8BIT,
    PAGED_ATTENTION_V1,
    QUANTIZE_Q8_0,
    RESHAPE_AND_CACHE,
    ROTARY,
    ROTARY_F32,
)
from ubridge.device.executor import DeviceExecutor
from ubridge.ops.engine import ask, run_into
from ubridge.ops.launching import tensor_of
from ubridge.ops.results import require_size
from uhal import DeviceBuffer
from uhal.dtypes import i8, u8
from uhal.errors import ArgumentValueError, NotSupportedError
from uhal.interop import StreamLike

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
    op = {4: MATMUL_4BIT, 8: MATMUL_8BIT}.get(bits)
    if op is None or group < 1 or k % group or (bits == 4 and k % 2):
        raise ArgumentValueError(
            f"matmul: expected 4 or 8 bits and groups that divide k = {k}, got {bits} and {group}"
        )
    _gcu(op, x=(a, 0))
    stored = weight.view(u8 if bits == 4 else i8)
    of_groups = Layout.contiguous((k // group, n))
    operands = (
        tensor_of(op, "x", a, Layout.contiguous((m, k)), None),
        tensor_of(op, "weight", stored, Layout.contiguous(k * n * bits // 8), None),
        tensor_of(op, "scales", scales, of_groups, None),
        tensor_of(op, "zeros", zeros, of_groups, None),
    )
    layout = Layout.contiguous((m, n))
    plan = ask(op, operands, a.dtype, layout, transposed=transposed, group=group)
    return run_into(plan, out, stream)


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

    A row of `cos_sin` holds the cosines and then the sines of a position; it may be f32 for f16 and
    bf16. Positions (i64) are read back; a position without a row is an `IndexError`, because the
    kernel would skip the token.
    """
    op = ROTARY if cos_sin.dtype is query.dtype else ROTARY_F32
    _gcu(
        op,
        query=(query, tokens * q_heads * head_size),
        key=(key, tokens * k_heads * head_size),
        positions=(positions, tokens),
    )
    width = head_size if rotated is None else rotated
    require(
        0 < width <= head_size and width % 2 == 0,
        f"rotary: expected an even part of {head_size}, got {width}",
    )
    rows = cos_sin.size // width
    if tokens == 0:
        return
    wanted = positions[:tokens].to_numpy(stream=stream)
    if (wanted < 0).any() or (wanted >= rows).any():
        raise IndexError(f"rotary: expected positions from 0 to {rows - 1}, got {wanted}")
    memory = {"key": key, "cos_sin": cos_sin, "index_positions": positions, "query": query}
    sizes = {
        "cos_sin_length": rows,
        "cos_sin_stride": width,
        "num_tokens": tokens,
        "q_heads": q_heads,
        "k_heads": k_heads,
        "hidden_size": head_size,
        "split_dim": width,
        "gpt_geox": int(not interleaved),
    }
    _launch(op, memory, sizes, stream)


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

    A cache is (blocks, heads, block size, head size); token t goes to row `slots[t] % block size`
    of block `slots[t] // block size`, or nowhere if its slot is negative. A slot past the caches is
    an `IndexError`.
    """
    width = heads * head_size
    of_tokens = {"key": (key, tokens * width), "value": (value, tokens * width)}
    _gcu(RESHAPE_AND_CACHE, **of_tokens, slots=(slots, tokens))
    blocks = min(key_cache.size, value_cache.size) // (width * block_size)
    if tokens == 0:
        return
    wanted = slots[:tokens].to_numpy(stream=stream)
    if (wanted >= blocks * block_size).any():
        raise IndexError(
            f"reshape_and_cache: expected slots below {blocks * block_size}, got {wanted.max()}"
        )
    memory = {
        "key": key,
        "value": value,
        "slot_mapping": slots,
        "key_cache": key_cache,
        "value_cache": value_cache,
    }
    sizes = {
        "num_tokens": tokens,
        "num_heads": heads,
        "head_size": head_size,
        "num_blocks": blocks,
        "block_size": block_size,
        "x": 1,
        "key_stride": width,
        "value_stride": width,
    }
    _launch(RESHAPE_AND_CACHE, memory, sizes, stream)


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
    """Attend from one token per sequence (sequences, heads, head size) to its cached tokens.

    Caches are (blocks, kv heads, block size, head size); a row of `block_tables` (i32) lists a
    sequence's blocks, `context_lengths` (i32) its tokens. The host reads both arrays back and
    checks them.
    """
    op = PAGED_ATTENTION_V1
    size = sequences * heads * head_size
    at = _gcu(op, query=(query, size), context_lengths=(context_lengths, sequences))
    out = at.allocate(size, query.dtype, stream) if out is None else out
    require_size(op, "out", out, size)
    if size == 0:
        return out
    blocks = min(key_cache.size, value_cache.size) // (kv_heads * block_size * head_size)
    columns = block_tables.size // sequences
    lengths = context_lengths[:sequences].to_numpy(stream=stream)
    tables = block_tables[: sequences * columns].to_numpy(stream=stream)
    needed = -(-lengths // block_size)
    used = np.arange(columns) < needed[:, None]
    wrong = tables.reshape(sequences, columns)[used]
    require(
        (lengths >= 1).all() and (needed <= columns).all() and heads % kv_heads == 0,
        f"paged_attention_v1: expected 1 to {columns * block_size} tokens a sequence and a "
        f"multiple of the kv heads, got {lengths} and {heads} of {kv_heads}",
    )
    if ((wrong < 0) | (wrong >= blocks)).any():
        raise IndexError(f"paged_attention_v1: expected blocks from 0 to {blocks - 1}, got {wrong}")
    head_pitch = block_size * head_size
    memory = {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "block_tables": block_tables,
        "context_lens": context_lengths,
        "output": out,
    }
    sizes = {
        "num_kv_heads": kv_heads,
        "block_size": block_size,
        "num_seqs": sequences,
        "num_heads": heads,
        "head_size": head_size,
        "max_num_blocks_per_seq": columns,
        "q_stride": heads * head_size,
        "kv_block_stride": kv_heads * head_pitch,
        "kv_head_stride": head_pitch,
        "num_blocks": blocks,
    }
    numbers = {"scale": scale, "max_context_len": int(lengths.max()), "softcapping": softcap}
    return _launch(op, memory, sizes, stream, numbers)


def launch_quantize_q8_0(buffer: DeviceBuffer, *, stream: StreamLike | None = None) -> DeviceBuffer:
    """Quantize elements to blocks of 32, as i8: all scales (f16) first, then all bytes."""
    at = _gcu(QUANTIZE_Q8_0, x=(buffer, 0))
    blocks = _blocks(buffer.size)
    out = at.allocate(blocks * (2 + Q8_0_ELEMENTS), i8, stream)
    if blocks:
        sizes = {"input_bytes": buffer.nbytes, "output_bytes": out.nbytes}
        _launch(QUANTIZE_Q8_0, {"inp": buffer, "out": out}, sizes, stream)
    return out


def launch_dequantize_q8_0(
    blocks: DeviceBuffer,
    elements: int,
    out: DeviceBuffer,
    *,
    stream: StreamLike | None = None,
) -> DeviceBuffer:
    """Turn blocks of `launch_quantize_q8_0` into elements of the output's dtype."""
    stored = _blocks(elements) * (2 + Q8_0_ELEMENTS)
    _gcu(DEQUANTIZE_Q8_0, blocks=(blocks, stored), out=(out, elements))
    if elements:
        memory = {"inp": blocks.view(i8), "out": out}
        _launch(DEQUANTIZE_Q8_0, memory, {"numel": elements}, stream)
    return out


def _blocks(elements: int) -> int:
    require(
        elements % Q8_0_ELEMENTS == 0,
        f"q8_0: expected whole blocks of {Q8_0_ELEMENTS} elements, got {elements}",
    )
    return elements // Q8_0_ELEMENTS


def _gcu(op: Op, **memory: tuple[DeviceBuffer, int]) -> DeviceExecutor:
    """Return the executor; refuse other devices, and buffers with fewer elements than needed."""
    first, _ = next(iter(memory.values()))
    at = DeviceExecutor.of(first.device)
    if not at.has(op):
        raise NotSupportedError(
            f"{op.name}: only GCUs have this kernel, not {at.device!r}", backend=at.device.backend
        )
    for name, (buffer, elements) in memory.items():
        require_size(op, name, buffer, elements)
    return at


def _launch(
    op: Op,
    memory: Mapping[str, DeviceBuffer],
    sizes: Mapping[str, int],
    stream: StreamLike | None,
    numbers: Mapping[str, float] = MappingProxyType({}),
) -> DeviceBuffer:
    """Launch a GCU-only kernel with named parameters; the last memory operand is the result."""
    *operands, result = memory.values()
    *known, target = ((one.dtype, Layout.contiguous(one.size)) for one in memory.values())
    attributes = (("memory", tuple(memory)), ("numbers", tuple(numbers)), *sizes.items())
    question = Question(op, tuple(known), target, attributes, len(numbers))
    at = DeviceExecutor.of(result.device)
    return at.run(question, stream, result, *operands, *numbers.values())
