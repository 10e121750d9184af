"""Folders and checkpoints of tiny pipelines, written here from drawn weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
from tests.ubridge.diffusion.judging import CONFIGS, DATA, weights_of
from tests.ubridge.models.cases import Array
from ubridge.models.diffusion import Version
from ubridge.models.diffusion.loading import PARTS
from ubridge.models.diffusion.names import of_checkpoint
from uhal import as_dtype

TOKENIZER = DATA / "tokenizer"


def known(case: str) -> dict[str, dict[str, Any]]:
    """Return the configurations and the weights of a stored case, by the networks' folders."""
    told = json.loads((DATA / f"{case}_files.json").read_text("utf-8"))
    return {
        part: {"config": told[part]["config"], "weights": weights_of(part, told[part]["shapes"])}
        for part in PARTS
    }


def written(folder: Path, case: str, dtype: str = "f32", parts: Any = None) -> Path:
    """Write a pipeline's folder in the layout of diffusers; return it."""
    parts = known(case) if parts is None else parts
    for part, (stem, *_) in PARTS.items():
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(parts[part]["config"]), "utf-8")
        save(folder / part / f"{stem}.safetensors", parts[part]["weights"], dtype)
    for part, name in (("scheduler", "scheduler_config.json"), ("tokenizer", "")):
        (folder / part).mkdir()
        if name:
            (folder / part / name).write_text(json.dumps(CONFIGS[case]["scheduler"]), "utf-8")
    for file in ("vocab.json", "merges.txt"):
        (folder / "tokenizer" / file).write_bytes((TOKENIZER / file).read_bytes())
    return folder


def save(path: Path, weights: Mapping[str, Array], dtype: str = "f32") -> None:
    """Write a file of safetensors."""
    made = {name: one.astype(as_dtype(dtype).dtype) for name, one in weights.items()}
    ub.save(path, made, metadata={"format": "pt"})


def checkpoint(path: Path, version: Version, case: str) -> Path:
    """Write a stored case's networks as one file with a checkpoint's names."""
    whole: dict[str, Any] = {"model_ema.decay": np.zeros(1, np.float32)}
    for part, told in known(case).items():
        spell = of_checkpoint(part, version)
        for name, values in told["weights"].items():
            own = name.removeprefix("text_model.")
            if own.endswith("position_ids"):
                continue
            one = spell(own)[-1]
            if one.third is None:
                whole[one.name] = values
            else:
                thirds = whole.setdefault(one.name, [None] * 3)
                thirds[one.third] = values
    joined = {k: np.concatenate(v) if isinstance(v, list) else v for k, v in whole.items()}
    save(path, joined)
    return path
