"""Ask a transformer with hand-written weights, which knows uhal's docstrings.

Attention heads read the previous token, the token before it, and the question. Each neuron knows
the successor of three tokens in one answer. The neuron fires if these are the last three tokens and
the answer's name is in the question.
"""

import argparse
import inspect
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge as ub
import uhal
from ubridge.models import Model
from ubridge.models.making import END, make_model, trained

QUESTIONS = (
    "What is a DeviceBuffer?",
    "And a Plan?",
    "Tell me of Stream.",
    "What does annotate do?",
)
TOKENS, WIDTH = 768, 64
"""Number of tokens, and width of a head."""
NOW, BEFORE, EARLIER, ASKED, ONE = (part * TOKENS for part in range(5))
"""Offsets in a state: the last token, the two tokens before it, all tokens read, a constant 1."""
STATE, GROUPS = ONE + WIDTH, TOKENS // WIDTH
SHAPE = {
    **{"hidden_size": STATE, "num_hidden_layers": 1, "vocab_size": TOKENS, "head_dim": WIDTH},
    **{"num_attention_heads": 3 * GROUPS, "num_key_value_heads": GROUPS},
}
Weights = dict[str, npt.NDArray[Any]]


def answers() -> dict[str, str]:
    """First lines of docstrings, by the name of the public class or function."""
    public = {name: getattr(uhal, name) for name in uhal.__all__}
    callables = {name: inspect.getdoc(one) or "" for name, one in public.items() if callable(one)}
    return {name: text.partition("\n\n")[0].replace("\n", " ") for name, text in callables.items()}


def attention() -> Weights:
    """A query rotated back by a position matches the previous token's key; zeros match all."""
    angles = 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    queries, keys = np.zeros((GROUPS, 3, WIDTH, STATE)), np.zeros((GROUPS, WIDTH, STATE))
    for back in (1, 2):
        turned = np.concatenate([np.cos(back * angles), -np.sin(back * angles)])
        queries[:, back - 1, :, ONE] = 200 * turned
    keys[:, : WIDTH // 2, ONE] = 1
    output = np.zeros((STATE, GROUPS, 3, WIDTH))
    for part, first in enumerate((BEFORE, EARLIER, ASKED)):
        output[first : first + TOKENS, :, part] = np.eye(TOKENS).reshape(TOKENS, GROUPS, WIDTH)
    return {
        "self_attn.q_proj": queries.reshape(-1, STATE),
        "self_attn.k_proj": keys.reshape(-1, STATE),
        "self_attn.v_proj": np.eye(TOKENS, STATE),
        "self_attn.o_proj": output.reshape(STATE, -1),
    }


def neurons(known: dict[str, str], tokenizer: Any) -> Weights:
    """Return the weights of the neurons: one for every token of every answer."""
    words = " ".join(QUESTIONS).replace("?", " ?").replace(".", " .").split()
    texts = [f" {name}" for name in known]
    texts += [f" {word}" for word in words if word not in known]
    texts += ["What", "?", ".", "<|im_start|>", "user", "assistant", "\n", END]
    # Each direction matches a single name, and no other name or word of a question.
    counts = [np.bincount(tokenizer.encode(text).ids, minlength=TOKENS) for text in texts]
    directions = np.linalg.pinv(np.array([one / one.sum() for one in counts]))
    before = tokenizer.encode("<|im_start|>assistant\n").ids
    gates, said = [], []
    for number, text in enumerate(known.values()):
        tokens = before + tokenizer.encode(text + END).ids
        for i in range(len(before), len(tokens)):
            gate = np.zeros(STATE)
            gate[[NOW + tokens[i - 1], BEFORE + tokens[i - 2], EARLIER + tokens[i - 3]]] = 100
            gate[ONE] = -300
            gate[ASKED : ASKED + TOKENS] = 100 * directions[:, number]
            gates.append(gate)
            said.append(tokens[i])
    ones = np.zeros((len(said), STATE))
    ones[:, ONE] = 1
    return {
        "mlp.gate_proj": np.array(gates),
        "mlp.up_proj": ones,
        "mlp.down_proj": np.eye(STATE)[:, said],
    }


def write(folder: Path) -> None:
    """Write a LLaMA in Hugging Face's format: an embedding, a layer, a head."""
    known = answers()
    text = "".join(f" {name}: {answer}\n" for name, answer in known.items())
    layer = attention() | neurons(known, trained(text, TOKENS))
    made = {f"model.layers.0.{name}": values for name, values in layer.items()}
    embedding = made["model.embed_tokens"] = np.eye(TOKENS, STATE)
    embedding[:, ONE] = 1
    made["lm_head"] = np.eye(TOKENS, STATE)
    # Norms divide by a state's length; these weights undo it. A state has 2 ones, later 4.
    made["model.layers.0.input_layernorm"] = np.full(STATE, np.sqrt(2 / STATE))
    made["model.layers.0.post_attention_layernorm"] = np.full(STATE, np.sqrt(4 / STATE))
    made["model.norm"] = np.ones(STATE)
    shape = {**SHAPE, "intermediate_size": len(layer["mlp.up_proj"])}
    make_model(folder, "llama", shape, text=text)
    weights = {f"{name}.weight": ub.array(one.astype("f4")) for name, one in made.items()}
    ub.save(folder / "model.safetensors", weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="cuda, rocm, tops, opencl or host")
    uhal.Api.quick_init(backend=parser.parse_args().backend)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        model = Model.load(folder)
        for question in QUESTIONS:
            asked = [{"role": "user", "content": question}]
            print(f"> {question}\n{model.chat(asked, max_tokens=80).read()}\n")


if __name__ == "__main__":
    main()
