"""`python -m uhal llama|mistral|phi|…`: the options and the output of Candle's examples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ubridge.core.fits import require
from ubridge.models.commands.options import (
    add_loading,
    add_sampling,
    gathered,
    loaded,
    sampling_of,
    text_of,
    written,
)
from ubridge.models.commands.published import PUBLISHED
from ubridge.models.commands.seeds import SEEDS, Seed
from ubridge.models.model import Model
from uhal.errors import ArgumentValueError

_SAMPLE_LEN = 100


def run(command: str, arguments: Sequence[str]) -> int:
    """Load the command's model, and write prompt, text and speed to standard output."""
    seed = SEEDS[command]
    options = _parser(command, seed).parse_args(arguments)
    sampling = sampling_of(options)
    prompt = text_of(options.prompt)
    with _weights(command, options) as path:
        model = loaded(options, path, options.tokenizer_file, out=sys.stdout)
        _require(command, seed, model)
        # Read now, while its files are in the expected folder.
        generation = model.generate(prompt, max_tokens=options.sample_len, sampling=sampling)
    print("starting the inference loop")
    print(prompt, end="", flush=True)
    written(generation)
    print("\n" if seed.decimals is None else "")
    print(f"{len(generation.tokens)} tokens generated ({seed.rate(generation)} token/s)")
    return 0


def _parser(command: str, seed: Seed) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m uhal {command}",
        description=f"Generate with a model of {' or '.join(seed.architectures)}.",
    )
    add = parser.add_argument
    add("--local-weights", type=Path, metavar="DIR", help="config.json, tokenizer.json, weights")
    add("--weight-files", "--weight-file", type=_paths, metavar="A,B,…", help="safetensors or GGUF")
    add(
        "--tokenizer-file",
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="default: beside the weights",
    )
    add("--config", type=Path, metavar="FILE", help="default: config.json beside the weights")
    if seed.kinds:
        told = "which one, where no configuration lies beside the weights"
        add("--which", "--model", choices=seed.kinds, help=told)
    add("--prompt", metavar="TEXT", help="by default, or as -, standard input")
    told = f"at most N tokens (default {_SAMPLE_LEN})"
    add("-n", "--sample-len", type=int, default=_SAMPLE_LEN, metavar="N", help=told)
    add_sampling(
        parser,
        temperature=seed.temperature,
        top_p=seed.top_p,
        repeat_penalty=seed.repeat_penalty,
        repeat_last_n=seed.repeat_last_n,
    )
    add_loading(parser)
    return parser


def _paths(text: str) -> list[Path]:
    return [Path(one) for one in text.split(",") if one]


@contextmanager
def _weights(command: str, options: argparse.Namespace) -> Iterator[Path]:
    """Path of the model."""
    folder, files = options.local_weights, options.weight_files
    if (folder is None) == (files is None):
        raise ArgumentValueError("expected either --local-weights DIR or --weight-files A,B,…")
    if folder is not None and options.config is None:
        yield folder
        return
    given: Iterable[Path] = files or sorted(folder.glob("*.safetensors"))
    with gathered(given, options.config, _published(command, options)) as path:
        yield path


def _published(command: str, options: argparse.Namespace) -> Mapping[str, Any] | None:
    """The command's built-in configuration of the requested kind, or of the default kind."""
    known = PUBLISHED.get(command, {})
    kind = getattr(options, "which", None)
    return known.get(kind) if kind else next(iter(known.values()), None)


def _require(command: str, seed: Seed, model: Model) -> None:
    require(
        model.architecture in seed.architectures,
        f"expected a model of {' or '.join(seed.architectures)}, got one of "
        f"{model.architecture}; `python -m uhal generate` takes any, not only what "
        f"`{command}` does",
    )
