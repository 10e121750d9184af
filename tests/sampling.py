"""How often a test repeats."""

from __future__ import annotations

import os

SOAK = os.environ.get("UHAL_TEST_SOAK", "") not in ("", "0")


def rounds(sampled: int, full: int) -> int:
    """Return `sampled` in `make test`, `full` in `make soak`."""
    return full if SOAK else sampled
