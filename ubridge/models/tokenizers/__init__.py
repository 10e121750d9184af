"""Tokenizers for every kind of tokenizer file of published models.

tokenizer = Tokenizer.load("model.gguf")
tokens = tokenizer.encode("Hello world")
tokenizer.decode(tokens)
"""

from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer

__all__ = ["Stream", "Tokenizer"]
