"""Kernels of SPIR-V modules, as `opencl_backend.compile` makes them, to WGSL."""

from webgpu_backend.translator.writer import VERSION, Argument, Translation, translate

__all__ = ["VERSION", "Argument", "Translation", "translate"]
