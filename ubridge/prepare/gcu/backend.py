"""GCU support of `ubridge`."""

from __future__ import annotations

from ubridge.device.registry import BackendKernels
from ubridge.prepare.gcu.images import GcuImages
from ubridge.prepare.gcu.table import GCU

TOPS = BackendKernels(GCU, GcuImages())
