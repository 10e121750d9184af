"""Tokenizers: texts to tokens and back, of every kind of file that models come with.

tokenizer = Tokenizer.load("model.gguf")
tokens = tokenizer.encode("Hello world")
tokenizer.decode(tokens)
"""

from ubridge.models.tokenizers.tokenizer import Stream, Tokenizer

__all__ = ["Stream", "Tokenizer"]
