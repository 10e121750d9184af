"""Every shipped or tested code object has its kernels in `.symtab`, where AMD's runtime looks.

`--strip-all` removes `.symtab`. `tests/rocr` uses the runtime itself; this test needs no runtime.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from build_support import hip_compiler, rocm_kernels
from tests.requirements import missing
from uhal.images.hsaco import is_hsaco, read_hsaco
from uhal.images.offload_bundle import is_offload_bundle, read_offload_bundle

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "rocm"
NEEDS_ZSTD = {"zstd.hipfb"}
"""The file has the contents of `plain.hipfb`; some Python versions cannot decompress it."""
FILES = [
    path
    for folder in (ROOT / rocm_kernels.IMAGES, DATA)
    for path in sorted(folder.rglob("*"))
    if path.suffix in (".hsaco", rocm_kernels.SUFFIX) and path.name not in NEEDS_ZSTD
]


def code_objects(path: Path) -> Iterator[bytes]:
    image = path.read_bytes()
    if is_offload_bundle(image):
        yield from (one.payload for one in read_offload_bundle(image) if not one.for_host)
    else:
        yield image


def looked_up(image: bytes) -> set[str]:
    """Return the names of global objects in `.symtab`, read by independent code."""
    table = ELFFile(io.BytesIO(image)).get_section_by_name(".symtab")
    if table is None:
        return set()
    return {
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_OBJECT" and symbol["st_info"]["bind"] == "STB_GLOBAL"
    }


def check(image: bytes) -> int:
    """Check that each kernel in the metadata can be looked up, and that our reader says so."""
    contents = read_hsaco(image)
    assert contents.kernels
    assert {kernel.symbol for kernel in contents.kernels} <= looked_up(image)
    assert all(kernel.exported for kernel in contents.kernels)
    return len(contents.kernels)


def test_there_are_images_of_every_module() -> None:
    sources = {path.stem for path in (ROOT / rocm_kernels.KERNELS).glob("*.cu")}
    assert sources <= {path.stem for path in FILES}
    assert sum(path.parent.name == "clang19" for path in FILES) == 2 * len(rocm_kernels.TARGETS)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_kernel_can_be_looked_up(path: Path) -> None:
    objects = list(code_objects(path))
    shipped = path.is_relative_to(ROOT / rocm_kernels.IMAGES)
    assert len(objects) == len(rocm_kernels.TARGETS) or not shipped
    for image in objects:
        assert is_hsaco(image)
        check(image)


def test_what_the_compiler_makes_now(tmp_path: Path) -> None:
    if hip_compiler.toolchain() is None:
        missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
    output = tmp_path / "sample.hsaco"
    hip_compiler.compile_hsaco(Path("tests", "data", "rocm", "sample.hip"), "gfx1201", output)
    assert check(output.read_bytes()) == 4
