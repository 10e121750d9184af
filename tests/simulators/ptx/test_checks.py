"""Wrong accesses, with or without a fault on a device, are found and named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from simulators.ptx.launch import Allocation, LaunchError, Module

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
FIRST_LINE = 7
REGISTERS = (
    ".reg .b64 %d<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p; .reg .b16 %h;"
    "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [x]; mad.wide.u32 %d2, %r1, 4, %d1;"
)


def kernel(body: str, check: Literal["off", "on", "strict"] = "on", outside: str = "") -> Module:
    """Return a kernel whose body begins at `FIRST_LINE`; %d1: its array, %d2: the thread's
    element."""
    text = f"{HEAD}{outside}\n.visible .entry k(.param .u64 x)\n{{ {REGISTERS}\n{body}\n}}\n"
    return Module(text, check)


def fails(
    module: Module,
    array: np.ndarray | int,
    threads: Sequence[int] = (1,),
    *,
    memory: Sequence[Allocation] = (),
    shared: int = 0,
) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        module.kernel("k").launch([1], threads, [array], memory=memory, shared=shared)
    return caught.value


def words() -> np.ndarray:
    """Return 64 aligned words in the middle of a larger allocation of this process."""
    area = np.zeros(256, "u4")
    start = -(-area.ctypes.data // 64) * 16 - area.ctypes.data // 4 + 64
    return area[start : start + 64]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("instruction", "access", "size", "distance"),
    [
        ("st.global.u32 [%d2], %r1;", "store", 4, "it ends 4 bytes past"),
        ("ld.global.u32 %r2, [%d2];", "load", 4, "it ends 4 bytes past"),
        ("atom.global.add.u32 %r2, [%d2], 1;", "atomic operation", 4, "it ends 4 bytes past"),
        ("red.global.max.u32 [%d2], 1;", "atomic operation", 4, "it ends 4 bytes past"),
        ("atom.global.cas.b32 %r2, [%d2], 1, 2;", "atomic operation", 4, "it ends 4 bytes past"),
        ("st.u32 [%d2], %r1;", "store", 4, "it ends 4 bytes past"),
        ("st.global.u8 [%d2], %r1;", "store", 1, "it ends 1 byte past"),
        ("ld.global.nc.v4.u32 {%r2, %r3, %r4, %r5}, [%d2];", "load", 16, "it ends 16 bytes past"),
    ],
)
def test_one_element_too_many(instruction: str, access: str, size: int, distance: str) -> None:
    x = words()
    guarded = f"setp.eq.u32 %p, %r1, 64;\n@%p {instruction}\nret;"
    error = fails(kernel(guarded), x, (65,))
    assert error.outcome == "illegal address"
    size_in_words = "1 byte" if size == 1 else f"{size} bytes"
    where = f"thread (64, 0, 0), line {FIRST_LINE + 1}"
    assert f"{where}: {access} of {size_in_words}, 0x" in error.message
    assert f"out of bounds, {distance} the allocation of 256 bytes at" in error.message
    assert (error.line, error.thread, error.block) == (FIRST_LINE + 1, (64, 0, 0), (0, 0, 0))
    assert error.address == x.ctypes.data + 256
    module = kernel(guarded)
    module.kernel("k").launch([1], [64], [x])


def test_the_last_byte_alone() -> None:
    """The access begins inside and ends one byte outside."""
    x = words().view("u1")[:255]
    error = fails(kernel("st.global.u32 [%d1+252], %r1; ret;"), x)
    assert "it ends 1 byte past the allocation of 255 bytes" in error.message
    kernel("st.global.u8 [%d1+254], %r1; ret;").kernel("k").launch([1], [1], [x])


@pytest.mark.parametrize("mask", ["4095", "0xfff", "0x7ff"])
def test_bytes_that_are_not_used_may_lie_behind_the_end(mask: str) -> None:
    """NVVM writes this pragma for a load that it has widened."""
    x = words()
    x[60:] = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    body = f"""
        .pragma "used_bytes_mask {mask}";
        ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%d1+240];
        st.global.v4.u32 [%d1], {{%r2, %r3, %r4, %r5}};
        ret;"""
    whole = kernel(body)
    # The last word is outside the array now.
    whole.kernel("k").launch([1], [1], [x[:63]], memory=())
    last = 0x090A0B0C if int(mask, 0) == 0xFFF else 0x0A0B0C
    assert x[:4].tolist() == [0x01020304, 0x05060708, last, 0]
    # The note covers one load alone, and the bytes in use are checked.
    again = body.replace(
        "st.global.v4", "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+240];\nst.global.v4"
    )
    for text, array in ((again, x[:63]), (body, x[:62])):
        assert fails(kernel(text), array).outcome == "illegal address"


def test_single_bytes_that_are_not_used_may_lie_behind_the_end() -> None:
    x = words().view("u1")
    x[248:256] = range(1, 9)
    body = """
        .pragma "used_bytes_mask 7";
        ld.global.v4.u8 {%r2, %r3, %r4, %r5}, [%d1+252];
        st.global.v4.u8 [%d1], {%r2, %r3, %r4, %r5};
        ret;"""
    kernel(body).kernel("k").launch([1], [1], [x[:255]], memory=())
    assert x[:4].tolist() == [5, 6, 7, 0]
    assert fails(kernel(body), x[:254]).outcome == "illegal address"


def test_before_the_start() -> None:
    error = fails(kernel("ld.global.u32 %r2, [%d1+-4]; ret;"), words())
    assert "out of bounds, 4 bytes before the allocation of 256 bytes" in error.message


def test_every_thread_and_block_is_checked(rng: np.random.Generator, seed: int) -> None:
    """A loop over blocks caches an allocation's bounds; the last element is still checked."""
    x = np.zeros(1000, "u4")
    body = """
        mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
        mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r1; ret;"""
    module = kernel(body)
    with pytest.raises(LaunchError) as caught:
        module.kernel("k").launch([8], [128], [x], workers=2, seed=seed)
    assert caught.value.block == (7, 0, 0)
    assert caught.value.thread == (1000 % 128, 0, 0)
    module.kernel("k").launch([10], [100], [x], workers=2, seed=seed)
    assert x.tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("instruction", "size"),
    [
        ("ld.global.v2.u32 {%r2, %r3}, [%d1+4];", 8),
        ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+8];", 16),
        ("st.global.u32 [%d1+2], %r1;", 4),
        ("atom.global.add.u64 %d3, [%d1+4], 1;", 8),
        ("ld.u16 %h, [%d1+1];", 2),
    ],
)
def test_misaligned(instruction: str, size: int) -> None:
    error = fails(kernel(f"{instruction} ret;"), words())
    assert error.outcome == "misaligned address"
    assert f"misaligned, it must be a multiple of {size}" in error.message
    aligned = re.sub(r"\+\d+", "", instruction)
    kernel(f"{aligned} ret;").kernel("k").launch([1], [1], [words()])


