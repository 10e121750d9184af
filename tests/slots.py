"""Slots of the hot table called by hand; ships with the conformance suite."""

from uhal_conformance.slots import POINTER, U32, U64, KernelCall, Slots, launch_graph, update_kernel

__all__ = ["POINTER", "U32", "U64", "KernelCall", "Slots", "launch_graph", "update_kernel"]
