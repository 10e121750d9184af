"""The kernels with Candle's parameters, for all backends except GCUs (`gcu.backend`)."""

from __future__ import annotations

from ubridge.device.images import HostImages, ShippedImages
from ubridge.device.registry import BackendKernels
from ubridge.prepare.candle.table import CANDLE, CANDLE_ON_CPUS
from ubridge.prepare.matmul.table import cuda_products, host_products

CUDA = BackendKernels(CANDLE, ShippedImages("cuda", ".fatbin.gz", own="sm_*/*.cu"), cuda_products)
ROCM = BackendKernels(CANDLE, ShippedImages("rocm", ".hipfb"))
OPENCL = BackendKernels(CANDLE, ShippedImages("opencl", ".spv.gz"))
HOST = BackendKernels(CANDLE_ON_CPUS, HostImages(), host_products)
