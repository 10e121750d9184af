"""`StableDiffusion`: a model on a device, from prompts to pictures."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import ubridge as ub
from ubridge.core.fits import require
from ubridge.core.operand_checks import require_number, whole_number
from ubridge.files.folders import expanded
from ubridge.models.diffusion.design import Version
from ubridge.models.diffusion.layers import Tensor
from ubridge.models.diffusion.loading import Loader, Networks, sources_of
from ubridge.models.diffusion.schedule import Schedule, schedule
from ubridge.models.diffusion.unet import UNet
from ubridge.models.step import Captured
from ubridge.models.tokenizers.clip import ClipTokenizer
from uhal import Device, DType
from uhal.device import DeviceLike, as_device
from uhal.dtypes import DTypeLike, as_dtype, f32
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.images.regular_file import path_of
from uhal.progress import Progress

Pictures: TypeAlias = npt.NDArray[np.uint8]
OnStep: TypeAlias = Callable[[int, Tensor], object]


class StableDiffusion:
    """Stable Diffusion 1.x or 2.x, whose weights are on a device. `load` makes it::

        model = StableDiffusion.load("stable-diffusion-v1-5")
        pictures = model("a rusty robot on a beach", steps=30, seed=1)

    The model holds no state of a picture. Any thread may use it.
    """

    def __init__(
        self, networks: Networks, version: Version, tokenizer: ClipTokenizer, loader: Loader
    ) -> None:
        """Made by `load`."""
        self._networks = networks
        self.version = version
        """Sizes of the networks and the training."""
        self.tokenizer = tokenizer
        self.device: Device = loader.device
        """The device of its weights."""
        self.dtype = loader.dtype
        """Type of activations and dense weights; latents are f32."""

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        version: Version | str | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        quantize: str | None = None,
        progress: Progress = None,
    ) -> StableDiffusion:
        """Read a model: a folder in the layout of diffusers, or a single `.safetensors` checkpoint.

        A checkpoint needs a `version`, a name in `VERSIONS`, and the folder or file of a
        `tokenizer`. `dtype` is f32, f16 or bf16, by default the type of the files. `quantize`
        converts the matrices of linear layers during loading, for example to `q8_0`; convolutions
        stay dense. With `progress=True` standard error first names the memory needed.

        Raises `NotFoundError`, `NotSupportedError` (other models), `InvalidFileError` (damaged
        files, missing or misshapen tensors), `ArgumentValueError` (versions) and
        `OutOfMemoryError`, all before a weight is read.
        """
        where = expanded(path_of("StableDiffusion.load, path", path))
        at = Device.current() if device is None else as_device(device)
        known, sources = sources_of(where, at, version)
        if tokenizer is None and not where.is_dir():
            raise ArgumentValueError(
                f"{where}: expected a tokenizer, for a single file holds none. Give the folder of "
                "vocab.json and merges.txt."
            )
        of_words = path_of("StableDiffusion.load, tokenizer", tokenizer or where / "tokenizer")
        words = ClipTokenizer.read(expanded(of_words), known.pad)
        most = known.text_encoder.vocabulary
        require(
            words.vocabulary <= most,
            f"{where}: expected a tokenizer of at most {most} tokens, got {words.vocabulary}",
        )
        loader = Loader(known, sources, at, None if dtype is None else as_dtype(dtype), quantize)
        loader.require_room(progress)
        return cls(loader.load(progress), known, words, loader)

    def __call__(
        self,
        prompt: str,
        *,
        negative: str = "",
        height: int | None = None,
        width: int | None = None,
        steps: int = 30,
        guidance: float = 7.5,
        scheduler: str = "ddim",
        eta: float = 0.0,
        samples: int = 1,
        seed: int = 0,
        image: Pictures | None = None,
        strength: float = 0.8,
        on_step: OnStep | None = None,
    ) -> Pictures:
        """Return pictures of a prompt: u8 (samples, height, width, 3).

        Height and width are multiples of 8, by default the model's own. `guidance` weighs the
        prompt against `negative`; with at most 1, `negative` has no effect. Picture i is made from
        the noise of `seed + i`, which has the same bits on every backend. With `image`, u8 (height,
        width, 3), pictures begin with this image instead of noise. `strength`, from 0 to 1, is the
        share of steps that change the image. `on_step(number, latents)` is called after each step.

        Raises `ArgumentValueError` and `ArgumentTypeError` before anything runs.
        """
        count = whole_number("samples", samples, 1)
        number = operator.index(seed)
        require(0 <= number < 2**64 - count, f"seed: expected 0…2**64 - samples, got {seed}")
        for name, value in (("guidance", guidance), ("strength", strength), ("eta", eta)):
            require_number(name, value)
        require(0 <= strength <= 1, f"strength: expected 0…1, got {strength}")
        rows, columns = self._size(height, width, image)
        plan = schedule(scheduler, steps, self.version.training, eta=eta)
        generators = [ub.Generator(number + one) for one in range(count)]
        if image is None:
            factor = self.version.vae.factor
            shape = (self.version.vae.latent, rows // factor, columns // factor)
            latents = self._noise(generators, shape) * plan.start
        else:
            clean, start = self.encode(image, generators), steps - int(steps * strength)
            if start == steps:
                return self.decode(clean)
            of_image, of_noise = plan.noised[start]
            latents = clean * of_image + self._noise(generators, clean.shape[1:]) * of_noise
            plan = plan.begun_at(start)
        context = self.embed([negative, prompt] if guidance > 1 else [prompt])
        found = self.denoise(latents, context, plan, guidance, generators, on_step=on_step)
        return self.decode(found)

    # -- parts -----------------------------------------------------------------------------------

    def embed(self, prompts: Sequence[str]) -> Tensor:
        """Return the text encoder's result for prompts: (prompts, positions, elements).

        A `UserWarning` names a prompt that is longer than the positions; its end has no effect.
        """
        count = self.version.text_encoder.positions
        rows = [self.tokenizer.padded(prompt, count) for prompt in prompts]
        ids = ub.asarray(np.array(rows, np.int64), device=self.device)
        return self._networks.text_encoder(ids)

    def predict(self, latents: Tensor, time: float, context: Tensor) -> Tensor:
        """Return the UNet's result for latents at a time of training.

        Latents are (batch, channels, rows, columns); `context` has one row for each element of the
        batch.
        """
        unet = self._networks.unet
        row = ub.asarray(unet.times([time]), device=self.device).astype(self.dtype, copy=False)
        return unet(latents.astype(self.dtype, copy=False), row, context)

    def denoise(
        self,
        latents: Tensor,
        context: Tensor,
        plan: Schedule,
        guidance: float = 7.5,
        generators: Sequence[ub.Generator] = (),
        *,
        on_step: OnStep | None = None,
    ) -> Tensor:
        """Run all steps of a schedule; return latents, f32.

        `context` has a row for the prompt, or two with the negative prompt first. Schedules that
        draw noise take one generator for each element of the batch. The first step is captured;
        each further step replays the plan with one native call.
        """
        require(
            not plan.draws or len(generators) == latents.shape[0],
            f"denoise: expected {latents.shape[0]} generators, as {plan.name} draws noise, got "
            f"{len(generators)}",
        )
        x, noise = latents.astype(f32).contiguous(), ub.zeros_like(latents, f32)
        unet = self._networks.unet
        advance = _step_of(unet, plan, x, noise, context, guidance, self.dtype)
        captured = None
        try:
            for number in range(len(plan.steps)):
                if plan.draws:
                    noise.copy_from(self._noise(generators, x.shape[1:]))
                if captured is None:
                    captured = Captured(self.device, advance)
                else:
                    captured.replay(step=number)
                if on_step is not None:
                    on_step(number, x)
            return x.copy()
        finally:
            if captured is not None:
                captured.close()

    def encode(self, image: Pictures, generators: Sequence[ub.Generator]) -> Tensor:
        """Return latents of a picture, u8 (height, width, 3): a sample for each generator, f32."""
        values = np.ascontiguousarray(np.moveaxis(image, -1, 0)[None], np.float32) / 127.5 - 1
        given = ub.asarray(values, device=self.device).astype(self.dtype, copy=False)
        mean, spread = (one.astype(f32, copy=False) for one in self._networks.vae.encode(given))
        found = mean + spread * self._noise(generators, mean.shape[1:])
        return found * self.version.vae.scale

    def decode(self, latents: Tensor) -> Pictures:
        """Return the pictures of latents: u8 (batch, height, width, 3)."""
        given = (latents * (1 / self.version.vae.scale)).astype(self.dtype, copy=False)
        # One by one: the activations of a picture are the most memory that a model takes.
        found = [
            self._networks.vae.decode(given[one : one + 1]).astype(f32, copy=False)
            for one in range(given.shape[0])
        ]
        values = ub.round(ub.clip(ub.concatenate(found, 0) * 127.5 + 127.5, 0.0, 255.0))
        pictures: Pictures = np.moveaxis(values.to_numpy(), 1, -1).astype(np.uint8)
        return np.ascontiguousarray(pictures)

    # -- inside ----------------------------------------------------------------------------------

    def _noise(self, generators: Sequence[ub.Generator], shape: Sequence[int]) -> Tensor:
        drawn = [ub.randn((1, *shape), seed=one, device=self.device) for one in generators]
        return ub.concatenate(drawn, 0)

    def _size(
        self, height: int | None, width: int | None, image: Pictures | None
    ) -> tuple[int, int]:
        """Rows and columns of pictures."""
        factor, usual = self.version.vae.factor, (self.version.size, self.version.size)
        if image is not None and not (isinstance(image, np.ndarray) and image.dtype == np.uint8):
            raise ArgumentTypeError(
                "image: expected an array of u8 (height, width, 3), got "
                f"{getattr(image, 'dtype', type(image).__name__)}"
            )
        have = usual if image is None else (*image.shape, 0, 0)[:2]
        sizes = have[0] if height is None else height, have[1] if width is None else width
        if image is not None and image.shape != (*sizes, 3):
            raise ArgumentValueError(
                f"image: expected shape {(*sizes, 3)}, got {image.shape}. Resize it first."
            )
        for name, size in zip(("height", "width"), sizes, strict=True):
            below = whole_number(name, size, factor) // factor * factor
            require(
                size == below,
                f"{name}: expected a multiple of {factor}, got {size}. Take {below} or "
                f"{below + factor}.",
            )
        return sizes


def _step_of(
    unet: UNet,
    plan: Schedule,
    x: Tensor,
    noise: Tensor,
    context: Tensor,
    guidance: float,
    dtype: DType,
) -> Callable[[ub.ComputeGraph], Tensor]:
    """Operations of one step, which changes x; a graph gets a slot for the step's number."""
    before, samples = ub.zeros_like(x), x.shape[0]
    table = ub.asarray(plan.table(), device=x.device)
    times = ub.asarray(unet.times([one.time for one in plan.steps]), device=x.device)
    times = times.astype(dtype, copy=False)
    is_guided, is_second = context.shape[0] == 2, any(one.of_before for one in plan.steps)
    # The network's batch: all latents with the negative prompt, then all with the prompt.
    contexts = ub.repeat(context, samples, axis=0)

    def advance(graph: ub.ComputeGraph) -> Tensor:
        number = graph.scalar("step", 0, low=0, high=len(plan.steps) - 1).reshape(1)
        factors = ub.split(ub.take(table, number, 0).reshape(-1, 1, 1, 1), table.shape[1])
        scale, x0_of_x, x0_of_out, of_x, of_x0, of_before, of_noise = factors
        given = (x * scale).astype(dtype, copy=False)
        if is_guided:
            given = ub.concatenate([given, given], 0)
        out = unet(given, ub.take(times, number, 0), contexts).astype(f32, copy=False)
        if is_guided:
            without, out = ub.split(out, 2)
            out = without + (out - without) * guidance
        x0 = x * x0_of_x + out * x0_of_out
        after = x * of_x + x0 * of_x0
        if is_second:
            after = after + before * of_before
            before.copy_from(x0)
        if plan.draws:
            after = after + noise * of_noise
        x.copy_from(after)
        return x

    return advance
