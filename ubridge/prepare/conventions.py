"""Which backend's kernels are called in which way, told to the executors of devices."""

from __future__ import annotations

from ubridge.device.executor import conventions
from ubridge.prepare.candle_lowering import CandleLowering
from ubridge.prepare.gcu.lowering import GcuLowering

conventions.update(cuda=CandleLowering, rocm=CandleLowering, host=CandleLowering, tops=GcuLowering)

__all__ = ["conventions"]
