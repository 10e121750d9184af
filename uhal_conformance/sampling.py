"""How often a test repeats."""

from __future__ import annotations

import os
from typing import TypeVar

SOAK = os.environ.get("UHAL_TEST_SOAK", "") not in ("", "0")
Amount = TypeVar("Amount")


def rounds(sampled: Amount, full: Amount) -> Amount:
    """Return `sampled` in `make test`, `full` in `make soak`."""
    return full if SOAK else sampled
