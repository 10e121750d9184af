"""Debian's own HSA runtime, unpacked into a folder that is kept from run to run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = "libhsa-runtime64-1"
LIBRARY = "libhsa-runtime64.so.1"
_DEPENDENCIES = tuple(
    f"--no-{kind}"
    for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
)
_NO_NETWORK = ("Temporary failure resolving", "Could not resolve", "Could not connect", "timed out")


def unpack(folder: Path) -> Path:
    """The runtime's path, downloaded with what it needs unless it is there already.

    Skips the test where apt is missing, does not know the package, or has no network.
    """
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            pytest.skip(f"{PACKAGE} is Debian's, and there is no {tool} here")
    root = folder / PACKAGE
    if not root.is_dir():
        unfinished = folder / f"unfinished-{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _download(unfinished)
        for package in sorted(unfinished.glob("*.deb")):
            _said("dpkg-deb", "-x", package.name, ".", folder=unfinished)
        unfinished.replace(root)
    (library,) = root.glob(f"usr/lib/*/{LIBRARY}")
    return library


def _download(folder: Path) -> None:
    command = ("depends", "--recurse", *_DEPENDENCIES, PACKAGE)
    status, words = _said("apt-cache", *command, folder=folder)
    if status != 0:
        pytest.skip(f"apt does not know {PACKAGE}: apt-get update")
    # Names stand at the start of a line, those of virtual packages in brackets. The C library goes
    # with the loader of this system.
    names = {line for line in words.splitlines() if line[:1].isalnum()} - {"libc6"}
    status, words = _said("apt-get", "download", *sorted(names), folder=folder)
    if status != 0 and any(word in words for word in _NO_NETWORK):
        pytest.skip(f"there is no network to download {PACKAGE} from")
    assert status == 0, words


def _said(*command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr
