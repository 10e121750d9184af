"""How often a test repeats; ships with the conformance suite."""

from uhal_conformance.sampling import SOAK, rounds

__all__ = ["SOAK", "rounds"]
