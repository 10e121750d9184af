"""The Tops backend: Enflame's GCUs through TopsRuntime, which needs no toolkit and no framework.

`backend` is what `uhal.registry` opens; `TopsApi` and its kin are the interface's classes fixed to
this backend. It was written by the vendor's published headers and has not run on a GCU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tops_backend._backend import TopsBackend

if TYPE_CHECKING:
    from uhal.fixed import FixedClasses

backend = TopsBackend

_PREFIX = "Tops"
_fixed: FixedClasses | None = None


def __getattr__(name: str) -> object:
    """Make the fixed classes at the first use of one: they need the whole interface."""
    global _fixed
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _fixed is None:
        from uhal.fixed import fix

        _fixed = fix(TopsBackend.name, _PREFIX)
    found = getattr(_fixed, name.removeprefix(_PREFIX), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
