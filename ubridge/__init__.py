"""Tensor operations as kernel launches: the kernels that come with uhal, and how each is launched.

`load_module("activation")` is the image of a module for the current device; `matmul`, `activation`
and `convolution` launch a kernel with the geometry and argument order its backend wants.
"""

from __future__ import annotations

import uhal

if not hasattr(uhal, "Api"):
    raise ImportError(
        f"the `uhal` imported from {getattr(uhal, '__file__', None)} is not uhal-py, which ubridge "
        "needs: CERN's IPbus library has the same import name, so install uhal-py without it"
    )

from ubridge.images import load_module, modules
from ubridge.layout import Layout, Shape
from ubridge.legacy_ops import Activation, activation, convolution, matmul
from ubridge.slice_ptr import LayoutCache, SlicePtrOrNull

__all__ = [
    "load_module",
    "modules",
    "Layout",
    "Shape",
    "SlicePtrOrNull",
    "LayoutCache",
    "matmul",
    "activation",
    "convolution",
    "Activation",
]
