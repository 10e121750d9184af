"""Repetitions and chosen cases of a test; ships with the conformance suite."""

from uhal_conformance.sampling import MARKER, SOAK, leave_out, rounds

__all__ = ["MARKER", "SOAK", "leave_out", "rounds"]
