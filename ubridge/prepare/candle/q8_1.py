"""Lowerings for GPUs: products of blocks and vectors of Q8_1, by Candle's kernels.

Ten formats have kernels under Candle's names, for one to eight vectors and for matrices. Other
formats have one kernel each, in `ubridge/kernels/blocks.cu`.
"""

from __future__ import annotations

import numpy as np

from ubridge.core.layout import Layout
from ubridge.core.lowering import Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Elements
from ubridge.core.question import Question
from ubridge.definitions.composing import widened
from ubridge.definitions.indexing import INDEX_SELECT
from ubridge.definitions.products import ACTIVATIONS, INDEXED_PRODUCT, QUANTIZED_PRODUCT
from ubridge.prepare.candle.host_blocks import deliver, weights_of
from ubridge.prepare.candle.indexing import BY_ID, EVERY_ID
from uhal.dtypes import f32, u8, u32

_MODULE = "quantized"
_BLOCK_BYTES = 36
"""Bytes of a block of 32 elements."""
_TILES = {
    **dict.fromkeys(("q4_0", "q4_1", "q2_K", "q4_K", "q5_K"), (128, 64)),
    **dict.fromkeys(("q5_0", "q5_1", "q8_0"), (64, 128)),
    **{"q3_K": (128, 128), "q6_K": (64, 64)},
}
"""Rows and vectors that a block of `mul_mat_<format>` multiplies (`MATRIX_PRODUCT`)."""
_MOST_VECTORS = 8
_INDEXED = ("q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
"""Formats with an entry `indexed_moe_forward_<format>_q8_1`."""


def _activations(question: Question, steps: Steps) -> None:
    x, out = steps.operands[0], steps.result
    vectors, columns = question.layout(0).shape
    wide = x if x.dtype is f32 else widened(x, question.layout(0), steps)
    most = steps.limits.max_grid[1]
    for first in range(0, vectors, most):
        steps.launch_entry(
            _MODULE,
            "quantize_q8_1",
            ((-(-columns // 256), min(most, vectors - first), 1), 256, 0),
            x=wide[first * columns :],
            vy=out[first * _vector_bytes(columns) :],
            kx=columns,
            kx_padded=columns,
        )


def _product(question: Question, steps: Steps) -> None:
    weight, x = steps.operands
    vectors, rows = question.shape
    columns, out = question.attribute("columns"), steps.result
    format = question.attribute("format")
    made = out if out.dtype is f32 else steps.scratch(vectors * rows, f32)
    # Each number of vectors has a kernel of its own, whose sums the compiler rounds differently.
    most = 1 if question.has_flag("batch_invariant") else vectors
    for first in range(0, vectors, most):
        sizes = (min(most, vectors - first), rows, columns)
        some = x[first * _vector_bytes(columns) :]
        _multiply(steps, format, weight, some, made[first * rows :], sizes)
    deliver(made, steps)


def _multiply(
    steps: Steps, format: str, weight: Memory, x: Memory, out: Memory, sizes: tuple[int, int, int]
) -> None:
    """Add the product of a weight (rows, columns) and vectors; sizes begin with the vectors."""
    vectors, rows, columns = sizes
    if format in _TILES and vectors <= _MOST_VECTORS:
        each = 1 if vectors == 1 else 2
        steps.launch_entry(
            _MODULE,
            f"mul_mat_vec_{format}_q8_1_cuda{vectors}",
            ((-(-rows // each), 1, 1), (32, 4 if vectors < 5 else 2, 1), 0),
            vx=weight,
            vy=x,
            dst=out,
            ncols_x=columns,
            nrows_x=rows,
            nrows_y=columns,
            nrows_dst=rows,
        )
    elif format in _TILES:
        tall, wide = _TILES[format]
        steps.launch_entry(
            _MODULE,
            f"mul_mat_{format}",
            ((-(-rows // tall), -(-vectors // wide), 1), (32, 4, 1), 0),
            vx=weight,
            vy=x,
            dst=out,
            ncols_x=columns,
            nrows_x=rows,
            ncols_y=vectors,
            nrows_y=columns,
            nrows_dst=rows,
        )
    else:
        most = steps.limits.max_grid[1]
        for first in range(0, vectors, most):
            steps.launch_entry(
                "blocks",
                f"product_{format}",
                ((rows, min(most, vectors - first), 1), (32, 4, 1), 0),
                vx=weight,
                vy=x[first * _vector_bytes(columns) :],
                dst=out[first * rows :],
                ncols=columns,
                nrows=rows,
            )


def _product_at_ids(question: Question, steps: Steps) -> None:
    """Add products of vectors by weights at ids.

    Six formats have Candle's kernel. For other formats, each chosen weight is copied, then
    multiplied: two launches for each product.
    """
    tokens, used, rows = question.shape
    out = steps.result
    made = out if out.dtype is f32 else steps.scratch(tokens * used * rows, f32)
    format = question.attribute("format")
    if format in _INDEXED:
        _choose(question, steps, format, made)
    else:
        _copy_and_multiply(question, steps, format, made)
    deliver(made, steps)


def _choose(question: Question, steps: Steps, format: str, out: Memory) -> None:
    """Add Candle's kernel that multiplies by the weights at ids."""
    weights, x, ids = steps.operands
    tokens, used, rows = question.shape
    count, columns = weights_of(question), question.attribute("columns")
    products = tokens * used
    # Candle's kernels check no ids, so ids out of bounds are reported and replaced by 0 first.
    checked = steps.scratch(products, u32)
    line = Layout.contiguous(1)
    of_ids = Question(INDEX_SELECT, ((u32, line), (u32, line)), (u32, line))
    select = steps.device.kernel(of_ids, BY_ID, u32, u32)
    steps.launch_entry(
        select.module,
        select.entry,
        select.configure(products),
        numel=products,
        num_dims=0,
        info=None,
        ids=ids,
        inp=Elements("u32", np.arange(count, dtype=np.uint32).tobytes()),
        out=checked,
        left=1,
        src_dim=count | EVERY_ID,
        ids_dim=products,
        right=1,
    )
    is_shared = question.layout(1).shape[0] == tokens
    most = steps.limits.max_grid[1]
    for first in range(0, tokens, most):
        length = min(most, tokens - first)
        passed = first if is_shared else first * used
        steps.launch_entry(
            _MODULE,
            f"indexed_moe_forward_{format.replace('_K', 'k')}_q8_1",
            ((rows, length, used), (32, 4, 1), 0),
            all_weights=weights,
            all_inputs=x[passed * _vector_bytes(columns) :],
            indices=checked[first * used :],
            all_outputs=out[first * used * rows :],
            n=rows,
            k=columns,
            batch=length,
            topk=used,
            k_padded=columns,
            input_dim1=1 if is_shared else used,
        )


def _copy_and_multiply(question: Question, steps: Steps, format: str, out: Memory) -> None:
    """Add a copy of each chosen weight, and a product by the copy."""
    weights, x, ids = steps.operands
    tokens, used, rows = question.shape
    count, columns = weights_of(question), question.attribute("columns")
    vectors, products = question.layout(1).shape[0], tokens * used
    weights = weights.view(u8)
    each = weights.size // count
    chosen = steps.scratch(each, u8)
    for index in range(products):
        steps.run(
            INDEX_SELECT,
            [
                (weights, Layout.contiguous((1, count, each))),
                (ids[index : index + 1], Layout.contiguous(1)),
            ],
            (chosen, Layout.contiguous((1, 1, each))),
        )
        vector = x[index * vectors // products * _vector_bytes(columns) :]
        results = out[index * rows : (index + 1) * rows]
        _multiply(steps, format, chosen, vector, results, (1, rows, columns))


def _vector_bytes(columns: int) -> int:
    return columns // 32 * _BLOCK_BYTES


LOWERINGS: Lowerings = {
    ACTIVATIONS: Launches(_activations),
    QUANTIZED_PRODUCT: Launches(_product),
    INDEXED_PRODUCT: Launches(_product_at_ids),
}
