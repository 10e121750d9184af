"""Ask a language model several questions about a text, which it reads only once.

Without --model it makes a model with random weights, so the answers mean nothing.
"""

import argparse
import tempfile
from pathlib import Path

from ubridge.models import Model, Sampling
from ubridge.models.making import make_model
from uhal import Api

TEXT = "A launch names a kernel, a grid and a stream. The stream runs launches in order.\n"
QUESTIONS = ("What runs launches?", "What does a launch name?", "In which order?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="cuda, rocm, tops, opencl or host")
    parser.add_argument("--model", type=Path, help="a folder of Hugging Face's, or a GGUF file")
    options = parser.parse_args()
    Api.quick_init(0, backend=options.backend)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or make_model(f"{folder}/made", seed=3).folder
        session = Model.load(path).session()
        sampling = Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.1, seed=5)
        for question in QUESTIONS:
            prompt = f"{TEXT}Question: {question}\nAnswer:"
            answer = session.generate(prompt, max_tokens=10, stop="\n", sampling=sampling)
            print(f"{question} {answer.read()!r}")
            read = answer.prompt_tokens - answer.reused_tokens
            print(f"  read {read} of {answer.prompt_tokens} tokens, ended by {answer.finish}")


if __name__ == "__main__":
    main()
