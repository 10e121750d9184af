"""The CUDA backend: NVIDIA's driver library, reached without a toolkit.

`backend` is what `uhal.registry` opens; `CuApi` and its kin are the interface's classes fixed to
this backend. README.md maps every noun of the interface to its CUDA construct.
"""
