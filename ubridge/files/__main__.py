"""`python -m ubridge.files ls|convert|quantize`: files of weights from a command line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ubridge.core.block_formats import BlockFormat
from ubridge.core.fits import require
from ubridge.device.host import HOST
from ubridge.files.saving import SUFFIXES, Later, Saved, save
from ubridge.files.settings import Settings
from ubridge.files.weights import Weights, load
from ubridge.quantized import ENCODED, QuantizedWeight
from ubridge.recipes import MIXTURES, Recipe, Shape, recipe_of
from ubridge.tensor import DeviceTensor
from uhal import Device, DType, terminal
from uhal.errors import DeviceError

_SHOWN = 72
_FILES = "a file, all parts of a model, or its folder"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 and write a sentence to standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m ubridge.files", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list the tensors and the metadata of files")
    listing.add_argument("file", nargs="+", help=_FILES)
    converting = commands.add_parser(
        "convert",
        help="write tensors to a file of the other kind, or a model's folder to a GGUF model",
    )
    quantizing = commands.add_parser("quantize", help="write a GGUF file with quantized matrices")
    for one in (converting, quantizing):
        one.add_argument("file", nargs="+", help=_FILES)
        one.add_argument("out", help=f"ends in {' or '.join(SUFFIXES)}")
    names = ", ".join((*ENCODED, *MIXTURES))
    quantizing.add_argument("--format", required=True, help=f"one of {names}, in any case")
    converting.add_argument(
        "--format", metavar="FORMAT", help="quantize a model's matrices; formats as for quantize"
    )
    quantizing.add_argument(
        "--only", default="", metavar="REGEX", help="names of the matrices, by default all"
    )
    given = parser.parse_args(arguments)
    try:
        with Device(0, backend=HOST):
            folder = _model_folder(given.file)
            if given.command == "convert" and folder and given.out.endswith(".gguf"):
                for line in _write_model(folder, Path(given.out), given.format):
                    terminal.write(sys.stderr, f"{line}\n")
                return 0
            weights = load(given.file)
            if given.command == "ls":
                for line in described(weights):
                    terminal.write(sys.stdout, f"{line}\n")
            elif given.command == "convert":
                require(
                    given.format is None,
                    "convert: --format expected a model's folder with config.json and a path that "
                    f"ends in .gguf, got {given.file[0]} and {given.out}. Use `quantize`.",
                )
                save(given.out, dict(weights), metadata=_metadata(weights, given.out))
            else:
                change = Quantizing(weights, recipe_of(given.format), re.compile(given.only))
                metadata = change.described(_metadata(weights, given.out))
                save(given.out, change.tensors(), metadata=metadata)
                if summary := change.summary():
                    print(f"{given.out}: {summary}", file=sys.stderr)
    except BrokenPipeError:
        # The reader has closed the pipe; nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (DeviceError, OSError, re.error) as error:
        terminal.write(sys.stderr, f"ubridge.files: {terminal.one_line(str(error))}\n")
        return 1
    return 0


def described(weights: Weights) -> Iterator[str]:
    """Yield a line for each value of the metadata, then one for each tensor."""
    for key in weights.metadata:
        text = repr(_plain(weights.metadata[key]))
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        yield f"{terminal.one_line(key)}: {shown}"
    names = {terminal.one_line(name): entry for name, entry in weights.entries.items()}
    width = max(map(len, names), default=0)
    for name, entry in names.items():
        shape = "x".join(map(str, entry.shape)) or "()"
        yield f"{name:{width}}  {entry.kind_name:8} {shape:>16} {entry.nbytes:>14} bytes"
    yield f"{len(weights)} tensors, {weights.nbytes} bytes"


def _plain(value: Any) -> Any:
    return value[:8].tolist() if isinstance(value, np.ndarray) else value


def _model_folder(files: Sequence[str]) -> Path | None:
    """The folder of a language model, if the arguments are one such folder."""
    folder = Path(files[0])
    if len(files) > 1 or not (folder / "config.json").is_file():
        return None
    return folder if "model_type" in Settings.read(folder / "config.json") else None


def _write_model(folder: Path, out: Path, format: str | None) -> Iterator[str]:
    """Write a model's GGUF file; yield notes for the user."""
    # The package of models is in a layer above files, so this command imports it by name.
    module = import_module("ubridge.models.gguf_export")
    yield from module.write_model(folder, out, quantize=format)


