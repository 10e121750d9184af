"""diffusers as the reference of Stable Diffusion: kept answers, with their digest.

`python -m tests.ubridge.diffusion.judging [NAME…]` needs diffusers and transformers. It writes the
answers, so that tests do not need these packages.
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


# -- tiny pipelines ------------------------------------------------------------------------------

TEXT = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 77},
}
UNET = {
    **{"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8},
    **{"cross_attention_dim": 32, "sample_size": 8, "in_channels": 4, "out_channels": 4},
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
VAE = {
    **{"block_out_channels": (32, 64), "layers_per_block": 2, "norm_num_groups": 8},
    **{"latent_channels": 4, "sample_size": 16},
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
CONFIGS = {
    "v1": {
        "text_encoder": {**TEXT, "hidden_act": "quick_gelu"},
        "unet": {**UNET, "attention_head_dim": 4},
        "vae": VAE,
        "scheduler": {"prediction_type": "epsilon"},
    },
    "v2": {
        "text_encoder": {**TEXT, "hidden_act": "gelu"},
        "unet": {
            **UNET,
            **{"attention_head_dim": (2, 4, 8), "use_linear_projection": True},
            **{"block_out_channels": (32, 64, 64), "layers_per_block": 2},
            "down_block_types": ("CrossAttnDownBlock2D",) * 2 + ("DownBlock2D",),
            "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 2,
        },
        "vae": {
            **VAE,
            **{"block_out_channels": (16, 32, 32), "layers_per_block": 1, "sample_size": 32},
            "down_block_types": ("DownEncoderBlock2D",) * 3,
            "up_block_types": ("UpDecoderBlock2D",) * 3,
        },
        "scheduler": {"prediction_type": "v_prediction"},
    },
}
"""Settings of each case's pipeline that differ from the defaults of diffusers."""
LATENTS = {"v1": (2, 4, 8, 8), "v2": (1, 4, 9, 11)}
"""Shapes of latents: a batch, and sizes that are odd on every level."""
TIMES = {"v1": 781.0, "v2": 20.5}
PICTURES = {"v1": (1, 3, 24, 16), "v2": (1, 3, 40, 32)}
TILED = {"v1": (1, 4, 20, 19), "v2": (1, 4, 17, 20)}
"""Shapes of latents that are processed in tiles."""
GUIDANCE = 3.0


def tokens_of(case: str) -> Array:
    """Return ids of two prompts."""
    rng = np.random.default_rng([SEED, len(case)])
    return rng.integers(0, TEXT["vocab_size"], (2, TEXT["max_position_embeddings"]))


def weights_of(part: str, shapes: Mapping[str, Any]) -> dict[str, Array]:
    """Return the drawn tensors of a network. Norms are 1 ± 0.5, and biases are included."""
    found = {}
    for name, shape in shapes.items():
        size = tuple(shape)
        if len(size) == 4:
            # Flatten, because the spread depends on all terms of the sum over a window.
            flat = drawn(f"{part}.{name}", (size[0], int(np.prod(size[1:]))), SEED)
            found[name] = flat.reshape(size)
        else:
            found[name] = drawn(f"{part}.{name}", size, SEED)
    return found


def made(case: str) -> dict[str, Any]:
    """Return the networks of transformers and diffusers, with new random values of every
    parameter."""
    import diffusers
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel

    told = CONFIGS[case]
    networks = {
        "text_encoder": CLIPTextModel(CLIPTextConfig(**told["text_encoder"])),
        "unet": diffusers.UNet2DConditionModel(**told["unet"]),
        "vae": diffusers.AutoencoderKL(**told["vae"]),
    }
    for part, network in networks.items():
        state = {name: one for name, one in network.state_dict().items() if one.is_floating_point()}
        shapes = {name: one.shape for name, one in state.items()}
        drawn_ones = weights_of(part, shapes)
        network.load_state_dict(
            {name: torch.from_numpy(one) for name, one in drawn_ones.items()}, strict=False
        )
        network.eval()
    return networks


