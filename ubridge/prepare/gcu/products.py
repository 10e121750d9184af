"""Products on GCUs: tiles chosen by the gemm tuner, weights of 4 and 8 bits, joins of caches."""

from __future__ import annotations

from math import prod

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.product import MatmulChoice
from ubridge.device.executor import DeviceExecutor
from ubridge.device.lowering import Sizes
from ubridge.prepare.gcu.copies import GcuCopies
from ubridge.prepare.gcu.gemm_tuner import AtenGemmInfo, AtenGemmTuner, DataType
from ubridge.prepare.gcu.indexing import require_ids
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentValueError, NotSupportedError
from uhal.interop import StreamLike

_KV_APPEND = OPS["kv_append"]
_KV_CONCAT = OPS["kv_concat"]
_CACHE = OPS["reshape_and_cache"]
_TILED_MATMUL = OPS["tiled_matmul"]
_CODES = {"f32": DataType.F32, "f16": DataType.F16, "bf16": DataType.BF16}
_LEAST_TILE = {"sip_m": 1, "sip_k": 32, "sip_n": 64}
"""The tuner gives 0 for products too wide for its memory, by which the kernels divide."""


class GcuProducts(GcuCopies):
    """The part of the GCU's launches that multiplies."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        self._tuner = AtenGemmTuner()

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
        batch, m, k, n = prod(left.shape[:-2]), *left.shape[-2:], right.shape[-1]
        one_weight = batch > 1 and not any(
            stride
            for stride, length in zip(right.strides[:-2], right.shape[:-2], strict=True)
            if length > 1
        )
        if one_weight:
            right = Layout(right.shape[-2:], right.strides[-2:])
        turned = right.transpose()
        # A weight that lies transposed is taken so; anything else is copied.
        transposed = turned.is_contiguous and not right.is_contiguous
        weight = self.whole(b, turned if transposed else right, stream)
        code = _CODES.get(a.dtype.name, DataType.F32)
        product = _product(self._tuner, code, code, (batch, m, k, n), transposed, one_weight)
        kernel = self._executor.kernel(_TILED_MATMUL, a.dtype)
        kernel.launch((self.whole(a, left, stream), weight, out, *product), stream)

    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        return MatmulChoice("tiled_matmul", "GCUs have one, with tiles by the gemm tuner")

    def quantized_matvec(
        self,
        op: Op,
        weight: DeviceBuffer,
        x: DeviceBuffer,
        out: DeviceBuffer,
        sizes: tuple[int, int, int],
        stream: StreamLike | None,
    ) -> None:
        """Refuse: GCUs take weights of another layout."""
        raise NotSupportedError(
            f"{op.name}: the tops backend has no such kernel; gcu_launches.launch_quantized_matmul "
            "takes weights of GCUs' own layout",
            backend="tops",
        )

    def quantized_matmul(
        self,
        op: Op,
        a: DeviceBuffer,
        weight: DeviceBuffer,
        out: DeviceBuffer,
        scales: DeviceBuffer,
        zeros: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        transposed: bool,
        group: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a product with a quantized weight; sizes are (batch, m, k, n)."""
        quantized = DataType.I4 if op.name == "matmul_4bit" else DataType.I8
        code = _CODES.get(a.dtype.name, DataType.F32)
        product = _product(self._tuner, code, quantized, sizes, transposed, sizes[0] > 1)
        kernel = self._executor.kernel(op, a.dtype)
        kernel.launch((a, weight, out, scales, zeros, *product, group), stream)

    def kv_concat(
        self,
        x: DeviceBuffer,
        y: DeviceBuffer,
        shapes: tuple[Shape, Shape],
        axis: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a join of two contiguous tensors.

        The kernel joins the third of four axes, or the first; any join is one of these.
        """
        rows = prod(shapes[0][:axis])
        left, right = (prod(shape[axis:]) for shape in shapes)
        # All axes before are its second, the joined one with all behind it the fourth.
        info = self._executor.layouts.get((1, rows, 1, left, 1, rows, 1, right))
        arguments = (x, y, out, info, 4, 2, rows, left, right)
        self._executor.kernel(_KV_CONCAT, x.dtype).launch(arguments, stream)

    def kv_append(
        self,
        source: DeviceBuffer,
        target: DeviceBuffer,
        position: DeviceBuffer,
        sizes: Sizes,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a write of one token at a place; sizes are (rows, 1, target's length, width).

        The kernel puts keys and values into their caches at once, so both are the same here.
        """
        rows, tokens, capacity, width = sizes
        if tokens != 1:
            raise NotSupportedError(
                f"kv_append: on a GCU of one token at a time, got {tokens}", backend="tops"
            )
        require_ids(_KV_APPEND, self._executor, position, 1, capacity, stream)
        arguments = (source, source, target, target, position, 1, rows, width, 1, capacity, 1)
        of_token = rows * width
        kernel = self._executor.kernel(_CACHE, target.dtype)
        kernel.launch((*arguments, of_token, of_token), stream)


def _product(
    tuner: AtenGemmTuner,
    code: DataType,
    weight: DataType,
    sizes: tuple[int, int, int, int],
    transposed: bool,
    one_weight: bool,
) -> tuple[int | float, ...]:
    """What the kernels take of a product, from its type to whether all share a weight."""
    batch, m, k, n = sizes
    if min(sizes) < 1:
        raise ArgumentValueError(f"matmul: expected sizes of at least 1, got {sizes}")
    info = AtenGemmInfo.of(code, weight, batch, m, k, n, transposed)
    tuned = tuner.tuner(info)
    tiles = (
        max(tuned.sip_m, _LEAST_TILE["sip_m"]),
        max(tuned.sip_k, _LEAST_TILE["sip_k"]),
        max(tuned.sip_n, _LEAST_TILE["sip_n"]),
    )
    split = (tuned.lhs_multicore, tuned.rhs_multicore, tuned.batch_multicore)
    # alpha, beta and addmm_beta are not applied by any of the kernels.
    return (
        *(int(code), batch, m, k, n, *split, 0, int(transposed), 1.0, 0.0, 0.0),
        *(*tiles, int(one_weight)),
    )
