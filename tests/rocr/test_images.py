"""AMD's own loader on every shipped image, and on images of other compilers.

ROCr 7.2 has no model for some targets. For these, another device of the same wavefront width loads
the code object with that device's number in the header. Symbols, descriptors and segments are read
the same way for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from build_support import hip_compiler, rocm_kernels
from tests import hsaco_writer
from tests.hsaco_writer import Argument, Kernel
from tests.requirements import missing
from tests.rocr import code_objects
from tests.rocr.code_objects import CODE_BYTES, Stranger, payload
from tests.rocr.machine import ROOT, Machine
from tests.rocr.topology import NO_MODEL
from uhal.images.hsaco import HsacoImage, HsacoKernel, read_hsaco

IMAGES = sorted((ROOT / rocm_kernels.IMAGES).glob(f"*{rocm_kernels.SUFFIX}"))
CLANG_19 = sorted((ROOT / "tests" / "data" / "rocm" / "clang19").glob("*.hsaco"))
INVALID_SYMBOL_NAME = (
    "hsa_executable_get_symbol_by_name: HSA_STATUS_ERROR_INVALID_SYMBOL_NAME: "
    "There is no symbol with the given name."
)

Loaded = Mapping[tuple[Path, str], Mapping[str, Any]]


def device_for(target: str) -> str:
    """Return the processor whose model loads code for a target."""
    return NO_MODEL.get(target, target)


@cache
def read(path: Path, target: str) -> HsacoImage:
    return read_hsaco(payload(path, target))


@pytest.fixture(scope="session")
def loaded(machine_with: Callable[[str], Machine]) -> Callable[[str], Loaded]:
    """Return, for each model's processor, AMD's loader's answers about all images for its targets.
    One process per model loads them."""

    @cache
    def load(processor: str) -> Loaded:
        files = [
            (path, target)
            for target in rocm_kernels.TARGETS
            if device_for(target) == processor
            for path in (*IMAGES, *(one for one in CLANG_19 if one.name.startswith(f"{target}_")))
        ]
        jobs = [(str(path), target, list(read(path, target).signatures)) for path, target in files]
        told = machine_with(processor).call(code_objects.load, jobs, processor)
        return dict(zip(files, told, strict=True))

    return load


def check(image: bytes, ours: HsacoImage, told: Mapping[str, Any]) -> int:
    """Check that every kernel is found and that three readers agree on it; return their number."""
    stranger = Stranger(image)
    assert {one.name for one in ours.kernels} == told["kernels"].keys() == stranger.kernels.keys()
    assert {name for name in told["symbols"] if name.endswith(".kd")} == {
        kernel.symbol for kernel in ours.kernels
    }
    for kernel in ours.kernels:
        theirs = told["kernels"][kernel.name]
        assert isinstance(theirs, dict), f"{kernel.name}: {theirs}"
        check_sizes(kernel, theirs, stranger.kernels[kernel.name])
        check_layout(kernel, stranger.kernels[kernel.name])
        check_memory(kernel, theirs, stranger)
    return len(ours.kernels)


def check_sizes(
    kernel: HsacoKernel, theirs: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    sizes = (kernel.kernarg_bytes, kernel.group_bytes, kernel.private_bytes)
    assert sizes == (theirs["kernarg"], theirs["group"], theirs["private"]), kernel.name
    assert kernel.dynamic_stack == theirs["dynamic"], kernel.name
    # The runtime does not know a kernel's alignment; its answer is 16, enough for all.
    assert kernel.kernarg_alignment <= theirs["alignment"] == 16, kernel.name
    of_metadata = (".kernarg_segment_size", ".group_segment_fixed_size")
    assert sizes[:2] == tuple(metadata[key] for key in of_metadata), kernel.name


def check_layout(kernel: HsacoKernel, metadata: Mapping[str, Any]) -> None:
    theirs = [
        (one[".value_kind"].startswith("hidden_"), one[".offset"], one[".size"])
        for one in metadata.get(".args", [])
    ]
    explicit = [(False, one.offset, one.size) for one in kernel.signature]
    hidden = [(True, one.offset, one.size) for one in kernel.hidden]
    assert explicit + hidden == theirs, kernel.name
    end = 0
    for one in kernel.signature:
        assert one.offset is not None and one.size is not None
        # Offsets follow a C struct. The file has an aggregate's size, but not its alignment.
        if one.size in (1, 2, 4, 8):
            assert one.offset == -(-end // one.size) * one.size or one.kind == "aggregate"
        end = one.offset + one.size


def check_memory(kernel: HsacoKernel, theirs: Mapping[str, Any], stranger: Stranger) -> None:
    """The kernel's descriptor in device memory equals the file's."""
    descriptor = stranger.symbols[kernel.symbol]
    assert (descriptor["st_info"]["type"], descriptor["st_size"]) == ("STT_OBJECT", 64)
    assert stranger.at(descriptor["st_value"], 64).hex() == theirs["descriptor"], kernel.name
    code = stranger.symbols[kernel.name]
    assert code["st_info"]["type"] == "STT_FUNC"
    bytes_of_code = min(CODE_BYTES, code["st_size"])
    expected = stranger.at(code["st_value"], bytes_of_code).hex()
    assert theirs["code"].startswith(expected), kernel.name


@pytest.mark.drawn(1)
@pytest.mark.parametrize("target", rocm_kernels.TARGETS)
def test_every_kernel_we_ship_is_found(loaded: Callable[[str], Loaded], target: str) -> None:
    told = loaded(device_for(target))
    checked = sum(
        check(payload(path, target), read(path, target), told[path, target]) for path in IMAGES
    )
    assert checked > 800


@pytest.mark.parametrize("path", CLANG_19, ids=lambda path: path.stem)
def test_objects_of_clang_19(loaded: Callable[[str], Loaded], path: Path) -> None:
    target, version = path.stem.split("_v")
    ours = read(path, target)
    assert (str(ours.target), ours.version) == (target, int(version))
    assert check(path.read_bytes(), ours, loaded(device_for(target))[path, target]) == 4


# -- how symbols are looked up ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def stripped(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Write an object that the linker stripped of all symbols, and its copy by `hsaco_writer`."""
    folder = tmp_path_factory.mktemp("stripped")
    linked = folder / "linked.hsaco"
    if hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    sample = Path("tests", "data", "rocm", "sample.hip")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hip_compiler, "OBJECT", (*hip_compiler.OBJECT, *_STRIP))
        hip_compiler.compile_hsaco(sample, "gfx1100", linked)
    written = folder / "written.hsaco"
    written.write_bytes(hsaco_writer.write(KERNELS, target="gfx1100", stripped=True))
    return linked, written


_STRIP = ("-Xoffload-linker", "--strip-all")
KERNELS = (
    Kernel("saxpy", [Argument(0, 8), Argument(8, 8, "global_buffer")], 16, group=64),
    Kernel("nothing", private=32),
)


def look_up(machine: Machine, path: Path, **environment: str) -> Mapping[str, Any]:
    (told,) = machine.call(
        code_objects.load, [(str(path), "gfx1100", ["saxpy", "nothing"])], "gfx1100", **environment
    )
    assert isinstance(told, dict)
    return told


def test_symbols_are_looked_up_in_the_table_that_strip_all_removes(
    machine_with: Callable[[str], Machine], stripped: Sequence[Path]
) -> None:
    machine = machine_with("gfx1100")
    for path in stripped:
        told = look_up(machine, path)
        assert told["symbols"] == []
        assert [*told["kernels"].values()] == [INVALID_SYMBOL_NAME] * 2
        ours = read_hsaco(path.read_bytes())
        assert not any(kernel.exported for kernel in ours.kernels)
        told = look_up(machine, path, LOADER_USE_DYNSYM="1")
        assert all(isinstance(one, dict) for one in told["kernels"].values())
        assert look_up(machine, path, LOADER_USE_DYNSYM="0")["symbols"] == []
