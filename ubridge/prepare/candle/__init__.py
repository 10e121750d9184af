"""Lowerings to kernels with Candle's parameters, and to ubridge's own: CUDA, ROCm, OpenCL, host."""
