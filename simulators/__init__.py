"""Simulated drivers, and the executors of their kernels."""
