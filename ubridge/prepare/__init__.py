"""Lowering of operations to launches of Candle's kernels and of ubridge's own."""
