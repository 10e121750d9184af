"""transformers as the reference: a tiny model of a case, its files, and its logits.

`python -m tests.ubridge.models.judging` needs transformers. It writes the references that
`test_rows.py` uses without transformers. It also prints the least change of logits, relative to the
largest, when a parameter is left out.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.ubridge.models.cases import CASES, TOKENS, Array, drawn, prompt

DATA = Path(__file__).resolve().parents[2] / "data" / "models"
SEED = 20261122


def kept(case: str) -> tuple[dict[str, Any], Array]:
    """Return the stored facts and logits of a case; check the logits' digest."""
    told = json.loads((DATA / f"{case}.json").read_text(encoding="utf-8"))
    raw = (DATA / f"{case}.npy").read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != told["sha256"]:
        raise ValueError(f"{case}.npy: expected sha256 {told['sha256']}, got {digest}")
    logits: Array = np.load(io.BytesIO(raw))
    return told, logits


def judged(case: str, seed: int, folder: Path, tokens: int = TOKENS) -> Array:
    """Write a case's model as transformers does; return its logits, f32 (tokens, vocabulary)."""
    import torch

    model = made(case, seed)
    model.save_pretrained(folder)
    with torch.no_grad():
        found = model(torch.tensor([prompt(seed, tokens)]), use_cache=False).logits[0]
    logits: Array = found.numpy()
    return logits


def judged_in_halves(case: str, seed: int, dtype: str, tokens: int = TOKENS) -> Array:
    """Return the logits of the same model in f16 or bf16, as torch computes them on the CPU."""
    import torch

    model = made(case, seed).to({"f16": torch.float16, "bf16": torch.bfloat16}[dtype])
    with torch.no_grad():
        found = model(torch.tensor([prompt(seed, tokens)]), use_cache=False).logits[0]
    logits: Array = found.float().numpy()
    return logits


def made(case: str, seed: int) -> Any:
    """Return transformers' model of a case with every tensor drawn at random."""
    import torch
    import transformers
    from safetensors.numpy import load_file, save_file

    kind, said = CASES[case]
    config = transformers.AutoConfig.for_model(kind, **said)
    # Falcon's own attention adds ALiBi twice; torch's `sdpa` lacks the score cap of Gemma 2.
    how = {"attn_implementation": "sdpa" if kind == "falcon" else "eager", "dtype": torch.float32}
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoModelForCausalLM.from_config(config, **how).save_pretrained(folder)
        file = Path(folder) / "model.safetensors"
        weights = {}
        for name, values in load_file(file).items():
            found = drawn(name, values.shape, seed)
            weights[name] = found - 1 if kind.startswith("gemma") and "norm" in name else found
        save_file(weights, file, {"format": "pt"})
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **how).eval()


def least_effect(case: str, seed: int) -> float:
    """Return the least relative change of logits when any single parameter is omitted."""
    import torch

    model, ids = made(case, seed), torch.tensor([prompt(seed)])

    def logits() -> Any:
        with torch.no_grad():
            return model(ids, use_cache=False).logits[0]

    right = logits()
    least = float("inf")
    for name, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        plain = 1.0 if "norm" in name and name.endswith("weight") and kept.ndim == 1 else 0.0
        with torch.no_grad():
            parameter.fill_(plain - ("gemma" in CASES[case][0] and plain))
            moved = float((logits() - right).abs().max() / right.abs().max())
            parameter.copy_(kept)
        if moved < 0.01:
            print(f"  {case}: {name} moves logits by {moved:.1e} only")
        least = min(least, moved)
    return least


def main(chosen: list[str]) -> int:
    """Write the data of the named cases, by default all."""
    from safetensors import safe_open

    DATA.mkdir(parents=True, exist_ok=True)
    for case in chosen or CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            logits = judged(case, SEED, folder)
            config = json.loads((folder / "config.json").read_text())
            with safe_open(folder / "model.safetensors", "numpy") as file:
                names = list(file.keys())
                shapes = {key: list(file.get_slice(key).get_shape()) for key in names}
        np.save(DATA / f"{case}.npy", logits)
        digest = hashlib.sha256((DATA / f"{case}.npy").read_bytes()).hexdigest()
        told = {"case": case, "seed": SEED, "sha256": digest, "config": config, "shapes": shapes}
        (DATA / f"{case}.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
        print(case, f"{np.abs(logits).max():.2f}", f"{least_effect(case, SEED):.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
