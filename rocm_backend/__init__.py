"""The ROCm backend: AMD's devices through the HSA runtime alone, without HIP and the ROCm SDK.

`backend` is what `uhal.registry` opens; `RocmApi` and its kin are the interface's classes fixed to
this backend. README.md maps every noun of the interface to what it is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocm_backend._backend import RocmBackend

if TYPE_CHECKING:
    from uhal.fixed import FixedClasses

backend = RocmBackend

_PREFIX = "Rocm"
_fixed: FixedClasses | None = None


def __getattr__(name: str) -> object:
    """Make the fixed classes at the first use of one: they need the whole interface."""
    global _fixed
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _fixed is None:
        from uhal.fixed import fix

        _fixed = fix(RocmBackend.name, _PREFIX)
    found = getattr(_fixed, name.removeprefix(_PREFIX), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
