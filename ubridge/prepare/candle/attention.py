"""Lowerings of attention, of caches of keys and values, and of positions read by the device."""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from ubridge.core.kernel_def import (
    BY_IDS,
    PLAIN,
    KernelDef,
    block_per_part,
    strided,
    wide_block_per_row,
)
from ubridge.core.lowering import Given, Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Elements
from ubridge.core.question import Question
from ubridge.definitions.attention import (
    ATTENTION,
    CACHED_ATTENTION,
    KV_APPEND,
    KV_CONCAT,
    PAGED_APPEND,
    PAGED_ATTENTION,
    PAGES_OF_BYTES,
    ROPE_AT,
)
from ubridge.device.images import has_module
from ubridge.prepare.candle.packing import packs
from uhal.dtypes import f32, f64

_APPEND_8 = KernelDef("pages", BY_IDS, strided)
_ATTENTION_8 = KernelDef("pages", BY_IDS, block_per_part)
_MERGE_PAGED = KernelDef("pages", "sdpa_paged_merge_{dtype}", wide_block_per_row)
_CACHED = KernelDef("attention", "sdpa_cached_{dtype}", block_per_part)
_MERGE = KernelDef("attention", "sdpa_merge_{dtype}", wide_block_per_row)
PACKED_ATTENTION = "attention_packed"
PACKED_ROWS = 64
"""Queries of a block, which share its packed keys."""
_WORK_ITEMS = 256
"""Work-items of a block of packed attention; the runtime recognizes short launches by their
number."""
SPLIT = 256
"""Keys of a cache per block when a launch has a single token; keys of a run of pages."""
_FILLING = 4
"""With this many blocks per processor, attention does not split a query's keys."""
TENSOR_ATTENTION = "attention_tensor"
TILED_ATTENTION = "attention_tiles"
"""For f32: no tensor core computes f32 products exactly enough."""
_TILE_WIDTHS = (64, 128)
"""Widest heads of the kernels for tiles of rows."""
_SHARED_ROWS = 16
"""Rows of a tensor core's instruction. With no more rows, all warps of a block share the rows and
split the keys."""
_TILE_ROWS = {TENSOR_ATTENTION: (128, 64), TILED_ATTENTION: (64, 64)}
"""Rows of a block for larger launches, for each of `_TILE_WIDTHS`."""


