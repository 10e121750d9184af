"""`python -m ubridge.files ls|convert|quantize`: files of weights from a command line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubridge.core.block_formats import BlockFormat
from ubridge.device.host import HOST
from ubridge.files.saving import SUFFIXES, Saved, save
from ubridge.files.weights import Weights, load
from ubridge.quantized import ENCODED, QuantizedWeight
from ubridge.recipes import MIXTURES, Recipe, recipe_of
from uhal import Device, terminal
from uhal.errors import DeviceError

_SHOWN = 72
_FILES = "a file, all parts of a model, or its folder"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 and write a sentence to standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m ubridge.files", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list the tensors and the metadata of files")
    listing.add_argument("file", nargs="+", help=_FILES)
    converting = commands.add_parser("convert", help="write tensors to a file of the other kind")
    quantizing = commands.add_parser("quantize", help="write a GGUF file with quantized matrices")
    for one in (converting, quantizing):
        one.add_argument("file", nargs="+", help=_FILES)
        one.add_argument("out", help=f"ends in {' or '.join(SUFFIXES)}")
    names = ", ".join((*ENCODED, *MIXTURES))
    quantizing.add_argument("--format", required=True, help=f"one of {names}, in any case")
    quantizing.add_argument(
        "--only", default="", metavar="REGEX", help="names of the matrices, by default all"
    )
    given = parser.parse_args(arguments)
    try:
        with Device(0, backend=HOST):
            weights = load(given.file)
            if given.command == "ls":
                for line in described(weights):
                    terminal.write(sys.stdout, f"{line}\n")
            elif given.command == "convert":
                save(given.out, _Lazily(weights, _as_is), metadata=_metadata(weights, given.out))
            else:
                change = Quantizing(weights, recipe_of(given.format), re.compile(given.only))
                metadata = change.described(_metadata(weights, given.out))
                save(given.out, _Lazily(weights, change), metadata=metadata)
                if summary := change.summary():
                    print(f"{given.out}: {summary}", file=sys.stderr)
    except BrokenPipeError:
        # The reader has closed the pipe; nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (DeviceError, OSError, re.error) as error:
        terminal.write(sys.stderr, f"ubridge.files: {error}\n")
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


class _Lazily(Mapping[str, Saved]):
    """Tensors that are read only when written, so one is in memory at a time."""

    def __init__(self, weights: Weights, change: Any) -> None:
        self._weights = weights
        self._change = change

    def __getitem__(self, name: str) -> Saved:
        changed: Saved = self._change(name, self._weights[name])
        return changed

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def _as_is(name: str, weight: Saved) -> Saved:
    return weight


class Quantizing:
    """Quantizes the matrices of a model by a recipe, and counts their formats."""

    def __init__(self, weights: Weights, recipe: Recipe, chosen: re.Pattern[str]) -> None:
        """Take the matrices whose names match `chosen`."""
        self._recipe = recipe
        self._chosen = chosen
        layers = [int(match[1]) for name in weights if (match := _LAYER.search(name))]
        self._layers = max(layers, default=-1) + 1
        self._has_head = any(_ROLES["head"].search(name) for name in weights)
        self._found: dict[str, BlockFormat | None] = {}

    def __call__(self, name: str, weight: Saved) -> Saved:
        """Return a matrix in blocks, and other tensors unchanged."""
        is_matrix = len(weight.shape) in (2, 3) and not _NO_MATRIX.search(name)
        if isinstance(weight, QuantizedWeight) or not is_matrix or not self._chosen.search(name):
            return weight
        match = _LAYER.search(name)
        layer = int(match[1]) if match else 0
        found = self._recipe.format_of(self._role(name), layer, self._layers, weight.shape[-1])
        self._found[name] = found
        if found is None:
            return weight
        values = weight if isinstance(weight, np.ndarray) else weight.to_numpy()
        return QuantizedWeight.from_numpy(values.astype(np.float32), found)

    def described(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return metadata with the formats' keys replaced, as llama.cpp's programs write them."""
        told = {"general.quantization_version": 2, "general.file_type": self._recipe.file_type}
        kept = {key: value for key, value in metadata.items() if key not in told}
        return kept | {key: np.uint32(one) for key, one in told.items() if one is not None}

    def summary(self) -> str:
        """Return a line about matrices in another format than requested; empty for none."""
        if not self._found:
            return "no matrix was quantized: there is none of the names asked for"
        return self._recipe.summary(Counter(self._found.values()))

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
    "v": re.compile(r"attn_v\.|v_proj|attn_qkv|qkv_proj|query_key_value|c_attn"),
    "down": re.compile(r"ffn_down|down_proj|mlp\.(c_proj|fc2|dense_4h_to_h)|experts\.\d+\.w2"),
}
"""Names of matrices by their role in mixtures, as GGUF and transformers spell them."""


def _metadata(weights: Weights, out: str) -> dict[str, Any]:
    """The metadata for the new file: GGUF holds all, safetensors only texts."""
    known = {key: weights.metadata[key] for key in weights.metadata}
    # The new file is not split, and has its own alignment.
    kept = {key: value for key, value in known.items() if not key.startswith("split.")}
    if Path(out).suffix == ".gguf":
        return kept
    return {key: value for key, value in kept.items() if isinstance(value, str)}


if __name__ == "__main__":
    sys.exit(main())
