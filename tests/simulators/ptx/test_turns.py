"""Grid-stride loops run turn by turn: only the time differs."""

from __future__ import annotations

import numpy as np
import pytest

from simulators.ptx.launch import Module
from simulators.ptx.parser import parse, read_function
from simulators.ptx.program import Register
from simulators.ptx.turns import find_turns, pointer_roots

# y[thread] = the sum over its elements of x[i] * (1 + turn), up to an element below 0.
SUMS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 n, .param .u64 x, .param .u64 y, .param .u32 odd)
{
    .reg .b64 %d<12>; .reg .b32 %r<20>; .reg .pred %p<5>; .reg .f32 %f<4>;
    ld.param.u64 %d1, [n]; ld.param.u64 %d2, [x]; ld.param.u64 %d3, [y]; ld.param.u32 %r10, [odd];
    cvta.to.global.u64 %d4, %d2;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.y; mov.u32 %r4, %ntid.y;
    mov.u32 %r11, %tid.z; mad.lo.u32 %r14, %r11, %r4, %r3; mad.lo.u32 %r15, %r14, %r2, %r1;
    mul.lo.u32 %r16, %r2, %r4; mov.u32 %r12, %ntid.z; mul.lo.u32 %r13, %r16, %r12;
    mov.u32 %r5, %ctaid.x; mad.lo.u32 %r6, %r5, %r13, %r15;
    mov.u32 %r7, %nctaid.x; mul.lo.u32 %r8, %r7, %r13;
    mul.wide.u32 %d5, %r6, 4; add.s64 %d6, %d3, %d5;
    mov.f32 %f1, 0f00000000; mov.u32 %r9, 1; setp.ne.u32 %p4, %r10, 0;
    cvt.u64.u32 %d7, %r6; setp.ge.u64 %p1, %d7, %d1; @%p1 bra DONE;
LOOP:
    mul.wide.u32 %d8, %r6, 4; add.s64 %d9, %d4, %d8; ld.global.f32 %f2, [%d9];
    cvt.rn.f32.u32 %f3, %r9; @%p4 fma.rn.f32 %f1, %f2, %f3, %f1; @!%p4 add.f32 %f1, %f1, %f2;
    setp.lt.f32 %p3, %f2, 0f00000000; @%p3 bra DONE;
    add.u32 %r9, %r9, 1; add.u32 %r6, %r6, %r8;
    cvt.u64.u32 %d7, %r6; setp.lt.u64 %p2, %d7, %d1; @%p2 bra LOOP;
DONE:
    st.global.f32 [%d6], %f1;
    ret;
}
"""


def test_what_a_thread_keeps() -> None:
    function = read_function(parse(SUMS), "sums")
    turns = find_turns(function)
    assert turns is not None
    assert turns.label == "LOOP"
    # The other registers follow from the parameters, the thread and the turn's number.
    assert [name for name, _ in turns.state] == ["%d6", "%f1"]
    assert {one.name for one in turns.counters} == {"%r6", "%r9"}
    computed = [one.operands[0] for one in turns.before]
    assert {Register(name) for name in ("%d1", "%d4", "%p4", "%r8")} <= set(computed)
    assert pointer_roots(function) == {"%d4": "%d4", "%d9": "%d4"}


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("check", ["off", "on", "strict"])
@pytest.mark.parametrize("block", [(1,), (32,), (7, 3), (5, 2, 3), (1024,)])
@pytest.mark.parametrize("n", [0, 1, 500, 5000])
def test_sums(rng: np.random.Generator, check: str, block: tuple[int, ...], n: int) -> None:
    kernel = Module(SUMS, check).kernel("sums")
    threads = 3 * int(np.prod(block))
    x = (rng.normal(size=max(n, 1)) + 2.5).astype("f4")
    for odd in (0, 1):
        y = np.full(threads, np.nan, "f4")
        kernel.launch([3], block, [n, x, y, odd], workers=2)
        expected = []
        for thread in range(threads):
            total = 0.0
            for turn, value in enumerate(x[:n][thread::threads]):
                total += float(value) * (1 + turn if odd else 1)
                if value < 0:
                    break
            expected.append(total)
        np.testing.assert_allclose(y, expected, rtol=1e-4)


def test_loops_without_the_grid_s_stride_are_left_alone() -> None:
    text = SUMS.replace("mov.u32 %r7, %nctaid.x;", "mov.u32 %r7, 3;")
    assert find_turns(read_function(parse(text), "sums")) is None


def test_local_memory_is_not_cut(rng: np.random.Generator) -> None:
    text = SUMS.replace(".reg .b64 %d<12>;", ".local .align 8 .b8 depot[8]; .reg .b64 %d<12>;")
    assert find_turns(read_function(parse(text), "sums")) is None


@pytest.mark.parametrize("check", ["off", "on"])
def test_local_memory_is_a_thread_s_own(check: str) -> None:
    """Threads that LLVM runs side by side must not see each other's variables."""
    text = """
        .version 8.0 .target sm_80 .address_size 64
        .entry k(.param .u64 y, .param .u32 four) {
        .local .align 8 .b8 depot[16]; .reg .b64 %d<9>; .reg .b32 %r<8>;
        ld.param.u64 %d1, [y]; cvta.to.global.u64 %d2, %d1; mov.u32 %r1, %tid.x;
        mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d2, %d3; ld.param.u32 %r6, [four];
        mov.u64 %d5, depot; and.b32 %r2, %r1, 3; mul.wide.u32 %d6, %r2, 4; add.s64 %d7, %d5, %d6;
        st.local.u32 [%d7], %r1;
        add.u32 %r3, %r1, %r6; and.b32 %r4, %r3, 3; mul.wide.u32 %d6, %r4, 4;
        add.s64 %d8, %d5, %d6; ld.local.u32 %r5, [%d8];
        st.global.u32 [%d4], %r5; ret; }"""
    y = np.zeros(512, "u4")
    Module(text, check).kernel("k").launch([1], [512], [y, 4])
    np.testing.assert_array_equal(y, np.arange(512))
