"""Products with weights chosen by ids, such as a mixture's experts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias, overload

from ubridge.core.operand_checks import require_one_device
from ubridge.definitions.calls import named
from ubridge.definitions.products import INDEXED_PRODUCT
from ubridge.ops.blocks import blocks_of, plan_block_product
from ubridge.ops.elementwise import converted
from ubridge.ops.engine import run
from ubridge.ops.products import matmul
from ubridge.ops.results import require_tensors
from ubridge.ops.selection import checked_ids, taken
from ubridge.quantized import quantize_activations, require_floats
from ubridge.quantized_weight import QuantizedWeight
from ubridge.tensor import DeviceTensor
from uhal.dtypes import u32
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

Weights: TypeAlias = DeviceTensor | QuantizedWeight


@overload
def indexed_matmul(
    x: DeviceTensor,
    weights: Weights,
    ids: Any,
    *,
    batch_invariant: bool = False,
    stream: StreamLike | None = None,
) -> DeviceTensor: ...
@overload
def indexed_matmul(
    x: DeviceTensor,
    weights: Sequence[Weights],
    ids: Any,
    *,
    batch_invariant: bool = False,
    stream: StreamLike | None = None,
) -> tuple[DeviceTensor, ...]: ...
@named
def indexed_matmul(
    x: DeviceTensor,
    weights: Weights | Sequence[Weights],
    ids: Any,
    *,
    batch_invariant: bool = False,
    stream: StreamLike | None = None,
) -> DeviceTensor | tuple[DeviceTensor, ...]:
    """Return `x[t, j] @ weights[ids[t, j]].T`.

    The function does so for each token t and each id j of the token.

    `weights` is (experts, rows, columns), quantized or a tensor. With a sequence of weights the
    products come as a tuple. `ids` is (tokens, used). x is (tokens, used, columns), or (tokens, 1,
    columns) when all products of a token share one vector. The result is (tokens, used, rows) in
    the dtype of x. Candle calls this `indexed_moe_forward`.

    With quantized weights, x (f32, f16 or bf16) is rounded to 8 bits, as in `quantized_matmul` with
    activations of `"q8"`. x is rounded once for all weights of one kind. The host reads each chosen
    weight once for all its products. GPUs have a kernel for q8_0 and q2_K to q6_K; a weight of
    another format is copied for each product. Weights in a tensor are gathered to (tokens, used,
    rows, columns) and multiplied, which takes much memory for many tokens.

    Ids are a tensor of u32, as `topk` returns, or integers from the host, which may be negative as
    in numpy. Ids on the device are checked there: an id out of bounds is an `IndexError` when the
    host next waits for a result. The id's part of the result is undefined. The function reads
    nothing from the device, so it can be captured. Safe from any thread.
    """
    require_tensors("indexed_matmul", x)
    several = isinstance(weights, Sequence)
    given: Sequence[Weights] = weights if isinstance(weights, Sequence) else (weights,)
    if not given:
        return ()
    for one in given:
        _require_weights(x, one)
        if one.shape[0] != given[0].shape[0]:
            raise ArgumentValueError(
                f"indexed_matmul: expected as many weights in each of the sequence, got "
                f"{given[0].shape[0]} and {one.shape[0]}"
            )
    where = _where(x, ids, given[0].shape[0], stream)
    rounded: dict[int, DeviceTensor] = {}
    made = tuple(_product(x, one, where, batch_invariant, rounded, stream) for one in given)
    return made if several else made[0]


def _product(
    x: DeviceTensor,
    weights: Weights,
    ids: DeviceTensor,
    batch_invariant: bool,
    rounded: dict[int, DeviceTensor],
    stream: StreamLike | None,
) -> DeviceTensor:
    """The product with one weight; `rounded` keeps x for the other weights."""
    (tokens, used), (count, rows, columns) = ids.shape, weights.shape
    if isinstance(weights, DeviceTensor):
        chosen = taken(weights, ids, stream=stream)
        found = matmul(chosen, x.expand_dims(3), batch_invariant=batch_invariant, stream=stream)
        return found.reshape(tokens, used, rows)
    format = weights.format
    if format.activations not in rounded:
        rounded[format.activations] = quantize_activations(x, format, stream=stream)
    vectors = rounded[format.activations]
    flags = {"batch_invariant": True} if batch_invariant else {}
    if count == 0 and tokens * used:
        raise IndexError("indexed_matmul: cannot choose from no weights")
    blocks = blocks_of(INDEXED_PRODUCT, format, weights.buffer, count * rows, columns, x._executor)
    lines = vectors.reshape(prod(vectors.shape[:-1]), vectors.shape[-1])
    return run(
        plan_block_product(format, blocks, lines, rows, columns, x.dtype, ids, **flags),
        None,
        stream,
    )


def _where(x: DeviceTensor, ids: Any, count: int, stream: StreamLike | None) -> DeviceTensor:
    """The ids as contiguous u32 on the device; refuse ids of another shape than x's."""
    if isinstance(ids, DeviceTensor):
        if ids.dtype is not u32:
            raise ArgumentTypeError(
                f"indexed_matmul, ids: expected a tensor of u32, as topk returns, got {ids.dtype}: "
                "use astype"
            )
        require_one_device("indexed_matmul", x, ids)
        where = ids
    else:
        where = checked_ids("indexed_matmul", x, ids, count, stream)
    if (
        where.ndim != 2
        or x.ndim != 3
        or x.shape[0] != where.shape[0]
        or (x.shape[1] not in (1, where.shape[1]))
    ):
        raise ArgumentValueError(
            "indexed_matmul: expected ids (tokens, used) and x (tokens, used or 1, columns), got "
            f"{where.shape} and {x.shape}"
        )
    return converted(where, u32, stream=stream).contiguous(stream=stream)


def _require_weights(x: DeviceTensor, weights: Weights) -> None:
    if not isinstance(weights, QuantizedWeight):
        require_tensors("indexed_matmul", weights)
        require_one_device("indexed_matmul", x, weights)
    elif weights.device != x.device:
        raise InvalidHandleError(
            f"indexed_matmul: expected operands on one device, got {x.device!r} and "
            f"{weights.device!r}"
        )
    else:
        require_floats("indexed_matmul", x)
    if len(weights.shape) != 3 or not x.shape or weights.shape[2] != x.shape[-1]:
        raise ArgumentValueError(
            "indexed_matmul: expected weights (experts, rows, columns) and x (tokens, used or 1, "
            f"columns), got {tuple(weights.shape)} and {x.shape}"
        )


__all__ = ["indexed_matmul"]