def test_freed_memory() -> None:
    live, freed = words(), words()
    gone = Allocation(int(freed.ctypes.data), freed.nbytes, "freed")
    module = kernel("ld.global.u32 %r2, [%d1+12]; ret;")
    error = fails(module, int(freed.ctypes.data), memory=[gone])
    assert error.outcome == "illegal address"
    assert "use after free, 12 bytes into the 256 bytes at 0x" in error.message
    module.kernel("k").launch([1], [1], [live], memory=[gone])


def test_constants_cannot_be_written() -> None:
    outside = ".visible .const .u32 table[4] = {1, 2, 3, 4};"
    body = "cvta.const.u64 %d3, %d3; mov.u64 %d3, table; ld.const.u32 %r2, [table+12];"
    error = fails(kernel(body + "st.u32 [%d3], %r1; ret;", outside=outside), words())
    assert "a write to read-only memory" in error.message
    error = fails(kernel("ld.const.u32 %r2, [table+16]; ret;", outside=outside), words())
    assert "out of bounds" in error.message


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        ("st.shared.u32 [tile+32], %r1;", "illegal address", "the block has 32 bytes"),
        ("st.shared.u8 [tile+32], %r1;", "illegal address", "the block has 32 bytes"),
        ("ld.shared.u64 %d3, [tile+28];", "illegal address", "offset 28 of shared memory"),
        ("ld.shared.u64 %d3, [tile+20];", "misaligned address", "a multiple of 8"),
        ("atom.shared.add.u32 %r2, [tile+-4], 1;", "illegal address", "out of bounds"),
        ("cvta.shared.u64 %d3, 30; st.u32 [%d3], 1;", "illegal address", "out of bounds"),
        (
            "mov.u32 %r2, 40; cp.async.ca.shared.global [%r2], [%d1], 8;",
            "illegal address",
            "offset",
        ),
    ],
)
def test_shared_memory(body: str, outcome: str, reason: str) -> None:
    error = fails(kernel(f".shared .align 16 .b8 tile[32];\n{body}\nret;"), words())
    assert error.outcome == outcome
    assert reason in error.message
    assert error.line == FIRST_LINE + 1


