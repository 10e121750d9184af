"""The devices that `make test` runs the conformance suite on: one row each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from build_support import conformance_images, cuda_kernels, hip_compiler
from opencl_backend import compile as opencl_compile
from simulators.topsfb import of_host
from tests.requirements import missing
from tests.webgpu.lavapipe import lavapipe
from uhal import Device, registry
from uhal.images.amd_target import TargetId
from uhal_conformance.gaps import HELD, UNSUPPORTED, UNSUPPORTED_FIXTURES, read_gaps
from uhal_conformance.images import IMAGES, KERNELS, compile_for_host, digest_of
from uhal_conformance.row import DeviceRow

ROOT = Path(__file__).resolve().parents[2]
_NO_CLANG = f"there is no {hip_compiler.PACKAGE} {hip_compiler.PINNED}: pip install it"


def compile_for_cuda(source: Path, folder: Path) -> Path:
    """Compile to PTX with nvcc, or reuse an earlier result; without nvcc return the shipped PTX."""
    if shutil.which("nvcc") is None:
        return shipped(source, "cuda", ".ptx", "nvcc is not on the PATH")
    digest = digest_of(source, cuda_kernels.compiler())
    image = folder / f"{source.stem}-{digest}.ptx"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        conformance_images.compile_cuda(source.relative_to(ROOT), unfinished)
        unfinished.replace(image)
    return image


def shipped(source: Path, folder: str, suffix: str, lacking: str) -> Path:
    """Return the shipped image, if it was built from this source."""
    made_of = json.loads((IMAGES / folder.partition("/")[0] / "sources.json").read_text("utf-8"))
    if made_of.get(source.name) != conformance_images.source_digests().get(source.name):
        missing(f"{source.name} has changed since its image was made, and {lacking}")
    image = IMAGES / folder / f"{source.stem}{suffix}"
    if not image.is_file():
        missing(f"{source.name} has no image for {folder}, and {lacking}")
    return image


def compile_for_rocm(source: Path, folder: Path) -> Path:
    """Compile to a code object for the simulated device."""
    return compile_for_target(ROCM_TARGET, source, folder)


def compile_on_rocm(ordinal: int, source: Path, folder: Path) -> Path:
    """Compile to a code object for a real device."""
    return compile_for_target(rocm_target(ordinal), source, folder)


def rocm_target(ordinal: int) -> str:
    """The processor of a real device, without its features."""
    isas = str(Device(ordinal, "rocm").attributes["HSA_AGENT_INFO_ISA"])
    return TargetId.parse(isas.split(", ")[0]).processor


def compile_for_target(target: str, source: Path, folder: Path) -> Path:
    """Compile to a code object with the pinned clang, or reuse an earlier result.

    Without clang, return the shipped code object.
    """
    compiler = hip_compiler.toolchain()
    if compiler is None:
        return shipped(source, f"rocm/{target}", ".hsaco", _NO_CLANG)
    image = folder / f"{source.stem}-{digest_of(source, f'{compiler} {target}')}.hsaco"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        told = conformance_images.compile_rocm(target, source.relative_to(ROOT), unfinished)
        conformance_images.write_sidecar(image, told)
        unfinished.replace(image)
    return image


def compile_for_opencl(source: Path, folder: Path) -> Path:
    """Compile to SPIR-V with the pinned clang, or reuse an earlier result.

    Without clang, return the shipped SPIR-V.
    """
    compiler = hip_compiler.toolchain()
    if compiler is None:
        return shipped(source, "opencl", ".spv", _NO_CLANG)
    recipe = f"{compiler} {' '.join(opencl_compile.LANGUAGE)}"
    image = folder / f"{source.stem}-{digest_of(source, recipe)}.spv"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        told = conformance_images.compile_opencl(source.relative_to(ROOT), unfinished)
        conformance_images.write_sidecar(image, told)
        unfinished.replace(image)
    return image


def compile_for_tops(source: Path, folder: Path) -> Path:
    """Assemble a container of the host build, which simulated GCUs run, and its sidecar.

    An existing container is reused: another process of the run may be reading it.
    """
    library = compile_for_host(source, folder)
    assembler = Path(of_host.__file__).parent.glob("*.py")
    digest = digest_of(library, "".join(path.read_text("utf-8") for path in sorted(assembler)))
    image = library.with_name(f"{source.stem}-{digest}.topsfb")
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        unfinished.write_text(of_host.sidecar(library), encoding="utf-8")
        unfinished.replace(f"{image}.sig")
        unfinished.write_bytes(of_host.assemble(library, "gcu210", "gcu300"))
        unfinished.replace(image)
    return image


def prepare_skeleton(folder: Path) -> Mapping[str, str]:
    """Install the distribution as a user would."""
    source = ROOT / "tests" / "skeleton_backend"
    digest = hashlib.sha256()
    for path in [source / "pyproject.toml", *sorted(source.glob("*/*.py"))]:
        digest.update(path.read_bytes())
    site = folder / f"skeleton-{digest.hexdigest()[:16]}"
    if not site.exists():
        unfinished = site.with_suffix(f".{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        # Build from a copy, because the build leaves folders beside its sources.
        shutil.copytree(source, unfinished / "source")
        options = ["--no-deps", "--no-build-isolation", "--no-index"]
        target = unfinished / "site"
        subprocess.run(
            [*pip, *options, "--target", str(target), str(unfinished / "source")], check=True
        )
        with contextlib.suppress(OSError):  # another process of the run was first
            target.rename(site)
        shutil.rmtree(unfinished)
    # The row's fixture extends this process's path; child processes read this variable.
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}


def prepare_opencl(folder: Path) -> Mapping[str, str]:
    """Find a vendor's runtime; every checkout of the user shares the programs it builds."""
    found = registry.record("opencl")
    if found.verdict != "ok":
        missing(f"{found.reason}: {found.next_step}")
    return {}


