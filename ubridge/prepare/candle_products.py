"""Launches of ubridge's own kernels where Candle has none: products, attention, joins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ubridge.core.layout import Layout, Shape, merged_axes
from ubridge.core.op_table import OPS, Op
from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module
from ubridge.prepare.candle_q8_1 import multiply_at_ids, multiply_q8_1, quantize_q8_1
from ubridge.prepare.convention import Convention, Sizes
from ubridge.prepare.matmul.table import MatmulKernels
from ubridge.prepare.sizes import AttentionSizes, BlockSizes, IndexedSizes
from ubridge.prepare.steps import Arguments, Given, Memory, Steps
from uhal import DType
from uhal.dtypes import f32, f64
from uhal.errors import NotFoundError

_ATTENTION = OPS["attention"]
_COPY = OPS["copy"]
_CACHED_ATTENTION = OPS["cached_attention"]
_KV_APPEND = OPS["kv_append"]
_KV_CONCAT = OPS["kv_concat"]
_MERGED_ATTENTION = OPS["merged_attention"]
_ROPE_AT = OPS["rope_at"]
PACKED_ATTENTION = "attention_packed"
PACKED_ROWS = 64
"""Queries that share keys once they are packed."""
_PACKED_DTYPES = ("bf16", "f16", "f32")
SPLIT = 256
"""Keys of a cache that a block takes where one token has them all to itself."""


class CandleProducts(Convention):
    """The part of Candle's calling convention for products."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        self.matmuls = MatmulKernels(executor, self)

    def matmul(
        self, a: Memory, left: Layout, b: Memory, right: Layout, out: Memory, steps: Steps
    ) -> None:
        """Products of matrices; the layouts have one batch, and begin with a and b."""
        a, a_batch, left = self._batched(a, left, steps)
        b, b_batch, right = self._batched(b, right, steps)
        self.matmuls.prepare(_product(a.dtype, left, a_batch, right, b_batch), a, b, out, steps)

    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        a_batch, b_batch = (_batch_stride(one) for one in (left, right))
        # Those with several strides are copied first.
        if a_batch is None:
            a_batch, left = prod(left.shape[-2:]), Layout.contiguous(left.shape)
        if b_batch is None:
            b_batch, right = prod(right.shape[-2:]), Layout.contiguous(right.shape)
        return self.matmuls.choose(_product(dtype, left, a_batch, right, b_batch))

    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """Return the kernels that products may go to, in order of preference."""
        return self.matmuls.table

    def close(self) -> None:
        """Give back what it holds besides memory. The device is still there."""
        self.matmuls.close()

    def _batched(self, x: Memory, layout: Layout, steps: Steps) -> tuple[Memory, int, Layout]:
        """The operand with one stride from matrix to matrix; copied if it has several."""
        stride = _batch_stride(layout)
        if stride is not None:
            return x, stride, layout
        whole = Layout.contiguous(layout.shape)
        out = steps.scratch(layout.size, x.dtype)
        self.unary(_COPY, x, layout, out, None, steps)
        return out, prod(layout.shape[-2:]), whole

    def quantized_matvec(
        self,
        op: Op,
        weight: Memory,
        x: Memory,
        out: Memory,
        sizes: BlockSizes,
        steps: Steps,
    ) -> None:
        """Products of a weight of blocks."""
        vectors, rows, columns = sizes
        most = self.limits.max_grid[1]
        for first in range(0, vectors, most):
            arguments: Arguments = {
                "vx": weight,
                "y": x[first * columns :],
                "dst": out[first * rows :],
                "ncols": columns,
                "nrows": rows,
            }
            steps.launch(op, x.dtype, (rows, min(most, vectors - first)), arguments)

    def activations(self, op: Op, x: Memory, shape: Shape, out: Memory, steps: Steps) -> None:
        """Vectors of 8 bits: Q8_0 or Q8_K on the host, Q8_1 elsewhere."""
        vectors, columns = shape
        if op.family.name in self._executor.backend_kernels.rows:
            arguments: Arguments = {"x": x, "out": out, "vectors": vectors, "columns": columns}
            steps.launch(op, x.dtype, (vectors, 1, x.size), arguments)
        else:
            quantize_q8_1(self, x, shape, out, steps)

    def quantized_product(
        self,
        op: Op,
        weight: Memory,
        x: Memory,
        out: Memory,
        sizes: BlockSizes,
        steps: Steps,
    ) -> None:
        """Products of a weight of blocks and vectors of 8 bits."""
        vectors, rows, columns = sizes
        if op.family.name in self._executor.backend_kernels.rows:
            arguments: Arguments = {
                **{"weight": weight, "x": x, "out": out},
                **{"rows": rows, "columns": columns, "vectors": vectors},
            }
            steps.launch(op, out.dtype, (rows, 32, vectors * rows * columns), arguments)
        else:
            multiply_q8_1(self, op, weight, x, out, sizes, steps)

    def indexed_product(
        self,
        op: Op,
        weights: Memory,
        x: Memory,
        ids: Memory,
        out: Memory,
        sizes: IndexedSizes,
        steps: Steps,
    ) -> None:
        """Products of vectors of 8 bits and those of several weights of blocks that ids name."""
        if op.family.name not in self._executor.backend_kernels.rows:
            multiply_at_ids(self, op, (weights, x, ids), out, sizes, steps)
            return
        count, rows, columns, tokens, used, vectors = sizes
        products = tokens * used
        made = out if out.dtype is f32 else steps.scratch(products * rows, f32)
        arguments: Arguments = {
            **{"weights": weights, "x": x, "ids": ids, "out": made, "count": count, "rows": rows},
            **{"columns": columns, "products": products, "sharing": products // vectors},
        }
        # Each piece copies the vectors that have one weight in common: of many, pieces are few.
        least = 32 if products <= 3 * count else rows // (4 * self.limits.processors)
        steps.launch(op, f32, (rows, max(32, least), products * rows * columns), arguments)
        if made is not out:
            self.cast(made, Layout.contiguous(products * rows), out, steps)

    def block_elements(self, op: Op, weight: Memory, out: Memory, steps: Steps) -> None:
        """The elements of a weight of blocks."""
        arguments: Arguments = {"numel": out.size, "blocks": weight, "out": out}
        # A work-item takes four elements on a GPU, and more on the host.
        steps.launch(op, out.dtype, (out.size // 4,), arguments)

    def attention(
        self,
        query: Memory,
        key: Memory,
        value: Memory,
        mask: Memory | None,
        out: Memory,
        sizes: AttentionSizes,
        scale: Given,
        causal: bool,
        batch: int,
        steps: Steps,
    ) -> None:
        """Attention over contiguous queries, keys and values."""
        arguments: Arguments = {
            **{"q": query, "k": key, "v": value, "mask": mask, "out": out},
            **{"heads": sizes.heads, "kv_heads": sizes.kv_heads, "head_dim": sizes.width},
            **{"q_len": sizes.queries, "kv_len": sizes.keys},
            **{"mask_batch": sizes.mask_batch, "mask_head": sizes.mask_head},
            **{"scale": scale, "causal": causal},
        }
        rows = batch * sizes.heads * sizes.queries
        steps.launch(_ATTENTION, query.dtype, (rows, sizes.keys), arguments)

    def kv_concat(
        self,
        x: Memory,
        y: Memory,
        shapes: tuple[Shape, Shape],
        axis: int,
        out: Memory,
        steps: Steps,
    ) -> None:
        """A join of two contiguous tensors."""
        rows = prod(shapes[0][:axis])
        left, right = (prod(shape[axis:]) for shape in shapes)
        arguments: Arguments = {
            **{"ltensor": x, "rtensor": y, "out": out},
            **{"rows": rows, "left": left, "right": right},
        }
        steps.launch(_KV_CONCAT, x.dtype, (rows * (left + right),), arguments)

    def kv_append(
        self, source: Memory, target: Memory, position: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        """A write at a position; sizes are (rows, tokens, target's length, width)."""
        rows, tokens, capacity, width = sizes
        size = rows * tokens * width
        arguments: Arguments = {
            **{"numel": size, "position": position, "inp": source, "target": target},
            **{"tokens": tokens, "capacity": capacity, "width": width},
        }
        steps.launch(_KV_APPEND, target.dtype, (size,), arguments)

    def rope_at(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Rotations of (x, cos, sin, position); work-items take a pair each, or more."""
        x, cos, sin, position = given
        tokens, heads, width = question.shape
        positions, half = question.layout(1).shape
        arguments: Arguments = {
            **{"rows": tokens * heads, "position": position, "inp": x, "cos": cos, "sin": sin},
            **{"out": steps.result, "heads": heads, "width": width, "turned": 2 * half},
            **{"positions": positions, "neighbors": question.attribute("interleaved")},
        }
        steps.launch(_ROPE_AT, x.dtype, (tokens * heads * (width - half),), arguments)

    def cached_attention(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Attention over a cache; of one token in parts of so many keys, which are then merged."""
        query, keys, values, position, *biases = given
        tokens, heads, width = question.shape
        kv_heads, capacity, _ = question.layout(1).shape
        # A block is a head of keys: there have to be enough of them for all processors.
        is_enough = tokens > 1 or kv_heads >= self._executor.device.limits.processors
        if is_enough and self._packs(query.dtype):
            self._packed_attention(given, question, steps)
            return
        splits = -(-capacity // SPLIT) if tokens == 1 else 1
        wide = f64 if query.dtype is f64 else f32
        out = steps.result
        parts = steps.scratch(heads * splits * (width + 2), wide) if splits > 1 else None
        common: Arguments = {
            **{"position": position, "out": out, "parts": parts, "heads": heads},
            **{"head_dim": width, "capacity": capacity, "split": SPLIT},
            "window": question.attribute("window"),
        }
        arguments: Arguments = {
            **common,
            **{"q": query, "k": keys, "v": values, "bias": biases[0] if biases else None},
            **{"kv_heads": kv_heads, "scale": steps.number(0), "cap": steps.number(1)},
        }
        steps.launch(_CACHED_ATTENTION, query.dtype, (tokens * heads, splits), arguments)
        if splits > 1:
            merging: Arguments = {**common, "splits": splits}
            steps.launch(_MERGED_ATTENTION, query.dtype, (heads, width), merging)

    def _packs(self, dtype: DType) -> bool:
        """Whether the device has the kernel that packs keys for many queries: CPUs do."""
        if dtype.name not in _PACKED_DTYPES:
            return False
        try:
            load_module(PACKED_ATTENTION, device=self._executor.device)
        except NotFoundError:
            return False
        return True

    def _packed_attention(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Attention of several tokens: a block is a head of keys and some tokens."""
        query, keys, values, position, *biases = given
        tokens, heads, width = question.shape
        kv_heads, capacity, _ = question.layout(1).shape
        tile = max(1, PACKED_ROWS * kv_heads // heads)
        arguments: Arguments = {
            **{"q": query, "k": keys, "v": values, "bias": biases[0] if biases else None},
            **{"position": position, "out": steps.result, "tokens": tokens, "tile": tile},
            **{"heads": heads, "kv_heads": kv_heads, "width": width, "capacity": capacity},
            **{"window": question.attribute("window")},
            **{"scale": steps.number(0), "cap": steps.number(1)},
        }
        # What a work-item stands for: the runtime tells short launches by their number.
        threads = min(self._executor.device.limits.max_threads_per_block, 256)
        geometry = ((kv_heads, -(-tokens // tile), 1), threads, 0)
        entry = f"sdpa_packed_{query.dtype}"
        steps.launch_entry(PACKED_ATTENTION, entry, geometry, arguments)


@lru_cache(maxsize=4096)
def _batch_stride(layout: Layout) -> int | None:
    """The stride from one matrix to the next; `None` if there are several."""
    merged = merged_axes(layout.shape[:-2], layout.strides[:-2])
    if len(merged) > 1:
        return None
    return merged[0][1] if merged else 0


@lru_cache(maxsize=4096)
def _product(dtype: DType, left: Layout, a_batch: int, right: Layout, b_batch: int) -> Product:
    *batch, m, k = left.shape
    a_row, a_column = left.strides[-2:]
    b_row, b_column = right.strides[-2:]
    n = right.shape[-1]
    return Product(dtype, prod(batch), m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column)


__all__ = ["CandleProducts"]