def test_dynamic_shared_memory_ends_where_the_launch_says() -> None:
    module = kernel("st.shared.u32 [room+60], %r1; ret;", outside=".extern .shared .b8 room[];")
    module.kernel("k").launch([1], [1], [words()], shared=64)
    assert "the block has 63 bytes" in fails(module, words(), shared=63).message


@pytest.mark.parametrize("offset", [-4, 16, 4096])
def test_local_memory(offset: int) -> None:
    body = (
        f".local .align 8 .b8 depot[16];\nmov.u64 %d3, depot; add.s64 %d3, %d3, {offset};"
        "st.local.u32 [%d3], 1; ret;"
    )
    error = fails(kernel(body), words())
    assert error.outcome == "illegal address"
    kernel(body.replace(f", {offset};", ", 12;")).kernel("k").launch([1], [1], [words()])


def test_a_function_reaches_the_variables_of_its_callers() -> None:
    """The function gets an address, and has local variables of its own."""
    function = """
        .func put(.param .b64 where) {
            .reg .b64 %a; .reg .b64 %own; .local .align 8 .b8 mine[8];
            mov.u64 %own, mine; st.local.u64 [%own], 6;
            ld.param.u64 %a, [where]; ld.local.u64 %own, [%own]; st.local.u64 [%a], %own; ret;
        }
    """
    body = """
        .local .align 8 .b8 depot[8]; mov.u64 %d3, depot;
        { .param .b64 given; st.param.b64 [given], %d3; call.uni put, (given); }
        ld.local.u32 %r2, [%d3]; st.global.u32 [%d1], %r2; ret;
    """
    found = words()
    kernel(body, outside=function).kernel("k").launch([1], [1], [found])
    assert found[0] == 6


def test_copies_read_only_what_they_ask_for() -> None:
    """`cp.async` that reads fewer bytes than it writes, or none, must not touch the rest."""
    body = """
        .shared .align 16 .b8 tile[32];
        mov.u32 %r2, 0; mov.u32 %r3, 16;
        cp.async.cg.shared.global [%r2], [%d1+{at}], 16, {size};
        cp.async.wait_all; ld.shared.u32 %r4, [tile]; ld.shared.u32 %r5, [tile+12];
        st.global.u32 [%d1], %r4; st.global.u32 [%d1+4], %r5; ret;"""
    x = words()
    x[60] = 7
    kernel(body.format(at=240, size=4)).kernel("k").launch([1], [1], [x[:61]])
    assert x[:2].tolist() == [7, 0]
    kernel(body.format(at=256, size=0)).kernel("k").launch([1], [1], [x])
    assert x[:2].tolist() == [0, 0]
    assert "past" in fails(kernel(body.format(at=240, size=8)), x[:61]).message


def test_the_device_heap() -> None:
    body = """
        { .param .b64 n; .param .b64 got; st.param.b64 [n], 24;
          call.uni (got), malloc, (n); ld.param.b64 %d3, [got]; }
        st.u64 [%d3+16], 5; ld.u64 %d2, [%d3+16]; st.global.u64 [%d1], %d2;
        { .param .b64 which; st.param.b64 [which], %d3; call.uni free, (which); }
        """
    outside = (
        ".extern .func (.param .b64 got) malloc (.param .b64 n);\n"
        ".extern .func free (.param .b64 which);"
    )
    x = words()
    kernel(body + "ret;", outside=outside).kernel("k").launch([1], [1], [x])
    assert x[0] == 5
    beyond = body.replace("st.u64 [%d3+16]", "st.u64 [%d3+24]")
    assert "out of bounds" in fails(kernel(beyond + "ret;", outside=outside), x).message


# -- strict ----------------------------------------------------------------------------------------

TILE = (
    ".shared .align 16 .b8 tile[256]; mov.u32 %r3, tile; mad.lo.u32 %r2, %r1, 4, %r3;"
    "st.shared.u32 [%r2], %r1; bar.sync 0;"
)
ROWS = """
    setp.eq.u32 %p, %r1, 32; @%p st.shared.u32 [tile+{written}], 0; and.b32 %r5, %r1, 31;
    setp.lt.u32 %p, %r5, {lanes}; and.b32 %r5, %r5, 7; mad.lo.u32 %r5, %r5, 16, 128;
    add.u32 %r5, %r5, %r3; selp.b32 %r5, %r5, -16, %p; cvt.u64.u32 %d3, %r5;
    cvta.shared.u64 %d3, %d3; ldmatrix.sync.aligned.m8n8."""
