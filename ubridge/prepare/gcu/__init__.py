"""Lowering of operations to launches of Ubridge's kernels on GCUs."""
