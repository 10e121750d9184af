"""Tensor operations as kernel launches: tensors, the floor beneath them, and the kernels.

`DeviceTensor` is a tensor on a device that numpy users know how to use; functions have numpy's
names. `launch_*` enqueue the same operations on buffers with layouts, for frameworks with tensors
of their own. `load_module("unary")` is the image of a module for the current device.
"""

from __future__ import annotations

import uhal

if not hasattr(uhal, "Api"):
    raise ImportError(
        f"the `uhal` imported from {getattr(uhal, '__file__', None)} is not uhal-py, which ubridge "
        "needs: CERN's IPbus library has the same import name, so install uhal-py without it"
    )

from ubridge import functions
from ubridge.buffers.block_launches import launch_dequantize, launch_quantized_matvec
from ubridge.buffers.indexed_launches import launch_index_add, launch_scatter
from ubridge.buffers.launches import launch_copy, launch_copy2d, launch_fill
from ubridge.buffers.window_launches import (
    launch_col2im1d,
    launch_convolution,
    launch_im2col,
    launch_pool2d,
    launch_upsample2d,
)
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.product import MatmulChoice
from ubridge.creation import (
    arange,
    array,
    asarray,
    cat,
    concatenate,
    empty,
    empty_like,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    split,
    stack,
    zeros,
    zeros_like,
)
from ubridge.definitions.table import OPS
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module, modules
from ubridge.device.slice_ptr import LayoutCache, SlicePtrOrNull
from ubridge.files import FileWarning, InvalidFileError, Weights, load, save
from ubridge.functions import *  # noqa: F403 -- all are public names of this package
from ubridge.graph.dispatch import (
    DispatchCall,
    GraphExecResult,
    KernelDispatch,
    LaunchingDispatch,
    execute_graph,
)
from ubridge.graph.graph import ComputeGraph
from ubridge.graph.ops import OpParams, TensorOp
from ubridge.graph.tracing import trace
from ubridge.indexed_products import indexed_matmul
from ubridge.ops.caches import cached_attention, kv_append, launch_kv_append, rope_at
from ubridge.ops.choices import clip, isnan, where
from ubridge.ops.einsum import einsum
from ubridge.ops.elementwise import affine, astype, power
from ubridge.ops.fused import masked_fill, silu_mul
from ubridge.ops.launching import (
    launch_affine,
    launch_argsort,
    launch_attention,
    launch_binary,
    launch_cast,
    launch_gather,
    launch_index_select,
    launch_kv_concat,
    launch_log_softmax,
    launch_masked_fill,
    launch_matmul,
    launch_norm,
    launch_reduce,
    launch_rope,
    launch_silu_mul,
    launch_softmax,
    launch_ternary,
    launch_unary,
)
from ubridge.ops.products import attention, kv_concat, matmul, matmul_choice
from ubridge.ops.reductions import argmax, argmin, max, mean, min, sum
from ubridge.ops.rows import argsort, layer_norm, log_softmax, rms_norm, rope, softmax
from ubridge.ops.selection import (
    flip,
    gather,
    index_add,
    scatter,
    scatter_add,
    sort,
    take,
    topk,
)
from ubridge.ops.statistics import all, any, cumsum, prod, std, var
from ubridge.ops.windows import (
    avg_pool2d,
    conv1d,
    conv2d,
    conv_transpose1d,
    conv_transpose2d,
    max_pool2d,
    upsample_bilinear2d,
    upsample_nearest2d,
)
from ubridge.quantized import QuantizedWeight, embedding, linear, quantized_matmul
from ubridge.random import Generator, rand, randn
from ubridge.tensor import DeviceTensor

__all__ = [
    "load_module",
    "modules",
    "DeviceTensor",
    "DeviceExecutor",
    "Layout",
    "Shape",
    "SlicePtrOrNull",
    "LayoutCache",
    "Op",
    "OPS",
    "ComputeGraph",
    "DispatchCall",
    "GraphExecResult",
    "KernelDispatch",
    "LaunchingDispatch",
    "OpParams",
    "TensorOp",
    "execute_graph",
    "trace",
    "arange",
    "array",
    "asarray",
    "cat",
    "concatenate",
    "empty",
    "empty_like",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "split",
    "stack",
    "zeros",
    "zeros_like",
    "Generator",
    "rand",
    "randn",
    "affine",
    "astype",
    "power",
    "where",
    "clip",
    "isnan",
    "all",
    "any",
    "cumsum",
    "prod",
    "std",
    "var",
    "topk",
    "einsum",
    "argmax",
    "argmin",
    "max",
    "mean",
    "min",
    "sum",
    "embedding",
    "flip",
    "gather",
    "index_add",
    "scatter",
    "scatter_add",
    "take",
    "matmul",
    "matmul_choice",
    "MatmulChoice",
    "attention",
    "cached_attention",
    "kv_append",
    "kv_concat",
    "QuantizedWeight",
    "linear",
    "quantized_matmul",
    "indexed_matmul",
    "FileWarning",
    "InvalidFileError",
    "Weights",
    "load",
    "save",
    "argsort",
    "sort",
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "layer_norm",
    "log_softmax",
    "masked_fill",
    "max_pool2d",
    "rms_norm",
    "rope",
    "rope_at",
    "silu_mul",
    "softmax",
    "upsample_bilinear2d",
    "upsample_nearest2d",
    "launch_affine",
    "launch_argsort",
    "launch_binary",
    "launch_attention",
    "launch_cast",
    "launch_col2im1d",
    "launch_convolution",
    "launch_copy",
    "launch_copy2d",
    "launch_dequantize",
    "launch_fill",
    "launch_gather",
    "launch_im2col",
    "launch_index_add",
    "launch_index_select",
    "launch_kv_append",
    "launch_kv_concat",
    "launch_log_softmax",
    "launch_masked_fill",
    "launch_matmul",
    "launch_norm",
    "launch_pool2d",
    "launch_quantized_matvec",
    "launch_reduce",
    "launch_rope",
    "launch_scatter",
    "launch_silu_mul",
    "launch_softmax",
    "launch_ternary",
    "launch_unary",
    "launch_upsample2d",
]
__all__ += functions.__all__


def __dir__() -> list[str]:
    """Return the public names: the rooms are for work on ubridge itself."""
    return sorted(__all__)
