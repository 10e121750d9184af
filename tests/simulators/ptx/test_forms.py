"""Forms that nvcc's kernels do not show: carries, special registers, spaces, vectors, hints."""

from __future__ import annotations

import numpy as np
import pytest

from simulators.ptx.launch import LaunchError, Module

HEAD = (
    ".version 9.0\n.target sm_90\n.address_size 64\n"
    ".global .align 16 .b8 table[16] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
    ".global .u64 where = generic(table) + 4;\n"
    ".const .align 8 .f64 pi = 0d400921FB54442D18;\n"
    ".extern .shared .align 16 .b8 dynamic[];\n"
)
REGISTERS = (
    ".reg .pred %p<4>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<20>;\n"
    ".reg .b64 %out; ld.param.u64 %out, [out];\n"
)


def run(body: str, count: int, *, block: tuple[int, ...] = (1,), shared: int = 0) -> list[int]:
    """Execute statements that store 64-bit words at %out; return the words."""
    text = f"{HEAD}.visible .entry k(.param .u64 out)\n{{\n{REGISTERS}{body}\nret;\n}}\n"
    out = np.zeros(count, "u8")
    Module(text).kernel("k").launch([1], block, [out], shared=shared)
    return [int(one) for one in out]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_carries(kind: str, rng: np.random.Generator) -> None:
    bits = int(kind[1:])
    for _ in range(4):
        a, b, c, d = (int(one) & ((1 << bits) - 1) for one in rng.integers(0, 1 << 63, 4))
        if rng.integers(2):
            a, b = (1 << bits) - 1, 1
        letter = "%r" if bits == 32 else "%d"
        moves = "".join(f"mov.b{bits} {letter}{i}, {v};" for i, v in enumerate((a, b, c, d), 1))
        wide = f"cvt.u64.u{bits} %d10, {letter}5; cvt.u64.u{bits} %d11, {letter}6;"
        stores = "st.global.u64 [%out], %d10; st.global.u64 [%out+8], %d11;"
        mask = (1 << bits) - 1
        first, second = a | c << bits, b | d << bits
        product = a * b + (c | d << bits)
        for one, expected in (
            (f"add.cc.{kind} #5, #1, #2; addc.cc.{kind} #6, #3, #4;", first + second),
            (f"add.cc.{kind} #5, #1, #2; addc.{kind} #6, #3, #4;", first + second),
            (f"sub.cc.{kind} #5, #1, #2; subc.cc.{kind} #6, #3, #4;", first - second),
            (f"mad.lo.cc.{kind} #5, #1, #2, #3; madc.hi.{kind} #6, #1, #2, #4;", product),
        ):
            if "mad" in one and kind[0] == "s":
                continue
            low, high = run(moves + one.replace("#", letter) + wide + stores, 2)
            assert (low, high) == (expected & mask, expected >> bits & mask)


