"""Bounded readers of kernel files, in pure Python. Nothing here opens a library."""
