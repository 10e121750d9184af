"""What GCUs have no kernel for, made of those they have: attention, log-softmax, gates, masks.

Intermediate results are f32 whatever the operands are: rounding each of them to a half would cost
more bits than a fused kernel loses. They take memory that a fused kernel does not.
"""

from __future__ import annotations

import numpy as np

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.promotion import element_bytes
from ubridge.prepare.gcu.copies import GcuCopies
from uhal import DeviceBuffer
from uhal.dtypes import f32
from uhal.errors import ArgumentTypeError, NotSupportedError
from uhal.interop import StreamLike

_ADD = OPS["add"]
_EXP = OPS["exp"]
_LOG = OPS["log"]
_MAX = OPS["max"]
_MULTIPLY = OPS["multiply"]
_SILU = OPS["silu"]
_SUBTRACT = OPS["subtract"]
_SUM = OPS["sum"]

COMPOSED = ("attention", "log_softmax", "silu_mul", "masked_fill")
"""The operations made here, of f32, f16 and bf16; masks fill elements of any type."""
_HIDDEN = -1e30
"""The score of a key that a query does not see: e to it is 0 whatever the largest score is."""


class GcuComposed(GcuCopies):
    """The part of the GCU's launches that takes several for an operation."""

    def masked_fill(
        self,
        mask: DeviceBuffer,
        mask_layout: Layout,
        x: DeviceBuffer,
        x_layout: Layout,
        value: float,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a choice between one element and `x`."""
        constant = self._executor.constants.get((x.dtype.name, element_bytes(x.dtype, value)))
        spread = Layout(x_layout.shape, (0,) * x_layout.rank)
        self.where((mask, constant, x), (mask_layout, spread, x_layout), out, stream)

    def gated(
        self,
        op: Op,
        gate: DeviceBuffer,
        up: DeviceBuffer,
        size: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue the activation, then the product."""
        line = Layout.contiguous(size)
        wide, factor = (self._wide(op, one, size, stream) for one in (gate, up))
        activated = self._executor.allocate(size, f32, stream)
        self.unary(_SILU, wide, line, activated, None, stream)
        self.binary(_MULTIPLY, activated, line, factor, line, activated, stream)
        self._narrow(activated, out, size, stream)

    def log_softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        compensated: bool,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a log-softmax of each row; sums are plain, as the kernels' are."""
        op = OPS["log_softmax"]
        if compensated:
            raise NotSupportedError(
                "log_softmax: compensated sums need a kernel that GCUs do not have; without "
                "compensated=True the sums are plain",
                backend="tops",
            )
        whole = Layout.contiguous((rows, columns))
        of_row = Layout((rows, columns), (1, 0))
        above = self._wide(op, x, whole.size, stream)
        each = self._executor.allocate(rows, f32, stream)
        shifted, powers = (self._executor.allocate(whole.size, f32, stream) for _ in range(2))
        self.reduce(_MAX, above, whole, rows, columns, each, stream)
        self.binary(_SUBTRACT, above, whole, each, of_row, shifted, stream)
        self.unary(_EXP, shifted, whole, powers, None, stream)
        self.reduce(_SUM, powers, whole, rows, columns, each, stream)
        logarithms = self._executor.allocate(rows, f32, stream)
        self.unary(_LOG, each, Layout.contiguous(rows), logarithms, None, stream)
        self.binary(_SUBTRACT, shifted, whole, logarithms, of_row, powers, stream)
        self._narrow(powers, out, whole.size, stream)

    def attention(
        self,
        query: DeviceBuffer,
        key: DeviceBuffer,
        value: DeviceBuffer,
        mask: DeviceBuffer | None,
        out: DeviceBuffer,
        sizes: tuple[int, ...],
        scale: float,
        causal: bool,
        batch: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue two products with a softmax of all scores between them."""
        op = OPS["attention"]
        heads, kv_heads, queries, keys, width, mask_batch, mask_head = sizes
        if keys == 0:
            self.fill(out, Layout.contiguous(batch * heads * queries * width), 0, stream)
            return
        # Neighboring heads share keys and values: their queries are the rows of one product.
        pairs, rows = batch * kv_heads, heads // kv_heads * queries
        q = self._wide(op, query, pairs * rows * width, stream)
        k, v = (self._wide(op, one, pairs * keys * width, stream) for one in (key, value))
        of_queries = Layout.contiguous((pairs, rows, width))
        of_keys = Layout.contiguous((pairs, keys, width))
        of_scores = Layout.contiguous((pairs, rows, keys))
        shape = (batch, heads, queries, keys)
        line = Layout.contiguous(shape)
        scores, weights = (self._executor.allocate(line.size, f32, stream) for _ in range(2))
        self.matmul(q, of_queries, k, of_keys.transpose(), scores, stream)
        self.affine(scores, line, scores, scale, 0.0, stream)
        if mask is not None:
            # The room of the weights, which come later, serves the mask first.
            of_mask = Layout(shape, (mask_batch, mask_head, keys, 1))
            self._converted(mask, of_mask, weights, stream)
            self.binary(_ADD, scores, line, weights, line, scores, stream)
        hidden = self._hidden(queries, keys) if causal else None
        spread = Layout(shape, (0, 0, keys, 1))
        if hidden is not None:
            self.masked_fill(hidden, spread, scores, line, _HIDDEN, scores, stream)
        self.softmax(scores, weights, pairs * rows, keys, stream)
        if hidden is not None:
            # A query that sees no key gets zeros.
            self.masked_fill(hidden, spread, weights, line, 0.0, weights, stream)
        result = self._executor.allocate(of_queries.size, f32, stream)
        self.matmul(weights, of_scores, v, of_keys, result, stream)
        self._narrow(result, out, of_queries.size, stream)

    def _hidden(self, queries: int, keys: int) -> DeviceBuffer:
        """1 for each key that a query does not see, as the last one sees all; uploaded."""
        seen = np.tri(queries, keys, keys - queries, dtype=np.uint8)
        return DeviceBuffer.from_numpy((1 - seen).ravel(), device=self._executor.device)

    def _wide(self, op: Op, x: DeviceBuffer, size: int, stream: StreamLike | None) -> DeviceBuffer:
        """The elements as f32: themselves where they are."""
        if x.dtype is f32:
            return x
        if x.dtype.name not in ("f16", "bf16"):
            raise ArgumentTypeError(
                f"{op.name}: not supported for the dtype {x.dtype} on tops; it is made of kernels "
                "for bf16 f16 f32"
            )
        out = self._executor.allocate(size, f32, stream)
        self.cast(x, Layout.contiguous(size), f32, out, stream)
        return out

    def _converted(
        self, x: DeviceBuffer, layout: Layout, out: DeviceBuffer, stream: StreamLike | None
    ) -> None:
        """Enqueue the elements of a layout as f32."""
        if x.dtype is f32:
            self.copy_strided(x, layout, out, stream)
        else:
            self.cast(x, layout, f32, out, stream)

    def _narrow(
        self, x: DeviceBuffer, out: DeviceBuffer, size: int, stream: StreamLike | None
    ) -> None:
        """Enqueue f32 as the elements of a result."""
        line = Layout.contiguous(size)
        if out.dtype is f32:
            self.copy_strided(x, line, out, stream)
        else:
            self.cast(x, line, out.dtype, out, stream)


__all__ = ["COMPOSED", "GcuComposed"]
