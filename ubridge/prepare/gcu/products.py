"""Lowerings of products and caches on GCUs; the gemm tuner chooses tiles."""

from __future__ import annotations

from math import prod

from ubridge.core.kernel_def import PLAIN
from ubridge.core.layout import Layout
from ubridge.core.lowering import Given, Launches, Lowering, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.product import MatmulChoice
from ubridge.core.question import Question
from ubridge.definitions.attention import KV_APPEND, KV_CONCAT
from ubridge.definitions.gcus import (
    DEQUANTIZE_Q8_0,
    MATMUL_4BIT,
    PAGED_ATTENTION_V1,
    QUANTIZE_Q8_0,
    QUANTIZED,
    RESHAPE_AND_CACHE,
    ROTATION,
)
from ubridge.definitions.products import MATMUL, QUANTIZED_MATVEC
from ubridge.prepare.gcu.copies import whole
from ubridge.prepare.gcu.gemm_tuner import AtenGemmInfo, DataType, Multicore, tune
from ubridge.prepare.gcu.indexing import require_ids
from ubridge.prepare.gcu.kernels import gcu_kernel
from uhal.errors import NotSupportedError

_CACHE = gcu_kernel("cache", "reshape_and_cache_{dtype}")
_CODES = {"f32": DataType.F32, "f16": DataType.F16, "bf16": DataType.BF16}
_LEAST_TILE = {"sip_m": 1, "sip_k": 32, "sip_n": 64}
"""Minimum sizes: the tuner returns 0 for products too wide for L1, and kernels divide by sizes."""


class GcuMatmul(Lowering):
    """Products of matrices by the only kernel of GCUs."""

    kernel = gcu_kernel("matmul", PLAIN, in_l2=True)

    def prepare(self, question: Question, steps: Steps) -> None:
        """Add the launch, after copies of operands in unsupported layouts."""
        a, b = steps.operands
        left, right = question.layout(0), question.layout(1)
        batch, m, k, n = prod(left.shape[:-2]), *left.shape[-2:], right.shape[-1]
        one_weight = batch > 1 and not any(
            stride
            for stride, length in zip(right.strides[:-2], right.shape[:-2], strict=True)
            if length > 1
        )
        if one_weight:
            right = Layout(right.shape[-2:], right.strides[-2:])
        turned = right.transpose()
        # A transposed weight is used in place; other strided weights are copied.
        transposed = turned.is_contiguous and not right.is_contiguous
        weight = whole(b, turned if transposed else right, steps)
        code = _CODES.get(a.dtype.name, DataType.F32)
        steps.launch(
            (),
            in_a=whole(a, left, steps),
            in_b=weight,
            out=steps.result,
            **_tiles(code, code, (batch, m, k, n), transposed, one_weight),
        )

    def explain(self, question: Question) -> MatmulChoice:
        """Return the only kernel."""
        return MatmulChoice("tiled_matmul", "GCUs have one, with tiles by the gemm tuner")


def _refuse_matvec(question: Question, steps: Steps) -> None:
    """Refuse: GCUs take weights of another layout."""
    raise NotSupportedError(
        f"{question.op.name}: the tops backend has no such kernel; "
        "gcu_launches.launch_quantized_matmul takes weights of GCUs' own layout",
        backend="tops",
    )


def _quantized_matmul(question: Question, steps: Steps) -> None:
    """Add a product with a quantized weight: operands are x, weight, scales, zeros."""
    a, weight, scales, zeros = steps.operands
    (m, k), n = question.layout(0).shape, question.shape[-1]
    quantized = DataType.I4 if question.op is MATMUL_4BIT else DataType.I8
    code = _CODES.get(question.dtype.name, DataType.F32)
    steps.launch(
        (),
        in_a=a,
        in_b=weight,
        out=steps.result,
        scales=scales,
        zeros=zeros,
        group_size=question.attribute("group"),
        **_tiles(code, quantized, (1, m, k, n), question.attribute("transposed"), False),
    )


def _named_by_attributes(question: Question, steps: Steps) -> None:
    """Add the launch of a kernel that only GCUs have; the question's attributes are parameters.

    `memory` and `numbers` name the parameters of operands and numbers in order, the result last.
    """
    given = dict(question.attributes)
    memory = zip(given.pop("memory"), (*steps.operands, steps.result), strict=True)
    numbers = {name: steps.number(i) for i, name in enumerate(given.pop("numbers"))}
    # Blocks have no element type: the kernel is named after the result's type.
    dtype = steps.result.dtype if question.op is DEQUANTIZE_Q8_0 else question.dtype
    steps.launch((), dtype, **dict(memory), **numbers, **given)


