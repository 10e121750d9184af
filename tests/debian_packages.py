"""Packages of Debian, unpacked into a folder of this checkout: nothing is installed.

`debian_packages.tsv` lists the packages, with digests. Rows of one set with the same package are
alternatives, and the first available row is used: an archive only keeps its suites' current
versions. `python -m tests.debian_packages` updates each row to its suite's current version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import NoReturn

import pytest

from tests.requirements import missing

PINS = Path(__file__).with_suffix(".tsv")
ARCHIVE = "http://deb.debian.org/debian"
SNAPSHOT = "http://snapshot.debian.org/archive/debian/20261122T090000Z"
"""Debian's snapshot at the date of the rows, with files that the archive has since deleted."""
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
"""Folder of shared libraries in packages of this architecture."""

_HELPER = Path("/usr/lib/apt/apt-helper")
_MACHINE = "x86_64"
_QUIET = ("-o", "Acquire::http::Timeout=20", "-o", "APT::Sandbox::User=root")
_REFUSED = re.compile(r": (4\d\d  |Hash Sum mismatch|File has unexpected size)")
"""apt's messages when an archive answered; other messages mean that there is no network."""


@dataclass(frozen=True)
class Pin:
    """One version of one package."""

    set: str
    package: str
    suite: str
    version: str
    sha256: str
    file: str
    """Path of the package in an archive."""


@dataclass(frozen=True)
class Failure:
    """Packages that no archive had."""

    packages: list[str]
    attempts: list[str]
    """For each tried file, its address and apt's message."""


_FAILED: dict[Path, Failure] = {}
"""Failed downloads of this process, by the folder of the set."""


def unpack(folder: Path, wanted: str) -> Path:
    """Return the folder below `folder` that holds a set of unpacked packages.

    The set is downloaded once; other processes wait for the first process. If the download fails,
    the test fails in CI. Elsewhere the test fails if the archives answered, and is skipped on a
    machine without apt or network. A process tries a failed download only once.
    """
    pins = [pin for pin in read_pins() if pin.set == wanted]
    assert pins, f"{PINS.name} has no set {wanted!r}"
    text = "\n".join("\t".join(astuple(pin)) for pin in pins)
    root = folder / f"{wanted}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if root.is_dir():
        return root
    _check_tools(wanted)
    if root in _FAILED:
        _give_up(_FAILED[root])
    with _lock(folder / f"{wanted}.lock"):
        if not root.is_dir():
            with tempfile.TemporaryDirectory(dir=folder) as unfinished:
                made = Path(unfinished, "root")
                made.mkdir()
                packages = _download(pins, Path(unfinished))
                if isinstance(packages, Failure):
                    _FAILED[root] = packages
                    _give_up(packages)
                for package in packages:
                    _run("dpkg-deb", "-x", str(package), str(made))
                made.replace(root)
    return root


def read_pins() -> list[Pin]:
    """Return the rows of the list."""
    names, *rows = (line.split("\t") for line in PINS.read_text("utf-8").splitlines())
    assert names == [one.name for one in fields(Pin)], f"{PINS.name} has other columns: {names}"
    return [Pin(*row) for row in rows]


def _download(pins: list[Pin], folder: Path) -> list[Path] | Failure:
    """One file for each package."""
    wanted = {name: list(of) for name, of in groupby(pins, key=lambda pin: pin.package)}
    attempts: dict[str, list[str]] = {name: [] for name in wanted}
    files: dict[str, Path] = {}
    for archive in _archives():
        for round in range(max(map(len, wanted.values()))):
            asked = [of[round] for name, of in wanted.items() if name not in files and of[round:]]
            refusals = _fetch(archive, asked, folder)
            for pin in asked:
                target = folder / Path(pin.file).name
                if target.is_file():
                    files[pin.package] = target
                else:
                    attempts[pin.package].append(refusals[pin])
    missing = [name for name in wanted if name not in files]
    if missing:
        return Failure(missing, [words for name in missing for words in attempts[name]])
    return list(files.values())


