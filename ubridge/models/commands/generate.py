"""`python -m uhal generate MODEL`: continues a prompt.

Under a launcher, as in `mpirun -n 2 python -m uhal generate MODEL`, the ranks share the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ubridge.models.commands.options import (
    add_loading,
    add_sampling,
    loaded,
    sampling_of,
    text_given,
    text_of,
    written,
)
from ubridge.models.commands.ranks import Ranks


def run(arguments: Sequence[str]) -> int:
    """Load a model and write its text; standard output gets only the text."""
    parser = argparse.ArgumentParser(prog="python -m uhal generate", description=__doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a folder of Hugging Face's, or a GGUF file")
    add("--prompt", metavar="TEXT", help="by default, or as -, standard input")
    add("-n", "--sample-len", "--max-tokens", type=int, metavar="N", help="at most N tokens")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before it; repeatable")
    add("--tokenizer-file", type=Path, metavar="FILE", help="instead of the model's own")
    add("--ignore-end", action="store_true", help="go on behind the model's end")
    add_sampling(parser)
    add_loading(parser)
    options = parser.parse_args(arguments)
    ranks = Ranks()
    with ranks.quiet():
        _generate(options, ranks)
    return 0


def _generate(options: argparse.Namespace, ranks: Ranks) -> None:
    sampling = sampling_of(options)
    ranks.require_prompt(options.prompt)
    prompt = text_of(options.prompt)
    stop = [text_given("--stop", one) for one in options.stop]
    model = loaded(options, options.model, options.tokenizer_file, ranks=ranks)
    generation = model.generate(
        prompt,
        max_tokens=options.sample_len,
        stop=stop,
        ignore_end=options.ignore_end,
        sampling=sampling,
    )
    written(generation)
    print(flush=True)
    rate = len(generation.tokens) / max(generation.seconds, 1e-9)
    print(
        f"{generation.prompt_tokens} tokens read, the first answered after "
        f"{generation.prompt_seconds:.3f} s; it ended by {generation.finish}",
        file=sys.stderr,
    )
    print(f"{len(generation.tokens)} tokens generated ({rate:.2f} token/s)", file=sys.stderr)
    ranks.end()
