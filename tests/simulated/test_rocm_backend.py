"""The ROCm backend over the simulated runtime: failures, code objects, threads, other backends."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from build_support import hip_compiler
from rocm_backend.compile import FREESTANDING
from tests import host_kernels, hsaco_writer
from tests.children import check_child
from tests.hsaco_writer import Argument, Kernel, v5_hidden
from tests.requirements import missing
from tests.sampling import rounds
from tests.simulated import rocm_programs as programs
from tests.simulated.hsa import LIBRARY, POINTER

STEP = Kernel(
    "step", [Argument(0, 8), Argument(8, 4), Argument(12, 4), Argument(16, 8, POINTER)], 24
)
ONE = Kernel("one", [Argument(0, 4), Argument(8, 8, POINTER)], 16)
WHERE = Kernel("where", [Argument(0, 8, POINTER)], 8)
GATE = Kernel("gate", [Argument(0, 8, POINTER), Argument(8, 8, POINTER)], 16)
BASIC = Path("tests", "conformance", "kernels", "basic.cu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not LIBRARY.exists() or not host_kernels.has_compiler():
        missing("the simulated HSA runtime is not built: make simulators")
    made = tmp_path_factory.mktemp("rocm")
    (made / "built.so").write_bytes(host_kernels.build(programs.SOURCE))
    (made / "basic.so").write_bytes(host_kernels.build((hip_compiler.ROOT / BASIC).read_text()))
    return made


@pytest.fixture(scope="module")
def image(folder: Path) -> str:
    path = folder / "kernels.hsaco"
    path.write_bytes(hsaco_writer.write([STEP, WHERE], variables={"table": 16}))
    return str(path)


@pytest.fixture(params=["lazy", "random:11"])
def environment(request: pytest.FixtureRequest, folder: Path) -> Mapping[str, str]:
    return {
        "UHAL_ROCM_LIBRARY": str(LIBRARY),
        "UHAL_SIM_KERNELS": f"{folder / 'built.so'}:{folder / 'basic.so'}",
        "UHAL_SIM_ROCM_PROFILE": "gfx90a",
        "UHAL_SIM_SCHEDULE": request.param,
    }


def test_every_step_may_fail(environment: Mapping[str, str], image: str, seed: int) -> None:
    printed = check_child(
        *(programs.survive_failures, image, seed, rounds(1, 20)),
        environment=environment,
        timeout=500,
    )
    assert printed.endswith("refused\n")


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "program", [programs.lose_a_queue, programs.lose_by_a_fault, programs.lose_by_a_copy]
)
def test_a_device_is_lost(
    environment: Mapping[str, str], image: str, seed: int, program: object
) -> None:
    check_child(program, image, seed, environment=environment, timeout=60)  # type: ignore[arg-type]


def test_a_deadline_ends_every_wait(environment: Mapping[str, str], folder: Path) -> None:
    gate = folder / "gate.hsaco"
    gate.write_bytes(hsaco_writer.write([GATE]))
    check_child(
        *(programs.give_up_at_the_deadline, str(gate)),
        environment={**environment, "UHAL_ROCM_DEADLINE": "0.3"},
        timeout=60,
    )


@pytest.mark.drawn(1, each=("queues",))
@pytest.mark.parametrize("queues", ["4", "1", "0"])
def test_eight_threads_on_four_streams(
    environment: Mapping[str, str], image: str, seed: int, queues: str
) -> None:
    check_child(
        *(programs.storm, image, seed, rounds(400, 100_000)),
        environment={**environment, "UHAL_ROCM_QUEUES": queues},
        timeout=3000,
    )


def test_arguments_go_where_the_metadata_says(
    environment: Mapping[str, str], folder: Path, seed: int
) -> None:
    images = []
    for number, (offsets, total) in enumerate(
        [((0, 8, 16, 24), 32), ((40, 0, 30, 8), 41), ((17, 48, 8, 24), 56)]
    ):
        sizes = (1, 8, 2, 8)
        kinds = ("by_value", "by_value", "by_value", POINTER)
        arguments = [Argument(*one) for one in zip(offsets, sizes, kinds, strict=True)]
        for version in (4, 5):
            path = folder / f"mix{number}_v{version}.hsaco"
            kernel = Kernel("mix", arguments, total)
            path.write_bytes(hsaco_writer.write([kernel], version=version))
            images.append(str(path))
    check_child(programs.permuted, images, seed, environment=environment)


def test_hidden_arguments_of_both_versions(environment: Mapping[str, str], folder: Path) -> None:
    images = []
    for version, hidden in ((4, []), (5, v5_hidden(8))):
        kernel = Kernel("where", [*WHERE.arguments, *hidden], 264 if hidden else 8)
        path = folder / f"where_v{version}.hsaco"
        path.write_bytes(hsaco_writer.write([kernel], version=version))
        images.append(str(path))
    check_child(programs.geometry, images, environment=environment)


def test_what_is_not_known_is_not_guessed(environment: Mapping[str, str], folder: Path) -> None:
    bare, typed = folder / "one.hsaco", folder / "one_typed.hsaco"
    for path in (bare, typed):
        path.write_bytes(hsaco_writer.write([ONE]))
    (folder / "one_typed.hsaco.sig").write_text("one: u32 bits, u32* out\n", encoding="utf-8")
    check_child(programs.untyped_scalars, str(bare), str(typed), environment=environment)


def test_a_grid_has_less_than_2_32_work_items_an_axis(
    environment: Mapping[str, str], image: str
) -> None:
    check_child(programs.refuse_grids_of_too_many_work_items, image, environment=environment)


def test_three_backends_in_one_process(environment: Mapping[str, str], seed: int) -> None:
    cuda = LIBRARY.with_name("libcuda.so.1")
    if not cuda.exists():
        missing("the simulated CUDA driver is not built: make simulators")
    check_child(
        *(programs.copy_through_three_backends, seed),
        environment={**environment, "UHAL_CUDA_LIBRARY": str(cuda)},
    )


def test_a_forked_child_is_told(environment: Mapping[str, str], image: str, seed: int) -> None:
    check_child(programs.use_after_fork, image, seed, environment=environment)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [4, 5])
def test_code_objects_of_the_pinned_compiler(
    environment: Mapping[str, str], folder: Path, seed: int, version: int
) -> None:
    if hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    image = folder / f"pinned_v{version}.hsaco"
    hip_compiler.compile_hsaco(BASIC, "gfx90a", image, code_object=version)
    check_child(programs.run_images, [str(image)], seed, environment=environment)


@pytest.mark.parametrize("version", [4, 5])
def test_code_objects_of_debians_compiler(
    environment: Mapping[str, str], folder: Path, seed: int, version: int
) -> None:
    if shutil.which("clang-19") is None or shutil.which("ld.lld-19") is None:
        pytest.skip("needs Debian's clang-19 and lld-19")
    image = folder / f"debian_v{version}.hsaco"
    builtin = subprocess.run(
        ["clang-19", "-print-resource-dir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    command = [
        *("clang-19", "--offload-arch=gfx90a", f"-mcode-object-version={version}"),
        *hip_compiler.LANGUAGE,
        *hip_compiler.OBJECT,
        *("-nostdinc", f"-I{hip_compiler.INCLUDE}"),
        *("-isystem", str(hip_compiler.INCLUDE / FREESTANDING)),
        *("-isystem", f"{builtin}/include", str(BASIC), "-o", str(image)),
    ]
    subprocess.run(command, cwd=hip_compiler.ROOT, check=True)
    check_child(programs.run_images, [str(image)], seed, environment=environment)


def test_memory_of_hip_goes_in_and_its_streams_do_not(
    environment: Mapping[str, str], image: str, seed: int
) -> None:
    check_child(programs.use_memory_of_hip, image, seed, environment=environment)


@pytest.mark.drawn(1)
def test_queue_and_argument_memory_wrap_around(
    environment: Mapping[str, str], image: str, seed: int
) -> None:
    launches = 40_000
    # A ring has 16384 packets and 2 MiB of arguments, 64 bytes per launch: both wrap around.
    check_child(
        *(programs.go_round_the_rings, image, seed, rounds(launches, 10 * launches)),
        environment=environment,
        timeout=600,
    )
