"""From files to the networks: tensors are found, checked and copied.

A model is a folder in the layout of diffusers, or a single checkpoint. Each network is made twice:
first without weights, to compare its tensors with the files, then with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ubridge as ub
from ubridge.core.block_formats import BlockFormat
from ubridge.core.fits import require
from ubridge.device.host import has_host_memory
from ubridge.files.entries import bounds_of
from ubridge.files.folders import files_of
from ubridge.files.settings import Settings
from ubridge.models.diffusion.design import VERSIONS, TextDesign, UNetDesign, VaeDesign, Version
from ubridge.models.diffusion.layers import Take, Tensor, TooManyError, Weight
from ubridge.models.diffusion.names import Spell, Spelling, of_checkpoint, of_folder
from ubridge.models.diffusion.schedule import Training
from ubridge.models.diffusion.text_encoder import TextEncoder
from ubridge.models.diffusion.unet import UNet
from ubridge.models.diffusion.vae import Vae
from ubridge.models.weights import (
    in_kind,
    nbytes_of,
    recipe_for,
    require_fitting,
    require_room,
    usual_dtype,
)
from ubridge.recipes import Shape
from uhal import Device, DType
from uhal.dtypes import bf16, f16, f32
from uhal.errors import ArgumentValueError, NotFoundError
from uhal.progress import Bar, Progress, in_units

_FLOATS = (f32, f16, bf16)
_COUNTS = ("num_hidden_layers", "layers_per_block")
_MOST_WRONG = 1000
"""Number of missing tensors at which the comparison ends: damaged sizes ask for millions."""
_UNUSED = ("position_ids", "text_projection.weight", "logit_scale")


class Part(NamedTuple):
    """A network of a model."""

    stem: str
    """Prefix of its file names, in the folder of the network's name."""
    design: Any
    network: Any


PARTS: Mapping[str, Part] = {
    "text_encoder": Part("model", TextDesign, TextEncoder),
    "unet": Part("diffusion_pytorch_model", UNetDesign, UNet),
    "vae": Part("diffusion_pytorch_model", VaeDesign, Vae),
}


@dataclass(frozen=True)
class Networks:
    """A model on a device."""

    text_encoder: TextEncoder
    unet: UNet
    vae: Vae


@dataclass(frozen=True)
class Source:
    """The files of a network."""

    where: str
    weights: ub.Weights
    spell: Spell
    is_whole: bool
    """Whether the files hold only tensors of this network."""

    def found(self, name: str) -> Spelling | None:
        """Return the tensor of a name."""
        there = (one for one in self.spell(name) if one.name in self.weights.entries)
        return next(there, None)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return the values of a name, in the type of the file."""
        one = self.found(name)
        assert one is not None
        whole = self.weights[one.name]
        assert isinstance(whole, Tensor)
        if one.third is not None:
            whole = whole[one.third * shape[0] : (one.third + 1) * shape[0]]
        return whole.reshape(shape)


def sources_of(
    path: Path, device: Device, version: Version | str | None
) -> tuple[Version, dict[str, Source]]:
    """Return the sizes of a model and the files of its networks; only headers are read.

    Raises `NotFoundError`, `InvalidFileError`, `NotSupportedError`, and `ArgumentValueError` for an
    unknown version, or for a single checkpoint without a version.
    """
    known = ", ".join(VERSIONS)
    told = VERSIONS.get(version) if isinstance(version, str) else version
    if version is not None and told is None:
        raise ArgumentValueError(f"version: expected one of {known}, got {version!r}")
    if path.is_dir():
        configs = {part: _configuration(path / part / "config.json") for part in PARTS}
        files = {
            part: ub.load(_file_of(path / part, stem), device=device)
            for part, (stem, _, _) in PARTS.items()
        }
        for part, one in files.items():
            bounds = bounds_of(one.entries.values(), _COUNTS)
            configs[part] = configs[part].read_as({}, bounds=bounds)
        own = _version_of(path, configs)
        if told and (told.unet, told.training.prediction) != (own.unet, own.training.prediction):
            raise ArgumentValueError(
                f"version: expected the model of {path}, got {told.name}: its UNet has other sizes "
                "or another prediction. Leave the version out for a folder."
            )
        return own, {
            part: Source(f"{path / part}", files[part], of_folder(part), True) for part in PARTS
        }
    if not path.exists():
        raise NotFoundError(f"{path}: there is no such file or folder")
    if told is None:
        raise ArgumentValueError(
            f"{path}: expected a version, for a single file does not name its own. Give one of "
            f"{known}."
        )
    weights = ub.load(path, device=device)
    return told, {
        part: Source(f"{path}, {part}", weights, of_checkpoint(part, told), False) for part in PARTS
    }


def _version_of(folder: Path, configs: Mapping[str, Settings]) -> Version:
    """The sizes in a folder's configurations."""
    sizes = {part: PARTS[part].design.read(config) for part, config in configs.items()}
    text, unet, vae = sizes.values()
    if text.hidden != unet.context or unet.latent != vae.latent:
        raise configs["unet"].refuse(
            "cross_attention_dim",
            f"{text.hidden} as hidden_size of the text encoder, with {vae.latent} latent channels",
            [unet.context, unet.latent],
        )
    training = Training.read(_configuration(folder / "scheduler" / "scheduler_config.json"))
    size = vae.factor * configs["unet"].integer("sample_size", 64, 1)
    return Version(folder.resolve().name, **sizes, training=training, size=size)


