"""What a model is read from: a Hugging Face folder or a GGUF file, in one form.

Kinds of files that are not read are refused by name, each with what to do instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ubridge as ub
from ubridge.models import rwkv5
from ubridge.models.architecture import Architecture
from ubridge.models.gguf_config import config_of_gguf
from ubridge.models.table import GGUF_NAMES, PAGE, ROWS, architecture_of, row_of
from uhal import Device
from uhal.errors import NotFoundError, NotSupportedError

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class Source:
    """A model's files, opened: nothing but their headers is read."""

    path: Path
    config: Mapping[str, Any]
    design: Architecture
    weights: ub.Weights
    names: Mapping[str, str]
    """What each part is called, as `table.Row.names`."""
    is_gguf: bool
    ignored: Callable[[str], bool] = field(repr=False, default=lambda name: False)
    """Whether a tensor that nothing asks for may be there."""

    def spellings(self, layer: int, part: str) -> Iterator[str]:
        """Yield the names that a part of a layer (-1: outside) may have in these files."""
        stem, dot, kind = part.partition(".")
        prefix = self.names["layer"].format(layer) if layer >= 0 else ""
        for name in self.names[stem].split():
            yield f"{prefix}{name}{dot}{kind}"


def open_source(path: Path, device: Device) -> Source:
    """Open a folder or a file.

    Raises `NotFoundError` where there is no model, `NotSupportedError` for kinds of files and
    architectures that are not read, `InvalidFileError` for damaged files.
    """
    path = path.expanduser()
    if path.suffix in _PICKLES:
        raise _pickled(path)
    if path.suffix == ".gguf":
        return _open_gguf(path, device)
    if path.is_file():
        return _open_folder(path.parent, device, path)
    if not path.is_dir():
        raise NotFoundError(
            f"{path}: expected a folder with config.json and *.safetensors, or a .gguf file; there "
            "is neither"
        )
    if (path / "adapter_config.json").exists() and not (path / "config.json").exists():
        raise NotSupportedError(
            f"{path}: this is a LoRA adapter, not a model; merge it into its base with peft's "
            "merge_and_unload() and save that"
        )
    if not (path / "config.json").exists():
        return _open_gguf(_only_gguf(path), device)
    return _open_folder(path, device)


def _open_folder(folder: Path, device: Device, file: Path | None = None) -> Source:
    config = _read_json(folder / "config.json")
    config |= config.get("text_config") or {}
    _refuse_quantization(folder, config)
    name = config.get("model_type")
    generation = folder / "generation_config.json"
    if generation.exists():
        told = _read_json(generation).get("eos_token_id")
        config["eos_token_id"] = told if told is not None else config.get("eos_token_id")
    if name == "rwkv5":
        design: Architecture = rwkv5.design_of(config)
        names: Mapping[str, str] = rwkv5.NAMES
    else:
        names = row_of(name).names
        design = architecture_of(str(name), config)

    def ignored(tensor: str) -> bool:
        is_buffer = tensor.endswith((".inv_freq", ".attn.bias", ".masked_bias", ".embed_scale"))
        return is_buffer or (design.is_tied and tensor == f"{names['head']}.weight")

    files = _safetensors(folder) if file is None else [file]
    weights = ub.load([*files] if len(files) > 1 else files[0], device=device)
    return Source(folder, config, design, weights, names, False, ignored)


def _open_gguf(path: Path, device: Device) -> Source:
    if not path.is_file():
        raise NotFoundError(f"{path}: there is no such file")
    weights = ub.load(path, device=device)
    kind = weights.metadata.get("general.architecture")
    name = _row_of_gguf(str(kind), weights)
    row = ROWS[name]
    config, changes = config_of_gguf(weights, str(kind))
    design = architecture_of(name, config, {**row.gguf_axes, **changes})
    names = {**GGUF_NAMES, **row.gguf_names}
    taken = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
    return Source(path, config, design, weights, names, True, taken.__contains__)


def _row_of_gguf(kind: str, weights: ub.Weights) -> str:
    if kind == "llama" and weights.metadata.get("llama.expert_count"):
        return "mixtral"
    for name, row in ROWS.items():
        if row.gguf == kind and kind:
            return name
    known = ", ".join(sorted({row.gguf for row in ROWS.values() if row.gguf}))
    raise NotSupportedError(
        f"general.architecture: expected one of {known}, got {kind!r}; "
        f"{PAGE} shows how to add a row"
    )


def _safetensors(folder: Path) -> list[Path]:
    for name in ("model.safetensors.index.json", "model.safetensors"):
        if (folder / name).exists():
            return [folder / name]
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickles = [one for one in sorted(folder.iterdir()) if one.suffix in _PICKLES]
    if pickles:
        raise _pickled(pickles[0])
    raise NotFoundError(f"{folder}: expected *.safetensors beside config.json, there are none")


def _only_gguf(folder: Path) -> Path:
    # Of a model in parts, the first stands for all.
    files = [one for one in sorted(folder.glob("*.gguf")) if "-of-" not in one.name]
    files += sorted(folder.glob("*-00001-of-*.gguf"))
    if len(files) != 1:
        given = ", ".join(one.name for one in files) or "neither"
        raise NotFoundError(
            f"{folder}: expected a config.json with *.safetensors, or one .gguf file, got {given}"
        )
    return files[0]


def _pickled(path: Path) -> NotSupportedError:
    return NotSupportedError(
        f"{path}: a pickle can run any program when it is read, so it is not; save the model as "
        "safetensors: transformers' save_pretrained() does"
    )


def _refuse_quantization(folder: Path, config: Mapping[str, Any]) -> None:
    told = config.get("quantization_config")
    if told:
        method = str(told.get("quant_method", "an unnamed method")).upper()
        raise NotSupportedError(
            f"{folder}: its weights are quantized by {method}, which is not read; take the "
            "original weights with quantize='q4_K', or a GGUF file"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: expected a model's configuration, there is none") from None
    except (ValueError, RecursionError) as error:
        raise ub.InvalidFileError(f"{path}: expected JSON ({error})") from None
    if not isinstance(found, dict):
        raise ub.InvalidFileError(f"{path}: expected an object, got {type(found).__name__}")
    return found


__all__ = ["Source", "open_source"]