def _attention(question: Question, steps: Steps) -> None:
    query, key, value, *masks = steps.operands
    batch, heads, queries, width = question.shape
    _, kv_heads, keys, _ = question.layout(1).shape
    mask_batch, mask_head = question.layout(3).strides[:2] if masks else (0, 0)
    if batch <= steps.limits.max_grid[2] and packs(
        PACKED_ATTENTION, query.dtype, steps.device.device
    ):
        tile, grid = _tiles(heads, kv_heads, queries, batch)
        steps.launch_entry(
            PACKED_ATTENTION,
            f"sdpa_whole_{query.dtype}",
            (grid, min(steps.limits.max_threads_per_block, _WORK_ITEMS), 0),
            q=query,
            k=key,
            v=value,
            mask=masks[0] if masks else None,
            out=steps.result,
            tokens=queries,
            tile=tile,
            heads=heads,
            kv_heads=kv_heads,
            width=width,
            keys=keys,
            mask_batch=mask_batch,
            mask_head=mask_head,
            scale=steps.number(),
            causal=question.attribute("causal"),
        )
        return
    sizes = (batch, heads, kv_heads, queries, keys, width)
    tiles = _module_of_tiles(question, sizes, steps)
    # A single query sees all keys, as in a full cache.
    last = Elements("i64", max(keys - 1, 0).to_bytes(8, "little")) if queries == 1 else None
    if tiles:
        _attention_in_tiles(
            steps,
            tiles,
            sizes,
            heads_first=True,
            last=last,
            mask=masks[0] if masks else None,
            mask_batch=mask_batch,
            mask_head=mask_head,
            bias=None,
            position=None,
            window=0,
            scale=steps.number(),
            cap=0.0,
            causal=question.attribute("causal"),
        )
        return
    limits, splits = steps.limits, -(-keys // SPLIT)
    is_shared = batch * heads < _FILLING * limits.processors and 1 < splits <= limits.max_grid[1]
    if is_shared and last is not None and not masks:
        # Blocks share a query's keys, with the same bits. A cache has no texts beside each other,
        # so the heads of all are heads of one.
        _attention_over_cache(
            steps,
            (1, batch * heads, batch * kv_heads, keys, width),
            last,
            bias=None,
            window=0,
            scale=steps.number(),
            cap=0.0,
        )
        return
    steps.launch(
        (batch * heads * queries, keys),
        q=query,
        k=key,
        v=value,
        mask=masks[0] if masks else None,
        out=steps.result,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        q_len=queries,
        kv_len=keys,
        mask_batch=mask_batch,
        mask_head=mask_head,
        scale=steps.number(),
        causal=question.attribute("causal"),
    )


def _kv_concat(question: Question, steps: Steps) -> None:
    x, y = steps.operands
    axis = question.attribute("axis")
    rows = prod(question.shape[:axis])
    left, right = (prod(question.layout(one).shape[axis:]) for one in (0, 1))
    steps.launch(
        (rows * (left + right),),
        ltensor=x,
        rtensor=y,
        out=steps.result,
        rows=rows,
        left=left,
        right=right,
    )


def _kv_append(question: Question, steps: Steps) -> None:
    source, position = steps.operands
    rows, tokens, width = question.layout(0).shape
    size = rows * tokens * width
    steps.launch(
        (size,),
        numel=size,
        position=position,
        inp=source,
        target=steps.result,
        tokens=tokens,
        capacity=question.shape[1],
        width=width,
    )


def _paged_append(question: Question, steps: Steps) -> None:
    source, slots = steps.operands
    pages, page_size, heads, width = question.shape
    size = question.layout(0).size
    if steps.result.dtype in PAGES_OF_BYTES:
        tokens, _, width = question.layout(0).shape
        steps.launch(
            (tokens * heads,),
            source.dtype,
            steps.result.dtype,
            _APPEND_8,
            rows=tokens * heads,
            slots=slots,
            inp=source,
            target=steps.result,
            capacity=pages * page_size,
            heads=heads,
            width=width,
        )
        return
    steps.launch(
        (size,),
        numel=size,
        slots=slots,
        inp=source,
        target=steps.result,
        capacity=pages * page_size,
        width=heads * width,
    )


def _rope_at(question: Question, steps: Steps) -> None:
    """Add a rotation of (x, cos, sin, position); each work-item takes one pair or more."""
    x, cos, sin, position = steps.operands
    tokens, heads, width = question.shape
    positions, half = question.layout(1).shape
    steps.launch(
        (tokens * heads * (width - half),),
        rows=tokens * heads,
        position=position,
        inp=x,
        cos=cos,
        sin=sin,
        out=steps.result,
        heads=heads,
        width=width,
        turned=2 * half,
        positions=positions,
        neighbors=question.attribute("interleaved"),
    )


def _cached_attention(question: Question, steps: Steps) -> None:
    """Add attention over a cache; parts of `SPLIT` keys for one token, which are then merged."""
    query, _, _, position, *biases = steps.operands
    tokens, heads, width = question.shape
    kv_heads, capacity, _ = question.layout(1).shape
    # A block takes one head of keys, so all processors need enough heads.
    is_enough = tokens > 1 or kv_heads >= steps.limits.processors
    if is_enough and packs(PACKED_ATTENTION, query.dtype, steps.device.device):
        _packed_attention(question, steps)
        return
    sizes = (1, heads, kv_heads, tokens, capacity, width)
    tiles = _module_of_tiles(question, sizes, steps)
    if tiles:
        _attention_in_tiles(
            steps,
            tiles,
            sizes,
            heads_first=False,
            last=position,
            mask=None,
            mask_batch=0,
            mask_head=0,
            bias=biases[0] if biases else None,
            position=position,
            window=question.attribute("window"),
            scale=steps.number(0),
            cap=steps.number(1),
            causal=False,
        )
        return
    _attention_over_cache(
        steps,
        (tokens, heads, kv_heads, capacity, width),
        position,
        bias=biases[0] if biases else None,
        window=question.attribute("window"),
        scale=steps.number(0),
        cap=steps.number(1),
    )


def _attention_over_cache(
    steps: Steps,
    sizes: tuple[int, int, int, int, int],
    position: Given,
    /,
    *,
    window: int,
    **given: Given,
) -> None:
    """Add a block for each query, or for `SPLIT` keys of a single query; then parts are merged.

    Sizes are queries, heads, heads of keys, capacity and width.
    """
    tokens, heads, kv_heads, capacity, width = sizes
    query, keys, values = steps.operands[:3]
    splits = -(-capacity // SPLIT) if tokens == 1 else 1
    wide = f64 if query.dtype is f64 else f32
    parts = steps.scratch(heads * splits * part_width(width), wide) if splits > 1 else None
    steps.launch(
        (tokens * heads, splits),
        None,
        None,
        _CACHED,
        position=position,
        out=steps.result,
        parts=parts,
        heads=heads,
        head_dim=width,
        capacity=capacity,
        split=SPLIT,
        window=window,
        q=query,
        k=keys,
        v=values,
        kv_heads=kv_heads,
        **given,
    )
    if splits > 1:
        _merge(steps, parts, position, (heads, heads, width, capacity), window, splits)


def _paged_attention(question: Question, steps: Steps) -> None:
    """Add attention over pages; few tokens share their keys among blocks, with the same bits."""
    query, keys, values, tables, sequences, positions, *more = steps.operands
    tokens, heads, width = question.shape
    pages, page_size, kv_heads, _ = question.layout(1).shape
    table_rows, table_pages = question.layout(3).shape
    given = dict(zip(question.attribute("given").split(), more, strict=True))
    capacity, rows, limits = table_pages * page_size, tokens * heads, steps.limits
    splits = -(-capacity // SPLIT)
    if rows >= _FILLING * limits.processors or splits > limits.max_grid[1]:
        splits = 1
    wide = f64 if query.dtype is f64 else f32
    parts = steps.scratch(rows * splits * part_width(width), wide) if splits > 1 else None
    is_short = keys.dtype in PAGES_OF_BYTES
    steps.launch(
        (rows, splits),
        query.dtype,
        keys.dtype if is_short else None,
        _ATTENTION_8 if is_short else None,
        q=query,
        k=keys,
        v=values,
        tables=tables,
        sequences=sequences,
        positions=positions,
        ancestors=given.get("ancestors"),
        bias=given.get("bias"),
        sinks=given.get("sinks"),
        out=steps.result,
        parts=parts,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        pages=pages,
        page_size=page_size,
        table_rows=table_rows,
        table_pages=table_pages,
        window=question.attribute("window"),
        sink_tokens=question.attribute("sink_tokens"),
        scale=steps.number(0),
        cap=steps.number(1),
    )
    if splits == 1:
        return
    steps.launch(
        (rows, width),
        None,
        None,
        _MERGE_PAGED,
        parts=parts,
        sequences=sequences,
        positions=positions,
        ancestors=given.get("ancestors"),
        sinks=given.get("sinks"),
        out=steps.result,
        heads=heads,
        head_dim=width,
        table_rows=table_rows,
        capacity=capacity,
        window=question.attribute("window"),
        sink_tokens=question.attribute("sink_tokens"),
        splits=splits,
    )


def part_width(width: int) -> int:
    """Return the numbers from a part to the next, as in attention_parts.h."""
    return (width + 9) // 8 * 8


def _merge(
    steps: Steps,
    parts: Memory | None,
    position: Given,
    sizes: tuple[int, int, int, int],
    window: int,
    splits: int,
) -> None:
    """Add the launch that merges parts; sizes are rows, heads, width and capacity."""
    rows, heads, width, capacity = sizes
    steps.launch(
        (rows, width),
        None,
        None,
        _MERGE,
        position=position,
        out=steps.result,
        parts=parts,
        heads=heads,
        head_dim=width,
        capacity=capacity,
        split=SPLIT,
        window=window,
        splits=splits,
    )


_Sizes: TypeAlias = tuple[int, int, int, int, int, int]
"""Batch, heads, heads of keys, queries, keys and width."""


def _module_of_tiles(question: Question, sizes: _Sizes, steps: Steps) -> str:
    """Return the module of kernels for tiles of rows; "" where none takes these operands."""
    batch, heads, kv_heads, queries, _, width = sizes
    if width > _TILE_WIDTHS[-1] or batch * kv_heads > steps.limits.max_grid[2]:
        return ""
    if question.dtype.name in ("bf16", "f16"):
        module = TENSOR_ATTENTION
    elif question.dtype is f32 and queries > 1 and heads // kv_heads * queries > _SHARED_ROWS:
        module = TILED_ATTENTION
    else:
        return ""
    return module if has_module(module, steps.device.device) else ""


def _attention_in_tiles(
    steps: Steps,
    module: str,
    sizes: _Sizes,
    /,
    *,
    heads_first: bool,
    last: Given,
    window: int,
    **given: Given,
) -> None:
    """Add attention in tiles of rows; one query's keys are split, and the parts merged.

    `last` is the last key's position.
    """
    batch, heads, kv_heads, queries, keys, width = sizes
    rows = heads // kv_heads * queries
    is_shared = rows <= _SHARED_ROWS
    splits = max(1, -(-keys // SPLIT)) if queries == 1 else 1
    parts = steps.scratch(batch * heads * splits * part_width(width), f32) if splits > 1 else None
    query, key, value = steps.operands[:3]
    widest, tile_rows = next(
        one for one in zip(_TILE_WIDTHS, _TILE_ROWS[module], strict=True) if width <= one[0]
    )
    kind = module.replace("attention", "sdpa") + ("_shared" if is_shared else "")
    steps.launch_entry(
        module,
        f"{kind}{widest}_{query.dtype}",
        (
            (-(-rows // (_SHARED_ROWS if is_shared else tile_rows)), splits, batch * kv_heads),
            128,
            0,
        ),
        q=query,
        k=key,
        v=value,
        out=steps.result,
        parts=parts,
        heads=heads,
        kv_heads=kv_heads,
        q_len=queries,
        kv_len=keys,
        head_dim=width,
        head_step=queries * width if heads_first else width,
        query_step=width if heads_first else heads * width,
        window=window,
        split=SPLIT,
        **given,
    )
    if splits > 1:
        _merge(steps, parts, last, (batch * heads, heads, width, keys), window, splits)


def _tiles(heads: int, kv_heads: int, tokens: int, batch: int) -> tuple[int, tuple[int, int, int]]:
    """Tokens of a block, and the grid; each block takes one head of keys and some tokens."""
    tile = max(1, PACKED_ROWS * kv_heads // heads)
    return tile, (kv_heads, -(-tokens // tile), batch)


def _packed_attention(question: Question, steps: Steps) -> None:
    """Add attention of several tokens; each block takes one head of keys and some tokens."""
    query, keys, values, position, *biases = steps.operands
    tokens, heads, width = question.shape
    kv_heads, capacity, _ = question.layout(1).shape
    tile, grid = _tiles(heads, kv_heads, tokens, 1)
    steps.launch_entry(
        PACKED_ATTENTION,
        f"sdpa_packed_{query.dtype}",
        (grid, min(steps.limits.max_threads_per_block, _WORK_ITEMS), 0),
        q=query,
        k=keys,
        v=values,
        bias=biases[0] if biases else None,
        position=position,
        out=steps.result,
        tokens=tokens,
        tile=tile,
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        capacity=capacity,
        window=question.attribute("window"),
        scale=steps.number(0),
        cap=steps.number(1),
    )


LOWERINGS: Lowerings = {
    ATTENTION: Launches(_attention, KernelDef("attention", PLAIN, wide_block_per_row)),
    CACHED_ATTENTION: Launches(_cached_attention, KernelDef("attention", PLAIN, block_per_part)),
    PAGED_ATTENTION: Launches(_paged_attention, KernelDef("pages", PLAIN, block_per_part)),
    PAGED_APPEND: Launches(_paged_append, KernelDef("decode", PLAIN, strided)),
    KV_CONCAT: Launches(_kv_concat, KernelDef("fused", PLAIN, strided)),
    KV_APPEND: Launches(_kv_append, KernelDef("decode", PLAIN, strided)),
    ROPE_AT: Launches(_rope_at, KernelDef("decode", PLAIN, strided)),
}
