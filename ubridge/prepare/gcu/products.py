"""Products on GCUs: tiles chosen by the gemm tuner, weights of 4 and 8 bits, joins of caches."""

from __future__ import annotations

from math import prod

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Words
from ubridge.core.product import MatmulChoice
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.convention import Sizes
from ubridge.prepare.gcu.copies import GcuCopies
from ubridge.prepare.gcu.gemm_tuner import AtenGemmInfo, AtenGemmTuner, DataType
from ubridge.prepare.gcu.indexing import require_ids
from ubridge.prepare.sizes import BlockSizes
from ubridge.prepare.steps import Arguments, Given, Memory, Steps
from uhal import DType
from uhal.errors import ArgumentValueError, NotSupportedError

_KV_APPEND = OPS["kv_append"]
_KV_CONCAT = OPS["kv_concat"]
_CACHE = OPS["reshape_and_cache"]
_TILED_MATMUL = OPS["tiled_matmul"]
_CODES = {"f32": DataType.F32, "f16": DataType.F16, "bf16": DataType.BF16}
_LEAST_TILE = {"sip_m": 1, "sip_k": 32, "sip_n": 64}
"""For products too wide for its memory the tuner gives 0, by which the kernels would divide."""


class GcuProducts(GcuCopies):
    """The part of the GCU's convention for products."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        self._tuner = AtenGemmTuner()

    def matmul(
        self,
        a: Memory,
        left: Layout,
        b: Memory,
        right: Layout,
        out: Memory,
        steps: Steps,
    ) -> None:
        """Products of matrices; the layouts have one batch, and begin with a and b."""
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
        weight = self.whole(b, turned if transposed else right, steps)
        code = _CODES.get(a.dtype.name, DataType.F32)
        product = _product(self._tuner, code, code, (batch, m, k, n), transposed, one_weight)
        arguments: Arguments = {
            **{"in_a": self.whole(a, left, steps), "in_b": weight, "out": out},
            **product,
        }
        steps.launch(_TILED_MATMUL, a.dtype, (), arguments)

    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        return MatmulChoice("tiled_matmul", "GCUs have one, with tiles by the gemm tuner")

    def quantized_matvec(
        self,
        op: Op,
        weight: Memory,
        x: Memory,
        out: Memory,
        sizes: BlockSizes,
        steps: Steps,
    ) -> None:
        """Refuse: GCUs take weights of another layout."""
        raise NotSupportedError(
            f"{op.name}: the tops backend has no such kernel; gcu_launches.launch_quantized_matmul "
            "takes weights of GCUs' own layout",
            backend="tops",
        )

    def block_elements(self, op: Op, weight: Memory, out: Memory, steps: Steps) -> None:
        """Refuse: GCUs take weights of another layout."""
        raise NotSupportedError(f"{op.name}: the tops backend has no such kernel", backend="tops")

    def quantized_matmul(self, question: Question, steps: Steps) -> None:
        """A product with a quantized weight: operands are x, weight, scales, zeros."""
        op = question.op
        (m, k), n = question.layout(0).shape, question.shape[-1]
        quantized = DataType.I4 if op.name == "matmul_4bit" else DataType.I8
        code = _CODES.get(question.dtype.name, DataType.F32)
        transposed = question.attribute("transposed")
        product = _product(self._tuner, code, quantized, (1, m, k, n), transposed, False)
        a, weight, scales, zeros = steps.operands
        arguments: Arguments = {
            **{"in_a": a, "in_b": weight, "out": steps.result, "scales": scales, "zeros": zeros},
            **product,
            "group_size": question.attribute("group"),
        }
        steps.launch(op, a.dtype, (), arguments)

    def of_gcus(self, question: Question, steps: Steps) -> None:
        """Add the launch of a kernel that only GCUs have: its attributes are its parameters.

        `memory` and `numbers` name those that are passed, in their order, the result last.
        """
        given = dict(question.attributes)
        memory = zip(given.pop("memory"), (*steps.operands, steps.result), strict=True)
        numbers = {name: steps.number(i) for i, name in enumerate(given.pop("numbers"))}
        arguments: Arguments = {**dict(memory), **numbers, **given}
        # Blocks have no element type: the kernel is named after what they become.
        is_result = question.op.family.name == "dequantize"
        dtype = steps.result.dtype if is_result else question.dtype
        steps.launch(question.op, dtype, (), arguments)

    def kv_concat(
        self,
        x: Memory,
        y: Memory,
        shapes: tuple[Shape, Shape],
        axis: int,
        out: Memory,
        steps: Steps,
    ) -> None:
        """A join of two contiguous tensors.

        The kernel joins along the third of four axes, or the first; any join is one of these.
        """
        rows = prod(shapes[0][:axis])
        left, right = (prod(shape[axis:]) for shape in shapes)
        # All axes before are its second, the joined one with all behind it the fourth.
        info = Words((1, rows, 1, left, 1, rows, 1, right))
        arguments: Arguments = {
            **{"ltensor": x, "rtensor": y, "out": out},
            **{"dims": info, "dim_size": 4, "concat_dim": 2},
        }
        steps.launch(_KV_CONCAT, x.dtype, (), arguments)

    def kv_append(
        self,
        source: Memory,
        target: Memory,
        position: Memory,
        sizes: Sizes,
        steps: Steps,
    ) -> None:
        """A write of one token at a position; sizes are (rows, 1, target's length, width).

        The kernel puts keys and values into their caches at once, so both are the same here.
        """
        rows, tokens, capacity, width = sizes
        if tokens != 1:
            raise NotSupportedError(
                f"kv_append: on a GCU of one token at a time, got {tokens}", backend="tops"
            )
        require_ids(_KV_APPEND, position, 1, capacity, steps)
        arguments: Arguments = {
            **{"key": source, "value": source, "key_cache": target, "value_cache": target},
            **{"slot_mapping": position, "num_tokens": 1, "num_heads": rows, "head_size": width},
            **{"num_blocks": 1, "block_size": capacity, "x": 1},
            **{"key_stride": rows * width, "value_stride": rows * width},
        }
        steps.launch(_CACHE, target.dtype, (), arguments)


def _product(
    tuner: AtenGemmTuner,
    code: DataType,
    weight: DataType,
    sizes: tuple[int, int, int, int],
    transposed: bool,
    one_weight: bool,
) -> dict[str, Given]:
    """The kernels' arguments of a product, from its type to whether all share a weight."""
    batch, m, k, n = sizes
    if min(sizes) < 1:
        raise ArgumentValueError(f"matmul: expected sizes of at least 1, got {sizes}")
    info = AtenGemmInfo.of(code, weight, batch, m, k, n, transposed)
    tuned = tuner.tuner(info)
    # alpha, beta and addmm_beta are not applied by any of the kernels.
    return {
        **{"input_dtype": int(code), "input_batch": batch},
        **{"input_m": m, "input_k": k, "input_n": n},
        **{"lhs_multicore": tuned.lhs_multicore, "rhs_multicore": tuned.rhs_multicore},
        **{"batch_multicore": tuned.batch_multicore},
        **{"lhs_transpose": 0, "rhs_transpose": int(transposed)},
        **{"alpha": 1.0, "beta": 0.0, "addmm_beta": 0.0},
        **{name: max(getattr(tuned, name), least) for name, least in _LEAST_TILE.items()},
        "broadcasted_weight": int(one_weight),
    }
