"""Products of weights of blocks and vectors of Q8_1, by Candle's kernels: on GPUs.

Ten formats have kernels under Candle's names, for one to eight vectors and for matrices; the others
have one each, of `ubridge/kernels/blocks.cu`.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from ubridge.prepare.convention import Convention
from ubridge.prepare.sizes import BlockSizes
from ubridge.prepare.steps import Arguments, Memory, Steps
from uhal.dtypes import f32

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


def _as_f32(at: Convention, x: Memory, shape: Shape, steps: Steps) -> Memory:
    if x.dtype is f32:
        return x
    wide = steps.scratch(x.size, f32)
    at.cast(x, Layout.contiguous(shape), wide, steps)
    return wide


__all__ = ["multiply_q8_1", "quantize_q8_1"]
