"""Products of weights of blocks and vectors of Q8_1, by Candle's kernels: on GPUs.

Ten formats have kernels under Candle's names, for one to eight vectors and for matrices; the others
have one each, of `ubridge/kernels/blocks.cu`.
"""

from __future__ import annotations

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Elements
from ubridge.prepare.convention import Convention
from ubridge.prepare.sizes import BlockSizes, IndexedSizes
from ubridge.prepare.steps import Arguments, Memory, Steps
from uhal.dtypes import f32, u8, u32

_MODULE = "quantized"
_BLOCK_BYTES = 36
"""Of 32 elements."""
_TILES = {
    **dict.fromkeys(("q4_0", "q4_1", "q2_K", "q4_K", "q5_K"), (128, 64)),
    **dict.fromkeys(("q5_0", "q5_1", "q8_0"), (64, 128)),
    **{"q3_K": (128, 128), "q6_K": (64, 64)},
}
"""Rows and vectors that a block of `mul_mat_<format>` multiplies (`MATRIX_PRODUCT`)."""
_MOST_VECTORS = 8
_INDEXED = ("q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
"""Formats with an entry `indexed_moe_forward_<format>_q8_1`."""
_INDEX_SELECT = OPS["index_select"]


def quantize_q8_1(at: Convention, x: Memory, shape: Shape, out: Memory, steps: Steps) -> None:
    """Add what makes Q8_1 of contiguous vectors."""
    vectors, columns = shape
    wide = _as_f32(at, x, shape, steps)
    most = at.limits.max_grid[1]
    for first in range(0, vectors, most):
        arguments: Arguments = {
            **{"x": wide[first * columns :], "vy": out[first * (columns // 32 * _BLOCK_BYTES) :]},
            **{"kx": columns, "kx_padded": columns},
        }
        grid = (-(-columns // 256), min(most, vectors - first), 1)
        steps.launch_entry(_MODULE, "quantize_q8_1", (grid, 256, 0), arguments)


def multiply_q8_1(
    at: Convention,
    op: Op,
    weight: Memory,
    x: Memory,
    out: Memory,
    sizes: BlockSizes,
    steps: Steps,
) -> None:
    """Add the product of a weight and vectors of Q8_1."""
    vectors, rows, columns = sizes
    format = op.name.removeprefix("product_")
    made = out if out.dtype is f32 else steps.scratch(vectors * rows, f32)
    if format in _TILES and vectors <= _MOST_VECTORS:
        arguments: Arguments = {
            **{"vx": weight, "vy": x, "dst": made, "ncols_x": columns, "nrows_x": rows},
            **{"nrows_y": columns, "nrows_dst": rows},
        }
        each = 1 if vectors == 1 else 2
        geometry = ((-(-rows // each), 1, 1), (32, 4 if vectors < 5 else 2, 1), 0)
        entry = f"mul_mat_vec_{format}_q8_1_cuda{vectors}"
        steps.launch_entry(_MODULE, entry, geometry, arguments)
    elif format in _TILES:
        tall, wide = _TILES[format]
        arguments = {
            **{"vx": weight, "vy": x, "dst": made, "ncols_x": columns, "nrows_x": rows},
            **{"ncols_y": vectors, "nrows_y": columns, "nrows_dst": rows},
        }
        grid = (-(-rows // tall), -(-vectors // wide), 1)
        steps.launch_entry(_MODULE, f"mul_mat_{format}", (grid, (32, 4, 1), 0), arguments)
    else:
        most = at.limits.max_grid[1]
        for first in range(0, vectors, most):
            arguments = {
                **{"vx": weight, "vy": x[first * (columns // 32 * _BLOCK_BYTES) :]},
                **{"dst": made[first * rows :], "ncols": columns, "nrows": rows},
            }
            grid = (rows, min(most, vectors - first), 1)
            steps.launch_entry("blocks", op.root, (grid, (32, 4, 1), 0), arguments)
    if made is not out:
        at.cast(made, Layout.contiguous(vectors * rows), out, steps)


def multiply_at_ids(
    at: Convention,
    op: Op,
    given: tuple[Memory, Memory, Memory],
    out: Memory,
    sizes: IndexedSizes,
    steps: Steps,
) -> None:
    """Add products of vectors of Q8_1 by weights at ids; given are weights, vectors and ids.

    Six formats have Candle's kernel. Of the others each weight that an id names is copied and then
    multiplied by: two launches for each product.
    """
    weights, x, ids = given
    count, rows, columns, tokens, used, vectors = sizes
    products, format = tokens * used, op.name.removeprefix("indexed_")
    made = out if out.dtype is f32 else steps.scratch(products * rows, f32)
    if format in _INDEXED:
        # Candle's kernels trust their ids: those out of bounds are reported, and 0 takes their
        # place.
        checked = steps.scratch(products, u32)
        numbers = Elements("u32", np.arange(count, dtype=np.uint32).tobytes())
        arguments: Arguments = {
            **{"numel": products, "num_dims": 0, "info": None, "ids": ids, "inp": numbers},
            **{"out": checked, "left": 1, "src_dim": count, "ids_dim": products, "right": 1},
        }
        steps.launch(_INDEX_SELECT, u32, (products,), arguments, u32)
        entry = f"indexed_moe_forward_{format.replace('_K', 'k')}_q8_1"
        vector_bytes = columns // 32 * _BLOCK_BYTES
        is_shared = vectors == tokens
        most = at.limits.max_grid[1]
        for first in range(0, tokens, most):
            length = min(most, tokens - first)
            passed = first if is_shared else first * used
            arguments = {
                **{"all_weights": weights, "all_inputs": x[passed * vector_bytes :]},
                **{"indices": checked[first * used :], "all_outputs": made[first * used * rows :]},
                **{"n": rows, "k": columns, "batch": length, "topk": used, "k_padded": columns},
                **{"input_dim1": 1 if is_shared else used},
            }
            grid = (rows, length, used)
            steps.launch_entry(_MODULE, entry, (grid, (32, 4, 1), 0), arguments)
    else:
        weights = weights.view(u8)
        each = weights.size // count
        chosen = steps.scratch(each, u8)
        vector_bytes = columns // 32 * _BLOCK_BYTES
        one, product = BlockSizes(1, rows, columns), OPS[f"product_{format}"]
        for index in range(products):
            at.index_select(weights, ids[index : index + 1], (1, count, 1, each), chosen, steps)
            vector = x[index * vectors // products * vector_bytes :]
            results = made[index * rows : (index + 1) * rows]
            multiply_q8_1(at, product, chosen, vector, results, one, steps)
    if made is not out:
        at.cast(made, Layout.contiguous(products * rows), out, steps)


def _as_f32(at: Convention, x: Memory, shape: Shape, steps: Steps) -> Memory:
    if x.dtype is f32:
        return x
    wide = steps.scratch(x.size, f32)
    at.cast(x, Layout.contiguous(shape), wide, steps)
    return wide


__all__ = ["multiply_at_ids", "multiply_q8_1", "quantize_q8_1"]
