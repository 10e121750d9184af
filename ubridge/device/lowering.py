"""How operations become launches: the protocol that each kind of kernels implements.

`candle_lowering` is for CUDA, ROCm and the host, `gcu_lowering` for GCUs. Everything was checked
before a method is called: sizes and dtypes fit, buffers begin at their layout's first element,
outputs are contiguous and apart from the inputs unless said otherwise, and nothing is empty. A
method enqueues into `stream`, the device's default one for `None`; where one waits it says so. What
a backend has no kernel for raises `NotSupportedError` or, for element types, `ArgumentTypeError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from ubridge.core.product import MatmulChoice, MatmulKernel
from uhal import DeviceBuffer, DType
from uhal.interop import StreamLike

Sizes = tuple[int, int, int, int]


class Lowering(ABC):
    """What enqueues the operations of the table on one device. Any thread may use it."""

    is_planned: ClassVar[bool] = False
    """Whether `Plans` knows how the kernels are called."""
    beyond_launches: ClassVar[frozenset[str]] = frozenset()
    """Methods that do more than launch kernels: they copy by the runtime, or compute on the host.

    A graph with such an operation runs, but cannot be captured.
    """

    @abstractmethod
    def __init__(self, executor: Any) -> None:
        """Made by an executor."""

    def for_graphs(self, executor: Any) -> Lowering:
        """Return one of its kind that enqueues nothing but launches of uhal's own kernels.

        A plan knows only those: it could not find its slots among the launches of a library.
        """
        return type(self)(executor)

    def close(self) -> None:
        """Give back what it holds besides memory. The device is still there."""

    # -- element by element ----------------------------------------------------------------------

    @abstractmethod
    def unary(
        self,
        op: Op,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        parameter: float | None,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue an operation on one operand, with its parameter if it has one."""

    @abstractmethod
    def binary(
        self,
        op: Op,
        x: DeviceBuffer,
        x_layout: Layout,
        y: DeviceBuffer,
        y_layout: Layout,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue an operation on two operands of one shape."""

    @abstractmethod
    def where(
        self,
        operands: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
        layouts: tuple[Layout, Layout, Layout],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a choice by (condition, x, y), which have one shape."""

    @abstractmethod
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
        """Enqueue `value` where the mask of u8 is not 0, else `x`, of one shape."""

    @abstractmethod
    def gated(
        self,
        op: Op,
        gate: DeviceBuffer,
        up: DeviceBuffer,
        size: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue an activation of `gate` times `up`, both contiguous."""

    @abstractmethod
    def affine(
        self,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        multiplier: float,
        addend: float,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue `x * multiplier + addend`."""

    @abstractmethod
    def cast(
        self,
        x: DeviceBuffer,
        layout: Layout,
        dtype: DType,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a conversion to `dtype`."""

    @abstractmethod
    def fill(
        self, x: DeviceBuffer, layout: Layout, value: float, stream: StreamLike | None
    ) -> None:
        """Enqueue setting every element of a layout."""

    @abstractmethod
    def copy2d(
        self,
        source: DeviceBuffer,
        destination: DeviceBuffer,
        rows: int,
        columns: int,
        source_pitch: int,
        destination_pitch: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a copy of rows; a pitch is from one row to the next, in elements."""

    # -- by ids ----------------------------------------------------------------------------------

    @abstractmethod
    def index_select(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: Sizes,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a choice of slices; sizes are (left, length, ids, right)."""

    @abstractmethod
    def gather(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: Sizes,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a choice of elements; sizes are (left, length, ids along the axis, right)."""

    @abstractmethod
    def scatter(
        self,
        op: Op,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: Sizes,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue writes at ids; sizes are (left, source's length, target's, right)."""

    @abstractmethod
    def index_add(
        self,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: Sizes,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue sums at ids; sizes are (left, ids, target's length, right)."""

    # -- along axes ------------------------------------------------------------------------------

    @abstractmethod
    def reduce(
        self,
        op: Op,
        x: DeviceBuffer,
        ordered: Layout,
        results: int,
        elements: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a reduction; `ordered` has the axes that stay first."""

    @abstractmethod
    def softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a softmax of each contiguous row."""

    @abstractmethod
    def log_softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        compensated: bool,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a log-softmax of each contiguous row; `compensated` sums keep what they lose."""

    @abstractmethod
    def norm(
        self,
        op: Op,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        bias: DeviceBuffer | None,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        epsilon: float,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a norm of each contiguous row."""

    @abstractmethod
    def argsort(
        self,
        op: Op,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a sort of each contiguous row's places."""

    @abstractmethod
    def rope(
        self,
        op: Op,
        x: DeviceBuffer,
        shape: Shape,
        cos: DeviceBuffer,
        sin: DeviceBuffer,
        per_batch: bool,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue rotations by position."""

    @abstractmethod
    def windows(
        self, op: Op, arguments: tuple[Any, ...], threads: int, stream: StreamLike | None
    ) -> None:
        """Enqueue a convolution, pooling or resizing; the arguments end with `x, …, out`."""

    # -- products --------------------------------------------------------------------------------

    @abstractmethod
    def matmul(
        self,
        a: DeviceBuffer,
        left: Layout,
        b: DeviceBuffer,
        right: Layout,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue products of matrices; the layouts have one batch, and begin with a and b."""

    @abstractmethod
    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        """Say which kernel takes products of matrices; the layouts have one batch."""

    def matmul_planned(
        self, dtype: DType, left: Layout, right: Layout
    ) -> Callable[..., DeviceBuffer] | None:
        """Return what enqueues such products in one launch, as `Plan.launch`; `None` if nothing."""
        return None

    def matmul_launches(self) -> Mapping[str, int]:
        """Return how many products each kernel took, by name; none where there is no choice."""
        return {}

    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """Return the kernels products may go to, in order; none where there is no choice."""
        return ()

    @abstractmethod
    def quantized_matvec(
        self,
        op: Op,
        weight: DeviceBuffer,
        x: DeviceBuffer,
        out: DeviceBuffer,
        sizes: tuple[int, int, int],
        stream: StreamLike | None,
    ) -> None:
        """Enqueue products of a weight of blocks; sizes are (vectors, rows, columns)."""

    @abstractmethod
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
        """Enqueue attention over contiguous queries, keys and values.

        Sizes are heads, kv heads, queries, keys, width, and the mask's strides of batch and head;
        its rows are contiguous.
        """

    @abstractmethod
    def kv_concat(
        self,
        x: DeviceBuffer,
        y: DeviceBuffer,
        shapes: tuple[Shape, Shape],
        axis: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a join of two contiguous tensors."""

    @abstractmethod
    def kv_append(
        self,
        source: DeviceBuffer,
        target: DeviceBuffer,
        position: DeviceBuffer,
        sizes: Sizes,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a write at a place; sizes are (rows, tokens, target's length, width)."""


__all__ = ["Lowering", "Sizes"]
