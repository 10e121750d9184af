"""Files of weights: safetensors and GGUF, mapped into memory and written.

    weights = ubridge.load("model.gguf")       # nothing but the header is read
    weights["output.weight"]                   # a tensor, or a quantized weight
    ubridge.save("model.safetensors", {"w": tensor}, metadata={"format": "pt"})

`python -m ubridge.files ls|convert|quantize` does so from a command line.
"""

from ubridge.files.entries import TensorEntry
from ubridge.files.errors import FileWarning, InvalidFileError
from ubridge.files.saving import save
from ubridge.files.weights import Weights, load

__all__ = ["FileWarning", "InvalidFileError", "TensorEntry", "Weights", "load", "save"]
