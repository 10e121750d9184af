"""`python -m uhal stable-diffusion`: pictures of a prompt, with the options of Candle's example."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubridge.core.fits import require
from ubridge.device.host import HOST
from ubridge.files.errors import InvalidFileError
from ubridge.models.commands.options import SEED, text_given
from ubridge.models.diffusion.design import VERSIONS
from ubridge.models.diffusion.pipeline import Pictures, StableDiffusion
from ubridge.models.diffusion.schedule import SCHEDULES
from uhal import Api

_PROMPT = "A very realistic photo of a rusty robot walking on a sandy beach"


def run(arguments: Sequence[str]) -> int:
    """Write pictures as PNG."""
    options = _parser().parse_args(arguments)
    image = _image_module()
    prompt = text_given("--prompt", options.prompt)
    negative = text_given("--uncond-prompt", options.uncond_prompt)
    require(
        options.final_image.suffix.lower() == ".png",
        f"--final-image: expected a file that ends in .png, got {options.final_image}",
    )
    start = None if options.img2img is None else _picture(options.img2img, options, image)
    dtype = "f16" if options.use_f16 else options.dtype
    device = Api.quick_init(options.device, backend=HOST if options.cpu else options.backend)
    _say(f"{device.backend}:{device.ordinal} {device.name}")
    began = time.perf_counter()
    model = StableDiffusion.load(
        options.model,
        version=options.sd_version,
        tokenizer=options.tokenizer,
        dtype=dtype,
        quantize=options.quant,
        progress=True,
    )
    _say(f"loaded the model in {time.perf_counter() - began:.3g}s")
    for number in range(options.num_samples):
        path = _numbered(options.final_image, number, options.num_samples)
        began = time.perf_counter()

        def stepped(step: int, latents: Any, path: Path = path, began: float = began) -> None:
            taken = (time.perf_counter() - began) / (step + 1)
            print(f"\rstep {step + 1} ({taken:.2f} s a step)", end="", file=sys.stderr, flush=True)
            if options.intermediary_images:
                between = path.with_name(f"{path.stem}-{step + 1}{path.suffix}")
                image.fromarray(model.decode(latents)[0]).save(between)

        pictures = model(
            prompt,
            negative=negative,
            height=options.height,
            width=options.width,
            steps=options.n_steps,
            guidance=options.guidance_scale,
            scheduler=options.scheduler,
            seed=options.seed + number,
            image=start,
            strength=options.img2img_strength,
            on_step=stepped,
        )
        image.fromarray(pictures[0]).save(path)
        _say(f"\n{path} after {time.perf_counter() - began:.3g}s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m uhal stable-diffusion", description=__doc__)
    add = parser.add_argument
    what = "a folder in the layout of diffusers, or a .safetensors checkpoint"
    add("model", type=Path, metavar="MODEL", help=what)
    add("--prompt", default=_PROMPT, metavar="TEXT", help="contents of the picture")
    add("--uncond-prompt", default="", metavar="TEXT", help="contents to avoid")
    add("--height", type=int, metavar="N", help="rows, a multiple of 8; default: the model's")
    add("--width", type=int, metavar="N", help="columns, a multiple of 8; default: the model's")
    add("--n-steps", type=int, default=30, metavar="N", help="steps of denoising (default 30)")
    add("--num-samples", type=int, default=1, metavar="N", help="pictures (default 1)")
    add("--seed", type=int, default=SEED, metavar="S", help=f"of the noise (default {SEED})")
    known = ", ".join(VERSIONS)
    add("--sd-version", metavar="NAME", help=f"of a checkpoint: {known}")
    told = "weight of the prompt (default 7.5); at most 1 leaves out --uncond-prompt"
    add("--guidance-scale", type=float, default=7.5, metavar="G", help=told)
    add("--scheduler", choices=tuple(SCHEDULES), default="ddim", help="default ddim")
    add("--img2img", type=Path, metavar="FILE", help="a picture to begin with")
    told = "share of the steps that change it, 0 to 1 (default 0.8)"
    add("--img2img-strength", type=float, default=0.8, metavar="X", help=told)
    told = "default sd_final.png; several get numbers"
    add("--final-image", type=Path, default=Path("sd_final.png"), metavar="FILE", help=told)
    add("--intermediary-images", action="store_true", help="also write a picture after each step")
    told = "folder of a checkpoint's vocab.json and merges.txt"
    add("--tokenizer", type=Path, metavar="DIR", help=told)
    add("--use-f16", action="store_true", help="as --dtype f16")
    add("--dtype", choices=("f32", "f16", "bf16"), help="default: the dtype of the files")
    add("--quant", metavar="FORMAT", help="bring matrices to a format such as q8_0")
    add("--backend", metavar="NAME", help="cuda, rocm, opencl, host; default: the first there")
    add("--device", type=int, default=0, metavar="I", help="ordinal of the device (default 0)")
    add("--cpu", action="store_true", help="run on the host, as --backend host does")
    return parser


def _image_module() -> Any:
    """Pillow's module of images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "pictures are written by pillow: pip install 'uhal-py[diffusion]'"
        ) from error
    return Image


def _picture(path: Path, options: argparse.Namespace, image: Any) -> Pictures:
    """A file's picture in the size of --height and --width, by default cut to multiples of 8."""
    try:
        with image.open(path) as opened:
            found = opened.convert("RGB")
    except image.UnidentifiedImageError:
        raise InvalidFileError(f"{path}: expected a picture that pillow reads") from None
    width = options.width or found.width // 8 * 8
    height = options.height or found.height // 8 * 8
    require(
        width and height,
        f"{path}: expected at least 8 rows and columns, got {found.height} and {found.width}",
    )
    if (width, height) != found.size:
        found = found.resize((width, height))
    return np.asarray(found, np.uint8)


def _numbered(path: Path, number: int, count: int) -> Path:
    return path if count == 1 else path.with_name(f"{path.stem}.{number + 1}{path.suffix}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
