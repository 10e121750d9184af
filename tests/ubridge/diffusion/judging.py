"""diffusers as the reference of Stable Diffusion: kept answers, with their digest.

`python -m tests.ubridge.diffusion.judging [NAME…]` needs diffusers and transformers. It writes the
answers that the tests use without them.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.ubridge.models.cases import Array, drawn

DATA = Path(__file__).resolve().parents[2] / "data" / "diffusion"
SEED = 20261126
STEPS = 10
SCHEDULES = {
    "ddim": "DDIMScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-a": "EulerAncestralDiscreteScheduler",
    "dpm++2m": "DPMSolverMultistepScheduler",
}
PREDICTIONS = ("epsilon", "v_prediction")
SPACINGS = ("leading", "linspace", "trailing")
SHAPE = (1, 4, 3, 5)
"""Latents of the schedules' cases."""
TRAINED = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


def kept(name: str) -> dict[str, Array]:
    """Return stored answers; check their digest."""
    told = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    raw = (DATA / f"{name}.npz").read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != told["sha256"]:
        raise ValueError(f"{name}.npz: expected sha256 {told['sha256']}, got {digest}")
    with np.load(io.BytesIO(raw)) as answers:
        return dict(answers)


def answered(x: Array, step: int, seed: int) -> Array:
    """Return a stand-in for a network's result at a step: it depends on x and on the step."""
    found: Array = 0.6 * x + 0.4 * drawn(f"step {step}", SHAPE, seed).astype(x.dtype)
    return found


def schedules() -> dict[str, Array]:
    """Run every schedule of diffusers; keep times and samples of all steps."""
    import diffusers
    import torch

    found = {}
    for name, prediction, spacing in product(SCHEDULES, PREDICTIONS, SPACINGS):
        kind = getattr(diffusers, SCHEDULES[name])
        judge = kind(
            **TRAINED, prediction_type=prediction, timestep_spacing=spacing, steps_offset=1
        )
        if name == "ddim":
            judge.register_to_config(clip_sample=False, set_alpha_to_one=False)
            judge.final_alpha_cumprod = judge.alphas_cumprod[0]
        for eta in (0.0, 0.7) if name == "ddim" else (0.0,):
            judge.set_timesteps(STEPS)
            x = torch.from_numpy(drawn("start", SHAPE, SEED)).double() * judge.init_noise_sigma
            samples = [x.numpy()]
            for step, time in enumerate(judge.timesteps):
                noise = torch.from_numpy(drawn(f"noise {step}", SHAPE, SEED)).double()
                given = judge.scale_model_input(x, time)
                out = torch.from_numpy(answered(given.numpy(), step, SEED))
                more = {"eta": eta} if name == "ddim" else {}
                with patch.object(sys.modules[kind.__module__], "randn_tensor", return_value=noise):
                    x = judge.step(out, time, x, **more).prev_sample.double()
                samples.append(x.numpy())
            case = f"{name} {prediction} {spacing} {eta}"
            found[f"{case} times"] = judge.timesteps.numpy().astype(np.float64)
            found[case] = np.stack(samples).astype(np.float32)
    return found


ANSWERS: Mapping[str, Callable[[], dict[str, Any]]] = {"schedules": schedules}


def main(chosen: list[str]) -> int:
    """Write the answers of the names, by default all."""
    DATA.mkdir(parents=True, exist_ok=True)
    for name in chosen or ANSWERS:
        np.savez_compressed(DATA / f"{name}.npz", **ANSWERS[name]())
        raw = (DATA / f"{name}.npz").read_bytes()
        told = {"seed": SEED, "sha256": hashlib.sha256(raw).hexdigest()}
        (DATA / f"{name}.json").write_text(json.dumps(told) + "\n", "utf-8")
        print(name, len(raw), "bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
