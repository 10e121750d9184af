"""Building blocks for a distribution that adds its backend's kernels to ubridge.

`BackendKernels` is the contract, version 2, named under the entry-point group `ubridge.backends`;
the guide writing-a-backend.md explains it. This module has the parts of a `BackendKernels`.
`CANDLE` has lowerings to kernels with the parameters of `ubridge/kernels/*.cu`. Further parts are
folders of images; `Lowering`, `KernelDef` and geometries for your own kernels; and product kernels.
"""

from __future__ import annotations

from ubridge.core.kernel_def import (
    BY_IDS,
    PLAIN,
    Configuration,
    Configure,
    Geometry,
    KernelDef,
    bitonic,
    block_per_result,
    block_per_row,
    covering,
    strided,
    tiles,
    warp_for_each_row,
    warp_per_row,
    wide_block_per_row,
)
from ubridge.core.lowering import Given, Launches, Lowering, Lowerings, Memory, Steps
from ubridge.core.operation import Family, Op
from ubridge.core.prepared import Prepared
from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.core.question import Question
from ubridge.definitions.table import OPS
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import KERNELS, HostImages, ImageFolder
from ubridge.device.registry import GROUP, BackendKernels, Image, Images, kernels_of
from ubridge.prepare.candle.table import CANDLE
from ubridge.prepare.matmul.kernels import ProductKernel

__all__ = [
    "GROUP",
    "BackendKernels",
    "kernels_of",
    # images
    "Image",
    "Images",
    "ImageFolder",
    "HostImages",
    "KERNELS",
    # kernels
    "KernelDef",
    "PLAIN",
    "BY_IDS",
    "Configuration",
    "Configure",
    "Geometry",
    "bitonic",
    "block_per_result",
    "block_per_row",
    "covering",
    "strided",
    "tiles",
    "warp_for_each_row",
    "warp_per_row",
    "wide_block_per_row",
    # lowerings
    "CANDLE",
    "Lowering",
    "Lowerings",
    "Launches",
    "DeviceExecutor",
    "Question",
    "Prepared",
    "Steps",
    "Memory",
    "Given",
    "Family",
    "Op",
    "OPS",
    # products
    "Product",
    "ProductKernel",
    "MatmulKernel",
    "MatmulChoice",
]
