"""Launches in Candle's calling convention: CUDA, ROCm and the host.

Kernels take strides: an array of lengths and strides, or null where everything is contiguous.
"""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.device.slice_ptr import joined_words
from ubridge.prepare.candle_products import CandleProducts
from ubridge.prepare.candle_rows import CandleRows
from ubridge.prepare.candle_windows import windows
from ubridge.prepare.convention import Sizes
from ubridge.prepare.steps import Arguments, Given, Memory, Steps

_AFFINE = OPS["affine"]
_ASTYPE = OPS["astype"]
_COPY2D = OPS["copy2d"]
_FILL = OPS["fill"]
_GATHER = OPS["gather"]
_INDEX_ADD = OPS["index_add"]
_INDEX_SELECT = OPS["index_select"]
_MASKED_FILL = OPS["masked_fill"]
_WHERE = OPS["where"]


class CandleConvention(CandleRows, CandleProducts):
    """How operations become launches of Candle's kernels on one device."""

    def others(self, question: Question, steps: Steps) -> None:
        """Add the launch of an operation on windows, or of one that makes random numbers."""
        if question.op.family.name == "random":
            self.random(question.op, steps.result, steps.number(0), steps.number(1), steps)
        elif not windows(question, steps):
            super().others(question, steps)

    def random(self, op: Op, out: Memory, seed: Given, position: Given, steps: Steps) -> None:
        """Numbers of a generator's counters from a position on; a counter makes two or four."""
        arguments: Arguments = {"numel": out.size, "seed": seed, "position": position, "out": out}
        steps.launch(op, out.dtype, (-(-out.size // 2),), arguments)

    def unary(
        self, op: Op, x: Memory, layout: Layout, out: Memory, parameter: Given, steps: Steps
    ) -> None:
        arguments: Arguments = {**_walk(layout), "inp": x, "out": out}
        if parameter is not None:
            arguments["param"] = parameter
        steps.launch(op, x.dtype, (layout.size,), arguments)

    def binary(
        self,
        op: Op,
        x: Memory,
        x_layout: Layout,
        y: Memory,
        y_layout: Layout,
        out: Memory,
        steps: Steps,
    ) -> None:
        walk = _walk(x_layout, y_layout)
        arguments: Arguments = {
            "numel": walk["numel"],
            "num_dims": walk["num_dims"],
            "dims_and_strides": walk["info"],
            "lhs": x,
            "rhs": y,
            "out": out,
        }
        steps.launch(op, x.dtype, (x_layout.size,), arguments)

    def where(
        self,
        operands: tuple[Memory, Memory, Memory],
        layouts: tuple[Layout, Layout, Layout],
        out: Memory,
        steps: Steps,
    ) -> None:
        condition, x, y = operands
        size = layouts[0].size
        # The kernels read it even where everything is contiguous.
        arguments: Arguments = {
            "numel": size,
            "num_dims": layouts[0].rank,
            "info": Words(joined_words(*layouts)),
            "ids": condition,
            "t": x,
            "f": y,
            "out": out,
        }
        steps.launch(_WHERE, x.dtype, (size,), arguments, condition.dtype)

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
        arguments: Arguments = {
            **_walk(mask_layout, x_layout), "mask": mask, "inp": x, "value": value, "out": out
        }  # fmt: skip
        steps.launch(_MASKED_FILL, x.dtype, (x_layout.size,), arguments)

    def gated(self, op: Op, gate: Memory, up: Memory, size: int, out: Memory, steps: Steps) -> None:
        arguments: Arguments = {"numel": size, "gate": gate, "up": up, "out": out}
        steps.launch(op, gate.dtype, (size,), arguments)

    def affine(
        self,
        x: Memory,
        layout: Layout,
        out: Memory,
        multiplier: Given,
        addend: Given,
        steps: Steps,
    ) -> None:
        arguments: Arguments = {
            **_walk(layout),
            "inp": x,
            "out": out,
            "mul": multiplier,
            "add": addend,
        }
        steps.launch(_AFFINE, x.dtype, (layout.size,), arguments)

    def cast(self, x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
        arguments: Arguments = {**_walk(layout), "inp": x, "out": out}
        steps.launch(_ASTYPE, x.dtype, (layout.size,), arguments, out.dtype)

    def fill(self, x: Memory, layout: Layout, value: Given, steps: Steps) -> None:
        arguments: Arguments = {**_walk(layout), "value": value, "out": x}
        steps.launch(_FILL, x.dtype, (layout.size,), arguments)

    def copy2d(
        self,
        source: Memory,
        destination: Memory,
        rows: int,
        columns: int,
        source_pitch: int,
        destination_pitch: int,
        steps: Steps,
    ) -> None:
        arguments: Arguments = {
            "src": source,
            "dst": destination,
            "d1": rows,
            "d2": columns,
            "src_s": source_pitch,
            "dst_s": destination_pitch,
        }
        steps.launch(_COPY2D, source.dtype, (rows * columns,), arguments)

    def index_select(self, x: Memory, ids: Memory, sizes: Sizes, out: Memory, steps: Steps) -> None:
        left, length, count, right = sizes
        size = left * count * right
        # The layout the kernel asks for is that of the ids, which are contiguous. Candle's reads as
        # many dimensions as it is told of, from null too.
        arguments: Arguments = {
            **{"numel": size, "num_dims": 0, "info": None, "ids": ids, "inp": x, "out": out},
            **{"left": left, "src_dim": length},
            **{"ids_dim": count, "right": right},
        }
        steps.launch(_INDEX_SELECT, x.dtype, (size,), arguments, ids.dtype)

    def gather(self, x: Memory, ids: Memory, sizes: Sizes, out: Memory, steps: Steps) -> None:
        left, length, count, right = sizes
        size = left * count * right
        arguments: Arguments = {
            **{"numel": size, "ids": ids, "inp": x, "out": out},
            **{"left": left, "src_dim": length},
            **{"ids_dim": count, "right": right},
        }
        steps.launch(_GATHER, x.dtype, (size,), arguments, ids.dtype)

    def scatter(
        self, op: Op, ids: Memory, source: Memory, target: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        left, source_length, length, right = sizes
        arguments: Arguments = {
            **{"ids": ids, "inp": source, "out": target},
            **{"left": left, "src_dim": source_length},
            **{"dst_dim": length, "right": right},
        }
        steps.launch(op, target.dtype, (left * right,), arguments, ids.dtype)

    def index_add(
        self, ids: Memory, source: Memory, target: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        left, count, length, right = sizes
        arguments: Arguments = {
            **{"ids": ids, "ids_dim": count, "inp": source, "out": target},
            **{"left": left, "src_dim": count},
            **{"dst_dim": length, "right": right},
        }
        steps.launch(_INDEX_ADD, target.dtype, (left * right,), arguments, ids.dtype)


def _walk(first: Layout, *others: Layout) -> dict[str, Given]:
    """The kernels' arguments for layouts of one shape: null where all are contiguous."""
    plain = first.is_contiguous and all(one.is_contiguous for one in others)
    info = None if plain else Words(joined_words(first, *others))
    return {"numel": first.size, "num_dims": first.rank, "info": info}


__all__ = ["CandleConvention"]