def _kv_concat(question: Question, steps: Steps) -> None:
    """Add a join of two contiguous tensors.

    The kernel joins along the third of four axes, or the first; any join is one of these.
    """
    x, y = steps.operands
    axis = question.attribute("axis")
    rows = prod(question.shape[:axis])
    left, right = (prod(question.layout(one).shape[axis:]) for one in (0, 1))
    # The second axis holds all axes before the joined axis. The fourth holds the joined axis and
    # all axes behind.
    info = Words((1, rows, 1, left, 1, rows, 1, right))
    steps.launch((), ltensor=x, rtensor=y, out=steps.result, dims=info, dim_size=4, concat_dim=2)


def _kv_append(question: Question, steps: Steps) -> None:
    """Add a write of one token at a position.

    The kernel writes keys and values into their caches at once. This launch passes the same
    operands for keys and values.
    """
    source, position = steps.operands
    rows, tokens, width = question.layout(0).shape
    capacity, target = question.shape[1], steps.result
    require_one_token(question.op.name, tokens)
    require_ids(question.op, position, 1, capacity, steps)
    steps.launch(
        (),
        None,
        None,
        _CACHE,
        key=source,
        value=source,
        key_cache=target,
        value_cache=target,
        slot_mapping=position,
        num_tokens=1,
        num_heads=rows,
        head_size=width,
        num_blocks=1,
        block_size=capacity,
        x=1,
        key_stride=rows * width,
        value_stride=rows * width,
    )


def require_one_token(name: str, tokens: int) -> None:
    """Refuse several tokens at once."""
    if tokens != 1:
        raise NotSupportedError(
            f"{name}: on a GCU of one token at a time, got {tokens}", backend="tops"
        )


def _tiles(
    code: DataType,
    weight: DataType,
    sizes: tuple[int, int, int, int],
    transposed: bool,
    one_weight: bool,
) -> dict[str, Given]:
    """The kernels' arguments that describe a product: types, sizes, tiles and flags."""
    batch, m, k, n = sizes
    tuned = tune(AtenGemmInfo(code, weight, batch, m, k, n))
    # No kernel applies alpha, beta and addmm_beta.
    return {
        "input_dtype": int(code),
        "input_batch": batch,
        "input_m": m,
        "input_k": k,
        "input_n": n,
        "lhs_multicore": int(tuned.multicore is Multicore.LHS),
        "rhs_multicore": int(tuned.multicore is Multicore.RHS),
        "batch_multicore": int(tuned.multicore is Multicore.BATCH),
        "lhs_transpose": 0,
        "rhs_transpose": int(transposed),
        "alpha": 1.0,
        "beta": 0.0,
        "addmm_beta": 0.0,
        **{name: max(getattr(tuned, name), least) for name, least in _LEAST_TILE.items()},
        "broadcasted_weight": int(one_weight),
    }


class _OfOneToken(Launches):
    """Launches of a kernel that takes one token."""

    of_one_token = True


LOWERINGS: Lowerings = {
    MATMUL: GcuMatmul(),
    QUANTIZED_MATVEC: Launches(_refuse_matvec),
    QUANTIZED: Launches(
        _quantized_matmul, gcu_kernel("matmul", "matmul_{dtype}_{root}", in_l2=True)
    ),
    KV_CONCAT: Launches(_kv_concat, gcu_kernel("kvconcat", PLAIN)),
    KV_APPEND: _OfOneToken(_kv_append),
    ROTATION: Launches(_named_by_attributes, gcu_kernel("embedding", PLAIN)),
    DEQUANTIZE_Q8_0: Launches(_named_by_attributes, gcu_kernel("quant", PLAIN, in_l2=True)),
    QUANTIZE_Q8_0: Launches(_named_by_attributes, gcu_kernel("quant", PLAIN, in_l2=True)),
    RESHAPE_AND_CACHE: Launches(_named_by_attributes, gcu_kernel("cache", PLAIN)),
    PAGED_ATTENTION_V1: Launches(_named_by_attributes, gcu_kernel("attention", PLAIN, in_l2=True)),
}
