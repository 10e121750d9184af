"""Bounded, pure Python readers of the files kernels come in. Nothing here opens a library."""
