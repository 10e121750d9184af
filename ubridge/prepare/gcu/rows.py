"""Lowerings to Ubridge's kernels of rows and windows on GCUs: reductions, norms, sorting, ..."""

from __future__ import annotations

from functools import partial

import numpy as np

from ubridge.core.kernel_def import PLAIN, power_of_two
from ubridge.core.layout import Layout
from ubridge.core.lowering import Given, Launches, Lowerings, Steps
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.definitions.attention import KV_CONCAT, ROPE, ROPE_I, ROPE_THD
from ubridge.definitions.elementwise import COPY
from ubridge.definitions.rows import (
    ARG_REDUCTION,
    ARGSORT_DESCENDING,
    LAYER_NORM,
    REDUCTION,
    RMS_NORM,
    SOFTMAX,
    SORTING,
)
from ubridge.definitions.windows import CONV1D, CONV2D
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.copies import copy_strided, whole
from ubridge.prepare.gcu.kernels import cluster_kernel, gcu_kernel
from uhal import DeviceBuffer
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

_ROTARY = gcu_kernel("embedding", "rope_{dtype}")
_MOST_ROWS = 32768
"""Most results of a reduction that the kernel supports."""
_MOST_INPUT_BYTES = 60 << 20
_MOST_KERNEL_ELEMENTS = 4096
"""Most elements that kernels of convolutions hold; kernels silently do nothing with more."""


def _reduce(question: Question, steps: Steps) -> None:
    layout = question.layout(0)
    results = question.shape.size
    elements = layout.size // results
    source = whole(steps.operands[0], layout, steps)
    for start in range(0, results, _MOST_ROWS):
        rows = min(_MOST_ROWS, results - start)
        steps.launch(
            (),
            out=steps.result[start:],
            element_num=rows * elements,
            reduce_dim_size=elements,
            **{"in": source[start * elements :]},
        )


def _softmax(question: Question, steps: Steps) -> None:
    rows, columns = question.shape
    steps.launch(
        (),
        input=steps.operands[0],
        output=steps.result,
        batch=rows,
        chunks=1,
        last_dim_size=columns,
    )


def _norm(question: Question, steps: Steps) -> None:
    """Add a norm of each row; flags of one kernel select the norm."""
    x, weight, *biases = steps.operands
    rows, columns = question.shape
    with_mean = len(biases)
    steps.launch(
        (),
        input=x,
        output=steps.result,
        weight=weight,
        # Without the flag the bias is not read.
        bias=biases[0] if biases else weight,
        batch=rows,
        chunks=1,
        last_dim_size=columns,
        epsilon=steps.number(),
        remove_mean=with_mean,
        affine=with_mean,
    )


def _sort(question: Question, steps: Steps) -> None:
    """Add the sort of each row's indices.

    The kernel fills rows up to a power of two with 10000, which other elements may exceed: rows of
    another length are sorted on the host, which waits.
    """
    rows, columns = question.shape
    x = steps.operands[0]
    if power_of_two(columns) == columns:
        steps.launch(
            (), x=x, dst=steps.result, nrows=rows, ncols=columns, ncols_pad=columns, inplace=False
        )
    else:
        is_descending = question.op is ARGSORT_DESCENDING
        steps.work(partial(_sort_on_host, is_descending, rows, columns), x, steps.result)


