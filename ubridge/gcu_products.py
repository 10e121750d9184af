"""Products on GCUs: tiles chosen by the gemm tuner, weights of 4 and 8 bits, joins of caches."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ubridge.gcu_copies import GcuCopies
from ubridge.gemm_tuner import AtenGemmInfo, AtenGemmTuner, DataType
from ubridge.layout import Layout, Shape
from ubridge.op_table import OPS, Op
from uhal import DeviceBuffer
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor

_KV_CONCAT = OPS["kv_concat"]
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
