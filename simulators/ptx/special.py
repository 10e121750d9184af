"""Predefined registers (ISA manual §10)."""

from __future__ import annotations

import re

from .operands import Operands

_EXTENTS = {
    "%ctaid": "block",
    "%nctaid": "grid",
    "%ntid": "threads",
    "%clusterid": "block",
    "%nclusterid": "grid",
}
"""A launch without clusters has clusters of one block (§10, `%clusterid`)."""
_CONSTANTS = {
    "%smid": 0,
    "%nsmid": 1,
    "%cluster_ctaid": 0,
    "%cluster_nctaid": 1,
    "%cluster_ctarank": 0,
    "%cluster_nctarank": 1,
    "%is_explicit_cluster": 0,
    "WARP_SZ": 32,
}
_LANES = {
    "%lanemask_eq": "eq",
    "%lanemask_lt": "lt",
    "%lanemask_le": "le",
    "%lanemask_gt": "gt",
    "%lanemask_ge": "ge",
}
_FIELDS = {
    "%dynamic_smem_size": "dynamic_shared_bytes",
    "%total_smem_size": "total_shared_bytes",
    "%aggr_smem_size": "total_shared_bytes",
}


def read_special(e: Operands, name: str, width: int) -> str:
    """Emit the value of a predefined register. Raises `UnsupportedPtxError` for an unknown
    register.
    """
    base, _, axis = name.partition(".")
    index = "xyz".find(axis) if axis else 0
    if base == "%tid" and index >= 0:
        return e.resized(f"%t{'xyz'[index]}", 32, width, signed=False)
    if base in _EXTENTS and index >= 0:
        found = e.field(_EXTENTS[base], "i32", index)
        return e.resized(found, 32, width, signed=False)
    if base in _CONSTANTS:
        constant = 1 if base == "%cluster_nctaid" else _CONSTANTS[base]
        return str(constant)
    if base in _FIELDS:
        return e.resized(e.field(_FIELDS[base], "i32"), 32, width, signed=False)
    if re.fullmatch(r"%envreg\d+", base):
        return _of_workspace(e, base, width)
    if base == "%gridid":
        return e.resized(e.field("grid_id", "i64"), 64, width, signed=False)
    if base in ("%laneid", "%warpid", "%nwarpid") or base in _LANES:
        return e.resized(_of_warp(e, base), 32, width, signed=False)
    if base in ("%clock", "%clock64", "%clock_hi"):
        e.declarations["llvm.readcyclecounter"] = "declare i64 @llvm.readcyclecounter()"
        return _time(e, e.value("call i64 @llvm.readcyclecounter()"), base, width)
    if base in ("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
        return _time(e, e.call("i64", "uptx_nanoseconds"), base, width)
    raise e.unsupported(f"the register {name} (PTX ISA §10)")


def _of_workspace(e: Operands, name: str, width: int) -> str:
    """Registers set by the driver (§10 `%envreg`): in CUDA, a cooperative grid's memory."""
    if name not in ("%envreg1", "%envreg2"):
        return "0"
    address = e.field("workspace", "i64")
    if name == "%envreg1":
        address = e.value(f"lshr i64 {address}, 32")
    return e.resized(e.value(f"trunc i64 {address} to i32"), 32, width, signed=False)


def linear_thread(e: Operands) -> str:
    """The number of the thread in its block."""
    width = e.field("threads", "i32", 0)
    height = e.field("threads", "i32", 1)
    plane = e.value(f"mul i32 %tz, {height}")
    row = e.value(f"add i32 {plane}, %ty")
    before = e.value(f"mul i32 {row}, {width}")
    return e.value(f"add i32 {before}, %tx")


def _of_warp(e: Operands, name: str) -> str:
    if name == "%nwarpid":
        return "32"  # of a device, not of a block: 1024 threads
    linear = linear_thread(e)
    if name == "%warpid":
        return e.value(f"lshr i32 {linear}, 5")
    lane = e.value(f"and i32 {linear}, 31")
    if name == "%laneid":
        return lane
    own = e.value(f"shl i32 1, {lane}")
    below = e.value(f"sub i32 {own}, 1")
    if name == "%lanemask_eq":
        return own
    if name == "%lanemask_lt":
        return below
    if name == "%lanemask_ge":
        return e.value(f"xor i32 {below}, -1")
    up_to = e.value(f"or i32 {below}, {own}")
    return up_to if name == "%lanemask_le" else e.value(f"xor i32 {up_to}, -1")


def _time(e: Operands, ticks: str, name: str, width: int) -> str:
    if name.endswith("_hi"):
        ticks = e.value(f"lshr i64 {ticks}, 32")
    return e.resized(ticks, 64, width, signed=False)
