"""The ELF reader on real, damaged and hostile files."""

from __future__ import annotations

import contextlib
import platform
import random
import struct
import sys
import time

import pytest

from tests.host_kernels import build, has_compiler
from tests.host_runtime.driver import ROOT
from tests.requirements import needed
from tests.sampling import SOAK
from uhal.errors import InvalidImageError
from uhal.images import elf
from uhal.images.elf import Elf
from uhal.images.host_module import require_host_module

LIBRARY = ROOT / "host_backend" / "libuhal_host.so"
KERNEL = "#include <uhal/kernel.h>\nKERNEL(empty, ()) {}\n"
needs_compiler = needed(has_compiler(), "no C++ compiler")


def read_everything(image: bytes) -> None:
    library = Elf(image)
    for section in library.sections:
        library.data(section)
    _ = library.segments, library.symbols, library.dynamic_symbols, library.notes
    for symbol in library.dynamic_symbols[:20]:
        if symbol.section != elf.SHN_UNDEF and symbol.type == elf.STT_FUNC:
            library.read(symbol.value, 1)


def test_a_real_library() -> None:
    library = Elf(LIBRARY.read_bytes())
    assert library.type == elf.ET_DYN
    names = {symbol.name for symbol in library.dynamic_symbols}
    assert {"uhalHostInit", "uhalHostLaunchKernel"} <= names
    text = library.section(".text")
    assert text is not None and len(library.data(text)) == text.size > 0
    bss = library.section(".bss")
    assert bss is None or library.data(bss) == b""
    assert any(segment.type == elf.PT_LOAD for segment in library.segments)
    assert any(note.name == "GNU" and len(note.description) == 20 for note in library.notes)
    assert library.section(".nothing") is None


def test_python_itself_reads() -> None:
    if sys.platform == "linux":
        with open(sys.executable, "rb") as file:
            read_everything(file.read())


@pytest.mark.parametrize("size", [0, 1, 3, 4, 16, 63])
def test_truncated_headers(size: int) -> None:
    with pytest.raises(InvalidImageError):
        Elf(LIBRARY.read_bytes()[:size])


def test_random_damage_only_raises_invalid_image(seed: int) -> None:
    rng = random.Random(seed)
    original = LIBRARY.read_bytes()
    hot = [*range(64), *range(64, 64 + 56 * 12)]
    (sections_at,) = struct.unpack_from("<Q", original, 40)
    hot += range(sections_at, len(original))
    for _ in range(5000 if SOAK else 400):
        image = bytearray(original)
        for _ in range(rng.randrange(1, 6)):
            at = rng.choice(hot) if rng.random() < 0.8 else rng.randrange(len(image))
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
            image[at : at + width] = bytes([value]) * width
        if rng.random() < 0.2:
            del image[rng.randrange(len(image)) :]
        for read in (read_everything, lambda data: require_host_module(data, "x", 4)):
            with contextlib.suppress(InvalidImageError):
                read(bytes(image))


def header(section_count: int, names: int, sections_at: int = 64) -> bytes:
    identification = elf.MAGIC + bytes((2, 1, 1)) + bytes(9)
    return struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(identification, elf.ET_DYN, elf.EM_X86_64, 1, 0, 0, sections_at, 0),
        *(64, 56, 0, 64, section_count, names),
    )


def section(kind: int, offset: int, size: int, link: int = 0, entry: int = 0) -> bytes:
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 1, entry)


def test_shared_names_cannot_blow_up() -> None:
    """Every symbol names the same 64 KiB string: the sum of names is bounded."""
    symbols = 20_000
    strings_at = 64 + 3 * 64
    strings = b"a" * 65_000 + b"\0"
    table_at = strings_at + len(strings)
    table = struct.pack("<IBBHQQ", 1, 0, 0, 1, 0, 0) * symbols
    image = (
        header(3, 2)
        + section(0, 0, 0)
        + section(elf.SHT_DYNSYM, table_at, len(table), link=2, entry=24)
        + section(3, strings_at, len(strings))
        + strings
        + table
    )
    start = time.process_time()
    with pytest.raises(InvalidImageError, match="more names"):
        _ = Elf(image).dynamic_symbols
    assert time.process_time() - start < 5


def test_overlapping_sections_are_not_copied() -> None:
    """An 8 MB file has 65,000 sections of 4 MB each: the reader checks them, but does not read
    them."""
    count = 65_000
    body = section(1, 0, 4_000_000) * count
    image = header(count, 0) + body
    sections = image[:64] + section(8, 0, 0) + image[128:]
    start = time.process_time()
    assert len(Elf(sections).sections) == count
    assert time.process_time() - start < 20


@needs_compiler
def test_a_kernel_library_is_taken() -> None:
    image = build(KERNEL)
    require_host_module(image, "k.so", 4)
    symbol = next(each for each in Elf(image).dynamic_symbols if each.name == "uhal_host_module")
    assert Elf(image).read(symbol.value, 8) == b"UHModule"


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are of x86-64")
def test_a_library_for_a_better_cpu_is_refused() -> None:
    image = build(KERNEL, "-march=x86-64-v3")
    require_host_module(image, "k.so", 3)
    with pytest.raises(InvalidImageError, match=r"k\.so was built for x86-64-v3 .* x86-64-v2"):
        require_host_module(image, "k.so", 2)


def with_machine(machine: int, kind: int = elf.ET_DYN) -> bytes:
    image = bytearray(LIBRARY.read_bytes())
    struct.pack_into("<HH", image, 16, kind, machine)
    return bytes(image)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (b"", "empty"),
        (b"nonsense", "no kernel library"),
        (b"//\n// Generated\n.version 7.0\n.target sm_75\n", "PTX, for NVIDIA GPUs"),
        (b"\x50\xed\x55\xba" + bytes(100), "CUDA fat binary"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100), "AMD offload bundle"),
        (with_machine(elf.EM_CUDA), "CUDA binary"),
        (with_machine(elf.EM_AMDGPU), "AMD GPU binary"),
        (with_machine(1234), "for machine 1234"),
        (LIBRARY.read_bytes(), "a library without kernels"),
    ],
)
def test_what_is_no_kernel_library_is_named(image: bytes, words: str) -> None:
    with pytest.raises(InvalidImageError) as caught:
        require_host_module(image, "k.bin", 4)
    assert words in str(caught.value)
    assert str(caught.value).startswith("k.bin is ")
    assert "python -m uhal cflags" in str(caught.value)
