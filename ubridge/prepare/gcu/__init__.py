"""How operations become launches of Ubridge's kernels on GCUs."""
