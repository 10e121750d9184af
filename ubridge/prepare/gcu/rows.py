"""Rows and windows on GCUs: reductions, softmax, norms, sorting, rotary positions, convolutions."""

from __future__ import annotations

from functools import partial

import numpy as np

from ubridge.core.columns import power_of_two
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.candle_windows import convolution
from ubridge.prepare.gcu.copies import GcuCopies
from ubridge.prepare.steps import Arguments, Given, Memory, Steps
from uhal import DeviceBuffer
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

_ROTARY = OPS["rotary"]
_SOFTMAX = OPS["softmax"]
_MOST_ROWS = 32768
"""Results of a reduction that the kernel keeps besides."""
_MOST_INPUT_BYTES = 60 << 20
_MOST_KERNEL_ELEMENTS = 4096
"""The most that the convolutions' kernels hold; beyond it they silently do nothing."""


class GcuRows(GcuCopies):
    """The part of the GCU's convention for rows and windows."""

    def reduce(
        self,
        op: Op,
        x: Memory,
        ordered: Layout,
        results: int,
        elements: int,
        out: Memory,
        steps: Steps,
    ) -> None:
        source = self.whole(x, ordered, steps)
        for start in range(0, results, _MOST_ROWS):
            rows = min(_MOST_ROWS, results - start)
            arguments: Arguments = {
                **{"in": source[start * elements :], "out": out[start:]},
                **{"element_num": rows * elements, "reduce_dim_size": elements},
            }
            steps.launch(op, x.dtype, (), arguments)

    def softmax(
        self,
        x: Memory,
        out: Memory,
        rows: int,
        columns: int,
        steps: Steps,
    ) -> None:
        arguments: Arguments = {
            **{"input": x, "output": out, "batch": rows, "chunks": 1, "last_dim_size": columns}
        }
        steps.launch(_SOFTMAX, x.dtype, (), arguments)

    def norm(
        self,
        op: Op,
        x: Memory,
        weight: Memory,
        bias: Memory | None,
        out: Memory,
        rows: int,
        columns: int,
        epsilon: Given,
        steps: Steps,
    ) -> None:
        """A norm of each row: one kernel with two flags does both."""
        with_mean = int(bias is not None)
        # Without the flag the bias is not read.
        addend = weight if bias is None else bias
        arguments: Arguments = {
            **{"input": x, "output": out, "weight": weight, "bias": addend},
            **{"batch": rows, "chunks": 1, "last_dim_size": columns, "epsilon": epsilon},
            **{"remove_mean": with_mean, "affine": with_mean},
        }
        steps.launch(op, x.dtype, (), arguments)

    def argsort(
        self,
        op: Op,
        x: Memory,
        out: Memory,
        rows: int,
        columns: int,
        steps: Steps,
    ) -> None:
        """The indices that sort each row.

        The kernel fills rows up to a power of two with 10000, which other elements may exceed: rows
        of another length are sorted on the host, and that waits.
        """
        if power_of_two(columns) == columns:
            arguments: Arguments = {
                **{"x": x, "dst": out, "nrows": rows, "ncols": columns, "ncols_pad": columns},
                "inplace": False,
            }
            steps.launch(op, x.dtype, (), arguments)
        else:
            steps.work(partial(_sort, op, rows, columns), x, out)

    def rope(
        self,
        op: Op,
        x: Memory,
        shape: Shape,
        cos: Memory,
        sin: Memory,
        per_batch: bool,
        out: Memory,
        steps: Steps,
    ) -> None:
        """Rotations by position.

        The kernel works in place on (tokens, heads, width) and takes cosines and sines as one
        array's rows, so operands are brought into that order and the result back.
        """
        heads_last = op.name == "rope_thd"
        batch, positions, heads, width = shape if heads_last else (
            shape[0], shape[2], shape[1], shape[3])  # fmt: skip
        rows = positions * (batch if per_batch else 1)
        angles = steps.scratch(rows * width, x.dtype)
        halves = Shape((rows, width // 2))
        self.kv_concat(cos, sin, (halves, halves), 1, angles, steps)
        # The same few for every step of a model: kept with the layouts, as u64.
        indices = Words(tuple(index % rows for index in range(batch * positions)), "i64")
        own = Layout.contiguous(shape)
        tokens = own if heads_last else own.permute((0, 2, 1, 3))
        turned = steps.scratch(own.size, x.dtype)
        self.copy_strided(x, tokens, turned, steps)
        unused = steps.scratch(batch * positions * width, x.dtype)
        self.copy_strided(x, Layout.contiguous(unused.size), unused, steps)
        arguments: Arguments = {
            **{"query": turned, "key": unused, "cos_sin": angles},
            **{"cos_sin_length": rows, "cos_sin_stride": width, "index_positions": indices},
            **{"num_tokens": batch * positions, "q_heads": heads, "k_heads": 1},
            **{"hidden_size": width, "split_dim": width, "gpt_geox": int(op.name != "rope_i")},
        }
        steps.launch(_ROTARY, x.dtype, (), arguments)
        whole = Layout.contiguous((batch, positions, heads, width))
        back = whole if heads_last else whole.permute((0, 2, 1, 3))
        self.copy_strided(turned, back, out, steps)

    def convolution(self, question: Question, steps: Steps) -> None:
        """A convolution; one that exceeds the kernel's memory is refused."""
        op, layout = question.op, question.layout(0)
        if op.name == "conv1d" and question.attribute("dilation") != 1:
            raise NotSupportedError(
                "conv1d: on a GCU with a dilation of 1 only; its kernel spreads the results too",
                backend="tops",
            )
        nbytes = layout.size * question.dtype.itemsize
        if nbytes > _MOST_INPUT_BYTES:
            raise NotSupportedError(
                f"{op.name}: on a GCU of inputs up to {_MOST_INPUT_BYTES} bytes, got {nbytes}",
                backend="tops",
            )
        size = question.layout(1).extent
        if op.name == "conv1d" and size > _MOST_KERNEL_ELEMENTS:
            raise NotSupportedError(
                f"conv1d: on a GCU with kernels up to {_MOST_KERNEL_ELEMENTS} elements, got {size}",
                backend="tops",
            )
        arguments = convolution(question, steps)
        if op.name == "conv1d":
            # In the parameter for the result's length it has the number of axes, which it ignores.
            arguments["num_dims"] = arguments.pop("l_out")
        steps.launch(op, question.dtype, (), arguments)


def _sort(
    op: Op,
    rows: int,
    columns: int,
    at: DeviceExecutor,
    stream: StreamLike | None,
    x: DeviceBuffer,
    out: DeviceBuffer,
) -> None:
    """Sort each row's indices on the host; waits."""
    size = rows * columns
    values = x[:size].to_numpy(stream=stream).reshape(rows, columns)
    if values.dtype.kind not in "iu":
        values = values.astype(np.float64)
    if op.name == "argsort_descending":
        indices = columns - 1 - np.argsort(values[:, ::-1], -1, kind="stable")[:, ::-1]
    else:
        indices = np.argsort(values, -1, kind="stable")
    out[:size].copy_from(indices.astype(np.uint32).reshape(-1), stream=stream)


__all__ = ["GcuRows"]
