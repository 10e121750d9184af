"""How questions are answered: the protocol that each convention of kernels implements.

`candle` is for CUDA, ROCm and the host, `gcu` for GCUs. Callers have checked everything: sizes and
dtypes fit, memory begins at its layout's first element, outputs are contiguous and do not overlap
inputs unless said otherwise, and nothing is empty. A method adds the steps of an operation; other
operations may be made of it. An operation without a kernel raises `NotSupportedError`, or
`ArgumentTypeError` if only the element type has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ubridge.core.block_formats import FORMATS
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from ubridge.core.prepared import Prepared
from ubridge.core.product import MatmulChoice, MatmulKernel
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.sizes import AttentionSizes, BlockSizes, IndexedSizes
from ubridge.prepare.steps import Given, Memory, Steps
from uhal import DeviceLimits, DType
from uhal.errors import NotSupportedError

Sizes = tuple[int, int, int, int]


class Convention(ABC):
    """Prepares the operations of the table for one device. Any thread may use it."""

    def __init__(self, executor: DeviceExecutor) -> None:
        """Made by an executor."""
        self._executor = executor

    @property
    def limits(self) -> DeviceLimits:
        """What the device can hold and launch."""
        return self._executor.device.limits

    def prepare(self, question: Question) -> Prepared:
        """Return what is launched for a question."""
        steps = Steps(question, self._executor)
        self.answer(question, steps)
        return steps.prepared()

    def answer(self, question: Question, steps: Steps) -> None:
        """Add the steps of an operation of the table."""
        op, out = question.op, steps.result
        given = steps.operands
        layouts = [layout for _, layout in question.operands]
        shapes = [layout.shape for layout in layouts]
        match op.family.name:
            case "unary":
                self.unary(op, given[0], layouts[0], out, None, steps)
            case "unary_scalar":
                self.unary(op, given[0], layouts[0], out, steps.number(), steps)
            case "affine":
                factors = steps.number(0), steps.number(1)
                self.affine(given[0], layouts[0], out, *factors, steps)
            case "binary" | "compare":
                self.binary(op, given[0], layouts[0], given[1], layouts[1], out, steps)
            case "cast":
                self.cast(given[0], layouts[0], out, steps)
            case "where":
                condition, x, y = given
                self.where((condition, x, y), (layouts[0], layouts[1], layouts[2]), out, steps)
            case "masked_fill":
                x, mask = given
                self.masked_fill(mask, layouts[1], x, layouts[0], steps.number(), out, steps)
            case "gated":
                self.gated(op, given[0], given[1], out.size, out, steps)
            case "fill":
                self.fill(out, question.result[1], steps.number(), steps)
            case "copy2d":
                rows, columns = question.shape
                pitches = layouts[0].strides[0], question.result[1].strides[0]
                self.copy2d(given[0], out, rows, columns, *pitches, steps)
            case "index_select" | "gather":
                left, length, right = shapes[0]
                count = shapes[1][-1] if op.name == "index_select" else shapes[1][1]
                take = self.index_select if op.name == "index_select" else self.gather
                take(given[0], given[1], (left, length, count, right), out, steps)
            case "scatter":
                left, count, right = shapes[1]
                sizes = (left, count, question.shape[1], right)
                self.scatter(op, given[0], given[1], out, sizes, steps)
            case "index_add":
                left, count, right = shapes[1]
                self.index_add(
                    given[0], given[1], out, (left, count, question.shape[1], right), steps
                )
            case "reduce" | "arg_reduce":
                results = question.shape.size
                elements = layouts[0].size // results
                self.reduce(op, given[0], layouts[0], results, elements, out, steps)
            case "softmax":
                rows, columns = shapes[0]
                self.softmax(given[0], out, rows, columns, steps)
            case "log_softmax":
                rows, columns = shapes[0]
                compensated = question.attribute("compensated")
                self.log_softmax(given[0], out, rows, columns, compensated, steps)
            case "rmsnorm" | "layernorm":
                rows, columns = shapes[0]
                bias = given[2] if len(given) > 2 else None
                self.norm(op, given[0], given[1], bias, out, rows, columns, steps.number(), steps)
            case "sort":
                rows, columns = shapes[0]
                self.argsort(op, given[0], out, rows, columns, steps)
            case "rope" | "rope_i" | "rope_thd":
                self.rope(op, given[0], shapes[0], given[1], given[2], len(shapes[1]) == 3, out,
                          steps)  # fmt: skip
            case "matmul":
                self.matmul(given[0], layouts[0], given[1], layouts[1], out, steps)
            case "quantized_matvec":
                (vectors, columns), rows = shapes[1], question.shape[-1]
                blocks = BlockSizes(vectors, rows, columns)
                self.quantized_matvec(op, given[0], given[1], out, blocks, steps)
            case "activations":
                self.activations(op, given[0], shapes[0], out, steps)
            case "quantized_product":
                (vectors, rows), columns = question.shape, question.attribute("columns")
                blocks = BlockSizes(vectors, rows, columns)
                self.quantized_product(op, given[0], given[1], out, blocks, steps)
            case "indexed_product":
                self._indexed_product(question, steps)
            case "block_elements":
                self.block_elements(op, given[0], out, steps)
            case "attention":
                self._attention(question, steps)
            case "kv_concat":
                axis = question.attribute("axis")
                self.kv_concat(given[0], given[1], (shapes[0], shapes[1]), axis, out, steps)
            case "kv_append":
                rows, tokens, width = shapes[0]
                sizes = (rows, tokens, question.shape[1], width)
                self.kv_append(given[0], out, given[1], sizes, steps)
            case "rope_at":
                self.rope_at(given, question, steps)
            case "cached_attention":
                self.cached_attention(given, question, steps)
            case _:
                self.others(question, steps)

    def _indexed_product(self, question: Question, steps: Steps) -> None:
        tokens, used, rows = question.shape
        columns = question.attribute("columns")
        size = question.layout(0).size * question.dtype.itemsize
        each = rows * FORMATS[question.op.name.partition("_")[2]].row_bytes(columns)
        vectors = question.layout(1).shape[0]
        sizes = IndexedSizes(size // each, rows, columns, tokens, used, vectors)
        weights, x, ids = steps.operands
        self.indexed_product(question.op, weights, x, ids, steps.result, sizes, steps)

    def _attention(self, question: Question, steps: Steps) -> None:
        query, key, value, *masks = steps.operands
        batch, heads, queries, width = question.layout(0).shape
        _, kv_heads, keys, _ = question.layout(1).shape
        strides = question.layout(3).strides[:2] if masks else (0, 0)
        sizes = AttentionSizes(heads, kv_heads, queries, keys, width, *strides)
        mask = masks[0] if masks else None
        causal = question.attribute("causal")
        self.attention(
            query, key, value, mask, steps.result, sizes, steps.number(), causal, batch, steps
        )

    def others(self, question: Question, steps: Steps) -> None:
        """Add the steps of an operation on windows, or of one that few backends have."""
        op = question.op
        backend = self._executor.device.backend
        raise NotSupportedError(
            f"{op.name}: the {backend} backend has no such kernel", backend=backend
        )

    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """Return the kernels products may go to, in order; none where there is no choice."""
        return ()

    def close(self) -> None:
        """Give back what it holds besides memory. The device is still there."""

    # -- element by element ----------------------------------------------------------------------

    @abstractmethod
    def unary(
        self, op: Op, x: Memory, layout: Layout, out: Memory, parameter: Given, steps: Steps
    ) -> None:
        """An operation on one operand, with its parameter if it has one."""

    @abstractmethod
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
        """An operation on two operands of one shape."""

    @abstractmethod
    def where(
        self,
        operands: tuple[Memory, Memory, Memory],
        layouts: tuple[Layout, Layout, Layout],
        out: Memory,
        steps: Steps,
    ) -> None:
        """A choice by (condition, x, y), which have one shape."""

    @abstractmethod
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
        """`value` where the mask of u8 is not 0, else `x`, of one shape."""

    @abstractmethod
    def gated(self, op: Op, gate: Memory, up: Memory, size: int, out: Memory, steps: Steps) -> None:
        """An activation of `gate` times `up`, both contiguous."""

    @abstractmethod
    def affine(
        self,
        x: Memory,
        layout: Layout,
        out: Memory,
        multiplier: Given,
        addend: Given,
        steps: Steps,
    ) -> None:
        """`x * multiplier + addend`."""

    @abstractmethod
    def cast(self, x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
        """A conversion to the dtype of `out`."""

    @abstractmethod
    def fill(self, x: Memory, layout: Layout, value: Given, steps: Steps) -> None:
        """Setting every element of a layout."""

    @abstractmethod
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
        """A copy of rows; a pitch is from one row to the next, in elements."""

    # -- by ids ----------------------------------------------------------------------------------

    @abstractmethod
    def index_select(self, x: Memory, ids: Memory, sizes: Sizes, out: Memory, steps: Steps) -> None:
        """A choice of slices; sizes are (left, length, ids, right)."""

    @abstractmethod
    def gather(self, x: Memory, ids: Memory, sizes: Sizes, out: Memory, steps: Steps) -> None:
        """A choice of elements; sizes are (left, length, ids along the axis, right)."""

    @abstractmethod
    def scatter(
        self, op: Op, ids: Memory, source: Memory, target: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        """Writes at ids; sizes are (left, source's length, target's, right)."""

    @abstractmethod
    def index_add(
        self, ids: Memory, source: Memory, target: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        """Sums at ids; sizes are (left, ids, target's length, right)."""

    # -- along axes ------------------------------------------------------------------------------

    @abstractmethod
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
        """A reduction; `ordered` has the axes that stay first."""

    @abstractmethod
    def softmax(self, x: Memory, out: Memory, rows: int, columns: int, steps: Steps) -> None:
        """A softmax of each contiguous row."""

    @abstractmethod
    def log_softmax(
        self, x: Memory, out: Memory, rows: int, columns: int, compensated: bool, steps: Steps
    ) -> None:
        """A log-softmax of each contiguous row; `compensated` sums keep what they lose."""

    @abstractmethod
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
        """A norm of each contiguous row."""

    @abstractmethod
    def argsort(
        self, op: Op, x: Memory, out: Memory, rows: int, columns: int, steps: Steps
    ) -> None:
        """The indices that sort each contiguous row."""

    @abstractmethod
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
        """Rotations by position."""

    # -- products --------------------------------------------------------------------------------

    @abstractmethod
    def matmul(
        self, a: Memory, left: Layout, b: Memory, right: Layout, out: Memory, steps: Steps
    ) -> None:
        """Products of matrices; the layouts have one batch, and begin with a and b."""

    @abstractmethod
    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        """Say which kernel takes products of matrices; the layouts have one batch."""

    @abstractmethod
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

    def activations(self, op: Op, x: Memory, shape: Shape, out: Memory, steps: Steps) -> None:
        """Vectors of 8 bits, as this device's products with weights of blocks take them."""
        self.others(steps.question, steps)

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
        self.others(steps.question, steps)

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
        self.others(steps.question, steps)

    @abstractmethod
    def block_elements(self, op: Op, weight: Memory, out: Memory, steps: Steps) -> None:
        """The elements of a weight of blocks, as many as the result has."""

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
    def kv_append(
        self, source: Memory, target: Memory, position: Memory, sizes: Sizes, steps: Steps
    ) -> None:
        """A write at a position; sizes are (rows, tokens, target's length, width)."""

    @abstractmethod
    def rope_at(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Rotations of (x, cos, sin, position), the position read by the device."""

    @abstractmethod
    def cached_attention(self, given: Sequence[Memory], question: Question, steps: Steps) -> None:
        """Attention of (query, keys, values, position, perhaps bias) over the keys there are."""


__all__ = ["Convention", "Sizes"]
