"""Operations without a kernel on GCUs, made of others: attention, log-softmax, gates, masks.

Intermediate results are f32 whatever the operands are: rounding each of them to a half would cost
more bits than a fused kernel loses. They take memory that a fused kernel does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Elements
from ubridge.core.question import Question
from ubridge.prepare.gcu.copies import GcuCopies
from ubridge.prepare.sizes import AttentionSizes
from ubridge.prepare.steps import Given, Memory, Steps
from uhal import DType
from uhal.dtypes import f32, u8
from uhal.errors import ArgumentTypeError, NotSupportedError

_ADD = OPS["add"]
_DIVIDE = OPS["divide"]
_EXP = OPS["exp"]
_GREATER = OPS["greater"]
_LESS_EQUAL = OPS["less_equal"]
_LOG = OPS["log"]
_MAX = OPS["max"]
_MULTIPLY = OPS["multiply"]
_SILU = OPS["silu"]
_SUBTRACT = OPS["subtract"]
_SUM = OPS["sum"]
_TANH = OPS["tanh"]

COMPOSED = ("attention", "cached_attention", "rope_at", "log_softmax", "silu_mul", "masked_fill")
"""The operations made here, of f32, f16 and bf16; masks fill elements of any type."""
_HIDDEN = -1e30
"""The score of a key that a query does not see: its exponential is always 0."""


class GcuComposed(GcuCopies):
    """The part of the GCU's convention for operations of several launches."""

    def masked_fill(
        self,
        mask: Memory,
        mask_layout: Layout,
        x: Memory,
        x_layout: Layout,
        value: Given,
        out: Memory,
        steps: Steps,
    ) -> None:
        """A choice between one element and `x`."""
        element = steps.scratch(1, x.dtype)
        self.fill(element, Layout.contiguous(1), value, steps)
        spread = Layout(x_layout.shape, (0,) * x_layout.rank)
        self.where((mask, element, x), (mask_layout, spread, x_layout), out, steps)

    def gated(
        self,
        op: Op,
        gate: Memory,
        up: Memory,
        size: int,
        out: Memory,
        steps: Steps,
    ) -> None:
        """The activation, then the product."""
        line = Layout.contiguous(size)
        wide, factor = (self._wide(op, one, size, steps) for one in (gate, up))
        activated = steps.scratch(size, f32)
        self.unary(_SILU, wide, line, activated, None, steps)
        self.binary(_MULTIPLY, activated, line, factor, line, activated, steps)
        self._narrow(activated, out, size, steps)

    def log_softmax(
        self,
        x: Memory,
        out: Memory,
        rows: int,
        columns: int,
        compensated: bool,
        steps: Steps,
    ) -> None:
        """A log-softmax of each row; sums are plain, as the kernels' are."""
        op = OPS["log_softmax"]
        if compensated:
            raise NotSupportedError(
                "log_softmax: compensated sums need a kernel that GCUs do not have; without "
                "compensated=True the sums are plain",
                backend="tops",
            )
        whole = Layout.contiguous((rows, columns))
        of_row = Layout((rows, columns), (1, 0))
        above = self._wide(op, x, whole.size, steps)
        each = steps.scratch(rows, f32)
        shifted, powers = (steps.scratch(whole.size, f32) for _ in range(2))
        self.reduce(_MAX, above, whole, rows, columns, each, steps)
        self.binary(_SUBTRACT, above, whole, each, of_row, shifted, steps)
        self.unary(_EXP, shifted, whole, powers, None, steps)
        self.reduce(_SUM, powers, whole, rows, columns, each, steps)
        logarithms = steps.scratch(rows, f32)
        self.unary(_LOG, each, Layout.contiguous(rows), logarithms, None, steps)
        self.binary(_SUBTRACT, shifted, whole, logarithms, of_row, powers, steps)
        self._narrow(powers, out, whole.size, steps)

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
        """Two products with a softmax of all scores between them."""
        op = OPS["attention"]
        heads, kv_heads, queries, keys, width, mask_batch, mask_head = sizes
        if keys == 0:
            self.fill(out, Layout.contiguous(batch * heads * queries * width), 0, steps)
            return
        # Neighboring heads share keys and values: their queries are the rows of one product.
        pairs, rows = batch * kv_heads, heads // kv_heads * queries
        q = self._wide(op, query, pairs * rows * width, steps)
        k, v = (self._wide(op, one, pairs * keys * width, steps) for one in (key, value))
        of_queries = Layout.contiguous((pairs, rows, width))
        of_keys = Layout.contiguous((pairs, keys, width))
        of_scores = Layout.contiguous((pairs, rows, keys))
        shape = (batch, heads, queries, keys)
        line = Layout.contiguous(shape)
        scores, weights = (steps.scratch(line.size, f32) for _ in range(2))
        self.matmul(q, of_queries, k, of_keys.transpose(), scores, steps)
        self.affine(scores, line, scores, scale, 0.0, steps)
        if mask is not None:
            # The mask uses the memory of the weights before these are computed.
            of_mask = Layout(shape, (mask_batch, mask_head, keys, 1))
            self._converted(mask, of_mask, weights, steps)
            self.binary(_ADD, scores, line, weights, line, scores, steps)
        hidden = self._hidden(queries, keys, steps) if causal else None
        spread = Layout(shape, (0, 0, keys, 1))
        if hidden is not None:
            self.masked_fill(hidden, spread, scores, line, _HIDDEN, scores, steps)
        self.softmax(scores, weights, pairs * rows, keys, steps)
        if hidden is not None:
            # A query that sees no key gets zeros.
            self.masked_fill(hidden, spread, weights, line, 0.0, weights, steps)
        result = steps.scratch(of_queries.size, f32)
        self.matmul(weights, of_scores, v, of_keys, result, steps)
        self._narrow(result, out, of_queries.size, steps)

    def rope_at(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """The angles of a position, then the rotation of a token's heads."""
        x, cos, sin, position = given
        tokens, heads, width = question.shape
        positions, half = question.layout(1).shape
        _require_one("rope_at", tokens)

        def row_of(table: Memory) -> Memory:
            row = steps.scratch(half, f32)
            self.index_select(table, position, (1, positions, 1, half), row, steps)
            return self._narrowed(row, x.dtype, half, steps)

        cosines, sines = row_of(cos), row_of(sin)
        interleaved = question.attribute("interleaved")
        op = OPS["rope_i" if interleaved else "rope"]
        out = steps.result
        if 2 * half == width:
            self.rope(op, x, Shape((1, heads, 1, width)), cosines, sines, False, out, steps)
            return
        turned, stays = Shape((heads, 2 * half)), Shape((heads, width - 2 * half))
        part, rest = (steps.scratch(heads * one[1], x.dtype) for one in (turned, stays))
        self.copy_strided(x, Layout(turned, (width, 1)), part, steps)
        self.copy_strided(x[2 * half :], Layout(stays, (width, 1)), rest, steps)
        done = steps.scratch(heads * 2 * half, x.dtype)
        self.rope(op, part, Shape((1, heads, 1, 2 * half)), cosines, sines, False, done, steps)
        self.kv_concat(done, rest, (turned, stays), 1, out, steps)

    def cached_attention(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Two products with a softmax of all scores between them; keys to come are hidden."""
        query, key, value, position, *biases = given
        op = question.op
        tokens, heads, width = question.shape
        kv_heads, keys, _ = question.layout(1).shape
        _require_one(op.name, tokens)
        group = heads // kv_heads
        q = self._wide(op, query, heads * width, steps)
        k, v = (self._wide(op, one, kv_heads * keys * width, steps) for one in (key, value))
        of_queries = Layout.contiguous((kv_heads, group, width))
        of_keys = Layout.contiguous((kv_heads, keys, width))
        of_scores = Layout.contiguous((kv_heads, group, keys))
        line = Layout.contiguous((heads, keys))
        scores, weights = (steps.scratch(line.size, f32) for _ in range(2))
        self.matmul(q, of_queries, k, of_keys.transpose(), scores, steps)
        self.affine(scores, line, scores, steps.number(0), 0.0, steps)
        if question.attribute("is_bounded"):
            bound = steps.scratch(1, f32)
            spread = Layout((heads, keys), (0, 0))
            self.fill(bound, Layout.contiguous(1), steps.number(1), steps)
            self.binary(_DIVIDE, scores, line, bound, spread, weights, steps)
            self.unary(_TANH, weights, line, scores, None, steps)
            self.affine(scores, line, scores, steps.number(1), 0.0, steps)
        if biases:
            self.binary(_ADD, scores, line, biases[0], line, scores, steps)
        across = Layout((heads, keys), (0, 1))
        for hidden in self._unseen(position, keys, question.attribute("window"), steps):
            self.masked_fill(hidden, across, scores, line, _HIDDEN, scores, steps)
        self.softmax(scores, weights, heads, keys, steps)
        result = steps.scratch(heads * width, f32)
        self.matmul(weights, of_scores, v, of_keys, result, steps)
        self._narrow(result, steps.result, heads * width, steps)

    def _unseen(self, position: Memory, keys: int, window: int, steps: Steps) -> list[Memory]:
        """1 for each key behind a position, and 1 for each a window or more before it."""
        indices, line = steps.scratch(keys, f32), Layout.contiguous(keys)
        counted = Elements("u8", np.arange(keys, dtype=np.float32).tobytes())
        self.copy_kept(counted, indices.view(u8), steps)
        own, one = steps.scratch(1, f32), Layout.contiguous(1)
        self.cast(position, one, own, steps)
        spread = Layout((keys,), (0,))
        hidden = [steps.scratch(keys, u8)]
        self.binary(_GREATER, indices, line, own, spread, hidden[0], steps)
        if window:
            left = steps.scratch(1, f32)
            hidden.append(steps.scratch(keys, u8))
            self.affine(own, one, left, 1.0, -float(window), steps)
            self.binary(_LESS_EQUAL, indices, line, left, spread, hidden[1], steps)
        return hidden

    def _narrowed(self, x: Memory, dtype: DType, size: int, steps: Steps) -> Memory:
        """F32 as elements of a type."""
        if dtype is f32:
            return x
        out = steps.scratch(size, dtype)
        self.cast(x, Layout.contiguous(size), out, steps)
        return out

    def _hidden(self, queries: int, keys: int, steps: Steps) -> Memory:
        """1 for each key that a query does not see; the last query sees all. Uploaded once."""
        seen = np.tri(queries, keys, keys - queries, dtype=np.uint8)
        hidden = steps.scratch(seen.size, u8)
        kept = Elements("u8", (1 - seen).tobytes())
        self.copy_kept(kept, hidden, steps)
        return hidden

    def _wide(self, op: Op, x: Memory, size: int, steps: Steps) -> Memory:
        """The elements as f32, converted if they are not."""
        if x.dtype is f32:
            return x
        if x.dtype.name not in ("f16", "bf16"):
            raise ArgumentTypeError(
                f"{op.name}: not supported for the dtype {x.dtype} on tops; it is made of kernels "
                "for bf16 f16 f32"
            )
        out = steps.scratch(size, f32)
        self.cast(x, Layout.contiguous(size), out, steps)
        return out

    def _converted(self, x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
        """The elements of a layout as f32."""
        if x.dtype is f32:
            self.copy_strided(x, layout, out, steps)
        else:
            self.cast(x, layout, out, steps)

    def _narrow(self, x: Memory, out: Memory, size: int, steps: Steps) -> None:
        """F32 as the elements of a result."""
        line = Layout.contiguous(size)
        if out.dtype is f32:
            self.copy_strided(x, line, out, steps)
        else:
            self.cast(x, line, out, steps)


def _require_one(name: str, tokens: int) -> None:
    if tokens != 1:
        raise NotSupportedError(
            f"{name}: on a GCU of one token at a time, got {tokens}", backend="tops"
        )


__all__ = ["COMPOSED", "GcuComposed"]
