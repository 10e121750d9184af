"""Messages about host kernels that crash or never end, and about damaged libraries."""

from __future__ import annotations

import mmap
import os
import platform
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.children import check_child
from tests.host_kernels import build, has_compiler
from tests.host_runtime.driver import Driver
from tests.requirements import needed
from tests.sampling import rounds
from uhal import Device, DeviceBuffer, Module, Stream
from uhal.errors import DeviceError, InvalidImageError, OutOfMemoryError
from uhal.images import cpu_level
from uhal.images.elf import Elf
from uhal.images.host_module import require_host_module

pytestmark = needed(has_compiler(), "kernels are compiled here")

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include <string.h>
#include <uhal/kernel.h>
KERNEL(wild, (u32 n, u32 *y)) { THREADS(t) { *(volatile u32 *)(0x123456789000 + y[t]) = n; } }
KERNEL(divides, (u32 n, u32 *y)) { THREADS(t) { y[t] = n / *(volatile u32 *)&y[t]; } }
KERNEL(traps, (u32 n, u32 *y)) { THREADS(t) { if (y[t] < n) __builtin_trap(); } }
static void *(*volatile set)(void *, int, size_t) = memset;
KERNEL(wild_call, (u32 n, u32 *y)) { THREADS(t) { set((char *)(0x123456789000 + y[t]), 1, n); } }
KERNEL(endless, (const u32 *flag, u32 *y)) {
    THREADS(t) {
        while (*(const volatile u32 *)flag == 0) {
        }
        y[t] = 1;
    }
}
"""
PAGES = """
#include <uhal/kernel.h>
KERNEL(first_bytes, (u64 n, const u64 *pages, u8 *y)) {
    THREADS(t) {
        u8 all = 0;
        for (u64 i = 0; i < n; ++i) {
            all |= *(const volatile u8 *)pages[i];
        }
        y[blockIdx.x] = all;
    }
}
"""
CHILD = """
import sys
from uhal import *
with Device(0, "host") as device:
    kernel = Module.from_file(sys.argv[1]).get_function(sys.argv[2])
    flag, y = (DeviceBuffer.zeros(64, "u32") for _ in range(2))
    try:
        arguments = (flag, y) if sys.argv[2] == "endless" else (7, y)
        grid = int(sys.argv[3])
        if sys.argv[4] == "captured":
            stream = Stream()
            with stream.capture() as plan:
                kernel[grid, 64, 0, stream](*arguments)
            plan.replay()
        else:
            kernel[grid, 64](*arguments)
        device.synchronize()
    except Exception as error:
        print(error)
    try:
        y.to_numpy()
    except Exception as error:
        print("later:", error)
