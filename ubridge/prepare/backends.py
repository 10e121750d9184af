"""The kernels of our backends: one table, a line each."""

from __future__ import annotations

from ubridge.core.columns import CANDLE, GCU, HOST
from ubridge.device.backend_kernels import BackendKernels, ours
from ubridge.device.gcu_images import GcuImages
from ubridge.device.images import HostImages, ShippedImages
from ubridge.prepare.candle import CandleConvention
from ubridge.prepare.gcu.convention import GcuConvention
from ubridge.prepare.matmul.table import cuda_products, host_products

_FATBINS = ShippedImages("cuda", ".fatbin", own="sm_*/*.cu")
_BUNDLES = ShippedImages("rocm", ".hipfb")

ours.update(
    cuda=BackendKernels(CANDLE, _FATBINS, CandleConvention, cuda_products),
    rocm=BackendKernels(CANDLE, _BUNDLES, CandleConvention),
    host=BackendKernels(HOST, HostImages(), CandleConvention, host_products),
    opencl=BackendKernels(CANDLE, ShippedImages("opencl", ".spv.gz"), CandleConvention),
    tops=BackendKernels(GCU, GcuImages(), GcuConvention),
)

__all__ = ["ours"]
