"""Options shared by commands: the model, its device, and the choice of tokens."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from ubridge.core.fits import require
from ubridge.device.host import HOST
from ubridge.files.errors import FileWarning
from ubridge.files.folders import expanded
from ubridge.files.gguf_reading import begins_as_gguf
from ubridge.models.commands.ranks import Ranks
from ubridge.models.model import Model
from ubridge.models.text.generation import Generation
from ubridge.models.text.sampling import Sampling
from ubridge.models.tokenizers import Tokenizer
from ubridge.models.tokenizers.tokenizer import require_utf8
from uhal import Api

SEED = 299792458
"""The speed of light in m/s, the seed of Candle's examples."""


def add_loading(parser: argparse.ArgumentParser) -> None:
    """Add options for a model's device and element types."""
    add = parser.add_argument
    add(
        "--backend", metavar="NAME", help="cuda, rocm, tops, opencl, host; default: the first there"
    )
    add("--device", type=int, default=0, metavar="I", help="ordinal of the device (default 0)")
    add("--cpu", action="store_true", help="run on the host, as --backend host does")
    add("--dtype", choices=("f32", "f16", "bf16"), help="default: the dtype of the files")
    add("--quant", metavar="FORMAT", help="bring matrices to a format such as Q4_K_M or Q8_0")
    add("--context", type=int, metavar="N", help="tokens there is room for")


def add_sampling(
    parser: argparse.ArgumentParser,
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    repeat_penalty: float | None = 1.0,
    repeat_last_n: int = 64,
) -> None:
    """Add options for sampling; without a penalty, its options are left out."""
    add = parser.add_argument
    most = "the most probable token" if temperature is None else f"{temperature}"
    add("--temperature", type=float, default=temperature, metavar="T", help=f"default: {most}")
    add("--top-p", type=float, default=top_p, metavar="P", help="most probable, together P")
    add("--top-k", type=int, metavar="K", help="only the K most probable")
    add("--min-p", type=float, default=0.0, metavar="P", help="at least P of the most probable")
    add("--seed", type=int, default=SEED, metavar="S", help=f"of the draws (default {SEED})")
    if repeat_penalty is not None:
        told = f"of tokens seen, 1 for none (default {repeat_penalty})"
        add("--repeat-penalty", type=float, default=repeat_penalty, metavar="P", help=told)
        told = f"tokens looked back for them (default {repeat_last_n})"
        add("--repeat-last-n", type=int, default=repeat_last_n, metavar="N", help=told)
    add("--presence-penalty", type=float, default=0.0, metavar="P", help="of tokens generated")
    add("--frequency-penalty", type=float, default=0.0, metavar="P", help="each time they were")


def sampling_of(options: argparse.Namespace) -> Sampling:
    """Return the options for sampling."""
    return Sampling(
        temperature=options.temperature or 0.0,
        top_k=options.top_k,
        top_p=1.0 if options.top_p is None else options.top_p,
        min_p=options.min_p,
        repetition_penalty=getattr(options, "repeat_penalty", 1.0),
        repetition_window=getattr(options, "repeat_last_n", None),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        seed=options.seed,
    )


def loaded(
    options: argparse.Namespace,
    path: Path,
    tokenizer: Path | None,
    *,
    out: TextIO | None = None,
    ranks: Ranks | None = None,
) -> Model:
    """Open the device, load a model, and write the time to `out`, by default standard error.

    A tokenizer that is given replaces the tokenizer beside the weights. With `ranks` the model is
    split among the processes of a launcher.
    """
    backend = HOST if options.cpu else options.backend
    opening = Api.quick_init if ranks is None else ranks.open
    device = opening(options.device, backend=backend)
    print(f"{device.backend}:{device.ordinal} {device.name}", file=sys.stderr)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FileWarning)
        model = Model.load(
            path,
            dtype=options.dtype,
            quantize=options.quant,
            context=options.context,
            progress=True,
            group=None if ranks is None else ranks.join(),
        )
    for one in told:
        print(one.message, file=sys.stderr)
    if tokenizer is not None:
        model.tokenizer = Tokenizer.load(tokenizer)
    print(f"loaded the model in {time.perf_counter() - start:.3g}s", file=out or sys.stderr)
    return model


@contextmanager
def gathered(
    weights: Iterable[Path], config: Path | None, published: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Yield a path with these weights and this configuration, as `Model.load` takes one.

    The default configuration is the file beside the weights, or else the published one.
    """
    files = [expanded(path).absolute() for path in weights]
    for path in [*files, *([expanded(config)] if config else [])]:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file")
    if len(files) == 1 and begins_as_gguf(files[0]):
        yield files[0]
        return
    beside = files[0].parent
    described = expanded(config or beside / "config.json").absolute()
    if not described.is_file() and published is None:
        raise FileNotFoundError(
            f"{described}: expected the model's configuration beside its weights; --config FILE "
            "names another one"
        )
    with TemporaryDirectory(prefix="uhal-model-") as folder:
        for number, path in enumerate(files):
            Path(folder, f"{number:05}-{path.name}").symlink_to(path)
        if described.is_file():
            Path(folder, "config.json").symlink_to(described)
        else:
            Path(folder, "config.json").write_text(json.dumps(published), "utf-8")
        for name in ("generation_config.json", *_TOKENIZER_FILES):
            if (beside / name).is_file():
                Path(folder, name).symlink_to(beside / name)
        yield Path(folder)


_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("chat_template.jinja", "rwkv_vocab_v20230424.txt"),
)


def written(generation: Generation, out: TextIO | None = None) -> None:
    """Write each piece of text at once."""
    for piece in generation:
        print(piece, end="", flush=True, file=out)


def text_of(prompt: str | None) -> str:
    """Return the prompt given; `-` or none reads it from standard input."""
    if prompt is not None and prompt != "-":
        return text_given("--prompt", prompt)
    require(
        not sys.stdin.isatty(),
        "--prompt: expected a text, or one on standard input",
    )
    return text_given("standard input", sys.stdin.read())


def text_given(what: str, text: str) -> str:
    """Return a text from the command line or a terminal, independent of its declared encoding.

    Raises `ArgumentValueError` for bytes that are not UTF-8.
    """
    raw = text.encode("utf-8", "surrogateescape")
    return require_utf8(what, raw.decode("utf-8", "surrogateescape"))
