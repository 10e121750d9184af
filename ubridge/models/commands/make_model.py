"""`python -m uhal make-model DIR`: a tiny random model, to try everything without a download.

Its weights are random, so its text is meaningless; the command trains its tokenizer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ubridge.device.host import HOST
from ubridge.files.settings import text_of_file
from ubridge.models.diffusion.making import make_pipeline
from ubridge.models.making import CONFIGS, make_model
from uhal import Device

_PIPELINE = "stable-diffusion"
_MOST_BYTES = 1 << 30
"""Largest size of the training text of the tokenizer."""


def run(arguments: Sequence[str]) -> int:
    """Write a model's folder."""
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m uhal make-model", description=summary, epilog=more.strip()
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="made if it is not there; must hold no model")
    add("--arch", choices=(*sorted(CONFIGS), _PIPELINE), default="llama", help="default llama")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="a field of config.json, such as hidden_size=128; repeatable",
    )
    add("--text", type=Path, metavar="FILE", help="text that trains the tokenizer")
    add("--dtype", choices=("f32", "f16", "bf16"), default="f32")
    add("--seed", type=int, metavar="S", help="of the weights; by default a fresh one")
    options = parser.parse_args(arguments)
    if options.arch == _PIPELINE:
        if options.changes or options.text:
            parser.error(f"--set, --text: not for {_PIPELINE}, whose sizes and tokens are fixed")
        made = make_pipeline(options.folder, dtype=options.dtype, seed=options.seed)
        print(f"{options.folder}: {made.description}", file=sys.stderr)
        return 0
    changes = {}
    for one in options.changes:
        key, separator, value = one.partition("=")
        if not separator:
            parser.error(f"--set: expected KEY=VALUE, got {one}")
        try:
            changes[key] = json.loads(value)
        except ValueError:
            changes[key] = value
    text = text_of_file(options.text, _MOST_BYTES) if options.text else None
    with Device(0, backend=HOST):
        made = make_model(
            options.folder, options.arch, changes, text=text, dtype=options.dtype, seed=options.seed
        )
    print(f"{options.folder}: {made.description}", file=sys.stderr)
    return 0
