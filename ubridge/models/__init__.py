"""Models built on `ubridge`'s public names: tokens in, text out."""
