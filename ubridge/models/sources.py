"""Sources of a model: a Hugging Face folder or a GGUF file, in one form.

The error for an unsupported kind of file names the kind and an alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import ubridge as ub
from ubridge.files.entries import Bounds, bounds_of
from ubridge.files.folders import PICKLES, expanded, pickled, weights_in
from ubridge.files.gguf_reading import begins_as_gguf
from ubridge.files.settings import Settings
from ubridge.models import rwkv5
from ubridge.models.affine import AffineWeights, settings_of_mlx
from ubridge.models.architecture import Architecture
from ubridge.models.gguf_config import DIVISORS, axes_of_gguf, settings_of_gguf
from ubridge.models.table import (
    PAGE,
    ROWS,
    architecture_of,
    row_of,
    spelled_alike,
    unread_of,
)
from ubridge.models.tensor_names import GGUF_NAMES
from uhal import Device
from uhal.errors import NotFoundError, NotSupportedError

_KIND = "general.architecture"
"""Key of GGUF files."""


@dataclass(frozen=True)
class Source:
    """A model's open files; only their headers are read."""

    path: Path
    design: Architecture
    weights: ub.Weights
    names: Mapping[str, str]
    """Name of each part, as in `table.ArchitectureRow.names`."""
    is_gguf: bool
    ignored: Callable[[str], bool] = field(repr=False, default=lambda name: False)
    """Whether an unused tensor of this name may be in the files."""
    notices: tuple[str, ...] = ()
    """Notes for the user about these files."""

    def spellings(self, layer: int, part: str) -> Iterator[str]:
        """Yield possible names in these files for a part of a layer (-1: outside of layers)."""
        stem, dot, kind = part.partition(".")
        prefix = self.names["layer"].format(layer) if layer >= 0 else ""
        for name in self.names[stem].split():
            yield f"{prefix}{name}{dot}{kind}"


def open_source(path: Path, device: Device) -> Source:
    """Open a folder or a file.

    Raises `NotFoundError` where there is no model, `NotSupportedError` for unsupported kinds of
    files and architectures, `InvalidFileError` for damaged files.
    """
    path = expanded(path)
    if path.suffix in PICKLES:
        raise pickled(path)
    if path.suffix == ".gguf" or begins_as_gguf(path):
        return _open_gguf(path, device)
    if path.is_file():
        return _open_folder(path.parent, device, path)
    if not path.is_dir():
        raise NotFoundError(
            f"{path}: expected a folder with config.json and *.safetensors, or a GGUF file; there "
            "is neither. Nothing is downloaded: fetch a model with hf download NAME --local-dir DIR"
        )
    if (path / "adapter_config.json").exists() and not (path / "config.json").exists():
        raise NotSupportedError(
            f"{path}: this is a LoRA adapter, not a model; merge it into its base with peft's "
            "merge_and_unload() and save that"
        )
    files = weights_in(path)
    if files[0].suffix == ".gguf":
        return _open_gguf(files[0], device)
    return _open_folder(path, device)


def _open_folder(folder: Path, device: Device, file: Path | None = None) -> Source:
    config = _configuration(folder)
    weights = ub.load(file or folder, device=device)
    if settings_of_mlx(config) is not None:
        weights = AffineWeights(weights, config)
    notices = []
    if config.value("model_type") == "rwkv5":
        config = spelled_alike(config).read_as({}, bounds=_bounds(weights))
        design: Architecture = rwkv5.design_of(config)
        names: Mapping[str, str] = rwkv5.NAMES
    else:
        name, row = row_of(config)
        config = spelled_alike(config, row.defaults).read_as({}, bounds=_bounds(weights))
        design, names = architecture_of(name, config), row.names
    names, root = _names_in(weights, names)
    # Tensors of images and sounds, in models that also have a text part.
    others = {one for one in weights if not one.startswith((root, names["head"]))}
    if "text_config" not in config:
        others = set()
    elif others:
        notices.append(f"{folder}: {len(others)} tensors outside of the text part are not read")
    notices.append(unread_of(config))
    generation = folder / "generation_config.json"
    if generation.exists():
        ends = Settings.read(generation).one_or_more(
            "eos_token_id", design.end_tokens, 0, design.vocabulary - 1
        )
        design = replace(design, end_tokens=ends)
    head = f"{names['head']}.weight"
    is_own = (
        design.is_tied
        and head in weights
        and not _are_alike(weights, head, f"{names['embedding']}.weight")
    )
    if is_own:
        design = replace(design, is_tied=False)
        notices.append(
            f"{folder}: {head} differs from the embedding, though tie_word_embeddings says they "
            "are one; the head in the file is used"
        )

    def ignored(tensor: str) -> bool:
        is_buffer = tensor.endswith((".inv_freq", ".attn.bias", ".masked_bias", ".embed_scale"))
        return is_buffer or tensor in others or (design.is_tied and tensor == head)

    told = tuple(one for one in notices if one)
    return Source(folder, design, weights, names, False, ignored, told)


