"""Tensor operations as kernel launches: tensors, their building blocks, and the kernels.

`DeviceTensor` is a tensor on a device with numpy's interface; functions have numpy's names.
`launch_*` enqueue the same operations on buffers with layouts, for frameworks with tensors of their
own. `load_module("unary")` is the image of a module for the current device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import uhal

if not hasattr(uhal, "Api"):
    raise ImportError(
        f"the `uhal` imported from {getattr(uhal, '__file__', None)} is not uhal-py, which ubridge "
        "needs: CERN's IPbus library has the same import name, so install uhal-py without it"
    )

from ubridge import functions
from ubridge.collectives import all_gather, all_reduce
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.product import MatmulChoice
from ubridge.creation import (
    arange,
    array,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ubridge.definitions.table import OPS
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module, modules
from ubridge.device.slice_ptr import LayoutCache, SlicePtrOrNull
from ubridge.files import FileWarning, InvalidFileError, Weights, load, save
from ubridge.functions import *  # noqa: F403 -- all are public names of this package
from ubridge.graph.dispatch import DispatchCall, KernelDispatch, LaunchingDispatch
from ubridge.graph.graph import ComputeGraph
from ubridge.graph.ops import OpParams, TensorOp
from ubridge.graph.running import GraphExecResult, execute_graph
from ubridge.graph.tracing import trace
from ubridge.habits import refuse_calls, refuse_name
from ubridge.indexed_products import indexed_matmul
from ubridge.joins import cat, concat, concatenate, meshgrid, split, stack, unstack
from ubridge.manipulation import (
    broadcast_arrays,
    broadcast_to,
    diff,
    expand_dims,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    tile,
)
from ubridge.ops import blocks as blocks_
from ubridge.ops import caches as caches_
from ubridge.ops import choices as choices_
from ubridge.ops import einsum as einsum_
from ubridge.ops import elementwise as elementwise_
from ubridge.ops import fused as fused_
from ubridge.ops import launching as launching_
from ubridge.ops import launching_products as launching_products_
from ubridge.ops import launching_windows as launching_windows_
from ubridge.ops import launching_writes as launching_writes_
from ubridge.ops import logic as logic_
from ubridge.ops import products as products_
from ubridge.ops import reductions as reductions_
from ubridge.ops import rows as rows_
from ubridge.ops import selection as selection_
from ubridge.ops import statistics as statistics_
from ubridge.ops import windows as windows_
from ubridge.ops.blocks import *  # noqa: F403
from ubridge.ops.caches import *  # noqa: F403
from ubridge.ops.choices import *  # noqa: F403
from ubridge.ops.einsum import *  # noqa: F403
from ubridge.ops.elementwise import *  # noqa: F403
from ubridge.ops.fused import *  # noqa: F403
from ubridge.ops.launching import *  # noqa: F403
from ubridge.ops.launching_products import *  # noqa: F403
from ubridge.ops.launching_windows import *  # noqa: F403
from ubridge.ops.launching_writes import *  # noqa: F403
from ubridge.ops.logic import *  # noqa: F403
from ubridge.ops.products import *  # noqa: F403
from ubridge.ops.reductions import *  # noqa: F403
from ubridge.ops.rows import *  # noqa: F403
from ubridge.ops.selection import *  # noqa: F403
from ubridge.ops.statistics import *  # noqa: F403
from ubridge.ops.windows import *  # noqa: F403
from ubridge.quantized import QuantizedWeight, embedding, linear, quantized_matmul
from ubridge.random import Generator, rand, randn
from ubridge.searching import (
    count_nonzero,
    nonzero,
    searchsorted,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
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
    "eye",
    "linspace",
    "meshgrid",
    "tril",
    "triu",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "diff",
    "expand_dims",
    "matrix_transpose",
    "moveaxis",
    "pad",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "tile",
    "unstack",
    "count_nonzero",
    "nonzero",
    "searchsorted",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "Generator",
    "rand",
    "randn",
    "embedding",
    "MatmulChoice",
    "QuantizedWeight",
    "linear",
    "quantized_matmul",
    "indexed_matmul",
    "all_gather",
    "all_reduce",
    "FileWarning",
    "InvalidFileError",
    "Weights",
    "load",
    "save",
]
# One line a module: type checkers evaluate these, but no loop.
__all__ += functions.__all__
__all__ += choices_.__all__
__all__ += einsum_.__all__
__all__ += elementwise_.__all__
__all__ += fused_.__all__
__all__ += launching_.__all__
__all__ += launching_products_.__all__
__all__ += launching_windows_.__all__
__all__ += launching_writes_.__all__
__all__ += logic_.__all__
__all__ += products_.__all__
__all__ += reductions_.__all__
__all__ += rows_.__all__
__all__ += selection_.__all__
__all__ += statistics_.__all__
__all__ += windows_.__all__
__all__ += caches_.__all__
__all__ += blocks_.__all__


def __dir__() -> list[str]:
    """Return the public names; subpackages are for work on ubridge itself."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would take every name for an attribute

    def __getattr__(name: str) -> object:
        """Refuse a missing name with advice for users of other libraries."""
        refuse_name(__name__, name, dir(DeviceTensor))


refuse_calls(__name__)