"""


def run(
    kernel: str,
    folder: Path,
    *options: str,
    grid: int = 2,
    form: str = "launched",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    image = folder / "k.so"
    image.write_bytes(build(SOURCE))
    return subprocess.run(
        [sys.executable, *options, "-c", CHILD, str(image), kernel, str(grid), form],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


def read_missing_pages(folder: str, image: str) -> None:
    """In a child process: blocks on several threads read the same missing pages of files."""
    os.environ["UHAL_HOST_THREADS"] = "4"
    maps = []
    for index in range(200):
        path = Path(folder) / f"{index}.page"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("rb") as file:
            maps.append(np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8))
        os.truncate(path, 0)
    with Device(0, "host"):
        pages = DeviceBuffer.from_numpy(np.array([one.ctypes.data for one in maps], np.uint64))
        kernel = Module.from_file(image).get_function("first_bytes")
        y = DeviceBuffer.zeros(64, "u8")
        try:
            kernel[64, 1](len(maps), pages, y)
            y.to_numpy()
        except DeviceError as error:
            print(error)
        try:
            y.to_numpy()
        except DeviceError:
            print("later: lost")


FAULTS = {
    "wild": r"a wild pointer \(SIGSEGV\) in wild, address 0x123456789000\.",
    "divides": r"an impossible division \(SIGFPE\) in divides, address 0x",
    "traps": r"an illegal instruction \(SIGILL\) in traps, address 0x",
}
X86_64 = platform.machine() == "x86_64"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process ends")
@pytest.mark.parametrize(
    ("kernel", "grid", "form"),
    [
        ("wild", 1, "launched"),
        ("wild", 4096, "launched"),
        ("wild", 2, "captured"),
        *([("divides", 1, "launched"), ("traps", 4096, "launched")] if X86_64 else []),
    ],
)
def test_a_fault_in_a_kernel_is_an_exception(
    kernel: str, grid: int, form: str, tmp_path: Path
) -> None:
    """The exception is raised on the caller's thread, on several threads of the pool, and in a
    graph."""
    done = run(kernel, tmp_path, "-X", "faulthandler", grid=grid, form=form)
    assert (done.returncode, done.stderr) == (0, "")
    first, _, later = done.stdout.partition("later:")
    assert re.search(rf"kernel {kernel}: {FAULTS[kernel]}", first), first
    assert f"It was this one: {kernel} grid ({grid}, 1, 1), block (64, 1, 1)" in first
    assert "host:0 was lost earlier" in later


def test_a_fault_in_a_called_function_ends_the_process(tmp_path: Path) -> None:
    """The message names the kernel and its launch."""
    done = run("wild_call", tmp_path, "-X", "faulthandler")
    assert done.returncode == -signal.SIGSEGV
    said = done.stderr
    assert "a kernel of the host has ended the process by a wild pointer (SIGSEGV)" in said
    assert "kernel    wild_call, grid (2, 1, 1), block (64, 1, 1)" in said
    assert "arguments (u32 n, u32 *y): 0x7 0x" in said
    assert "address   0x123456789000" in said
    # An earlier handler is called, too.
    assert "Fatal Python error: Segmentation fault" in said


def test_a_crash_elsewhere_is_not_ours(tmp_path: Path) -> None:
    code = "import ctypes, uhal; uhal.Device(0, 'host').synchronize(); ctypes.string_at(1, 4)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV and "kernel" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the handler asks Linux for the file's name")
def test_several_threads_meet_the_same_missing_pages(tmp_path: Path) -> None:
    """The first thread finds the file's mapping; the other threads find its replacement."""
    image = tmp_path / "k.so"
    image.write_bytes(build(PAGES))
    for _ in range(rounds(2, 50)):
        said = check_child(read_missing_pages, str(tmp_path), str(image))
        assert re.search(
            r"kernel first_bytes: (the file .*\.page has no byte 0|a file lacks)", said
        )
        assert said.endswith("later: lost\n")


def test_an_endless_kernel_is_left(tmp_path: Path) -> None:
    done = run("endless", tmp_path, UHAL_HOST_DEADLINE="1")
    assert done.returncode == 0, done.stderr
    first, _, later = done.stdout.partition("later:")
    assert "has not ended within the 1 s of UHAL_HOST_DEADLINE: it is left running" in first
    assert "It was this one: endless grid (2, 1, 1), block (64, 1, 1)" in first
    assert "host:0 was lost earlier" in later


def test_damage_is_refused_as_far_as_reading_can_tell(rng: np.random.Generator) -> None:
    """The system's loader trusts its input, so a library must have its parts in place."""
    image = build(SOURCE)
    level = cpu_level.best_level().number
    require_host_module(image, "it", level)
    for _ in range(rounds(40, 2000)):
        cut = image[: int(rng.integers(1, len(image)))]
        with pytest.raises(InvalidImageError):
            require_host_module(cut, "it", level)
    library = Elf(image)
    dynamic = next(one for one in library.segments if one.type == 2)
    refused = 0
    for entry in range(dynamic.offset, dynamic.offset + dynamic.file_size, 16):
        tag, value = struct.unpack_from("<qQ", image, entry)
        if tag in (5, 6, 7, 25, 0x6FFFFEF5):  # names, symbols, relocations, initialisers, hashes
            broken = bytearray(image)
            struct.pack_into("<Q", broken, entry + 8, value + int(rng.integers(1 << 24, 1 << 40)))
            with pytest.raises(InvalidImageError, match="it is a damaged library: DT_"):
                require_host_module(bytes(broken), "it", level)
            refused += 1
    assert refused >= 4