def test_spaces_and_vectors() -> None:
    words = run(
        """
        .local .align 16 .b8 own[32]; .shared .align 16 .b8 tile[32];
        ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [table+4];
        add.u16 %h1, %h1, %h4; cvt.u64.u16 %d1, %h1; st.global.u64 [%out], %d1;
        ld.global.u64 %d2, [where]; ld.u8 %r1, [%d2+1]; cvt.u64.u32 %d1, %r1;
        st.relaxed.gpu.global.u64 [%out+8], %d1;
        ld.const.b64 %d1, [pi]; st.volatile.global.b64 [%out+16], %d1;
        mov.u64 %d3, own; cvta.local.u64 %d4, %d3; mov.b64 %d5, 77; st.local.u64 [own+8], %d5;
        ld.u64 %d6, [%d4+8]; st.global.wb.u64 [%out+24], %d6;
        st.shared.v2.u64 [tile+16], {%d5, %d6}; mov.u32 %r2, tile; ld.shared.u64 %d7, [%r2+24];
        st.global.u64 [%out+32], %d7;
        mov.u64 %d8, tile; cvta.shared.u64 %d9, %d8; ld.u64 %d10, [%d9+16];
        st.global.cs.u64 [%out+40], %d10;
        isspacep.shared %p1, %d9; isspacep.global %p2, %out;
        selp.u64 %d11, 1, 0, %p1; selp.u64 %d12, 2, 0, %p2; or.b64 %d11, %d11, %d12;
        st.release.sys.global.u64 [%out+48], %d11;
        mov.b64 %d13, {%r2, %r2}; mov.b64 {%r3, _}, %d13; mov.b32 %r4, {%h2, %h3};
        cvta.to.shared.u64 %d14, %d9; sub.u64 %d14, %d14, %d8; cvt.u64.u32 %d15, %r4;
        add.u64 %d14, %d14, %d15; st.global.u64 [%out+56], %d14;
        ld.acquire.gpu.global.u64 %d16, [%out];
        ld.global.nc.L1::no_allocate.L2::128B.u64 %d17, [%out];
        prefetch.global.L2 [%out]; prefetchu.L1 [%out]; discard.global.L2 [%out], 128;
        add.u64 %d16, %d16, %d17; st.global.u64 [%out+64], %d16;
        """,
        9,
    )
    assert words == [5 + 8, 6, 0x400921FB54442D18, 77, 77, 77, 3, 6 | 7 << 16, 26]


def test_memory_of_a_thread_is_told_apart() -> None:
    """Local, shared and global addresses each belong to one space, even in a device function."""
    asked = "".join(
        f"isspacep.{space} %p1, {address}; selp.u64 %d11, {1 << bit}, 0, %p1;"
        "or.b64 %d12, %d12, %d11;"
        for bit, (space, address) in enumerate(
            (space, address)
            for address in ("%d4", "%d9", "%out", "%d10")
            for space in ("local", "shared", "global")
        )
    )
    words = run(
        f"""
        .local .align 16 .b8 own[32]; .shared .align 16 .b8 tile[32];
        mov.u64 %d3, own; cvta.local.u64 %d4, %d3; add.u64 %d10, %d4, 31;
        mov.u64 %d8, tile; cvta.shared.u64 %d9, %d8; mov.b64 %d12, 0;
        {asked}
        st.global.u64 [%out], %d12;
        """,
        1,
    )
    assert words == [0b001_100_010_001]


def test_copies_to_shared_memory() -> None:
    words = run(
        """
        .shared .align 16 .b8 tile[16]; mov.u64 %d1, tile;
        cvt.u32.u64 %r1, %d1; mov.u64 %d2, table;
        cp.async.ca.shared.global [%r1], [%d2], 16, 4;
        cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
        ld.shared.v2.u64 {%d3, %d4}, [tile]; st.global.v2.u64 [%out], {%d3, %d4};
        cp.async.cg.shared.global.L2::128B [%r1], [%d2], 16;
        ld.shared.u64 %d5, [%r1]; st.global.u64 [%out+16], %d5;
        """,
        3,
    )
    assert words == [0x04030201, 0, 0x0807060504030201]


