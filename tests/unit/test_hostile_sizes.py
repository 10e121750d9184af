"""Image readers check sizes first: time and memory stay in proportion to the file.

Each reader runs in a process with a limit on its processor time, which a quadratic reader would
exceed by hours, and its allocations are counted.
"""

from __future__ import annotations

import importlib.util
import resource
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.children import check_child
from tests.requirements import needed
from uhal.errors import InvalidImageError
from uhal.images import fatbin, msgpack, offload_bundle, zstd
from uhal.images.cubin import read_cubin
from uhal.images.fatbin import read_fatbin
from uhal.images.lz4 import decompress
from uhal.images.offload_bundle import read_offload_bundle
from uhal.images.ptx import MAX_NAME, MAX_PREFACE, is_ptx, read_ptx

DATA = Path(__file__).parents[1] / "data" / "cuda"
MIB = 1 << 20
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
HAS_ZSTANDARD = importlib.util.find_spec("zstandard") is not None
HAS_STANDARD_ZSTD = sys.version_info >= (3, 14)


def entry(name: str = "k", parameters: str = "", body: str = "ret;") -> bytes:
    return f"{HEAD}.visible .entry {name}({parameters})\n{{\n{body}\n}}\n".encode()


def refused(read: Callable[[], object]) -> None:
    try:
        read()
    except InvalidImageError:
        return
    raise AssertionError("it was not refused")


# -- cases, and the MiB that each may allocate -----------------------------------------------------


def a_long_name_without_parentheses() -> None:
    refused(lambda: read_ptx(f"{HEAD}.visible .entry {'a' * MIB} ( {{ ret; }}".encode()))


def a_long_name() -> None:
    refused(lambda: read_ptx(entry("a" * (MAX_NAME + 1))))
    assert read_ptx(entry("a" * MAX_NAME)).entries[0].name == "a" * MAX_NAME


def blanks_before_the_parenthesis() -> None:
    refused(lambda: read_ptx(f"{HEAD}.visible .entry k{' ' * MIB}({{ ret; }}".encode()))
    assert read_ptx(f"{HEAD}.visible .entry k{' ' * MIB}() {{ ret; }}".encode()).entries


def many_parameters_of_blanks() -> None:
    refused(lambda: read_ptx(entry(parameters=f".param .u32 a{' ' * 4000}!," * 1000)))


def many_options_of_the_target() -> None:
    refused(lambda: read_ptx((HEAD.replace("sm_80", f"sm_80{', a' * MIB}!")).encode()))


