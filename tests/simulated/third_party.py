"""Installs third-party libraries, each set in a folder that is kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

import pytest

from tests.requirements import missing
from uhal_conformance.kept_folders import kept_folder

# The list includes dependencies, because pip installs without them; numpy is already there.
NVIDIA = (
    *("cuda-core==1.2.2", "cuda-bindings==13.5.0", "cuda-pathfinder==1.9.0"),
    *("nvidia-cuda-nvrtc==13.5.37", "nvidia-nvjitlink==13.5.37"),
    # numba-cuda compiles with these, and its own tests need the rest.
    *("numba-cuda==0.30.4", "numba==0.68.1", "llvmlite==0.50.0", "nvidia-nvvm==13.5.37"),
    *("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6"),
    *("filecheck==1.0.6", "psutil==7.2.2", "cffi==2.1.1", "pycparser==3.12"),
    "ml-dtypes==0.6.0",
)
MPICH = ("mpich==5.0.2", "mpi4py==4.1.2")
HIP_PYTHON = (
    *("hip-python==10.0.0.0.1.2", "rocm-bindings-hip==10.0.0.0.1.2"),
    "rocm-bindings-core==10.0.0.0.1.2",
)
# PyCUDA is compiled here; the headers of the driver API come in wheels.
PYCUDA = (
    *("pycuda==2026.1", "pytools==2026.1.1", "siphash24==1.9", "platformdirs==4.14.5"),
    *("typing-extensions==4.16.0", "mako==1.4.3", "MarkupSafe==3.0.4"),
)
PYCUDA_HEADERS = ("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-profiler-api==13.5.25")
LLAMA_CPP_PYTHON = "llama-cpp-python==0.3.36"
LLAMA_CPP_PYTHON_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
_PYCUDA_SETTINGS = "CUDA_ENABLE_CURAND = False\nCUDA_ENABLE_GL = False\n"

_NO_NETWORK = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "timed out",
)


def cache_of(config: pytest.Config) -> Path:
    """Return the folder where installed libraries are kept from run to run."""
    return kept_folder(config, "third_party")


def install(folder: Path, packages: tuple[str, ...], **environment: str) -> Path:
    """Install exactly these packages unless they are there already; return their folder.

    Without a network the test is skipped, or fails in CI. If pip fails for another
    reason, the test fails with pip's message.
    """
    recipe = f"{sys.version_info[:2]} {' '.join(packages)}"
    site = folder / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    if site.is_dir():
        return site
    unfinished = folder / f"unfinished-{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    options = ("--no-deps", "--retries", "1", "--timeout", "20", "--target", str(unfinished))
    done = subprocess.run(
        [*pip, "install", *options, *packages],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
    )
    said = done.stdout + done.stderr
    if done.returncode != 0 and any(words in said for words in _NO_NETWORK):
        missing(f"there is no network to install {packages[0]} from")
    assert done.returncode == 0, said[-5000:]
    return _published(unfinished, site)


def _published(unfinished: Path, place: Path) -> Path:
    """Rename a complete folder to its final name, unless another worker did it first."""
    try:
        unfinished.replace(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(unfinished, ignore_errors=True)
    return place


def _write(path: Path, text: str) -> None:
    """Replace a file atomically, because other processes may read it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as unfinished:
        unfinished.write(text)
    Path(unfinished.name).replace(path)


def make_environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """Make an environment with exactly these packages, and ours behind them; return its Python.

    Packages such as numba-cuda need this: they look for libraries in the interpreter's own folders.
    """
    site = install(folder, packages)
    environment = folder / f"{site.name}-environment"
    python = environment / "bin" / "python"
    if not environment.is_dir():
        unfinished = folder / f"unfinished-environment-{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        venv.create(unfinished, symlinks=True)
        (own,) = unfinished.glob("lib/python*/site-packages")
        own.rmdir()
        own.symlink_to(site, target_is_directory=True)
        _published(unfinished, environment)
    ours = site / "ours.pth"
    if not ours.exists():
        _write(ours, f"{sysconfig.get_path('purelib')}\n")
    return python


def make_environment_of(folder: Path, packages: tuple[str, ...]) -> Path:
    """Make an environment into which pip installs these packages, ours behind them.

    Returns its Python. For packages with files beside `site-packages`, such as MPI's launchers.
    """
    recipe = f"{sys.version_info[:2]} {' '.join(packages)}"
    environment = folder / f"{hashlib.sha256(recipe.encode()).hexdigest()[:16]}-own"
    python = environment / "bin" / "python"
    if not environment.is_dir():
        # Scripts name their environment, so that a finished environment cannot be renamed.
        venv.create(environment, symlinks=True)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
        done = subprocess.run(
            [*pip, "install", "--no-deps", "--retries", "1", "--timeout", "20", *packages],
            capture_output=True,
            encoding="utf-8",
        )
        said = done.stdout + done.stderr
        if done.returncode != 0:
            shutil.rmtree(environment)
            if any(words in said for words in _NO_NETWORK):
                missing(f"there is no network to install {packages[0]} from")
        assert done.returncode == 0, said[-5000:]
        (own,) = environment.glob("lib/python*/site-packages")
        _write(own / "ours.pth", f"{sysconfig.get_path('purelib')}\n")
    return python


def install_pycuda(folder: Path, driver: Path) -> Path:
    """Compile and install PyCUDA, which links against the simulated `driver`."""
    headers = install(folder, PYCUDA_HEADERS)
    include = next(headers.glob("nvidia/*/include/cuda.h")).parent
    home = folder / "home"
    home.mkdir(exist_ok=True)
    _write(home / ".aksetup-defaults.py", _PYCUDA_SETTINGS)
    return install(
        folder,
        PYCUDA,
        HOME=str(home),
        CPATH=str(include),
        CFLAGS="-O0 -g0 -w",
        LIBRARY_PATH=str(driver.parent),
    )


def unpack_tests_of_pycuda(folder: Path) -> Path:
    """Return the folder of tests in PyCUDA's source distribution."""
    return _unpack(folder, PYCUDA[0], "test")


def unpack_vocabularies_of_llama_cpp(folder: Path) -> Path:
    """Return llama.cpp's folder of vocabulary files, from the sources of llama-cpp-python."""
    return _unpack(folder, LLAMA_CPP_PYTHON, "vendor/llama.cpp/models", LLAMA_CPP_PYTHON_SHA256)


def _unpack(folder: Path, package: str, part: str, sha256: str | None = None) -> Path:
    """Return a folder of a package's source distribution, which is downloaded once."""
    name, _, version = package.partition("==")
    kept = folder / f"{name}-{version}" / part
    if kept.is_dir():
        return kept
    with tempfile.TemporaryDirectory(dir=folder) as place:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps")
        done = subprocess.run(
            [*pip, "--no-binary", name, "--dest", place, package],
            capture_output=True,
            encoding="utf-8",
        )
        said = done.stdout + done.stderr
        if done.returncode != 0 and any(words in said for words in _NO_NETWORK):
            missing(f"there is no network to fetch the sources of {name} from")
        assert done.returncode == 0, said[-5000:]
        (archive,) = Path(place).glob("*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert sha256 in (None, found), f"{archive.name}: expected {sha256}, got {found}"
        with tarfile.open(archive) as members:
            wanted = [one for one in members if one.name.partition("/")[2].startswith(f"{part}/")]
            members.extractall(place, wanted, filter="data")
        (unpacked,) = Path(place).glob(f"*/{part}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        return _published(unpacked, kept)
