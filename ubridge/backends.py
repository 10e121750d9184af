"""What a distribution needs to bring the kernels of its backend to ubridge.

`BackendKernels` is the contract, named under the entry-point group `ubridge.backends`; the guide
writing-a-backend.md walks through it. Everything else here is what one is made of: `CANDLE`, the
rows of kernels with the parameters of `ubridge/kernels/*.cu`, and `CandleConvention`, which calls
them; folders of images; the classes and geometries of rows and product kernels of your own.
"""

from __future__ import annotations

from ubridge.core.columns import (
    CANDLE,
    Configuration,
    Configure,
    Geometry,
    Row,
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
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Prepared
from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.core.question import Question
from ubridge.device.backend_kernels import (
    GROUP,
    BackendKernels,
    Image,
    Images,
    Preparer,
    kernels_of,
)
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import KERNELS, HostImages, ImageFolder
from ubridge.prepare.candle import CandleConvention
from ubridge.prepare.convention import Convention
from ubridge.prepare.matmul.kernels import ProductKernel
from ubridge.prepare.steps import Arguments, Given, Memory, Steps

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
    # rows
    "Row",
    "CANDLE",
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
    # conventions
    "Preparer",
    "Convention",
    "CandleConvention",
    "DeviceExecutor",
    "Question",
    "Prepared",
    "Steps",
    "Memory",
    "Given",
    "Arguments",
    "Op",
    "OPS",
    # products
    "Product",
    "ProductKernel",
    "MatmulKernel",
    "MatmulChoice",
]