"""Only the first lanes pass the address of a tile's row, from byte 128; thread 32 writes there."""
RACES = {
    "two writers": "st.shared.u32 [tile], %r1;",
    "a reader after a writer": """
        st.shared.u32 [%r2], %r1; xor.b32 %r2, %r2, 4; ld.shared.u32 %r4, [%r2];""",
    "a writer after a reader": """
        st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [tile+8];
        st.shared.u32 [%r2], %r4;""",
    "one byte of a word": """
        setp.ne.u32 %p, %r1, 1; @%p st.shared.u32 [%r2], %r1; @!%p st.shared.u8 [tile+3], 1;""",
    "an atomic operation and a store": """
        setp.eq.u32 %p, %r1, 0; @%p st.shared.u32 [tile], 0;
        @!%p atom.shared.exch.b32 %r4, [tile], 1;""",
    "through a generic address": """
        cvta.shared.u64 %d3, 8; st.u32 [%d3], %r1;""",
    "a barrier of another warp only": """
        st.shared.u32 [%r2], %r1; bar.warp.sync -1; xor.b32 %r2, %r2, 128;
        ld.shared.u32 %r4, [%r2];""",
    "a matrix and a writer of its last row": (
        ROWS.format(written=252, lanes=8) + "x1.shared.b16 {%r4}, [%r5];"
    ),
}
PROPER = {
    "a barrier between": """
        st.shared.u32 [%r2], %r1; bar.sync 0; xor.b32 %r2, %r2, 4; ld.shared.u32 %r4, [%r2];
        bar.sync 0; st.shared.u32 [%r2], %r4;""",
    "within a warp": """
        st.shared.u32 [%r2], %r1; bar.warp.sync -1; xor.b32 %r2, %r2, 4; ld.shared.u32 %r4, [%r2];
        bar.warp.sync -1; st.shared.u32 [%r2], %r4;""",
    "atomic operations": """
        setp.eq.u32 %p, %r1, 0; @%p st.shared.u32 [tile], 0; bar.sync 0;
        atom.shared.add.u32 %r4, [tile], 1; red.shared.max.u32 [tile], 5;""",
    "own elements": """
        st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [%r2]; st.shared.u32 [%r2], %r4;""",
    "one value from all": "bar.sync 0; mov.b32 %r4, 7; st.shared.u32 [tile], %r4;",
    "many readers": "st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [tile];",
    "a matrix and a writer elsewhere": (
        ROWS.format(written=0, lanes=8) + "x1.shared.b16 {%r4}, [%r5];"
    ),
    "two matrices and a writer elsewhere": (
        ROWS.format(written=0, lanes=16) + "x2.shared.b16 {%r4, %r6}, [%r5];"
    ),
    "a matrix through a generic address": (
        ROWS.format(written=0, lanes=8) + "x1.b16 {%r4}, [%d3];"
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_races(name: str) -> None:
    body = f"{TILE}\n{RACES[name]}\nret;"
    error = fails(kernel(body, "strict"), words(), (64,))
    assert error.outcome == "shared race", error
    assert "no barrier came between" in error.message
    kernel(body, "on").kernel("k").launch([1], [64], [words()])


@pytest.mark.parametrize("name", PROPER)
def test_no_races(name: str, seed: int) -> None:
    module = kernel(f"{TILE}\n{PROPER[name]}\nret;", "strict")
    module.kernel("k").launch([5], [64], [words()], workers=2, seed=seed)


def test_reads_of_what_nobody_wrote() -> None:
    body = f"{TILE}\nld.shared.u32 %r4, [%r2+{{}}];\nret;"
    error = fails(kernel(body.format(4), "strict"), words(), (32,))
    assert error.outcome == "uninitialized read"
    assert "at offset 128, which no thread of the block has written" in error.message
    assert error.line == FIRST_LINE + 1
    kernel(body.format(0), "strict").kernel("k").launch([1], [32], [words()])


def test_what_another_block_wrote_does_not_count() -> None:
    body = """
        .shared .align 16 .b8 tile[256]; mov.u32 %r3, tile; mad.lo.u32 %r2, %r1, 4, %r3;
        mov.u32 %r5, %ctaid.x; setp.eq.u32 %p, %r5, 0; @%p st.shared.u32 [%r2], %r1;
        ld.shared.u32 %r4, [%r2]; ret;"""
    module = kernel(body, "strict")
    module.kernel("k").launch([1], [32], [words()])
    with pytest.raises(LaunchError, match="uninitialized"):
        module.kernel("k").launch([2], [32], [words()], workers=1)