def answers_of(case: str, dtype: str = "float64") -> dict[str, Array]:
    """Return embeddings, a step of the UNet, and the VAE both ways, computed in a torch dtype."""
    import torch

    kind = getattr(torch, dtype)
    networks = {part: one.to(kind) for part, one in made(case).items()}

    def given(name: str, shape: tuple[int, ...]) -> Any:
        return torch.from_numpy(drawn(name, shape, SEED)).to(kind)

    vae = networks["vae"]
    with torch.no_grad():
        text = networks["text_encoder"](torch.from_numpy(tokens_of(case))).last_hidden_state
        shape = LATENTS[case]
        predicted = networks["unet"](
            given("latents", shape), torch.tensor(TIMES[case]), text[: shape[0]]
        ).sample
        decoded = vae.decode(given("latents", shape)).sample
        found = {"text": text, "predicted": predicted, "decoded": decoded}
        if dtype != "float64":
            return {name: one.float().numpy() for name, one in found.items()}
        encoded = vae.encode(given("picture", PICTURES[case])).latent_dist
        vae.enable_tiling()
        tiled = vae.decode(given("tiles", TILED[case])).sample
        size = (
            1,
            3,
            *(one * 2 ** (len(vae.config.block_out_channels) - 1) for one in TILED[case][2:]),
        )
        tiled_mean = vae.encode(given("tiled picture", size)).latent_dist.mean
    found |= {"mean": encoded.mean, "spread": encoded.std, "tiled": tiled, "tiled mean": tiled_mean}
    return {name: one.float().numpy() for name, one in found.items()}


def denoised(case: str) -> dict[str, Array]:
    """Return latents after each schedule's 10 steps with guidance, in f64."""
    import diffusers
    import torch

    networks = {part: one.double() for part, one in made(case).items()}
    found = {}
    with torch.no_grad():
        text = networks["text_encoder"](torch.from_numpy(tokens_of(case))).last_hidden_state
        for name, kind in SCHEDULES.items():
            judge = getattr(diffusers, kind)(
                **TRAINED,
                steps_offset=1,
                **CONFIGS[case]["scheduler"],
                **({"clip_sample": False, "set_alpha_to_one": False} if name == "ddim" else {}),
            )
            judge.set_timesteps(STEPS)
            shape = (1, *LATENTS[case][1:])
            x = torch.from_numpy(drawn("start", shape, SEED)).double() * judge.init_noise_sigma
            for step, time in enumerate(judge.timesteps):
                both = judge.scale_model_input(torch.cat([x, x]), time)
                without, out = networks["unet"](both, time, text).sample.chunk(2)
                out = without + GUIDANCE * (out - without)
                noise = torch.from_numpy(drawn(f"noise {step}", shape, SEED)).double()
                module = sys.modules[type(judge).__module__]
                with patch.object(module, "randn_tensor", return_value=noise, create=True):
                    x = judge.step(out, time, x).prev_sample.double()
            found[name] = x.float().numpy()
    return found


def pipeline(case: str) -> dict[str, Any]:
    """Return all answers of a case, and the configurations and shapes of its files."""
    networks = made(case)
    told: dict[str, Any] = {}
    for part, network in networks.items():
        config = network.config.to_dict() if part == "text_encoder" else dict(network.config)
        shapes = {name: list(one.shape) for name, one in network.state_dict().items()}
        config = {key: value for key, value in config.items() if key != "dtype"}
        told[part] = {"config": json.loads(json.dumps(config, default=str)), "shapes": shapes}
    (DATA / f"{case}_files.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
    halves = {
        f"{name} {dtype}": one
        for dtype in ("float16", "bfloat16")
        for name, one in answers_of(case, dtype).items()
    }
    exact = answers_of(case)
    errors = {
        name: np.sqrt(np.mean((one - exact[name.rpartition(" ")[0]]) ** 2))
        for name, one in halves.items()
    }
    return {**exact, **errors, **{f"after {name}": one for name, one in denoised(case).items()}}


ANSWERS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "schedules": schedules,
    "v1": lambda: pipeline("v1"),
    "v2": lambda: pipeline("v2"),
}


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