def _configuration(path: Path) -> Settings:
    try:
        return Settings.read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{path}: expected a configuration of diffusers, there is none. Give the folder that "
            "has text_encoder, unet, vae, scheduler and tokenizer."
        ) from None


def _file_of(folder: Path, stem: str) -> Path:
    """The weights of a network: whole, in parts, or in f16."""
    for kind in ("safetensors", "safetensors.index.json", "fp16.safetensors"):
        if (folder / f"{stem}.{kind}").exists():
            return folder / f"{stem}.{kind}"
    return files_of(folder)[0]


class Loader:
    """Checks a model's files, and copies its weights to a device."""

    def __init__(
        self,
        version: Version,
        sources: Mapping[str, Source],
        device: Device,
        dtype: DType | None,
        quantize: str | None,
    ) -> None:
        """Compare the files with the sizes; nothing is read.

        Raises `InvalidFileError`, which names missing, unknown and misshapen tensors, and
        `NotSupportedError` where the device has no products of quantized weights.
        """
        require(dtype in (None, *_FLOATS), f"dtype: expected f32, f16 or bf16, got {dtype}")
        self._version, self._sources, self.device = version, sources, device
        self._recipe = recipe_for(quantize, device)
        self.dtype = dtype or usual_dtype(sources["unet"].weights.entries)
        self.nbytes = 0
        """Bytes of the weights on the device, pages of files included."""
        self._allocated = 0
        self._wanted = {
            part: wanted_of(part, getattr(version, part), len(one.weights) + _MOST_WRONG)
            for part, one in sources.items()
        }
        wrong = [text for part in sources for text in self._compared(part)]
        require_fitting("", wrong)

    def require_room(self, progress: Progress) -> None:
        """Print the memory of the weights, if `progress` is True; refuse too large a model."""
        what = f"{self._version.name}: {in_units(self.nbytes)} of weights"
        require_room(what, self._allocated, self.device, progress)

    def load(self, progress: Progress) -> Networks:
        """Return the networks with their weights."""
        made = {}
        with Bar(progress, self.nbytes, f"loading {self._version.name}") as bar:
            for part, source in self._sources.items():
                weights: dict[str, Weight] = {}
                for name, shape in self._wanted[part].items():
                    kind = self._kind_of(name, shape)
                    weights[name] = in_kind(source.read(name, shape).contiguous(), kind)
                    bar.add(nbytes_of(shape, kind))
                made[part] = PARTS[part].network(getattr(self._version, part), Take(weights))
        # Conversions that are still under way hold the mapped files.
        self.device.synchronize()
        return Networks(**made)

    def _kind_of(self, name: str, shape: tuple[int, ...]) -> DType | BlockFormat:
        """The type of a weight on the device: matrices of products may be quantized."""
        is_factor = len(shape) == 2 and not name.startswith("embeddings.")
        recipe = self._recipe if is_factor else None
        chosen = None if recipe is None else recipe.format_of("", 0, Shape(1), shape[1])
        return chosen or self.dtype

    def _compared(self, part: str) -> Iterator[str]:
        """Count the bytes of a network; yield everything that does not fit."""
        source, taken = self._sources[part], set()
        entries, where = source.weights.entries, source.where
        for name, shape in self._wanted[part].items():
            one = source.found(name)
            if one is None:
                yield f"{where}: {source.spell(name)[0].name} of shape {shape} is missing"
                continue
            taken.add(one.name)
            entry, kind = entries[one.name], self._kind_of(name, shape)
            if entry.kind not in _FLOATS:
                yield f"{where}: {one.name}: expected f32, f16 or bf16, got {entry.kind}"
            given = tuple(entry.shape)
            whole = shape if one.third is None else (3 * shape[0], *shape[1:])
            # Files may have a matrix as a convolution of 1 x 1.
            if given != whole and (len(whole) != 2 or given != (*whole, 1, 1)):
                yield f"{where}: {one.name}: expected shape {whole}, got {given}"
            size = nbytes_of(shape, kind)
            self.nbytes += size
            if not (has_host_memory(self.device) and entry.kind == kind):
                self._allocated += size
        for name in entries if source.is_whole else ():
            if name not in taken and not name.endswith(_UNUSED):
                shape = entries[name].shape
                yield f"{where}: {name} of shape {shape} is there, and nothing asks for it"


def wanted_of(part: str, design: Any, most: int = 1 << 63) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a network's weights, at most `most` + 1."""
    take = Take(most=most)
    with suppress(TooManyError):
        PARTS[part].network(design, take)
    return take.wanted
