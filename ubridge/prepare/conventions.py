"""Which backend's kernels are called in which way, told to the executors of devices."""

from __future__ import annotations

from ubridge.device.executor import conventions
from ubridge.prepare.candle import CandleConvention
from ubridge.prepare.gcu.convention import GcuConvention

conventions.update(
    cuda=CandleConvention, rocm=CandleConvention, host=CandleConvention, tops=GcuConvention
)

__all__ = ["conventions"]
