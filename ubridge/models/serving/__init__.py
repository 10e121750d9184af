"""Many sequences at once: continuous batching over a cache of pages.

engine = Engine(Model.load("TinyLlama-1.1B"), sequences=8)
requests = [engine.submit(prompt, max_tokens=100) for prompt in prompts]
texts = [request.read() for request in requests]
"""

from ubridge.models.serving.drafting import ModelDrafter
from ubridge.models.serving.eagle import Eagle3, EagleTree
from ubridge.models.serving.engine import Engine, EngineStats
from ubridge.models.serving.lookup import Drafter, HiddenDrafter, NgramLookup
from ubridge.models.serving.medusa import MedusaDrafter, MedusaHeads
from ubridge.models.serving.request import Request

__all__ = [
    "Drafter",
    "Eagle3",
    "EagleTree",
    "Engine",
    "EngineStats",
    "HiddenDrafter",
    "MedusaDrafter",
    "MedusaHeads",
    "ModelDrafter",
    "NgramLookup",
    "Request",
]
