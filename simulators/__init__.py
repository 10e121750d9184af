"""Simulated drivers, and what they run kernels with."""