def prepare_webgpu(folder: Path) -> Mapping[str, str]:
    """Bring Mesa's Vulkan driver for CPUs, which wgpu-native finds."""
    return lavapipe(folder)


def prepare_simulated_cuda(folder: Path) -> Mapping[str, str]:
    """Find the simulated driver, which keeps translated kernels for every checkout of the user."""
    return {"UHAL_CUDA_LIBRARY": _simulator("libcuda.so.1")}


def prepare_simulated_rocm(folder: Path) -> Mapping[str, str]:
    """Find the simulated runtime, and give it host builds of the kernels to run."""
    return {"UHAL_ROCM_LIBRARY": _simulator("libhsa-runtime64.so.1"), **_host_builds(folder)}


def prepare_simulated_tops(folder: Path) -> Mapping[str, str]:
    """Find the simulated runtime, and give it host builds of the kernels to run."""
    return {"UHAL_TOPS_LIBRARY": _simulator("libtopsrt.so.1"), **_host_builds(folder)}


def _simulator(name: str) -> str:
    library = ROOT / "simulators" / "build" / name
    if not library.is_file():
        missing(f"the simulated {name} is not built: make simulators")
    return str(library)


def _host_builds(folder: Path) -> Mapping[str, str]:
    built = {path.stem: compile_for_host(path, folder) for path in sorted(KERNELS.glob("*.cu"))}
    digest = hashlib.sha256(" ".join(path.name for path in built.values()).encode()).hexdigest()
    kernels = folder / f"simulated-{digest[:16]}"
    if not kernels.is_dir():
        # build in a separate folder: another run of the tests may be looking for this folder
        unfinished = folder / f"simulated-{os.getpid()}"
        unfinished.mkdir()
        for name, path in built.items():
            (unfinished / f"{name}.so").symlink_to(path)
        try:
            unfinished.replace(kernels)
        except OSError:
            shutil.rmtree(unfinished)
    return {"UHAL_SIM_KERNELS": str(kernels)}


ROCM_TARGET = "gfx90a"
"""Target of the simulated row's code objects: the default of its device."""

SCHEDULE = os.environ.get("UHAL_SIM_SCHEDULE", "lazy")
"""Schedule of the simulated drivers; a process has one schedule: drivers read it only once."""

_NOT_BY_ITSELF = f"under the schedule {SCHEDULE!r} nothing has to run before something waits for it"

# Tests in which work must run although no call waits for the work.
_UNWAITED = (
    "a_callback_may_use_the_device",
    "a_failing_callback_is_reported_and_the_next_one_runs",
    "a_stream_goes_on_while_another_is_held",
    "callbacks_run_in_order_when_the_stream_gets_there",
    "the_stream_does_not_wait_for_the_python_body",
    "what_a_callback_held_is_let_go",
)

