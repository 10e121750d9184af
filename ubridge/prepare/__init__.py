"""How operations become launches of Candle's kernels and of ubridge's own."""