def test_special_registers() -> None:
    names = [
        "laneid",
        "warpid",
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_gt",
        "lanemask_ge",
        "ntid.x",
        "nctaid.y",
        "dynamic_smem_size",
        "total_smem_size",
        "tid.z",
    ]
    body = "mov.u32 %r1, %tid.x; mad.wide.u32 %out, %r1, 128, %out; mov.u32 %r3, dynamic;"
    for index, name in enumerate(names):
        body += (
            f"mov.u32 %r2, %{name}; cvt.u64.u32 %d1, %r2; st.global.u64 [%out+{8 * index}], %d1;"
        )
    body += "mov.u64 %d1, %globaltimer; mov.u64 %d2, %clock64; nanosleep.u32 5;"
    body += "setp.ne.u64 %p1, %d1, 0;"
    body += "@%p1 st.global.u64 [%out+120], %d3;"
    body = "mov.b64 %d3, 1;" + body
    words = np.array(run(body, 16 * 70, block=(70,), shared=48)).reshape(70, 16)
    for t, got in enumerate(words.tolist()):
        lane = t % 32
        own, below = 1 << lane, (1 << lane) - 1
        masks = [own, below, below | own, 0xFFFFFFFF & ~(below | own), 0xFFFFFFFF & ~below]
        assert got[:12] == [lane, t // 32, *masks, 70, 1, 48, 48, 0]
        assert got[15] == 1


def test_barriers_of_some_threads() -> None:
    """Producers arrive at a named barrier for some of the threads, and consumers wait there."""
    words = run(
        """
        .shared .align 8 .b8 cell[8]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;
        mov.b64 %d1, 99;
        @%p1 bra CONSUME;
        st.shared.u64 [cell], %d1; bar.cta.arrive 3, 64; bra DONE;
        CONSUME: barrier.cta.sync.aligned 3, 64; ld.shared.u64 %d2, [cell];
        mad.wide.u32 %out, %r1, 8, %out; st.global.u64 [%out], %d2;
        DONE: elect.sync %r2|%p2, 0xffffffff; bar.warp.sync 0xffffffff; barrier.sync 0;
        """,
        32,
        block=(64,),
    )
    assert words == [99] * 32


@pytest.mark.parametrize(("aligned", "is_refused"), [("", False), (".aligned", True)])
def test_lanes_of_a_warp_may_meet_at_two_barriers_that_are_not_aligned(
    aligned: str, is_refused: bool
) -> None:
    body = f"""
        .shared .align 8 .b8 cell[8]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 7;
        mov.b64 %d1, 99; @%p1 bra FEW;
        barrier.sync{aligned} 0; ld.shared.u64 %d2, [cell]; bra DONE;
        FEW: st.shared.u64 [cell], %d1; barrier.sync{aligned} 0; mov.b64 %d2, 1;
        DONE: mad.wide.u32 %out, %r1, 8, %out; st.global.u64 [%out], %d2;
        """
    if is_refused:
        with pytest.raises(LaunchError, match="divergent barrier"):
            run(body, 32, block=(32,))
    else:
        assert run(body, 32, block=(32,)) == [1] * 7 + [99] * 25


@pytest.mark.parametrize(
    ("kind", "one", "sum_of_64"),
    [("bf16", 0x3F80, 0x4280), ("bf16x2", 0x40003F80, 0x43004280), ("f16", 0x3C00, 0x5400)],
)
def test_atomics_on_narrow_floats(kind: str, one: int, sum_of_64: int) -> None:
    bits, register = (32, "%r") if kind.endswith("x2") else (16, "%h")
    (word,) = run(
        f"""
        mov.b{bits} {register}1, {one};
        red.global.add.noftz.{kind} [%out], {register}1;
        atom.relaxed.gpu.global.add.noftz.{kind} {register}2, [%out], {register}1;
        """,
        1,
        block=(32,),
    )
    assert word == sum_of_64


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64", "b32", "b64", "f32", "f64"])
def test_reductions_in_memory(kind: str) -> None:
    """32 threads change eight words, each by its own operation, with operands 5, 6, …, 36."""
    bits = int(kind[1:])
    letter = {"f32": "%f", "f64": "%d"}.get(kind, "%r" if bits == 32 else "%d")
    names = {"b": ["and", "or", "xor"], "f": ["add"]}.get(kind[0], ["add", "min", "max"])
    names = names if kind != "s64" else names[1:]  # PTX has no `red.and.s64` either
    names += ["inc", "dec"] if kind == "u32" else []
    body = "mov.u32 %r1, %tid.x; add.u32 %r1, %r1, 5;"
    body += f"cvt{'.rn' if kind[0] == 'f' else ''}.{kind.replace('b', 'u')}.u32 {letter}2, %r1;"
    for index, name in enumerate(names):
        body += f"red.global.{name}.{kind} [%out+{8 * index}], {letter}2;"
    got = run(body, 8, block=(32,))
    given = range(5, 37)
    expected = {"and": 0, "or": 0, "xor": 0, "add": sum(given), "min": 0, "max": 36, "dec": 0}
    for one in given:
        expected["or"] |= one
        expected["xor"] ^= one
    for name, word in zip(names, got, strict=False):
        if name in ("inc", "dec"):
            assert word <= 36
        elif kind[0] == "f":
            assert np.array(word, f"u{bits // 8}").view(f"f{bits // 8}") == sum(given)
        else:
            assert word == expected[name], (name, kind)


def test_comparisons_of_halves() -> None:
    words = run(
        """
        mov.b32 %r1, 0x3c004000; mov.b32 %r2, 0x40004000;
        setp.lt.f16x2 %p1|%p2, %r1, %r2;
        selp.u64 %d1, 1, 0, %p1; selp.u64 %d2, 2, 0, %p2; add.u64 %d1, %d1, %d2;
        set.eq.f16x2.f16x2 %r3, %r1, %r2; set.le.bf16x2.bf16x2 %r4, %r1, %r2;
        mov.b64 %d3, {%r3, %r4}; st.global.v2.b64 [%out], {%d1, %d3};
        mov.u32 %r5, %tid.x; redux.sync.or.b32 %r6, %r5, 0xffffffff;
        redux.sync.xor.b32 %r7, %r5, 0xffffffff; redux.sync.and.b32 %r8, %r5, 0xffffffff;
        shl.b32 %r7, %r7, 8; or.b32 %r6, %r6, %r7; or.b32 %r6, %r6, %r8;
        cvt.u64.u32 %d4, %r6; st.global.u64 [%out+16], %d4;
        fence.acq_rel.gpu; fence.sc.sys; exit;
        """,
        3,
        block=(32,),
    )
    assert words == [2, 0x3F803F80_00003C00, 31]


def test_an_indexed_branch_beyond_its_list() -> None:
    body = "mov.u32 %r1, 5; T: .branchtargets A, B; brx.idx %r1, T; A: B: ret;"
    with pytest.raises(LaunchError, match="trapped in line"):
        run(body, 1)


def test_rare_forms() -> None:
    words = run(
        """
        mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 16, %out;
        ld.mmio.relaxed.sys.global.u64 %d2, [where]; ldu.global.u8 %r2, [%d2];
        prefetch.global.L2::evict_last [%out]; applypriority.global.L2::evict_normal [%out], 128;
        fence.proxy.alias; setp.lt.u32 %p1, %r1, 20; pmevent 1;
        barrier.cta.red.popc.aligned.u32 %r3, 0, %p1; barrier.red.or.pred %p2, 1, 64, %p1;
        setp.lt.u32 %p3, %r1, 32; @%p3 barrier.arrive 2, 64; @!%p3 barrier.sync 2, 64;
        cvt.u64.u32 %d3, %r2; cvt.u64.u32 %d4, %r3; selp.u64 %d5, 100, 0, %p2;
        add.u64 %d4, %d4, %d5; st.mmio.relaxed.sys.global.u64 [%d1], %d3;
        st.global.u64 [%d1+8], %d4;
        """,
        128,
        block=(64,),
    )
    assert words == [5, 120] * 64


def test_hints_and_policies() -> None:
    """Cache operators have no effect; the parser must accept their words after the operands."""
    words = run(
        """
        .shared .align 16 .b8 tile[32];
        createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %d1, 0.5;
        createpolicy.fractional.L2::evict_first.b64 %d1;
        createpolicy.range.global.L2::evict_last.b64 %d1, [%out], 16, 32;
        createpolicy.cvt.L2.b64 %d1, %d1;
        mov.b64 %d2, 77; mov.u32 %r1, 0; mov.u32 %r2, tile;
        st.global.L1::no_allocate.L2::cache_hint.b64 [%out], %d2, %d1;
        cp.async.ca.shared.global.L2::cache_hint.L2::128B [%r2], [%out], 8, %d1;
        cp.async.wait_all;
        ld.shared.u64 %d3, [%r2]; st.global.u64 [%out+8], %d3;
        red.global.add.L2::cache_hint.u64 [%out+8], 3, %d1;
        ld.global.L1::evict_last.L2::cache_hint.b64 %d4, [%out+8], %d1;
        griddepcontrol.wait; griddepcontrol.launch_dependents;
        setmaxnreg.inc.sync.aligned.u32 96;
        st.global.u64 [%out+16], %d4;
        """,
        3,
    )
    assert words == [77, 80, 80]


@pytest.mark.parametrize(
    ("form", "kind", "one", "four"),
    [
        ("v2", "f32", 0x3F800000, 0x40800000),
        ("v4", "f32", 0x3F800000, 0x40800000),
        ("noftz.v2", "f16", 0x3C00, 0x4400),
        ("noftz.v8", "bf16", 0x3F80, 0x4080),
        ("noftz.v4", "f16x2", 0x3C003C00, 0x44004400),
    ],
)
def test_vectors_of_atomics(form: str, kind: str, one: int, four: int) -> None:
    count, width = int(form[-1]), 16 if kind in ("f16", "bf16") else 32
    ones = "{" + ", ".join(["%v1"] * count) + "}"
    old = "{" + ", ".join(f"%v{2 + index}" for index in range(count)) + "}"
    words = run(
        f"""
        .reg .b{width} %v<10>; mov.b{width} %v1, {one};
        red.relaxed.gpu.global.add.{form}.{kind} [%out], {ones};
        atom.global.add.{form}.{kind} {old}, [%out], {ones};
        """,
        2,
        block=(2,),
    )
    raw = np.array(words, "u8").view(f"u{width // 8}")
    assert raw.tolist() == [four] * count + [0] * (len(raw) - count)


def test_votes(rng: np.random.Generator) -> None:
    """Test each mode with a whole warp and with some lanes; lanes that do not vote do not count."""
    every = 0xFFFFFFFF
    some, mixed = (int(one) | 1 for one in rng.integers(1 << 20, 1 << 31, 2))
    asked = [
        (members, truths)
        for members in (every, some)
        for truths in (0, members, members & mixed & ~(1 << 20), every & ~members, every)
    ]
    votes = "".join(
        f"vote.sync.{mode}.pred %p3, %p1, %r3; selp.u64 %d3, {1 << 32 + bit}, 0, %p3;"
        "or.b64 %d2, %d2, %d3;"
        for bit, mode in enumerate(("all", "any", "uni"))
    )
    sections = "".join(
        f"""
        mov.b32 %r2, {truths}; shr.b32 %r2, %r2, %r1; and.b32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0;
        mov.b32 %r3, {members}; shr.b32 %r4, %r3, %r1; and.b32 %r4, %r4, 1; setp.ne.u32 %p2, %r4, 0;
        @!%p2 bra over{at};
        vote.sync.ballot.b32 %r5, %p1, %r3; cvt.u64.u32 %d2, %r5; {votes}
        or.b64 %d2, %d2, {1 << 40}; st.global.u64 [%out+{256 * at}], %d2;
        over{at}:
        """
        for at, (members, truths) in enumerate(asked)
    )
    head = "mov.u32 %r1, %tid.x; cvt.u64.u32 %d1, %r1; mad.lo.u64 %out, %d1, 8, %out;"
    words = run(head + sections, 32 * len(asked), block=(32,))
    for at, (members, truths) in enumerate(asked):
        ballot = truths & members
        told = ballot == members, ballot != 0, ballot in (0, members)
        expected = ballot | 1 << 40 | sum(1 << 32 + bit for bit, one in enumerate(told) if one)
        voted = [members >> lane & 1 for lane in range(32)]
        assert words[32 * at : 32 * at + 32] == [expected * one for one in voted], (members, truths)


def test_a_breakpoint_ends_the_run() -> None:
    with pytest.raises(LaunchError, match="trapped in line"):
        run("brkpt;", 1)