def a_parameter_of_many_words() -> None:
    refused(lambda: read_ptx(entry() + b"//uhal.sig k: " + b"int " * (MIB // 16)))


def operands_that_never_close() -> None:
    body = "\n".join(f"mov.u64 %rd1, {'[,' * 2000};" for _ in range(500))
    (found,) = read_ptx(entry(parameters=".param .u64 a", body=body)).entries
    assert found.signature[0].kind == "unknown"


def sums_of_all_parameters() -> None:
    """Each register contains the sum of all registers before it."""
    count = 4000
    loads = [f"ld.param.u64 %rd{n}, [p{n}];" for n in range(count)]
    sums = [f"add.s64 %rs{n + 1}, %rs{n}, %rd{n};" for n in range(count)]
    moves = "mov.u64 %rs0, 0;"
    body = "\n".join([moves, *loads, *sums, f"st.global.u32 [%rs{count}], 1;"])
    parameters = ",".join(f".param .u64 p{n}" for n in range(count))
    (found,) = read_ptx(entry(parameters=parameters, body=body)).entries
    assert {one.kind for one in found.signature} == {"unknown"}


def ten_megabytes_of_blanks() -> None:
    blanks = b" " * (10 * MIB)
    assert not is_ptx(blanks)
    assert not is_ptx(blanks + HEAD.encode())
    assert is_ptx(b"\n" * (MAX_PREFACE - 8) + HEAD.encode())


def comments_without_end() -> None:
    assert not is_ptx(b"/**/" * (2 * MIB))
    assert not is_ptx(b"//\n" * (2 * MIB) + HEAD.encode())


def run_of_lz4(size: int) -> bytes:
    """Return a literal and a match that repeats it: `size` bytes of `a`, then `b`."""
    more, rest = divmod(size - 2 - 4 - 15, 255)
    return b"\x1fa\x01\x00" + b"\xff" * more + bytes([rest]) + b"\x10b"


def lz4_makes_its_result_once() -> None:
    size = 32 * MIB
    found = decompress(run_of_lz4(size), size)
    assert len(found) == size and found[-2:] == b"ab" and found.count(b"a") == size - 1


def lz4_that_cannot_hold_so_much() -> None:
    refused(lambda: decompress(run_of_lz4(1000), 256 * MIB))


def attributes_of_a_cubin() -> None:
    """The last section becomes 16 MB of attributes without bytes."""
    image = bytearray((DATA / "sm_80.cubin").read_bytes())
    (offset,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    (names,) = struct.unpack_from("<H", image, 62)
    (strings,) = struct.unpack_from("<Q", image, offset + names * size + 24)
    for at in range(offset, offset + count * size, size):
        (name,) = struct.unpack_from("<I", image, at)
        if image[strings + name :].startswith(b".nv.info.saxpy\0"):
            struct.pack_into("<QQ", image, at + 24, len(image), 16 * MIB)
    refused(lambda: read_cubin(bytes(image) + b"\x01\x00\x00\x00" * (4 * MIB)))


def empty_regions_of_a_fatbin() -> None:
    refused(lambda: read_fatbin(struct.pack("<IHHQ", fatbin.MAGIC, 1, 16, 0) * (2 * MIB)))


def empty_arrays() -> None:
    count = 800_000
    refused(lambda: msgpack.unpack(b"\xdd" + struct.pack(">I", count) + b"\x90" * count))


def bundle_of(size: int, packed: bytes, method: int) -> bytes:
    return struct.pack("<4sHHQQQ", b"CCOB", 3, method, 32 + len(packed), size, 0) + packed


def zlib_makes_its_result_once() -> None:
    plain = offload_bundle.MAGIC + bytes(32 * MIB)
    assert read_offload_bundle(bundle_of(len(plain), zlib.compress(plain), 0)) == ()


def zlib_that_cannot_hold_so_much() -> None:
    refused(lambda: read_offload_bundle(bundle_of(1 << 30, zlib.compress(bytes(1000)), 0)))


def zlib_that_does_not_end() -> None:
    """The stream continues far beyond the declared number of bytes."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    refused(lambda: read_offload_bundle(bundle_of(MIB, packed, 0)))


CASES: dict[Callable[[], None], int] = {
    a_long_name_without_parentheses: 8,
    a_long_name: 8,
    blanks_before_the_parenthesis: 8,
    many_parameters_of_blanks: 30,
    many_options_of_the_target: 24,
    a_parameter_of_many_words: 40,
    operands_that_never_close: 30,
    sums_of_all_parameters: 40,
    ten_megabytes_of_blanks: 32,
    comments_without_end: 20,
    lz4_makes_its_result_once: 36,
    lz4_that_cannot_hold_so_much: 1,
    attributes_of_a_cubin: 52,
    empty_regions_of_a_fatbin: 34,
    empty_arrays: 24,
    zlib_makes_its_result_once: 100,
    zlib_that_cannot_hold_so_much: 1,
    zlib_that_does_not_end: 6,
}


def run_case(name: str, seconds: int) -> None:
    """Run one case; print the most MiB that were allocated at once."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    tracemalloc.start()
    globals()[name]()
    print(tracemalloc.get_traced_memory()[1] // MIB)


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sizes_are_judged_before_work(case: Callable[[], None]) -> None:
    assert int(check_child(run_case, case.__name__, 60)) <= CASES[case]


# -- zstd ------------------------------------------------------------------------------------------

DECODERS = [
    pytest.param("_packaged", marks=needed(HAS_ZSTANDARD, "no zstandard")),
    pytest.param("_standard", marks=pytest.mark.skipif(not HAS_STANDARD_ZSTD, reason="not 3.14")),
]
ZSTD_RUN = struct.pack("<IB", 0xFD2FB528, 0) + bytes([0x88])
"""A frame of unknown size with a window of 128 MiB."""


def blocks_of_zstd(count: int) -> bytes:
    """Return blocks that each repeat one byte 2^17 times, as RFC 8878 defines them."""
    blocks = [(1 << 17) << 3 | 1 << 1 | int(last) for last in (*[False] * (count - 1), True)]
    return ZSTD_RUN + b"".join(block.to_bytes(3, "little") + b"a" for block in blocks)


def decode_run(decoder: str, count: int) -> None:
    size = count << 17
    tracemalloc.start()
    frame = blocks_of_zstd(count)
    found = getattr(zstd, decoder)(frame, size)
    assert len(found) == size and found.count(b"a") == size
    print(tracemalloc.get_traced_memory()[1] / size)
    # Reading stops at once for a stream longer than its declared size.
    tracemalloc.reset_peak()
    del found
    refused_after = len(getattr(zstd, decoder)(frame, MIB))
    assert refused_after == MIB + 1


@pytest.mark.parametrize("decoder", DECODERS)
def test_zstd_makes_its_result_once(decoder: str) -> None:
    assert float(check_child(decode_run, decoder, 512)) < 1.2


@pytest.mark.parametrize("decoder", DECODERS)
def test_zstd_is_read_by_either_module(decoder: str) -> None:
    entries = [one for one in read_fatbin(sample("size")) if one.compression == "zstd"]
    assert entries
    for one in entries:
        found = getattr(zstd, decoder)(bytes(one.payload), one.size)
        assert len(found) == one.size
        with pytest.raises(InvalidImageError):
            zstd.decompress(bytes(one.payload)[:-9], one.size, "")
        with pytest.raises(InvalidImageError, match="instead of"):
            zstd.decompress(bytes(one.payload), one.size - 1, "")


def sample(mode: str) -> bytes:
    return (DATA / f"mode_{mode}.fatbin").read_bytes()


def test_zstd_that_cannot_hold_so_much_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for decoder in ("_packaged", "_standard"):
        monkeypatch.setattr(zstd, decoder, lambda *_: pytest.fail("it was tried"))
    with pytest.raises(InvalidImageError, match="14 bytes cannot hold 1073741824"):
        zstd.decompress(blocks_of_zstd(2), 1 << 30, "")