def test_what_the_loader_would_call_or_overwrite_is_refused() -> None:
    """Each of these changes crashed the process in the system's loader."""
    image = build(SOURCE)
    level = cpu_level.best_level().number
    library = Elf(image)
    dynamic = next(one for one in library.segments if one.type == 2)
    found = {}
    for entry in range(dynamic.offset, dynamic.offset + dynamic.file_size, 16):
        tag, value = struct.unpack_from("<qQ", image, entry)
        found.setdefault(tag, (entry, value))
    relocations = found[7][1]
    first_target, _, first_addend = struct.unpack("<QQq", library.read(relocations, 24))
    constant = next(one for one in library.segments if one.type == 1 and one.flags == 4)
    header = 64 + 56 * library.segments.index(constant)

    def refused(offset: int, value: int, words: str) -> None:
        broken = bytearray(image)
        struct.pack_into("<Q", broken, offset, value)
        with pytest.raises(InvalidImageError, match=f"it is a damaged library: .*{words}"):
            require_host_module(bytes(broken), "it", level)

    assert first_target == found[25][1] and first_addend > 0
    refused(found[9][0], 0x7FFF, "has an entry 0x7fff")
    refused(found[9][0], 24, "has not all that describes DT_RELA")
    refused(found[25][0] + 8, found[25][1] + 4, "calls an address that is no function")
    refused(relocations, dynamic.address + 8, "writes into its dynamic segment")
    refused(relocations + 16, first_target, "a function that the loader calls is at")
    refused(header + 32, constant.file_size - 1, "is not whole")