class Quantizing:
    """Quantizes the matrices of a model by a recipe, and counts their formats."""

    def __init__(self, weights: Weights, recipe: Recipe, chosen: re.Pattern[str]) -> None:
        """Take the matrices whose names match `chosen`."""
        self._weights = weights
        self._recipe = recipe
        self._chosen = chosen
        layers = [int(match[1]) for name in weights if (match := _LAYER.search(name))]
        self._shape = _shape_of(weights, max(layers, default=-1) + 1)
        self._has_head = any(_ROLES["head"].search(name) for name in weights)
        self._count = 0
        self._fallbacks: Counter[BlockFormat | None] = Counter()

    def tensors(self) -> dict[str, Saved | Later]:
        """Return matrices in blocks, each quantized when it is written, and other tensors."""
        found: dict[str, Saved | Later] = {}
        for name in self._weights:
            kind = self._format_of(name)
            entry = self._weights.entries[name]
            if kind is None:
                found[name] = self._weights[name]
            else:
                found[name] = Later(kind, entry.shape, partial(self._blocks_of, name, kind))
        return found

    def _blocks_of(self, name: str, kind: BlockFormat) -> QuantizedWeight:
        weight = self._weights[name]
        assert isinstance(weight, DeviceTensor)
        return QuantizedWeight.from_numpy(weight.to_numpy().astype(np.float32), kind)

    def _format_of(self, name: str) -> BlockFormat | None:
        """The format of a matrix; None for a tensor that stays unchanged."""
        entry = self._weights.entries[name]
        is_matrix = len(entry.shape) in (2, 3) and not _NO_MATRIX.search(name)
        if not isinstance(entry.kind, DType) or not is_matrix or not self._chosen.search(name):
            return None
        match = _LAYER.search(name)
        wanted = self._role(name), int(match[1]) if match else 0, self._shape
        found = self._recipe.format_of(*wanted, entry.shape[-1])
        self._count += 1
        if found != self._recipe.wished(*wanted):
            self._fallbacks[found] += 1
        return found

    def described(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return metadata with the formats' keys replaced, as llama.cpp's programs write them."""
        told = {"general.quantization_version": 2, "general.file_type": self._recipe.file_type}
        kept = {key: value for key, value in metadata.items() if key not in told}
        return kept | {key: np.uint32(one) for key, one in told.items() if one is not None}

    def summary(self) -> str:
        """Return a line about matrices in another format than requested; empty for none."""
        if not self._count:
            return "no matrix was quantized: there is none of the names asked for"
        return self._recipe.summary(self._fallbacks)

    def _role(self, name: str) -> str:
        """The role of a named matrix in a recipe."""
        if not self._has_head and _EMBEDDING.search(name):
            return "head"
        return next((role for role, names in _ROLES.items() if names.search(name)), "")


_LAYER = re.compile(r"(?:^|\.)(?:blk|layers|h|blocks)\.(\d+)\.")
_NO_MATRIX = re.compile(r"norm|ffn_gate_inp|(mlp|block_sparse_moe)\.gate\.|position_embd|\.wpe\.")
"""Names of tensors that are not quantized: norms of heads, routers, positions."""
_EMBEDDING = re.compile(r"token_embd|embed_tokens|\.wte\.|word_embeddings")
_ROLES = {
    "head": re.compile(r"^output\.|lm_head|output_layer"),
    "k": re.compile(r"attn_k\.|k_proj"),
    "v": re.compile(r"attn_v\.|v_proj|attn_qkv|qkv_proj|query_key_value|c_attn"),
    "output": re.compile(r"attn_output|o_proj|(self_attn|self_attention)\.dense|attn\.c_proj"),
    "down": re.compile(r"ffn_down|down_proj|mlp\.(c_proj|fc2|dense_4h_to_h)|experts\.\d+\.w2"),
}
"""Names of matrices by their role in mixtures, as GGUF and transformers spell them."""


def _shape_of(weights: Weights, layers: int) -> Shape:
    """The facts in a file's metadata that decide formats; a file of safetensors has none."""
    kind = weights.metadata.get("general.architecture", "")

    def told(key: str) -> Any:
        return weights.metadata.get(f"{kind}.{key}", 0)

    return Shape(
        layers,
        experts=told("expert_count"),
        is_falcon=kind == "falcon",
        is_grouped=told("attention.head_count") != told("attention.head_count_kv"),
    )


def _metadata(weights: Weights, out: str) -> dict[str, Any]:
    """The metadata for the new file: GGUF holds all, safetensors only texts."""
    known = {key: weights.metadata[key] for key in weights.metadata}
    # The new file is not split, and has its own alignment.
    kept = {key: value for key, value in known.items() if not key.startswith("split.")}
    if Path(out).suffix == ".gguf":
        return kept
    return {key: value for key, value in kept.items() if isinstance(value, str)}


if __name__ == "__main__":
    terminal.accept_every_character()
    sys.exit(main())
