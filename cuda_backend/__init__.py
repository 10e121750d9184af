"""The CUDA backend: NVIDIA's driver library, reached without a toolkit.

`backend` is what `uhal.registry` opens; `CuApi` and its kin are the interface's classes fixed to
this backend. README.md maps every noun of the interface to its CUDA construct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda_backend._backend import CudaBackend

if TYPE_CHECKING:
    from uhal.fixed import FixedClasses

backend = CudaBackend

_PREFIX = "Cu"
_fixed: FixedClasses | None = None


def __getattr__(name: str) -> object:
    """Make the fixed classes at the first use of one: they need the whole interface."""
    global _fixed
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _fixed is None:
        from uhal.fixed import fix

        _fixed = fix(CudaBackend.name, _PREFIX)
    found = getattr(_fixed, name.removeprefix(_PREFIX), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