def _configuration(folder: Path) -> Settings:
    """The `config.json` of a folder; for models of texts and images, its text part."""
    path = folder / "config.json"
    try:
        config = Settings.read(path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: expected a model's configuration, there is none") from None
    method = config.section("quantization_config").text("quant_method", "")
    if "quantization_config" in config and settings_of_mlx(config) is None:
        raise NotSupportedError(
            f"{path}: its weights are quantized by {method.upper() or 'an unnamed method'}, which "
            "is not read; take the original weights with quantize='q4_K', or a GGUF file"
        )
    if "text_config" not in config:
        return config
    inside = config.section("text_config")
    found = config.joined(inside)
    # Values of the other parts, such as images.
    found.ignore(*(key for key in config if key not in inside))
    return found


def _names_in(weights: ub.Weights, names: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """Return the names of parts and their common prefix, as the files spell the prefix.

    A model saved without its head, or within another model, has another prefix or none.
    """
    usual = f"{names['embedding'].partition('.')[0]}."
    rest = f"{names['embedding'].removeprefix(usual)}.weight"
    roots = {one.removesuffix(rest) for one in weights if f".{one}".endswith(f".{rest}")}
    if usual in roots or len(roots) != 1:
        return names, usual
    root = roots.pop()
    found = {
        part: " ".join(
            root + one.removeprefix(usual) if one.startswith(usual) else one
            for one in spelled.split()
        )
        for part, spelled in names.items()
    }
    head = f"{names['head']}.weight"
    heads = [one for one in weights if f".{one}".endswith(f".{head}")]
    if len(heads) == 1 and not names["head"].startswith(usual):
        found["head"] = heads[0].removesuffix(".weight")
    return found, root


def _are_alike(weights: ub.Weights, one: str, other: str) -> bool:
    """Return whether two tensors have the same bytes."""
    entries = [weights.entries.get(name) for name in (one, other)]
    kinds = {(entry.kind_name, entry.shape) for entry in entries if entry is not None}
    return len(kinds) == 1 and np.array_equal(weights.raw(one), weights.raw(other))


def _bounds(weights: ub.Weights) -> Bounds:
    lengths = ("num_attention_heads", "num_experts")
    return bounds_of(weights.entries.values(), ("num_hidden_layers",), lengths)


def _open_gguf(path: Path, device: Device) -> Source:
    if not path.exists():
        raise NotFoundError(f"{path}: there is no such file")
    source, config = described_gguf(path, ub.load(path, device=device))
    notice = unread_of(config)
    return replace(source, notices=(notice,) if notice else ())


def described_gguf(path: Path, weights: ub.Weights) -> tuple[Source, Settings]:
    """Return the model that a GGUF file describes, and its values with the record of their use."""
    kind = Settings(path, {_KIND: weights.metadata.get(_KIND)}).text(_KIND)
    name = _row_of_gguf(path, kind, weights)
    row = ROWS[name]
    config = settings_of_gguf(weights, kind, path).read_as({}, bounds=_bounds(weights))
    changes = axes_of_gguf(weights, kind, config, row)
    design = architecture_of(name, config, {**row.gguf_axes, **changes})
    names = {**GGUF_NAMES, **row.gguf_names}
    return Source(path, design, weights, names, True, DIVISORS.__contains__), config


def _row_of_gguf(path: Path, kind: str, weights: ub.Weights) -> str:
    key = "llama.expert_count"
    experts = Settings(path, {key: weights.metadata.get(key)}).integer(key, 0)
    if kind == "llama" and experts:
        return "mixtral"
    for name, row in ROWS.items():
        if row.gguf == kind and kind:
            return name
    known = ", ".join(sorted({row.gguf for row in ROWS.values() if row.gguf}))
    raise NotSupportedError(
        f"{path}: {_KIND}: expected one of {known}, got {kind!r}; {PAGE} shows how to add a row"
    )
