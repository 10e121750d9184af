"""From files to the networks: tensors are found, checked and copied.

A model is a folder in the layout of diffusers, or a single checkpoint. Each network is made twice:
first to compare its tensors with the files, then with its weights.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import ubridge as ub
from ubridge.core.block_formats import BlockFormat
from ubridge.definitions.products import QUANTIZED_PRODUCT
from ubridge.device.host import has_host_memory
from ubridge.files.entries import bounds_of
from ubridge.files.folders import files_of
from ubridge.files.settings import Settings
from ubridge.models.diffusion.design import TextDesign, UNetDesign, VaeDesign
from ubridge.models.diffusion.layers import Take, Tensor, Weight
from ubridge.models.diffusion.names import Spell, Spelling, of_checkpoint, of_folder
from ubridge.models.diffusion.schedule import Training
from ubridge.models.diffusion.text_encoder import TextEncoder
from ubridge.models.diffusion.unet import UNet
from ubridge.models.diffusion.vae import Vae
from ubridge.models.diffusion.versions import VERSIONS, Version
from ubridge.recipes import Recipe, recipe_of
from uhal import Device, DType
from uhal.dtypes import bf16, f16, f32
from uhal.errors import ArgumentValueError, NotFoundError, NotSupportedError, OutOfMemoryError
from uhal.progress import Bar, Progress, in_units

PARTS = {
    "text_encoder": "model",
    "unet": "diffusion_pytorch_model",
    "vae": "diffusion_pytorch_model",
}
"""Folders of the networks, and the stem of their files."""
_COUNTS = ("num_hidden_layers", "layers_per_block")
_UNUSED = ("position_ids", "text_projection.weight", "logit_scale")
_SHOWN = 6
"""Most wrong tensors that an error lists."""
_MOST_WRONG = 1000
"""Number of wrong tensors at which the comparison ends: damaged sizes ask for millions."""


@dataclass(frozen=True)
class Source:
    """The files of a network."""

    where: str
    weights: ub.Weights
    spell: Spell
    is_whole: bool
    """Whether the files have no tensors of anything else."""


@dataclass(frozen=True)
class Networks:
    """A model on a device."""

    text: TextEncoder
    unet: UNet
    vae: Vae


def sources_of(
    path: Path, device: Device, version: Version | str | None
) -> tuple[Version, dict[str, Source]]:
    """Return the sizes of a model and the files of its networks; only headers are read.

    Raises `NotFoundError`, `InvalidFileError`, `NotSupportedError`, and `ArgumentValueError` for an
    unknown version, or none for a single checkpoint.
    """
    told = version
    if isinstance(version, str):
        if version not in VERSIONS:
            raise ArgumentValueError(
                f"version: expected one of {', '.join(VERSIONS)}, got {version!r}"
            )
        told = VERSIONS[version]
    assert not isinstance(told, str)
    if path.is_dir():
        configurations = {part: _configuration(path / part / "config.json") for part in PARTS}
        weights = {
            part: ub.load(_file_of(path / part, stem), device=device)
            for part, stem in PARTS.items()
        }
        found = _version_of(path, configurations, weights)
        if told is not None and (told.unet, told.training.prediction) != (
            found.unet,
            found.training.prediction,
        ):
            raise ArgumentValueError(
                f"version: expected the model of {path}, got {told.name}: its UNet has other sizes "
                "or another prediction. Leave the version out for a folder."
            )
        return found, {
            part: Source(f"{path / part}", weights[part], of_folder(part), True) for part in PARTS
        }
    if not path.exists():
        raise NotFoundError(f"{path}: there is no such file or folder")
    if told is None:
        raise ArgumentValueError(
            f"{path}: expected a version, for a single file does not name its own. Give one of "
            f"{', '.join(VERSIONS)}."
        )
    whole = ub.load(path, device=device)
    return told, {
        part: Source(f"{path}, {part}", whole, of_checkpoint(part, told), False) for part in PARTS
    }


def _version_of(
    folder: Path, told: Mapping[str, Settings], weights: Mapping[str, ub.Weights]
) -> Version:
    """The sizes in a folder's configurations, as far as its files can have them."""
    read = {
        part: told[part].read_as({}, bounds=bounds_of(weights[part].entries.values(), _COUNTS))
        for part in PARTS
    }
    training = folder / "scheduler" / "scheduler_config.json"
    unet, vae = UNetDesign.read(read["unet"]), VaeDesign.read(read["vae"])
    text = TextDesign.read(read["text_encoder"])
    if text.hidden != unet.context or unet.latent != vae.latent:
        raise read["unet"].refuse(
            "cross_attention_dim",
            f"{text.hidden} as hidden_size of the text encoder, with {vae.latent} latent channels",
            [unet.context, unet.latent],
        )
    return Version(
        folder.resolve().name,
        text,
        unet,
        vae,
        Training.read(_configuration(training)),
        vae.factor * read["unet"].integer("sample_size", 64, 1),
    )


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
    for name in (
        f"{stem}.safetensors",
        f"{stem}.safetensors.index.json",
        f"{stem}.fp16.safetensors",
    ):
        if (folder / name).exists():
            return folder / name
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
        self._version, self._sources, self.device = version, sources, device
        self._recipe = None if quantize is None else recipe_of(quantize)
        if quantize is not None and not ub.DeviceExecutor.of(device).has(QUANTIZED_PRODUCT):
            raise NotSupportedError(
                f"quantize={quantize!r}: {device!r} has no products of quantized weights. Load "
                "without quantize=."
            )
        if dtype is not None and dtype not in (f32, f16, bf16):
            raise ArgumentValueError(f"dtype: expected f32, f16 or bf16, got {dtype}")
        self.dtype = dtype or _usual_dtype(sources)
        checks = {part: self._taken(part, _Check) for part in sources}
        _require_none([text for check in checks.values() for text in check.wrong()])
        self.nbytes = sum(check.nbytes for check in checks.values())
        """Bytes of the weights on the device, pages of files included."""
        self._allocated = sum(check.allocated for check in checks.values())

    def require_room(self, progress: Progress) -> None:
        """Print the memory of the weights, if `progress` is True; refuse too large a model."""
        free = self.device.memory_info().free
        words = f"{self._version.name}: {in_units(self.nbytes)} of weights, on {self.device!r}"
        if progress is True:
            print(words, file=sys.stderr, flush=True)
        if self._allocated > free:
            raise OutOfMemoryError(f"{words}; there are {in_units(free)} free; nothing was read")

    def load(self, progress: Progress) -> Networks:
        """Return the networks with their weights."""
        with Bar(progress, self.nbytes, f"loading {self._version.name}") as bar:
            made: dict[str, Any] = {}
            for part, source in self._sources.items():
                take = Bring(source, self.device, self.dtype, self._recipe, bar)
                made[part] = self._made(part, take)
        return Networks(made["text_encoder"], made["unet"], made["vae"])

    def _taken(self, part: str, kind: type[_Check]) -> _Check:
        check = kind(self._sources[part], self.device, self.dtype, self._recipe)
        self._made(part, check)
        return check

    def _made(self, part: str, take: Take) -> TextEncoder | UNet | Vae:
        if part == "text_encoder":
            return TextEncoder(self._version.text, take)
        return UNet(self._version.unet, take) if part == "unet" else Vae(self._version.vae, take)


