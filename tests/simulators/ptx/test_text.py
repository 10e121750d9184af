"""Reading PTX: refused texts and their messages."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from simulators.ptx import launch
from simulators.ptx.errors import PtxError, PtxSyntaxError, UnsupportedPtxError
from simulators.ptx.launch import Module
from simulators.ptx.layout import (
    ACCESSES,
    BLOCK,
    BLOCK_BYTES,
    CHECKS,
    COUNTING,
    FUEL,
    INTERVAL,
    REQUESTS,
    SPACES,
    THREAD,
)
from simulators.ptx.parser import parse, read_function
from simulators.ptx.translate import translate
from tests.simulators.ptx.conftest import HERE

ROOT = HERE.parents[2]
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def entry(body: str, parameters: str = "") -> str:
    return f"{HEAD}.visible .entry k({parameters})\n{{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the text does not begin with .version"),
        (HEAD + "/* never closed", "line 4: a comment is never closed"),
        (HEAD + ".visible .entry k() { ret;", "line 4: a block is never closed"),
        (HEAD + ".global .u13 x;", "line 4: a declaration cannot be read: '.global .u13 x'"),
        (HEAD + ".global .align 3 .u32 x;", "line 4: an alignment of 3"),
        (HEAD + ".entry k(.param .foo x) { ret; }", "line 4: a parameter cannot be read"),
        (HEAD + ".entry k() { ret; }\n.entry k() { ret; }", "line 5: k is defined twice"),
    ],
)
def test_what_is_no_module(text: str, words: str) -> None:
    with pytest.raises(PtxSyntaxError, match="^" + words.replace("(", r"\(")):
        parse(text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("tex.2d.v4.f32.f32 {%a}, [t, {%b}];", r"line 7: tex\..* not executed .*§9\.7\.10 Texture"),
        ("frobnicate.u32 %r;", r"line 7: frobnicate\.u32 .*no such opcode"),
        ("add.q32 a, b, c;", r"line 7: add\.q32 is not executed here .*Integer Arithmetic: add"),
        (".reg .b32 %r<2>; mov.b32 %r0, %nothing;", "line 7: the register %nothing"),
        (".reg .b32 %r<2>; mov.b32 %r0, missing;", "line 7: the address of missing"),
        (".reg .b32 %r<2>; call far, ();", "far"),
        (".reg .b32 %r<2>; add.u32 %r0, %r1;", r"line 7: add\.u32: wrong operands"),
        ("wgmma.fence.sync.aligned;", "9.7.15"),
        (".reg .b32 %r<2>; shfl.sync.up.b32 %r0, %r1, 1, 0;", "line 7"),
    ],
)
def test_what_is_not_executed(body: str, words: str) -> None:
    program = parse(entry("\n" + body))
    with pytest.raises(PtxError, match=words):
        translate(program, "k")


@pytest.mark.parametrize(
    "body", ["{ .reg .b32 %r;", "mov.b32 [%r, 3;", ".reg .b32 %r<99999999>;", "123abc;", ".odd 1;"]
)
def test_bodies_that_cannot_be_read(body: str) -> None:
    with pytest.raises((PtxSyntaxError, UnsupportedPtxError)):
        read_function(parse(entry(body)), "k")


def test_names_of_inner_blocks_are_their_own() -> None:
    body = """
        .reg .b32 %r<3>; .reg .b64 %d; .reg .pred %p;
        ld.param.u64 %d, [out];
        mov.u32 %r1, 1;
        { .reg .b32 %r1; .reg .pred %q; mov.u32 %r1, 7; setp.eq.u32 %q, %r1, 7;
          @%q bra SKIP; mov.u32 %r1, 9; SKIP: st.global.u32 [%d+4], %r1; }
        { .reg .b32 t; mov.u32 t, 5; bra SKIP; mov.u32 t, 6; SKIP: st.global.u32 [%d+8], t; }
        st.global.u32 [%d], %r1;
        ret;"""
    import numpy as np

    out = np.zeros(3, np.uint32)
    Module(entry(body, ".param .u64 out")).kernel("k").launch([1], [1], [out])
    assert out.tolist() == [1, 7, 5]


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    lines = ['#include "count.h"', "#include <stddef.h>"]
    for name, fields in (("uptx_block", BLOCK), ("uptx_thread", THREAD)):
        for field, offset in fields.items():
            lines.append(
                f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{field}");'
            )
    lines += [
        f'_Static_assert(offsetof(struct uptx_interval, {field}) == {offset}, "{field}");'
        for field, offset in INTERVAL.offsets.items()
    ]
    lines.append(f'_Static_assert(sizeof(struct uptx_interval) == {INTERVAL.bytes}, "interval");')
    lines += [
        f'_Static_assert(offsetof(struct uptx_worker, {field}) == {offset}, "{field}");'
        for field, offset in COUNTING.items()
    ]
    checks = {f"check_{name}": value for name, value in CHECKS.items()}
    lines.append(f'_Static_assert(sizeof(struct uptx_block) == {BLOCK_BYTES}, "block");')
    for name, value in (REQUESTS | checks | ACCESSES | SPACES).items():
        lines.append(f'_Static_assert(UPTX_{name.upper()} == {value}, "{name}");')
    for structure in (launch._Launch, launch._Fault, launch._Range, launch._Counting):
        name = "uptx" + structure.__name__.lower()
        lines.append(
            f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(structure)}, "{name}");'
        )
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines))
    include = ROOT / "simulators" / "ptx" / "runtime"
    subprocess.run(["cc", "-fsyntax-only", f"-I{include}", str(source)], check=True)
    assert f"FUEL = 1 << {FUEL.bit_length() - 1}" in (include / "waiting.c").read_text()
