"""Launches of Candle's kernels along axes: reductions, softmax, norms, sorting, rotations."""

from __future__ import annotations

from math import prod

from ubridge.core.columns import norm_threads, power_of_two
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Words
from ubridge.prepare.convention import Convention
from ubridge.prepare.steps import Arguments, Given, Memory, Steps
from uhal.dtypes import u32

_LOG_SOFTMAX = OPS["log_softmax"]
_MERGED = 8
"""Elements of a sorted row that a work-item of a GPU joins."""
_SOFTMAX = OPS["softmax"]


class CandleRows(Convention):
    """The part of Candle's calling convention for operations along axes."""

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
        arguments: Arguments = {
            "src_numel": ordered.size,
            "el_per_block": elements,
            "num_dims": ordered.rank,
            # Never null: the kernels read it even where everything is contiguous.
            "info": Words(ordered.words),
            "src": x,
            "dst": out,
        }
        steps.launch(op, x.dtype, (results, elements, ordered.is_contiguous), arguments)

    def softmax(self, x: Memory, out: Memory, rows: int, columns: int, steps: Steps) -> None:
        arguments: Arguments = {"src": x, "dst": out, "n_cols": columns}
        steps.launch(_SOFTMAX, x.dtype, (rows,), arguments)

    def log_softmax(
        self, x: Memory, out: Memory, rows: int, columns: int, compensated: bool, steps: Steps
    ) -> None:
        """The log-softmax of each row, by a block each."""
        arguments: Arguments = {
            "src": x,
            "dst": out,
            "n_cols": columns,
            "compensated": int(compensated),
        }
        steps.launch(_LOG_SOFTMAX, x.dtype, (rows, columns), arguments)

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
        threads = norm_threads(columns)
        arguments: Arguments = {
            **{"src": x, "dst": out, "alpha": weight, "n_cols": columns},
            **{"block_size": threads, "eps": epsilon},
        }
        if bias is not None:
            arguments["beta"] = bias
        steps.launch(op, x.dtype, (rows, threads), arguments)

    def argsort(
        self, op: Op, x: Memory, out: Memory, rows: int, columns: int, steps: Steps
    ) -> None:
        padded = power_of_two(columns)
        fitting = self._executor.device.limits.max_shared_bytes_per_block // u32.itemsize
        if padded <= fitting:
            arguments: Arguments = {"x": x, "dst": out, "ncols": columns, "ncols_pad": padded}
            steps.launch(op, x.dtype, (rows, padded), arguments)
        else:
            self._argsort_long(op, x, out, rows, columns, power_of_two(fitting // 2 + 1), steps)

    def _argsort_long(
        self, op: Op, x: Memory, out: Memory, rows: int, columns: int, run: int, steps: Steps
    ) -> None:
        """Sort runs, each by a block, then merge pairs of runs until each row is one run."""
        runs = -(-columns // run)
        given: Arguments = {"x": x, "ncols": columns, "run": run}
        last, other = out, steps.scratch(rows * columns, out.dtype)
        if (runs - 1).bit_length() % 2:
            # The last merge must write the result.
            last, other = other, last
        by_runs, by_pairs = OPS[f"{op.name}_runs"], OPS[f"{op.name}_merge"]
        steps.launch(by_runs, x.dtype, (rows * runs, run), {**given, "dst": last})
        work = rows * -(-columns // _MERGED)
        while run < columns:
            arguments: Arguments = {**given, "src": last, "dst": other, "rows": rows, "run": run}
            steps.launch(by_pairs, x.dtype, (work,), arguments)
            last, other, run = other, last, 2 * run

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
        batch, second, third, width = shape
        of_batch = second * third * width if per_batch else 0
        sizes: dict[str, Given]
        if op.name == "rope_thd":
            sizes = {"b": batch, "t": second, "h": third, "d": width}
        elif op.name == "rope_i":
            sizes = {"bh": batch * second, "td": third * width}
        else:
            sizes = {"bh": batch * second, "td": third * width, "d": width}
        arguments: Arguments = {
            "src": x,
            "cos": cos,
            "sin": sin,
            "dst": out,
            **sizes,
            "stride_b": of_batch,
        }
        steps.launch(op, x.dtype, (prod(shape) // 2,), arguments)


__all__ = ["CandleRows"]