def _require_none(wrong: Sequence[str]) -> None:
    """Raise `InvalidFileError` for tensors that do not fit."""
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ub.InvalidFileError(f"{'; '.join(wrong[:_SHOWN])}{more}")


def _usual_dtype(sources: Mapping[str, Source]) -> DType:
    """The element type of the UNet's weights if kernels compute in it, else f32."""
    sizes: dict[Any, int] = {}
    for one in sources["unet"].weights.entries.values():
        sizes[one.kind] = sizes.get(one.kind, 0) + one.nbytes
    most = max(sizes, key=lambda kind: sizes[kind], default=f32)
    return most if most in (f16, bf16) else f32


class _Files:
    """The tensors of a network's files, by their names in diffusers."""

    def __init__(self, source: Source, device: Device, dtype: DType, recipe: Recipe | None) -> None:
        self.source, self.device, self.dtype, self.recipe = source, device, dtype, recipe

    def found(self, name: str) -> Spelling | None:
        """Return the tensor of a name."""
        for one in self.source.spell(name):
            if one.name in self.source.weights.entries:
                return one
        return None

    def kind_of(self, columns: int) -> DType | BlockFormat:
        """Return the type of a matrix on the device."""
        chosen = self.recipe and self.recipe.format_of("", 0, 1, columns)
        return chosen or self.dtype


