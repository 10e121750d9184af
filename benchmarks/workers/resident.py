"""Peak resident memory of this process, for workers in any Python."""

from __future__ import annotations

from pathlib import Path


def peak_resident() -> int:
    """Return bytes; `ru_maxrss` would begin with the parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(one for one in status.splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