def _fetch(archive: str, pins: list[Pin], folder: Path) -> dict[Pin, str]:
    """Download into a folder; return apt's message for each failed download."""
    words: list[str] = []
    for pin in pins:
        target = folder / Path(pin.file).name
        words += [f"{archive}/{pin.file}", str(target), f"SHA256:{pin.sha256}"]
    lines = _said(str(_HELPER), *_QUIET, "download-file", *words)[1].splitlines() if pins else []
    # apt prints "Err:3 http://…", then the reason; it deletes a file with a wrong digest.
    errors = {
        line.split(" ", 1)[1].strip(): reason.strip()
        for line, reason in pairwise(lines)
        if line.startswith("Err:")
    }
    told = {pin: f"{archive}/{pin.file}" for pin in pins}
    return {pin: f"{at}: {errors.get(at, lines[-1:])}" for pin, at in told.items()}


def _give_up(failure: Failure) -> NoReturn:
    packages = ", ".join(failure.packages)
    tried = "\n  ".join(failure.attempts)
    if not any(_REFUSED.search(words) for words in failure.attempts):
        missing(f"no network to download {packages} from:\n  {tried}")
    pytest.fail(
        f"{packages} cannot be had as {PINS.name} has it:\n  {tried}\nIf Debian "
        "replaced the version, bring the list up to date: python -m tests.debian_packages",
        pytrace=False,
    )


def _archives() -> Iterator[str]:
    """This machine's mirrors of Debian, then the public ones, then the snapshot."""
    command = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian")
    _, words = _said(*command)
    mirrors = [line.rstrip("/") for line in words.splitlines() if "://" in line]
    yield from dict.fromkeys([*mirrors, ARCHIVE, SNAPSHOT])


def _check_tools(wanted: str) -> None:
    if platform.machine() != _MACHINE:
        missing(f"{PINS.name} has {wanted} for {_MACHINE}, this is {platform.machine()}")
    for tool in (str(_HELPER), "apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            missing(f"{wanted} is packages of Debian, and there is no {tool} here")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lock a file against other processes; the system releases the locks of a dead process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _said(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=300,
    )
    return done.returncode, done.stdout


def _run(*command: str) -> str:
    status, words = _said(*command)
    assert status == 0, f"$ {' '.join(command)}\n{words}"
    return words


# -- bringing the list up to date ------------------------------------------------------------------


def update() -> None:
    """Rewrite the list with the current package of each row's suite."""
    pins = read_pins()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            suite: _latest({pin.package for pin in pins if pin.suite == suite}, suite, Path(folder))
            for suite in {pin.suite for pin in pins}
        }
    rows = [fields_of(pin, found[pin.suite][pin.package]) for pin in pins]
    lines = ["\t".join(one.name for one in fields(Pin)), *("\t".join(row) for row in rows)]
    PINS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fields_of(pin: Pin, facts: dict[str, str]) -> tuple[str, ...]:
    """Return a pin's row with the facts that apt has about its package."""
    told = (facts["Version"], facts["SHA256"], facts["Filename"])
    return (pin.set, pin.package, pin.suite, *told)


def _latest(packages: Iterable[str], suite: str, folder: Path) -> dict[str, dict[str, str]]:
    """A suite's index of packages. apt checks the suite's signature."""
    state = folder / suite
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True)
    sources = state / "sources.list"
    sources.write_text(f"deb {ARCHIVE} {suite} main\n", encoding="utf-8")
    paths = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": state / "cache",
    }
    options = [*_QUIET, *(word for name in paths for word in ("-o", f"{name}={paths[name]}"))]
    _run("apt-get", *options, "update")
    told = _run("apt-cache", *options, "show", *sorted(packages))
    stanzas = [dict(re.findall(r"^(\w+): (.+)$", one, re.MULTILINE)) for one in told.split("\n\n")]
    return {one["Package"]: one for one in stanzas if one}


if __name__ == "__main__":
    sys.exit(update())