class _Check(_Files):
    """Compares names and shapes, and counts bytes. It returns no tensors."""

    def __init__(self, source: Source, device: Device, dtype: DType, recipe: Recipe | None) -> None:
        super().__init__(source, device, dtype, recipe)
        self.nbytes = self.allocated = 0
        self._wrong: list[str] = []
        self._taken: set[str] = set()

    def __call__(self, name: str, *shape: int) -> Tensor:
        return cast(Tensor, self._compared(name, shape, self.dtype))

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        return cast(Tensor, self._compared(name, (rows, columns), self.kind_of(columns)))

    def wrong(self) -> list[str]:
        """Return everything that does not fit."""
        if not self.source.is_whole:
            return self._wrong
        entries = self.source.weights.entries
        return self._wrong + [
            f"{self.source.where}: {name} of shape {entry.shape} is there, and nothing asks for it"
            for name, entry in entries.items()
            if name not in self._taken and not name.endswith(_UNUSED)
        ]

    def _compared(self, name: str, shape: tuple[int, ...], kind: DType | BlockFormat) -> None:
        where, one = self.source.where, self.found(name)
        if one is None:
            expected = self.source.spell(name)[0].name
            self._wrong.append(f"{where}: {expected} of shape {shape} is missing")
            if len(self._wrong) == _MOST_WRONG:
                _require_none(self._wrong)
            return
        self._taken.add(one.name)
        entry = self.source.weights.entries[one.name]
        if not isinstance(entry.kind, DType) or entry.kind not in (f32, f16, bf16):
            self._wrong.append(f"{where}: {one.name}: expected f32, f16 or bf16, got {entry.kind}")
        whole = shape if one.third is None else (3 * shape[0], *shape[1:])
        given = tuple(entry.shape)
        if given not in (whole, (*whole, 1, 1) if len(shape) == 2 else whole):
            self._wrong.append(f"{where}: {one.name}: expected shape {whole}, got {given}")
        if isinstance(kind, BlockFormat):
            size = shape[0] * kind.row_bytes(shape[1])
        else:
            size = prod(shape) * kind.itemsize
        self.nbytes += size
        if not (has_host_memory(self.device) and entry.kind == kind):
            self.allocated += size


class Bring(_Files):
    """Copies tensors to the device, in the wanted types."""

    def __init__(
        self, source: Source, device: Device, dtype: DType, recipe: Recipe | None, bar: Bar
    ) -> None:
        super().__init__(source, device, dtype, recipe)
        self._bar = bar

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return a tensor in the type of the activations."""
        found = self._read(name, shape).astype(self.dtype, copy=False).contiguous()
        self._bar.add(found.nbytes)
        return found

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """Return a matrix, quantized where the recipe has a format for its rows."""
        kind = self.kind_of(columns)
        if isinstance(kind, DType):
            return self(name, rows, columns)
        values = self._read(name, (rows, columns)).astype(f32, copy=False).to_numpy()
        found = ub.QuantizedWeight.from_numpy(values, kind, device=self.device)
        self._bar.add(rows * kind.row_bytes(columns))
        return found

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        one = self.found(name)
        assert one is not None
        whole = self.source.weights[one.name]
        assert isinstance(whole, Tensor)
        if one.third is not None:
            whole = whole[one.third * shape[0] : (one.third + 1) * shape[0]]
        return whole.reshape(shape)
