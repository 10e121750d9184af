"""llama.cpp as the reference for GGUF files: its logits, tokens and formats, kept with digests.

`python -m tests.ubridge.models.gguf_judging PYTHON` writes the references that
`test_gguf_export.py` uses without llama.cpp. PYTHON is an interpreter with the package `cyllama`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
from tests.ubridge.models.cases import CASES, EQUATIONS, Array, drawn, prompt
from tests.ubridge.models.files import known, shapes_of, written
from tests.ubridge.models.judging import SEED
from ubridge.models.gguf_export import write_model
from uhal import Device

DATA = Path(__file__).resolve().parents[2] / "data" / "gguf"
JUDGED = 16
"""Number of tokens: as many as the smallest window of a case has."""
LONGER = 40
"""Number of tokens where llama.cpp takes the angles of long texts for all texts."""
WITHOUT = ("falcon_rw", "phi_qk")
"""Cases that llama.cpp does not have."""
NAMES = tuple(one for one in (*CASES, "chatglm") if one not in WITHOUT)
_LLAMA_CPP = """
import json, sys
import numpy as np
from cyllama.llama import llama_cpp as l

class Model(l.LlamaModel):
    @property
    def n_vocab(self):
        return self.get_vocab().n_vocab

l.disable_logging()
for tokens, path in json.loads(sys.argv[1]):
    how = l.LlamaModelParams()
    how.n_gpu_layers, how.use_extra_bufts = 0, False
    model = Model(path, how, False)
    how = l.LlamaContextParams()
    how.n_ctx = how.n_batch = how.n_ubatch = 128
    how.n_threads = how.n_threads_batch = 1
    how.type_k = how.type_v = 0
    how.flash_attn_type = 0
    context = l.LlamaContext(model, how, False)
    batch = l.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
    for place, token in enumerate(tokens):
        batch.add(token, place, [0], True)
    context.decode(batch)
    rows = [np.array(context.get_logits_ith(place)) for place in range(len(tokens))]
    np.save(path + ".npy", np.stack(rows).astype(np.float32))
"""


def model_of(name: str, seed: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a configuration that GGUF files can hold, and weights drawn from a seed."""
    if name in EQUATIONS:
        config = dict(EQUATIONS[name])
        return config, {
            key: drawn(key, shape, seed) for key, shape in shapes_of(name, config).items()
        }
    config, stored, _ = known(name)
    shapes = {key: values.shape for key, values in stored.items()}
    if name == "gemma2":
        # llama.cpp derives the scale from the width of a head.
        config["query_pre_attn_scalar"] = config["head_dim"]
    if name == "qwen3_moe":
        # llama.cpp has experts in every layer, and divides their shares by the sum.
        config |= {"norm_topk_prob": True, "mlp_only_layers": []}
        second = {key: shape for key, shape in shapes.items() if ".1.mlp." in key}
        shapes = {key: shape for key, shape in shapes.items() if ".0.mlp." not in key}
        shapes |= {key.replace(".1.mlp.", ".0.mlp."): shape for key, shape in second.items()}
    less = float(config["model_type"].startswith("gemma"))
    weights = {key: drawn(key, tuple(shape), seed) for key, shape in shapes.items()}
    return config, {k: v - np.float32(less * ("norm" in k)) for k, v in weights.items()}


def tokens_of(name: str, seed: int) -> list[int]:
    """Return the text that both read."""
    return prompt(seed, LONGER if name == "phi3_long" else JUDGED)


def digest_of(path: Path) -> str:
    """Return a digest of everything in a GGUF file that decides its logits."""
    weights = ub.load(path)
    digest = hashlib.sha256()
    for key in sorted(weights.metadata):
        if not key.startswith("general."):
            digest.update(f"{key}={weights.metadata[key]!r}".encode())
    for name in sorted(weights):
        digest.update(name.encode() + weights.raw(name).tobytes())
    return digest.hexdigest()


def kept_of(name: str) -> tuple[str, Array]:
    """Return the digest of a file and llama.cpp's logits of it, (tokens, vocabulary)."""
    told = json.loads((DATA / "judged.json").read_text("utf-8"))[name]
    logits: Array = np.load(DATA / "judged.npz")[name]
    given = hashlib.sha256(logits.tobytes()).hexdigest()
    if given != told["logits"]:
        raise ValueError(f"{name}: expected sha256 {told['logits']} of the logits, got {given}")
    return told["file"], logits


def main(python: str) -> int:
    """Write the files, and llama.cpp's logits of them."""
    DATA.mkdir(parents=True, exist_ok=True)
    told: dict[str, Mapping[str, str]] = {}
    logits = {}
    with tempfile.TemporaryDirectory() as name, Device(0, backend="host"):
        paths = {one: Path(name, f"{one}.gguf") for one in NAMES}
        for one, path in paths.items():
            folder = Path(name, one)
            folder.mkdir()
            write_model(written(folder, *model_of(one, SEED)), path)
        read = json.dumps([(tokens_of(one, SEED), str(path)) for one, path in paths.items()])
        command = [python, "-c", _LLAMA_CPP, read]
        subprocess.run(command, check=True, cwd=name)
        for one, path in paths.items():
            logits[one] = np.load(f"{path}.npy")
            digest = hashlib.sha256(logits[one].tobytes()).hexdigest()
            told[one] = {"file": digest_of(path), "logits": digest}
    np.savez_compressed(DATA / "judged.npz", **logits)
    (DATA / "judged.json").write_text(json.dumps(told, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
