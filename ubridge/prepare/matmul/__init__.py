"""The kernels and libraries that multiply matrices, in one table."""
