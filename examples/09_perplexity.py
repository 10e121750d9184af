"""Measure how much a text surprises a language model.

The perplexity is the exponential of the mean negative log-probability of a token after its
predecessors: the number of equally probable tokens with the same surprise. The perplexity is below
the vocabulary's size unless the model is worse than random guesses.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import ubridge as ub
from ubridge.models import Model
from ubridge.models.making import make_model
from uhal import Api

TEXT = "The quick brown fox jumps over the lazy dog. " * 4


def perplexity(model: Model, tokens: list[int]) -> float:
    """Return the perplexity of all tokens but the first, read in parts."""
    found = []
    for start in range(0, len(tokens) - 1, model.context):
        part = tokens[start : start + model.context + 1]
        # The device computes the log-probabilities and selects the value of each next token.
        rows = ub.log_softmax(model(part[:-1]))
        chosen = ub.gather(rows, np.array(part[1:])[:, None], 1)
        found.append(chosen.to_numpy().astype(np.float64))
    return float(np.exp(-np.concatenate(found).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="cuda, rocm, tops, opencl or host")
    parser.add_argument("--model", type=Path, help="a folder of Hugging Face's, or a GGUF file")
    parser.add_argument("--text", type=Path, help="a file; by default a short text")
    options = parser.parse_args()
    Api.quick_init(0, backend=options.backend)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or make_model(f"{folder}/made", seed=3).folder
        model = Model.load(path)
        text = options.text.read_text(encoding="utf-8") if options.text else TEXT
        tokens = model.tokenizer.encode(text)
        parts = -(-(len(tokens) - 1) // model.context)
        shown = f"{len(tokens)} tokens in {parts} parts of at most {model.context}"
        print(f"{shown}, perplexity {perplexity(model, tokens):.2f}")
        print(f"the vocabulary has {model.vocabulary}")


if __name__ == "__main__":
    main()