def test_what_the_runtime_would_follow_is_refused() -> None:
    """Damage the table of kernels, which the loader does not check."""
    image = build(SOURCE)
    level = cpu_level.best_level().number
    library = Elf(image)
    loads = [one for one in library.segments if one.type == 1]
    data = next(one for one in loads if one.flags == 6)

    def position(address: int) -> int:
        found = next(one for one in loads if 0 <= address - one.address < one.file_size)
        return found.offset + address - found.address

    dynamic = next(one for one in library.segments if one.type == 2)
    entries = dict(
        struct.iter_unpack("<qQ", library.read(dynamic.address, dynamic.file_size // 16 * 16))
    )
    pointers = {}  # place of a relocated pointer → (its target, position of the addend in the file)
    for place in range(entries[7], entries[7] + entries[8], 24):
        target, information, addend = struct.unpack("<QQq", library.read(place, 24))
        if information == 8 or information == 1027:
            pointers[target] = (addend, position(place) + 16)
    table = next(one for one in library.dynamic_symbols if one.name == "uhal_host_module").value
    begin, end = pointers[table + 16][0], pointers[table + 24][0]
    kernel = next(pointers[place][0] for place in range(begin, end, 8) if place in pointers)

    def refused(offset: int, form: str, value: int, words: str) -> None:
        broken = bytearray(image)
        struct.pack_into(form, broken, offset, value)
        with pytest.raises(InvalidImageError, match=words):
            require_host_module(bytes(broken), "it", level)

    far = loads[-1].address + loads[-1].memory_size + 8
    for target in (table + 16, kernel, kernel + 40):
        refused(pointers[target][1], "<q", far, "a pointer leads to 0x[0-9a-f]+, which it does not")
    damaged = "it is a library with a damaged kernel table: "
    refused(pointers[table + 16][1], "<q", end + 8, damaged + "its list of kernels is from")
    refused(pointers[table + 24][1], "<q", end + 4, damaged + "its list of kernels is from")
    empty = next(place for place in range(begin, end, 8) if place not in pointers)
    refused(position(empty), "<Q", 0x8000_0000_0000, damaged + ".*loads nothing at 0x800000000000")
    refused(pointers[kernel + 40][1], "<q", data.address, damaged + "a kernel's code is at")
    refused(pointers[kernel][1], "<q", far - 8, damaged + "a kernel's name is at")
    refused(position(kernel + 24), "<I", 1 << 20, damaged + "a kernel has 1048576 parameters")
    refused(position(kernel + 28), "<I", 0, damaged + "a kernel has 2 parameters and 0 threads")
    parameter = pointers[kernel + 16][0]
    refused(position(parameter), "<I", 0, damaged + "a parameter has 0 bytes")
    refused(position(parameter + 4), "<I", 3, damaged + "a parameter has . bytes, aligned to 3")
    section = library.section(".dynsym")
    assert section is not None
    undefined = next(
        index for index, one in enumerate(library.dynamic_symbols) if index and one.section == 0
    )
    hidden = section.offset + 24 * undefined + 5
    refused(hidden, "<B", 2, "it is a damaged library: a symbol of another library is hidden")


TABLES = (".data.rel.ro", "uhal_kernels", "uhal_globals", ".dynsym", ".dynstr", ".gnu.hash")


def load_damaged(image: str, seed: int, count: int) -> None:
    """In a child process: load copies with a wrong byte or word; print how each load ended."""
    sound = Path(image).read_bytes()
    library = Elf(sound)
    level = cpu_level.best_level().number
    parts = [one for one in library.sections if one.name in TABLES and one.size]
    rng = np.random.default_rng(seed)
    for _ in range(count):
        part = parts[rng.integers(len(parts))]
        at = part.offset + int(rng.integers(part.size))
        broken = bytearray(sound)
        if rng.integers(2):
            broken[at] = int(rng.integers(256))
        else:
            at = at // 8 * 8
            step = int(rng.choice([-1, 1]) * rng.choice([1, 8, 16, 4096, 1 << 20]))
            (word,) = struct.unpack_from("<Q", broken, at)
            struct.pack_into("<Q", broken, at, (word + step) % (1 << 64))
        told = f"{part.name} + {at - part.offset:#x}"
        try:
            require_host_module(bytes(broken), "it", level)
        except InvalidImageError:
            print("refused", told)
            continue
        child = os.fork()
        if child == 0:
            try:
                driver = Driver()
                with driver.module(bytes(broken)) as module:
                    driver.function(module, "wild")
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "loaded", told)


@pytest.mark.skipif(sys.platform != "linux", reason="each is loaded in a fork")
def test_no_damage_of_a_table_ends_the_process(tmp_path: Path, seed: int) -> None:
    image = tmp_path / "k.so"
    image.write_bytes(build(SOURCE))
    count = rounds(40, 500)
    said = check_child(load_damaged, str(image), seed, count).splitlines()
    assert len(said) == count and not [line for line in said if line.startswith("killed")], said
    assert [line for line in said if line.startswith("refused")]


STARVING = """
#include <uhal/kernel.h>
#include <new>
KERNEL(starves, (u64 starving, u32 *y)) {
    if (blockIdx.x == starving)
        throw std::bad_alloc();
    THREADS(t) { y[blockIdx.x] = 1; }
}
"""


@pytest.mark.parametrize("blocks", [1, 3, 4096])
def test_a_kernel_without_memory_fails_alone(blocks: int, rng: np.random.Generator) -> None:
    """The kernel's stream and each stream that waits for it raise the error once."""
    device = Device(0, "host")
    y = DeviceBuffer.zeros(blocks, "u32", device=device)
    with Module.from_bytes(build(STARVING), device=device) as module:
        starves = module.get_function("starves")
        with Stream(device=device) as guilty, Stream(device=device) as other:
            for _ in range(3):
                starves[blocks, 1, 0, guilty](int(rng.integers(blocks)), y)
                other.synchronize()
                with pytest.raises(OutOfMemoryError, match=r"^kernel starves: expected memory"):
                    y.to_numpy()
                with pytest.raises(OutOfMemoryError):
                    guilty.synchronize()
                guilty.synchronize()
                starves[blocks, 1, 0, guilty](blocks, y)
                assert y.to_numpy().all()
            with guilty.capture() as plan:
                starves[blocks, 1, 0, guilty](int(rng.integers(blocks)), y)
                starves[blocks, 1, 0, guilty](blocks, y)
            plan.replay()
            with pytest.raises(OutOfMemoryError):
                guilty.synchronize()
            assert y.to_numpy().all()
            plan.close()
    device.synchronize()
