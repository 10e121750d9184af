"""Common parts of kernels' compilers: incremental builds, and the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from build_support.kernel_manifest import (
    MANIFEST,
    digests,
    is_current,
    read_manifest,
    write_manifest,
)


def update_modules(
    vendor: str,
    destination: Path,
    root: Path,
    compiler: str | None,
    sources: Iterable[tuple[str, Iterable[Path]]],
    build: Callable[[str], Mapping[str, Any]],
) -> None:
    """Build the modules of `destination` whose sources, compiler or images changed.

    `sources` has the source files of each module by name, relative to `root`; `build` writes a
    module's images and returns its part of the manifest without the sources.
    """
    destination.mkdir(parents=True, exist_ok=True)
    before = read_manifest(destination / MANIFEST, compiler)
    modules: dict[str, Mapping[str, Any]] = {}
    for name, files in sources:
        made_of = digests(root, files)
        known = before.get(name)
        if known is not None and is_current(known, made_of, destination):
            modules[name] = known
            continue
        print(f"kernels {name} ({vendor}) …", flush=True)
        modules[name] = {"sources": made_of, **build(name)}
    write_manifest(destination / MANIFEST, compiler, modules)


def run_command(
    description: str,
    main: Callable[[Path], None],
    images: Path,
    errors: tuple[type[Exception], ...],
) -> None:
    """Run `main` for the folder on the command line; `errors` end it with their message."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument(
        "destination", nargs="?", type=Path, default=images, help="where the images go: %(default)s"
    )
    try:
        main(parser.parse_args().destination)
    except errors as error:
        sys.exit(f"make kernels: {error}")
