"""The devices the conformance suite runs on: one row each, with its gaps in writing.

A gap is `unsupported` (for good: it describes the backend), `unsimulated` (it describes the
simulated device, and a real one is asked) or `expected_failures` (for now: the test must fail, and
fails the run once it passes). Keys are patterns of a test's name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from build_support import (
    cuda_kernels,
    hip_compiler,
    opencl_compiler,
    opencl_kernels,
    rocm_kernels,
)
from build_support.kernel_declarations import declared_signatures
from opencl_backend import compile as opencl_compile
from opencl_backend.spirv import SpirvModule
from simulators.topsfb import of_host
from uhal import Device, registry
from uhal.images.amd_target import TargetId
from uhal.images.hsaco import read_hsaco

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(__file__).resolve().parent / "kernels"


@dataclass(frozen=True)
class Row:
    """One device under test."""

    name: str
    backend: str
    compile: Callable[[Path, Path], Path]
    """Makes an image of a kernel source, in a folder that is kept from run to run."""
    ordinal: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set before the backend is opened."""
    two_devices: Mapping[str, str] | None = None
    """What to set besides to have two devices; `None` where there is one."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    unsimulated: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    unsupported_fixtures: Mapping[str, str] = field(default_factory=dict)
    """Fixtures whose tests the backend cannot run, with the reason."""
    prepare: Callable[[Path], Mapping[str, str]] | None = None
    """Makes what the row needs, in a folder; returns more of the environment. May skip the row."""
    compile_on: Callable[[int, Path, Path], Path] | None = None
    """Like `compile`, for the real device of an ordinal; `None` where images suit every device."""

    @property
    def skipped(self) -> Mapping[str, str]:
        """Both kinds of tests that cannot pass."""
        return {**self.unsupported, **self.unsimulated}


def compile_for_host(source: Path, folder: Path) -> Path:
    """Compile with this machine's C++ compiler unless the same was compiled before."""
    compiler = os.environ.get("CXX", "c++")
    options = shlex.split(
        subprocess.run(
            [sys.executable, "-m", "uhal", "cflags"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    command = [compiler, *options, "-x", "c++", str(source)]
    image = folder / f"{source.stem}-{_digest(source, ' '.join(command))}.so"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.replace(image)
    return image


def compile_for_cuda(source: Path, folder: Path) -> Path:
    """Compile to PTX with nvcc unless the same was compiled before."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on the PATH")
    digest = _digest(source, cuda_kernels.compiler())
    image = folder / f"{source.stem}-{digest}.ptx"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        # Without it, variables are made invisible to other files and to Module.get_global.
        cuda_kernels.compile_ptx(source.relative_to(ROOT), unfinished, "-rdc=true")
        unfinished.replace(image)
    return image


def compile_for_rocm(source: Path, folder: Path) -> Path:
    """Compile to a code object for the simulated device."""
    return compile_for_target(ROCM_TARGET, source, folder)


def compile_on_rocm(ordinal: int, source: Path, folder: Path) -> Path:
    """Compile to a code object for a real device."""
    return compile_for_target(rocm_target(ordinal), source, folder)


def rocm_target(ordinal: int) -> str:
    """The processor of a real device, its features left open."""
    isas = str(Device(ordinal, "rocm").attributes["HSA_AGENT_INFO_ISA"])
    return TargetId.parse(isas.split(", ")[0]).processor


def compile_for_target(target: str, source: Path, folder: Path) -> Path:
    """Compile to a code object with the pinned clang unless the same was compiled before."""
    compiler = hip_compiler.toolchain()
    if compiler is None:
        _missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    image = folder / f"{source.stem}-{_digest(source, f'{compiler} {target}')}.hsaco"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        place = source.relative_to(ROOT)
        hip_compiler.compile_hsaco(place, target, unfinished)
        signatures = declared_signatures(
            hip_compiler.preprocess(place, target),
            rocm_kernels.KERNEL,
            read_hsaco(unfinished.read_bytes()).signatures,
        )
        lines = [f"{entry}: {told.declaration}\n" for entry, told in signatures.items()]
        image.with_name(f"{image.name}.sig").write_text("".join(lines), encoding="utf-8")
        unfinished.replace(image)
    return image


def compile_for_opencl(source: Path, folder: Path) -> Path:
    """Compile to SPIR-V with the pinned clang unless the same was compiled before."""
    compiler = hip_compiler.toolchain()
    if compiler is None:
        _missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    recipe = f"{compiler} {' '.join(opencl_compile.LANGUAGE)}"
    image = folder / f"{source.stem}-{_digest(source, recipe)}.spv"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        place = source.relative_to(ROOT)
        opencl_compiler.compile_spirv(place, unfinished)
        signatures = declared_signatures(
            opencl_compiler.preprocess(place),
            opencl_kernels.KERNEL,
            SpirvModule(unfinished.read_bytes()).signatures,
        )
        lines = [f"{entry}: {told.declaration}\n" for entry, told in signatures.items()]
        image.with_name(f"{image.name}.sig").write_text("".join(lines), encoding="utf-8")
        unfinished.replace(image)
    return image


def compile_for_tops(source: Path, folder: Path) -> Path:
    """Assemble a container of the host build, which simulated GCUs run, and its sidecar.

    Unless it was assembled before: another process of the run may be reading it.
    """
    library = compile_for_host(source, folder)
    assembler = Path(of_host.__file__).parent.glob("*.py")
    digest = _digest(library, "".join(path.read_text("utf-8") for path in sorted(assembler)))
    image = library.with_name(f"{source.stem}-{digest}.topsfb")
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        unfinished.write_text(of_host.sidecar(library), encoding="utf-8")
        unfinished.replace(f"{image}.sig")
        unfinished.write_bytes(of_host.assemble(library, "gcu210", "gcu300"))
        unfinished.replace(image)
    return image


@contextlib.contextmanager
def in_place(row: Row, folder: Path) -> Iterator[None]:
    """Set a row's environment, and install its distribution, for as long as this lasts."""
    prepared = row.prepare(folder) if row.prepare is not None else {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**row.environment, **prepared}.items():
            patch.setenv(name, value)
        if "PYTHONPATH" in prepared:  # of a distribution that is installed for this row alone
            patch.syspath_prepend(prepared["PYTHONPATH"].partition(os.pathsep)[0])
        registry.look_again()
        yield
    registry.look_again()


def prepare_skeleton(folder: Path) -> Mapping[str, str]:
    """Install the distribution as its user would."""
    source = ROOT / "tests" / "skeleton_backend"
    digest = hashlib.sha256()
    for path in [source / "pyproject.toml", *sorted(source.glob("*/*.py"))]:
        digest.update(path.read_bytes())
    site = folder / f"skeleton-{digest.hexdigest()[:16]}"
    if not site.exists():
        unfinished = site.with_suffix(f".{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        # A copy: the build leaves folders beside its sources.
        shutil.copytree(source, unfinished / "source")
        options = ["--no-deps", "--no-build-isolation", "--no-index"]
        target = unfinished / "site"
        subprocess.run(
            [*pip, *options, "--target", str(target), str(unfinished / "source")], check=True
        )
        with contextlib.suppress(OSError):  # another process of the run was first
            target.rename(site)
        shutil.rmtree(unfinished)
    # The row's fixture puts it on the path of this process; those that tests start find it, too.
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}


def prepare_opencl(folder: Path) -> Mapping[str, str]:
    """Find a vendor's runtime; programs are kept from run to run."""
    found = registry.record("opencl")
    if found.verdict != "ok":
        _missing(f"{found.reason}: {found.next_step}")
    return {"UHAL_OPENCL_CACHE": str(folder / "opencl")}


def prepare_simulated_cuda(folder: Path) -> Mapping[str, str]:
    """Find the simulated driver; translated kernels are kept from run to run."""
    return {"UHAL_CUDA_LIBRARY": _simulator("libcuda.so.1"), "UHAL_SIM_CACHE": str(folder / "ptx")}


def prepare_simulated_rocm(folder: Path) -> Mapping[str, str]:
    """Find the simulated runtime, and give it host builds of the kernels to run."""
    return {"UHAL_ROCM_LIBRARY": _simulator("libhsa-runtime64.so.1"), **_host_builds(folder)}


def prepare_simulated_tops(folder: Path) -> Mapping[str, str]:
    """Find the simulated runtime, and give it host builds of the kernels to run."""
    return {"UHAL_TOPS_LIBRARY": _simulator("libtopsrt.so.1"), **_host_builds(folder)}


def _simulator(name: str) -> str:
    library = ROOT / "simulators" / "build" / name
    if not library.is_file():
        _missing(f"the simulated {name} is not built: make simulators")
    return str(library)


def _missing(reason: str) -> NoReturn:
    """Fail in CI, where the project's own scripts bring it; tell a developer why it is skipped."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _host_builds(folder: Path) -> Mapping[str, str]:
    built = {path.stem: compile_for_host(path, folder) for path in sorted(KERNELS.glob("*.cu"))}
    digest = hashlib.sha256(" ".join(path.name for path in built.values()).encode()).hexdigest()
    kernels = folder / f"simulated-{digest[:16]}"
    if not kernels.is_dir():
        # made aside: another run of the tests may be looking for it
        unfinished = folder / f"simulated-{os.getpid()}"
        unfinished.mkdir()
        for name, path in built.items():
            (unfinished / f"{name}.so").symlink_to(path)
        try:
            unfinished.replace(kernels)
        except OSError:
            shutil.rmtree(unfinished)
    return {"UHAL_SIM_KERNELS": str(kernels)}


def _digest(source: Path, recipe: str) -> str:
    """Digest of a source, the headers it may include, and how it is compiled."""
    digest = hashlib.sha256(recipe.encode())
    for path in [source, *sorted((ROOT / "uhal" / "include").rglob("*.h"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


ROCM_TARGET = "gfx90a"
"""What the simulated row compiles for: the default of its device."""

SCHEDULE = os.environ.get("UHAL_SIM_SCHEDULE", "lazy")
"""When simulated drivers run queued work. One process has one: they read it once."""

_NOT_BY_ITSELF = f"under the schedule {SCHEDULE!r} nothing has to run before something waits for it"

# Tests in which work goes on although nothing waits for it.
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

# Tests in which a stream goes on beside one that is held.
_HELD = (
    "a_stream_goes_on_while_another_is_held",
    "waiting_is_for_the_record_that_was_made_before",
)

# Tests in which numpy and a device share memory.
_NUMPYS = (
    "a_buffer_describes_numpys_memory",
    "a_copy_is_a_copy",
    "a_kernel_writes_into_numpys_memory",
    "a_tensor_elsewhere_is_refused",
    "an_array_over_a_buffer_keeps_the_memory",
    "an_export_waits_for_the_work_before_it",
    "closing_a_description_leaves_the_consumers_memory_alone",
    "closing_an_exported_buffer_leaves_the_consumers_memory_alone",
    "numpy_reads_device_memory_in_place",
    "read_only_memory_stays_read_only",
    "shapes_of_one_and_of_none_are_contiguous",
    "strided_tensors_are_refused",
    "the_memory_described_is_kept_and_let_go",
    "what_is_no_tensor_is_refused",
)

# Tests of what kernels print and assert.
_MESSAGES = (
    "an_assertion_names_kernel_line_and_values",
    "more_than_is_kept_is_counted",
    "what_kernels_print",
)

ROWS = (
    Row(
        "host",
        "host",
        compile_for_host,
        two_devices={"UHAL_HOST_DEVICES": "2"},
        unsupported={
            "test_events_with_every_flag*INTERPROCESS*": "memory of one process",
        },
    ),
    Row(
        "cuda-sim",
        "cuda",
        compile_for_cuda,
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE},
        two_devices={"UHAL_SIM_CUDA_DEVICES": "2"},
        prepare=prepare_simulated_cuda,
        unsupported={
            **{f"test_{name}[[]*": "numpy reads the host's memory only" for name in _NUMPYS},
            "test_events_with_every_flag*INTERPROCESS-*": "such an event has no times",
            **{
                f"test_what_is_no_image_is_refused[[]*-{damage}]": "damages ELF headers only"
                for damage in ("wrong class", "wrong machine", "wrong type", "no sections")
            },
        },
        unsimulated={
            f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"
        },
    ),
    Row(
        "rocm-sim",
        "rocm",
        compile_for_rocm,
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE, "UHAL_SIM_ROCM_PROFILE": ROCM_TARGET},
        two_devices={"UHAL_SIM_ROCM_DEVICES": "2"},
        prepare=prepare_simulated_rocm,
        unsupported={
            **{f"test_{name}[[]*": "numpy reads the host's memory only" for name in _NUMPYS},
            "test_streams_of_other_libraries[[]*": "HIP's streams are no queues",
            "test_native_stream_ordered_memory[[]*": "HSA has no stream-ordered allocation",
            "test_a_sidecar_file_is_read[[]*": "a code object tells no types to contradict",
        },
        unsimulated={
            **{f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"},
            **{f"test_{name}[[]*": _ONE_AT_A_TIME for name in _HELD if SCHEDULE != "lazy"},
            "test_a_buffer_closed_by_one_thread_while_others_launch_on_it[[]*": (
                "streams write one buffer in no order, which the simulated fences take for reads"
            ),
        },
        compile_on=compile_on_rocm,
    ),
    Row(
        "tops-sim",
        "tops",
        compile_for_tops,
        # Blocks of real GCUs have 12 threads; the suite's kernels are written for more.
        environment={"UHAL_SIM_SCHEDULE": SCHEDULE, "UHAL_SIM_TOPS_BLOCK_THREADS": "1024"},
        two_devices={"UHAL_SIM_TOPS_DEVICES": "2"},
        prepare=prepare_simulated_tops,
        unsupported={
            **{f"test_{name}[[]*": "numpy reads the host's memory only" for name in _NUMPYS},
            "test_a_capsule_nobody_takes_frees_its_hold*": "DLPack has no device type for GCUs",
            "test_a_graph_takes_other_parameters*": "no function that does it is known",
        },
        unsimulated={
            f"test_{name}[[]*": _NOT_BY_ITSELF for name in _UNWAITED if SCHEDULE != "eager"
        },
    ),
    Row(
        "opencl",
        "opencl",
        compile_for_opencl,
        prepare=prepare_opencl,
        unsupported={
            **{f"test_{name}[[]*": "DLPack has no device type for its memory" for name in _NUMPYS},
            "test_a_capsule_nobody_takes_frees_its_hold*": "the same",
            **{
                f"test_{name}[[]*": (
                    "on a CPU whoever waits for a stream may run the kernel that holds another"
                )
                for name in _HELD
            },
            "test_streams_of_other_libraries[[]*": "a queue is not a stream of ours",
            "test_native_stream_ordered_memory[[]*": "OpenCL has no stream-ordered allocation",
            **{
                f"test_what_is_no_image_is_refused[[]*-{damage}]": "damages ELF headers only"
                for damage in ("wrong class", "wrong machine", "wrong type")
            },
            **{
                f"test_{name}_leave_nothing[[]*": "the runtime's own pools grow before they rest"
                for name in ("rounds_of_everything", "launches_alone")
            },
            "test_a_graph_*": "it has no graphs of its own: uhal keeps the list of a plan",
            "test_faults*": "a kernel that traps on a CPU ends the process, which is the device",
            "test_a_plan_that_faults_names_its_launches*": "the same",
        },
    ),
    Row(
        "skeleton",
        "skeleton",
        compile_for_host,
        prepare=prepare_skeleton,
        unsupported_fixtures={"gate": "calls are done when they return: nothing can be held"},
        unsupported={
            **{f"test_{name}[[]*": "it leaves messages of kernels out" for name in _MESSAGES},
            "test_a_graph_*": "it has no graphs of its own: uhal keeps the list of a plan",
            "test_faults*": "a kernel that traps ends the process, which is the device",
            "test_a_plan_that_faults_names_its_launches*": "the same",
            "test_ctrl_c_ends_*": "calls are done when they return: nothing is waited for",
        },
    ),
)


def real_device(text: str) -> Row:
    """The row of a device named on the command line: `cuda` or `cuda:1`.

    It has the gaps of the backend, not those of the simulated device.
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
    raise ValueError(f"--device {text}: no row tells how to make images for {backend!r}")


def rows_with(devices: Sequence[str]) -> list[Row]:
    """The rows of a run with these real devices.

    A process has one library for each backend: a real device's replaces the simulated one.
    """
    real = [real_device(text) for text in devices]
    replaced = {row.backend for row in real}
    return [*(row for row in ROWS if row.prepare is None or row.backend not in replaced), *real]
