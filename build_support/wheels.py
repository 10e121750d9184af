"""Builds the wheels, into `dist/`: `make wheel`, `make wheel MACHINE=aarch64`.

    python -m build_support.wheels [--machine MACHINE] [--only-this]

A wheel for each CPython of `pyproject.toml` that this machine has. setuptools makes this
interpreter's wheel; the others differ only in the lane, which is compiled for each. Wheels for
another machine have its Python files, and native parts that zig compiles; they carry no simulated
drivers. auditwheel then finds the oldest Linux that a wheel runs on, for its name.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time as clock
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from build_support import interpreters
from build_support.jobs import BuildError, build
from build_support.native import lane_job, native_jobs
from build_support.target import Python, Target, other_machine, python_at, this_machine

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
LARGEST = 25_000_000
"""Bytes of a wheel, with the kernels of every level and all images."""

_LANE = re.compile(r"uhal/_lane\..*\.so")
_NATIVE = re.compile(r".*\.so(\.\d+)*")
_TAG = re.compile(r"^Tag: .*$", re.MULTILINE)
# A file of a wheel has the time of its source, if SOURCE_DATE_EPOCH gives one.
_EARLIEST = 315532800
"""1 January 1980, the earliest date of a zip file."""

Contents = Mapping[str, bytes]


def main(arguments: list[str]) -> None:
    """Build the requested wheels; print each wheel with its size."""
    parser = argparse.ArgumentParser(prog="python -m build_support.wheels", description=__doc__)
    parser.add_argument("--machine", default=platform.machine(), help="aarch64, for one")
    parser.add_argument("--only-this", action="store_true", help="for this interpreter alone")
    chosen = parser.parse_args(arguments)
    pythons = [python_at()]
    if not chosen.only_this:
        have = interpreters.found(interpreters.promised())
        pythons += [python_at(str(path)) for _, path in sorted(have.items())]
    base = read(_of_this_interpreter())
    DIST.mkdir(exist_ok=True)
    try:
        made = [_finished(*one) for one in _assembled(base, pythons, chosen.machine)]
    except BuildError as error:
        raise SystemExit(f"\nNo wheel was built.\n\n{error}") from None
    for path in made:
        size = path.stat().st_size
        print(f"{size / 1e6:6.1f} MB  {path.relative_to(ROOT)}")
        if size > LARGEST:
            raise SystemExit(f"{path.name} is larger than {LARGEST / 1e6:.0f} MB")


def _of_this_interpreter() -> Path:
    """The wheel that setuptools makes. An earlier copy may hold files that no longer exist."""
    for stale in (ROOT / "build").glob("lib*"):
        shutil.rmtree(stale)
    folder = WORK / "base"
    shutil.rmtree(folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "-w", str(folder), "."], cwd=ROOT, check=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _assembled(
    base: Contents, pythons: list[Python], machine: str
) -> Iterator[tuple[Target, Contents]]:
    """Contents of the wheel for each interpreter."""
    if machine == platform.machine():
        targets = [this_machine(python) for python in pythons]
        jobs = [lane_job(ROOT, WORK / target.python.tag, target=target) for target in targets]
        build(jobs, ROOT)
        for target, job in zip(targets, jobs, strict=True):
            shared = {name: data for name, data in base.items() if not _LANE.fullmatch(name)}
            yield target, {**shared, f"uhal/{job.output.name}": job.output.read_bytes()}
        return
    plain = {name: data for name, data in base.items() if not _NATIVE.fullmatch(name)}
    for target in (other_machine(machine, python) for python in pythons):
        destination = WORK / machine
        jobs = native_jobs(ROOT, destination, every_level=True, target=target)
        build(jobs, ROOT)
        native = {
            job.output.relative_to(destination).as_posix(): job.output.read_bytes() for job in jobs
        }
        yield target, {**plain, **native}


def _finished(target: Target, contents: Contents) -> Path:
    """Write the wheel, and let auditwheel name it."""
    python = f"cp3{target.python.minor}"
    named = f"{python}-{python}-linux_{target.machine}"
    folder = WORK / "unnamed"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{_distribution(contents)}-{named}.whl"
    write(wheel, contents, tag=named)
    if not sys.platform.startswith("linux"):
        return Path(shutil.copy(wheel, DIST))
    done = WORK / "named"
    shutil.rmtree(done, ignore_errors=True)
    audit = (sys.executable, "-m", "auditwheel", "repair", "-w", str(done), str(wheel))
    reported = subprocess.run(audit, capture_output=True, encoding="utf-8", env=_with_patchelf())
    if reported.returncode != 0:
        raise BuildError(f"auditwheel refuses {wheel.name}:\n{reported.stdout}{reported.stderr}")
    (repaired,) = done.glob("*.whl")
    before, after = set(contents), set(read(repaired))
    if grafted := {name for name in after - before if ".libs/" in name}:
        raise BuildError(f"{wheel.name} needs libraries that no Linux promises: {grafted}")
    for earlier in DIST.glob(f"{_distribution(contents)}-{python}-*_{target.machine}.whl"):
        earlier.unlink()
    return Path(shutil.move(repaired, DIST / repaired.name))


def _with_patchelf() -> dict[str, str]:
    own = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}"}


def read(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name, without its record."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("/", "/RECORD"))]
        return {name: archive.read(name) for name in names}


def write(wheel: Path, contents: Contents, *, tag: str) -> None:
    """Write a wheel with its record, byte for byte the same for the same contents."""
    information = _information(contents)
    files = dict(sorted(contents.items()))
    described = files[f"{information}/WHEEL"].decode()
    files[f"{information}/WHEEL"] = _TAG.sub(f"Tag: {tag}", described).encode()
    record = f"{information}/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    time = max(int(os.environ.get("SOURCE_DATE_EPOCH", _EARLIEST)), _EARLIEST)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _calendar(time))
            entry.external_attr = (0o755 if _NATIVE.fullmatch(name) else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def _calendar(time: int) -> tuple[int, int, int, int, int, int]:
    return clock.gmtime(time)[:6]


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _information(contents: Contents) -> str:
    (name,) = {name.partition("/")[0] for name in contents if ".dist-info/" in name}
    return name


def _distribution(contents: Contents) -> str:
    return _information(contents).removesuffix(".dist-info")


if __name__ == "__main__":
    main(sys.argv[1:])
