"""Text for models: tokenizers, chat templates, sampling, generation.

tokenizer = Tokenizer.load("model.gguf")
session = Session(model, tokenizer)
for piece in session.generate("Once upon a time", temperature=0.8, seed=1):
    print(piece, end="", flush=True)
"""

from ubridge.models.text.assembling import Choice
from ubridge.models.text.generation import Generation
from ubridge.models.text.options import ChatOptions, GenerateOptions
from ubridge.models.text.sampler import Sampler
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.session import Session
from ubridge.models.text.templates import Message, render

__all__ = [
    "ChatOptions",
    "Choice",
    "GenerateOptions",
    "Generation",
    "Message",
    "Sampler",
    "Sampling",
    "Session",
    "render",
]
