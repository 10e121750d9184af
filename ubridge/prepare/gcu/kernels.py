"""Geometries of Ubridge's kernels on GCUs, which divide their elements among all threads."""

from __future__ import annotations

from functools import partial

from ubridge.core.kernel_def import Configure, KernelDef
from uhal import DeviceLimits

_L2_BYTES = 1 << 20
"""Bytes of L2 to request from a cluster, for a kernel that uses L2; no public source gives L2's
size."""


def gcu_kernel(module: str, entry: str, in_l2: bool = False) -> KernelDef:
    """Return a kernel with a thread for every SIP; `in_l2` asks for memory of the cluster's L2."""
    return KernelDef(module, entry, partial(_configure, False, in_l2))


def cluster_kernel(module: str, entry: str) -> KernelDef:
    """Return a kernel for the SIPs of one cluster, which keeps everything in the cluster's L2."""
    return KernelDef(module, entry, partial(_configure, True, True))


def _configure(in_one_cluster: bool, in_l2: bool, limits: DeviceLimits) -> Configure:
    clusters = 1 if in_one_cluster else limits.processors
    shared = limits.shared_bytes_for(_L2_BYTES) if in_l2 else 0
    return lambda *work: (clusters, limits.block_for_elements, shared)
