"""Language models: from a folder or a file to logits, on every device.

    from ubridge.models import Model

    model = Model.load("TinyLlama-1.1B")
    logits = model.logits(tokens, model.cache())
"""

from ubridge.models.cache import Cache
from ubridge.models.model import Model
from ubridge.models.table import ROWS

__all__ = ["ROWS", "Cache", "Model"]
