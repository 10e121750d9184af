"""WGSL text of functions that WGSL lacks or computes with unknown accuracy.

f32 functions are within 4 ulp, also where `fma` rounds twice or sums are reordered. f64 is computed
with integers of 64 bits, after Berkeley SoftFloat (John Hauser, BSD): rounded to nearest even,
subnormal numbers included.
"""

from __future__ import annotations

from collections.abc import Iterable

from webgpu_backend.translator.kinds import refuse
from webgpu_backend.translator.library_angles import ANGLES
from webgpu_backend.translator.library_double import DOUBLES
from webgpu_backend.translator.library_exponential import EXPONENTIAL
from webgpu_backend.translator.library_numbers import NUMBERS

_FUNCTIONS = {**NUMBERS, **EXPONENTIAL, **ANGLES, **DOUBLES}


def library(needs: Iterable[str]) -> str:
    """Return the text of functions and of their dependencies."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        if name in found:
            return
        if name not in _FUNCTIONS:
            refuse(f"{name} of f32, which is not written for WebGPU devices")
        inner, text = _FUNCTIONS[name]
        for one in inner:
            add(one)
        found[name] = text.strip("\n")

    for name in sorted(needs):
        add(name)
    return "\n".join(found.values())
