"""Talk with a language model in a session, which keeps the state of the conversation.

Without --model it makes a model with random weights, so the answers mean nothing.
"""

import argparse
import tempfile
from pathlib import Path

from ubridge.models import Model
from ubridge.models.making import make_model
from uhal import Api

QUESTIONS = ("What is a kernel?", "And who launches it?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="cuda, rocm, tops, opencl or host")
    parser.add_argument("--model", type=Path, help="a folder of Hugging Face's, or a GGUF file")
    options = parser.parse_args()
    Api.quick_init(0, backend=options.backend)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or make_model(f"{folder}/made", seed=3).folder
        session = Model.load(path).session()
        messages = [{"role": "system", "content": "Be short."}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            answer = session.chat(messages, max_tokens=12, temperature=0.8, seed=1)
            print(">", question)
            pieces = []
            # Each piece has only whole characters and is printed at once.
            for piece in answer:
                pieces.append(piece)
                print(repr(piece)[1:-1], end="", flush=True)
            messages.append({"role": "assistant", "content": "".join(pieces)})
            # The second question's prompt begins with the whole earlier conversation.
            print(f"\n{answer.reused_tokens} of {answer.prompt_tokens} tokens were known")


if __name__ == "__main__":
    main()
