"""Runs a function of a test module in a process of its own; ships with the conformance suite."""

from uhal_conformance.children import ROOT, check_child, run_child

__all__ = ["ROOT", "check_child", "run_child"]
