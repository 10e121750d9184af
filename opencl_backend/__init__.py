"""The OpenCL backend: whatever has an OpenCL runtime that takes SPIR-V and gives memory addresses.

`backend` is what `uhal.registry` opens; `ClApi` and its kin are the interface's classes fixed to
this backend. README.md maps every noun of the interface to what it is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opencl_backend._backend import OpenClBackend

if TYPE_CHECKING:
    from uhal.fixed import FixedClasses

backend = OpenClBackend

_PREFIX = "Cl"
_fixed: FixedClasses | None = None


def __getattr__(name: str) -> object:
    """Make the fixed classes at the first use of one: they need the whole interface."""
    global _fixed
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _fixed is None:
        from uhal.fixed import fix

        _fixed = fix(OpenClBackend.name, _PREFIX)
    found = getattr(_fixed, name.removeprefix(_PREFIX), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