def _sort_on_host(
    is_descending: bool,
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
    if is_descending:
        indices = columns - 1 - np.argsort(values[:, ::-1], -1, kind="stable")[:, ::-1]
    else:
        indices = np.argsort(values, -1, kind="stable")
    out[:size].copy_from(indices.astype(np.uint32).reshape(-1), stream=stream)


def _rope(question: Question, steps: Steps) -> None:
    """Add rotations by position.

    The kernel works in place on (tokens, heads, width) and takes cosines and sines as rows of one
    array. Operands are copied into this form, and the result is copied back.
    """
    x, cos, sin = steps.operands
    shape = question.shape
    heads_last = question.op is ROPE_THD
    batch, width = shape[0], shape[3]
    positions, heads = (shape[1], shape[2]) if heads_last else (shape[2], shape[1])
    rows = positions * (batch if question.layout(1).rank == 3 else 1)
    angles = steps.scratch(rows * width, x.dtype)
    halves = Layout.contiguous((rows, width // 2))
    joined = angles, Layout.contiguous((rows, width))
    steps.run(KV_CONCAT, [(cos, halves), (sin, halves)], joined, axis=1)
    # The indices are equal for every step of a model, so they are kept with the layouts, as u64.
    indices = Words(tuple(index % rows for index in range(batch * positions)), "i64")
    own = Layout.contiguous(shape)
    turned = steps.scratch(own.size, x.dtype)
    copy_strided(x, own if heads_last else own.permute((0, 2, 1, 3)), turned, steps)
    unused = steps.scratch(batch * positions * width, x.dtype)
    copy_strided(x, Layout.contiguous(unused.size), unused, steps)
    steps.launch(
        (),
        None,
        None,
        _ROTARY,
        query=turned,
        key=unused,
        cos_sin=angles,
        cos_sin_length=rows,
        cos_sin_stride=width,
        index_positions=indices,
        num_tokens=batch * positions,
        q_heads=heads,
        k_heads=1,
        hidden_size=width,
        split_dim=width,
        gpt_geox=int(question.op is not ROPE_I),
    )
    back = Layout.contiguous((batch, positions, heads, width))
    copy_strided(turned, back if heads_last else back.permute((0, 2, 1, 3)), steps.result, steps)


def _convolution_arguments(question: Question, steps: Steps) -> dict[str, Given]:
    """Return the arguments of a convolution."""
    layout, weight = question.layout(0), question.layout(1)
    positions = question.shape[2:]
    names = ("l_out",) if len(positions) == 1 else ("h_out", "w_out")
    return {
        "src_numel": layout.size,
        **dict(zip(names, positions, strict=True)),
        **{name: one for name, one in question.attributes if name != "groups"},
        "info": Words((*layout.words, *weight.words)),
        "src": steps.operands[0],
        "kernel": steps.operands[1],
        "dst": steps.result,
    }


def _add_groups(question: Question, steps: Steps) -> None:
    """Add a convolution of each group of channels, for kernels without groups."""
    window = dict(question.attributes)
    groups = window.pop("groups")
    x, weight = question.layout(0), question.layout(1)
    batch, results, *positions = question.shape
    shape = (batch, results // groups, *positions)
    of_group = Layout.contiguous(shape)
    # The results of groups come one after another; with one batch that is the final order.
    whole = steps.result
    made = whole if batch == 1 else steps.scratch(question.shape.size, whole.dtype)
    channels, some = x.shape[1] // groups, weight.shape[0] // groups
    for group in range(groups):
        parts = x.narrow(1, group * channels, channels), weight.narrow(0, group * some, some)
        operands = [
            (memory[part.start_offset :], part.from_start)
            for memory, part in zip(steps.operands, parts, strict=True)
        ]
        start = group * of_group.size
        target = made[start : start + of_group.size]
        steps.run(question.op, operands, (target, of_group), **window, groups=1)
    if batch > 1:
        order = (1, 0, *range(2, of_group.rank + 1))
        turned = Layout.contiguous((groups, *shape)).permute(order)
        steps.run(COPY, [(made, turned)], (whole, Layout.contiguous(turned.shape)))


def _convolution(question: Question, steps: Steps) -> None:
    """Add a convolution; one that exceeds the kernel's memory is refused."""
    if question.attribute("groups") > 1:
        _add_groups(question, steps)
        return
    name, of_lines = question.op.name, question.op is CONV1D
    if of_lines and question.attribute("dilation") != 1:
        raise NotSupportedError(
            f"{name}: on a GCU with a dilation of 1 only; its kernel spreads the results too",
            backend="tops",
        )
    nbytes = question.layout(0).size * question.dtype.itemsize
    if nbytes > _MOST_INPUT_BYTES:
        raise NotSupportedError(
            f"{name}: on a GCU of inputs up to {_MOST_INPUT_BYTES} bytes, got {nbytes}",
            backend="tops",
        )
    size = question.layout(1).extent
    if of_lines and size > _MOST_KERNEL_ELEMENTS:
        raise NotSupportedError(
            f"{name}: on a GCU with kernels up to {_MOST_KERNEL_ELEMENTS} elements, got {size}",
            backend="tops",
        )
    arguments = _convolution_arguments(question, steps)
    if of_lines:
        # The parameter for the result's length gets the number of axes; the kernel ignores it.
        arguments["num_dims"] = arguments.pop("l_out")
    steps.launch((), **arguments)


LOWERINGS: Lowerings = {
    REDUCTION: Launches(_reduce, gcu_kernel("reduce", PLAIN, in_l2=True)),
    ARG_REDUCTION: Launches(_reduce, gcu_kernel("reduce", PLAIN, in_l2=True)),
    SOFTMAX: Launches(_softmax, gcu_kernel("reduce", PLAIN, in_l2=True)),
    RMS_NORM: Launches(_norm, gcu_kernel("reduce", "layernorm_{dtype}")),
    LAYER_NORM: Launches(_norm, gcu_kernel("reduce", "layernorm_{dtype}")),
    SORTING: Launches(_sort, cluster_kernel("sort", PLAIN)),
    ROPE: Launches(_rope),
    ROPE_I: Launches(_rope),
    ROPE_THD: Launches(_rope),
    CONV1D: Launches(_convolution, cluster_kernel("conv", PLAIN)),
    CONV2D: Launches(_convolution, gcu_kernel("conv", PLAIN, in_l2=True)),
}
