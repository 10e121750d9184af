"""Which implementation multiplies matrices, and why: what `ubridge.matmul_choice` tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductChoice:
    """The implementation of a product."""

    name: str
    """`tiled` is ubridge's own kernel; `blas` a BLAS, `blas in f32` one for widened halves."""
    reason: str
    """Why it is this one."""


OWN_KERNEL = ProductChoice("tiled", "ubridge's own kernel is the only one on this backend")