_ONE_AT_A_TIME = (
    f"the simulated device runs one kernel at a time, and under {SCHEDULE!r} the one that is held"
)

SKELETON_GAPS = read_gaps(ROOT / "tests" / "skeleton_backend" / "gaps.json")

ROWS = (
    DeviceRow(
        "host",
        "host",
        compile_for_host,
        two_devices={"UHAL_HOST_DEVICES": "2"},
        unsupported=UNSUPPORTED["host"],
    ),
    DeviceRow(
        "cuda-sim",
        "cuda",
        compile_for_cuda,
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE},
        two_devices={"UHAL_SIM_CUDA_DEVICES": "2"},
        prepare=prepare_simulated_cuda,
        unsupported=UNSUPPORTED["cuda"],
        unsimulated={
            f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"
        },
    ),
    DeviceRow(
        "rocm-sim",
        "rocm",
        compile_for_rocm,
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE, "UHAL_SIM_ROCM_PROFILE": ROCM_TARGET},
        two_devices={"UHAL_SIM_ROCM_DEVICES": "2"},
        prepare=prepare_simulated_rocm,
        unsupported=UNSUPPORTED["rocm"],
        unsimulated={
            **{f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"},
            **{f"test_{name}[[]*": _ONE_AT_A_TIME for name in HELD if SCHEDULE != "lazy"},
            "test_a_buffer_closed_by_one_thread_while_others_launch_on_it[[]*": (
                "streams write one buffer in no order, which the simulated fences take for reads"
            ),
        },
        compile_on=compile_on_rocm,
    ),
    DeviceRow(
        "tops-sim",
        "tops",
        compile_for_tops,
        # A block of a real GCU has 12 threads; the suite's kernels need more.
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE, "UHAL_SIM_TOPS_BLOCK_THREADS": "1024"},
        two_devices={"UHAL_SIM_TOPS_DEVICES": "2"},
        prepare=prepare_simulated_tops,
        unsupported=UNSUPPORTED["tops"],
        unsimulated={
            f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"
        },
    ),
    DeviceRow(
        "opencl",
        "opencl",
        compile_for_opencl,
        prepare=prepare_opencl,
        unsupported=UNSUPPORTED["opencl"],
    ),
    DeviceRow(
        "webgpu",
        "webgpu",
        compile_for_opencl,
        prepare=prepare_webgpu,
        unsupported=UNSUPPORTED["webgpu"],
        unsupported_fixtures=UNSUPPORTED_FIXTURES["webgpu"],
        unsimulated={
            f"test_lanes[[]*-{dtype}*": "Mesa compiles the text of such a kernel for a minute"
            for dtype in ("f16", "f64")
        },
    ),
    DeviceRow(
        "skeleton",
        "skeleton",
        compile_for_host,
        prepare=prepare_skeleton,
        unsupported=SKELETON_GAPS.tests,
        unsupported_fixtures=SKELETON_GAPS.fixtures,
    ),
)


def real_device(text: str) -> DeviceRow:
    """The row of a device named on the command line: `cuda` or `cuda:1`.

    The row has the backend's gaps, but not the simulated device's gaps.
    """
    backend, _, number = text.partition(":")
    ordinal = int(number or 0)
    for row in ROWS:
        if row.backend == backend:
            return replace(
                row,
                name=text,
                compile=row.compile if row.compile_on is None else partial(row.compile_on, ordinal),
                ordinal=ordinal,
                environment={},
                unsimulated={},
                prepare=None,
                two_devices=None,
            )
    raise ValueError(f"--device {text}: no row compiles images for {backend!r}")


def rows_with(devices: Sequence[str]) -> list[DeviceRow]:
    """The rows of a run with these real devices.

    A process has one library per backend: a real device's library replaces the simulated one.
    """
    real = [real_device(text) for text in devices]
    replaced = {row.backend for row in real}
    return [*(row for row in ROWS if row.prepare is None or row.backend not in replaced), *real]


def prepared_rows(devices: Sequence[str]) -> dict[str, DeviceRow]:
    """Return a run's rows with `prepare`, by name: simulated devices, and drivers that compile."""
    return {row.name: row for row in rows_with(devices) if row.prepare is not None}
