"""A traced kernel tells each instruction, and each register of up to 64 bits that it writes."""

from __future__ import annotations

import re

from simulators.ptx.parser import parse
from simulators.ptx.translate import translate

MODULE = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .pred %p; .reg .b16 %h; .reg .b32 %r; .reg .f64 %d; .reg .b64 %out; .reg .b128 %q;
    ld.param.u64 %out, [out]; mov.b16 %h, 7; mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 3;
    cvt.rn.f64.u32 %d, %r; mov.b128 %q, {%out, %out}; @%p st.global.f64 [%out], %d;
    ret;
}
"""


def test_each_instruction_and_each_register_of_up_to_64_bits_is_told() -> None:
    ir = translate(parse(MODULE), "k", "trace").ir
    told = re.findall(r"call void %\S+\(.*, i32 (\d+), ptr (\S+), ptr (\S+), i64 \S+\)", ir)
    names = {text for _, text, _ in told}
    assert names == {"null", *(f'@"text.%{one}"' for one in ("out", "h", "r", "p", "d"))}
    lines = [int(line) for line, text, _ in told if text == "null"]
    assert lines == [7] * 4 + [8] * 3 + [9]
    assert "text.%q" not in ir and "text.%" not in translate(parse(MODULE), "k", "on").ir
