"""`python -m ubridge.files ls|convert|quantize`: files of weights from a command line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ubridge.files.saving import SUFFIXES, Saved, save
from ubridge.files.weights import Weights, load
from ubridge.quantized import ENCODED, QuantizedWeight, block_format
from uhal import Device
from uhal.errors import DeviceError

_SHOWN = 72


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 and write a sentence to standard error when it fails."""
    parser = argparse.ArgumentParser(prog="python -m ubridge.files", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("ls", help="list the tensors and the metadata of files")
    listing.add_argument("file", nargs="+")
    converting = commands.add_parser("convert", help="write tensors to a file of the other kind")
    quantizing = commands.add_parser("quantize", help="write a GGUF file with quantized matrices")
    for one in (converting, quantizing):
        one.add_argument("file", nargs="+")
        one.add_argument("out", help=f"ends in {' or '.join(SUFFIXES)}")
    quantizing.add_argument("--format", required=True, choices=sorted(ENCODED))
    quantizing.add_argument(
        "--only", default="", metavar="REGEX", help="names of the matrices, by default all"
    )
    given = parser.parse_args(arguments)
    try:
        with Device(0, backend="host"):
            weights = load(given.file)
            if given.command == "ls":
                for line in described(weights):
                    print(line)
            elif given.command == "convert":
                save(given.out, _Lazily(weights, _as_is), metadata=_metadata(weights, given.out))
            else:
                chosen = re.compile(given.only)
                save(
                    given.out,
                    _Lazily(weights, lambda name, one: _quantized(name, one, given.format, chosen)),
                    metadata=_metadata(weights, given.out),
                )
    except BrokenPipeError:
        # The reader has closed the pipe; nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (DeviceError, OSError, re.error) as error:
        print(f"ubridge.files: {error}", file=sys.stderr)
        return 1
    return 0


def described(weights: Weights) -> Iterator[str]:
    """Yield a line for each value of the metadata, then one for each tensor."""
    for key in weights.metadata:
        text = repr(_plain(weights.metadata[key]))
        yield f"{key}: {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"
    width = max(map(len, weights), default=0)
    for name, entry in weights.entries.items():
        shape = "x".join(map(str, entry.shape)) or "()"
        yield f"{name:{width}}  {entry.kind_name:8} {shape:>16} {entry.nbytes:>14} bytes"
    yield f"{len(weights)} tensors, {weights.nbytes} bytes"


def _plain(value: Any) -> Any:
    return value[:8].tolist() if isinstance(value, np.ndarray) else value


class _Lazily(Mapping[str, Saved]):
    """Tensors that are read when they are written, so only one is in memory at a time."""

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


def _quantized(name: str, weight: Saved, format: str, chosen: re.Pattern[str]) -> Saved:
    """A matrix with rows of whole blocks, quantized; anything else unchanged."""
    told = block_format(format)
    if isinstance(weight, QuantizedWeight) or len(weight.shape) != 2:
        return weight
    if not chosen.search(name) or weight.shape[1] % told.elements:
        return weight
    values = weight if isinstance(weight, np.ndarray) else weight.to_numpy()
    return QuantizedWeight.from_numpy(values.astype(np.float32), told)


def _metadata(weights: Weights, out: str) -> dict[str, Any]:
    """The metadata that the new file can hold: GGUF holds all, safetensors texts."""
    known = {key: weights.metadata[key] for key in weights.metadata}
    # The new file is whole, and begins its tensors where it says.
    kept = {key: value for key, value in known.items() if not key.startswith("split.")}
    if Path(out).suffix == ".gguf":
        return kept
    return {key: value for key, value in kept.items() if isinstance(value, str)}


if __name__ == "__main__":
    sys.exit(main())
