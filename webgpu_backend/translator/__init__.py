"""Translates kernels of SPIR-V modules from `opencl_backend.compile` to WGSL."""

from webgpu_backend.translator.writer import VERSION, Argument, Translation, translate

__all__ = ["VERSION", "Argument", "Translation", "translate"]
