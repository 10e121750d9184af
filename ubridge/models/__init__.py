"""Language models: from a folder or a file to text, on every device.

from ubridge.models import Model

model = Model.load("TinyLlama-1.1B")
for piece in model.generate("Once upon a time", max_tokens=100):
    print(piece, end="", flush=True)
"""

from ubridge.models.cache import Cache
from ubridge.models.model import Model
from ubridge.models.paging import PagedCache, PagedSequence
from ubridge.models.serving import Engine, EngineStats, Request
from ubridge.models.table import ROWS
from ubridge.models.text.generation import Generation
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.session import Session
from ubridge.models.tokenizers import Tokenizer

__all__ = [
    "ROWS",
    "Cache",
    "Engine",
    "EngineStats",
    "Generation",
    "Model",
    "PagedCache",
    "PagedSequence",
    "Request",
    "Sampling",
    "Session",
    "Tokenizer",
]
