"""The PTX reader: its results for nvcc's output and hand-written text, and its errors."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sampling import rounds
from uhal.errors import InvalidImageError
from uhal.images import ptx
from uhal.images.ptx import PtxEntry, PtxImage, is_ptx, read_ptx
from uhal.images.ptx_addresses import MAX_CHARACTERS, parse_instruction
from uhal.signature import Signature

DATA = Path(__file__).parents[1] / "data" / "cuda"
HEADER = ".version 7.0\n.target sm_75\n.address_size 64\n"


def read(text: str) -> PtxImage:
    return read_ptx(text.encode())


def entry(parameters: str, body: str = "ret;", before: str = "", after: str = "") -> PtxEntry:
    text = f"{HEADER}{before}\n.visible .entry k({parameters})\n{after}\n{{\n{body}\n}}\n"
    return read(text).entries[0]


def sample(name: str) -> dict[str, PtxEntry]:
    return {found.name: found for found in read_ptx((DATA / name).read_bytes()).entries}


def test_a_statement_is_read_up_to_its_longest() -> None:
    statement = "ld.global.u32 %r1, [%rd1]"
    longest = statement.ljust(MAX_CHARACTERS)
    found = parse_instruction(longest)
    assert found is not None and (found.name, found.operands) == ("ld", ("%r1", "[%rd1]"))
    assert parse_instruction(longest + " ") is None


def test_nvcc_for_a_gpu_before_blackwell() -> None:
    image = read_ptx((DATA / "sm_75.ptx").read_bytes())
    assert (image.version, image.target, image.address_size) == ((9, 0), "sm_75", 64)
    entries = sample("sm_75.ptx")
    assert list(entries) == ["saxpy", "mixed", "nothing", "indexed", "unused"]
    assert entries["saxpy"].signature.declaration == "integer[8], f32, ptr, ptr"
    assert entries["mixed"].signature.declaration == (
        "integer[8], ptr, bytes[24], bytes[3], integer[1], unknown[2], unknown[2], f64, "
        "integer[2], ptr"
    )
    assert [one.offset for one in entries["mixed"].signature] == [
        0,
        8,
        16,
        40,
        43,
        44,
        46,
        48,
        56,
        64,
    ]
    assert len(entries["nothing"].signature) == 0
    assert entries["indexed"].signature.declaration == "ptr, integer[8], ptr, ptr"
    assert entries["unused"].signature.declaration == "unknown[8], integer[8], ptr"
    assert entries["saxpy"].max_block == (1024, 1, 1)
    assert entries["mixed"].max_block == (256, 1, 1)
    assert entries["nothing"].max_block is None
    assert entries["mixed"].static_shared_bytes == 32 * 33 * 4
    assert entries["saxpy"].static_shared_bytes == 0


def test_nvcc_says_ptr_from_blackwell_on() -> None:
    entries = sample("sm_100f.ptx")
    assert entries["unused"].signature.declaration == "ptr, integer[8], ptr"
    assert entries["unused"].signature[0].source == "PTX"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize(
    ("target", "options"),
    [
        *((target, "-O3") for target in ("75", "80", "90a", "100", "100f", "120a")),
        *(("75", option) for option in ("-G", "-lineinfo", "-rdc=true", "-O0")),
    ],
)
def test_whatever_nvcc_writes_is_read(target: str, options: str, tmp_path: Path) -> None:
    output = tmp_path / "sample.ptx"
    command = ["nvcc", "--ptx", f"-arch=compute_{target}", options, "sample.cu", "-o", str(output)]
    subprocess.run(command, check=True, cwd=DATA, capture_output=True)
    image = read_ptx(output.read_bytes())
    assert image.target == f"sm_{target}"
    found = {one.name: one.signature for one in image.entries}
    assert [one.size for one in found["mixed"]] == [8, 8, 24, 3, 1, 2, 2, 8, 2, 8]
    for name, pointers in {"saxpy": [2, 3], "indexed": [0, 2, 3], "unused": [0, 2]}.items():
        kinds = [one.kind for one in found[name]]
        wrong = [i for i, kind in enumerate(kinds) if (kind == "pointer") > (i in pointers)]
        missed = [i for i in pointers if kinds[i] not in ("pointer", "unknown")]
        assert not wrong and not missed, (name, kinds)


@pytest.mark.parametrize(
    ("parameters", "declaration", "offsets"),
    [
        (".param .u32 a, .param .f64 b", "integer[4], f64", [0, 8]),
        (".param .f16 a, .param .b16 b, .param .f32 c", "f16, unknown[2], f32", [0, 2, 4]),
        (".param .align 4 .b8 a[12], .param .u64 b", "bytes[12], unknown[8]", [0, 16]),
        (".param .align 16 .b8 a[16], .param .s8 b", "bytes[16], integer[1]", [0, 16]),
        (".param .b8 a[3], .param .b8 b[1]", "bytes[3], unknown[1]", [0, 3]),
        (".param .u64 .ptr .global .align 4 a, .param .u64 .ptr b", "ptr, ptr", [0, 8]),
        (
            ".param .u64 .ptr .shared a, .param .u32 .ptr .shared b",
            "unknown[8], integer[4]",
            [0, 8],
        ),
        (".param .u64 .ptr.const.align 8 a", "ptr", [0]),
        (".param .texref a", "unknown[8]", [0]),
    ],
)
def test_parameter_types(parameters: str, declaration: str, offsets: list[int]) -> None:
    signature = entry(parameters).signature
    assert signature.declaration == declaration
    assert [one.offset for one in signature] == offsets


LOAD_A = "ld.param.u64 %rd1, [a]; "
LOAD_B = "ld.param.u64 %rd2, [b]; "


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("", ["unknown", "unknown"]),
        (LOAD_A + "ld.global.f32 %f1, [%rd1];", ["pointer", "unknown"]),
        (LOAD_A + "st.f32 [%rd1+16], %f1;", ["pointer", "unknown"]),
        (LOAD_A + "atom.global.add.u32 %r1, [%rd1], 1;", ["pointer", "unknown"]),
        (LOAD_A + "red.global.add.u32 [%rd1], 1;", ["pointer", "unknown"]),
        (LOAD_A + "cvta.to.global.u64 %rd3, %rd1;", ["pointer", "unknown"]),
        (LOAD_A + "ld.shared.f32 %f1, [%rd1];", ["unknown", "unknown"]),
        (LOAD_A + "st.global.u64 [%rd9], %rd1;", ["unknown", "unknown"]),
        (LOAD_A + "mul.lo.s64 %rd3, %rd1, 4;", ["scalar", "unknown"]),
        (LOAD_A + "cvt.rn.f32.u64 %f1, %rd1;", ["scalar", "unknown"]),
        (LOAD_A + "setp.lt.u64 %p1, %rd1, 5;", ["scalar", "unknown"]),
        (LOAD_A + "setp.eq.s64 %p1, %rd1, 0;", ["unknown", "unknown"]),
        (LOAD_A + "and.b64 %rd3, %rd1, 15; setp.ne.s64 %p1, %rd3, 0;", ["unknown", "unknown"]),
        # The second pointer is the end of a range and is only compared with the first.
        (
            LOAD_A + LOAD_B + "L: ld.global.f32 %f1, [%rd1]; add.s64 %rd1, %rd1, 4;"
            "setp.lt.u64 %p1, %rd1, %rd2; @%p1 bra L;",
            ["pointer", "unknown"],
        ),
        # Only cvta or another use of the base distinguishes a base from a byte offset.
        (
            LOAD_A + LOAD_B + "cvta.to.global.u64 %rd3, %rd1; add.s64 %rd4, %rd3, %rd2;"
            "ld.global.u8 %r1, [%rd4];",
            ["pointer", "scalar"],
        ),
        (
            LOAD_A + LOAD_B + "ld.u8 %r1, [%rd2]; add.s64 %rd4, %rd2, %rd1; ld.u8 %r1, [%rd4];",
            ["scalar", "pointer"],
        ),
        (
            LOAD_A + LOAD_B + "add.s64 %rd4, %rd2, %rd1; ld.u8 %r1, [%rd4];",
            ["unknown", "unknown"],
        ),
        (
            LOAD_A + LOAD_B + "selp.b64 %rd4, %rd2, %rd1, %p1; st.u8 [%rd4], %r1;",
            ["pointer", "pointer"],
        ),
        (
            LOAD_A + LOAD_B + "mad.lo.s64 %rd4, %rd2, 4, %rd1; ld.u8 %r1, [%rd4];",
            ["pointer", "scalar"],
        ),
        (LOAD_A + "cp.async.ca.shared.global [%r1], [%rd1], 16;", ["pointer", "unknown"]),
        # The same name in two blocks is two registers.
        (
            "{ .reg .b64 t; ld.param.u64 t, [a]; } { .reg .b64 t; ld.u8 %r1, [t]; }",
            ["unknown", "unknown"],
        ),
        # The reader does not follow arguments into calls.
        (LOAD_A + "st.param.b64 [p0], %rd1; call f, (p0);", ["unknown", "unknown"]),
    ],
)
def test_pointers_by_their_use(body: str, kinds: list[str]) -> None:
    found = entry(".param .u64 a, .param .u64 b", body)
    assert [one.kind for one in found.signature] == kinds


FOUR = ".param .b32 a, .param .b64 b, .param .b16 c, .param .u32 d"


@pytest.mark.parametrize(
    ("body", "declaration"),
    [
        ("", "unknown[4], unknown[8], unknown[2], integer[4]"),
        # The load's type decides, except .u16, which nvcc also uses to load f16.
        (
            "ld.param.f32 %f1, [a]; ld.param.f64 %d1, [b]; ld.param.u16 %h1, [c];",
            "f32, f64, unknown[2], integer[4]",
        ),
        ("ld.param.u32 %r1, [a];", "integer[4], unknown[8], unknown[2], integer[4]"),
        # The instruction that uses the register also decides, even after moves.
        (
            "ld.param.b32 %r1, [a]; mov.b32 %r2, %r1; mov.b32 %r3, %r2; "
            "fma.rn.f32 %r4, %r5, %r3, %r5;",
            "f32, unknown[8], unknown[2], integer[4]",
        ),
        (
            "ld.param.b32 %r1, [a]; @%p1 setp.lt.s32 %p2, %r9, %r1; ld.param.b64 %d1, [b]; "
            "mul.rn.f64 %d2, %d1, %d1; ld.param.b16 %h1, [c]; cvt.f32.f16 %r2, %h1;",
            "integer[4], f64, f16, integer[4]",
        ),
        (
            "ld.param.b32 %r1, [a]; shl.b32 %r2, %r1, 2; ld.param.b16 %h1, [c]; "
            "cvt.f32.bf16 %f, %h1;",
            "integer[4], unknown[8], bf16, integer[4]",
        ),
        # A register used as both types, or only by instructions that take either, is unknown.
        (
            "ld.param.b32 %r1, [a]; add.f32 %r2, %r1, %r1; add.s32 %r3, %r1, %r1;",
            "unknown[4], unknown[8], unknown[2], integer[4]",
        ),
        (
            "ld.param.b32 %r1, [a]; st.global.b32 [%rd1], %r1; and.b32 %r2, %r1, 7; "
            "selp.b32 %r3, %r1, %r2, %p1; add.s32 %r1, %r8, %r9;",
            "unknown[4], unknown[8], unknown[2], integer[4]",
        ),
        # Arithmetic may compute an address for a call that the reader does not follow.
        (
            "ld.param.b64 %d1, [b]; add.s64 %d2, %d1, 16; st.param.b64 [p0], %d2; call f, (p0);",
            "unknown[4], unknown[8], unknown[2], integer[4]",
        ),
        # An address of a load is a pointer, for any type of the load.
        (
            "ld.param.b64 %d1, [b]; ld.global.f64 %d2, [%d1];",
            "unknown[4], ptr, unknown[2], integer[4]",
        ),
    ],
)
def test_numbers_by_their_use(body: str, declaration: str) -> None:
    assert entry(FOUR, body).signature.declaration == declaration


def test_a_declaration_counts_more_than_a_use() -> None:
    """Integer instructions may process the bits of a float, so a declared type has priority."""
    body = "ld.param.b32 %r1, [a]; add.s32 %r2, %r1, 0x7FFF;"
    declared = "//uhal.sig k: f32 a, ptr b, f16 c, i32 d\n"
    assert entry(FOUR, body, before=declared).signature.declaration == "f32 a, ptr b, f16 c, i32 d"
    declared = "//uhal.sig k: f32 a, unknown[8] b, f16 c, i32 d\n"
    assert entry(FOUR, body, before=declared).signature[0].type_text == "f32"
    with pytest.raises(
        InvalidImageError, match=r"'integer\[4\]' by the PTX .* they differ in type"
    ):
        _ = entry(FOUR, body, before="//uhal.sig k: f32 a, ptr b, f16 c, f32 d\n").signature


def test_long_bodies_are_not_followed() -> None:
    body = LOAD_A + "ld.global.f32 %f1, [%rd1];" + "\nadd.s32 %r1, %r1, 1;" * 100_001
    assert entry(".param .u64 a", body).signature[0].kind == "unknown"


def test_signature_lines_tell_the_rest() -> None:
    text = HEADER + "//uhal.sig k: const f32* x, f16 a, i32 n, u64 m\n"
    text += ".entry k(.param .u64 x, .param .align 2 .b8 a[2], .param .u32 n, .param .u64 m) {"
    text += "ld.param.u64 %rd1, [m]; mul.lo.u64 %rd1, %rd1, 3; }"
    signature = read(text).entries[0].signature
    assert signature.declaration == "const f32* x, f16 a, i32 n, u64 m"
    assert [one.offset for one in signature] == [0, 8, 12, 16]
    assert "//uhal.sig" in str(signature)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("k: f32 x", "differ in kind"),
        ("k: f32* x, u32 n", "1 parameters"),
        ("other: f32* x", "'other'"),
        ("k: blob x", "unknown type"),
        ("k f32", "expected 'entry: parameters'"),
    ],
)
def test_a_signature_line_that_contradicts(line: str, words: str) -> None:
    text = f"{HEADER}//uhal.sig {line}\n.entry k(.param .u64 .ptr x) {{ ret; }}"
    with pytest.raises(InvalidImageError, match=words):
        read(text)


def test_shared_memory_of_module_and_body() -> None:
    before = (
        ".shared .align 4 .b8 used[12];\n.visible .shared .f64 pair[2][3];\n"
        ".shared .b8 other[99];\n"
        ".extern .shared .align 16 .b8 dynamic[];"
    )
    body = (
        "mov.u32 %r1, used; mov.u32 %r1, pair; mov.u32 %r1, dynamic; .shared .align 1 .b8 own[3];"
    )
    found = entry("", body, before)
    # used 0…11, pair aligned to 16…63, own 64…66
    assert found.static_shared_bytes == 67


def test_directives() -> None:
    found = entry("", after=".reqntid 8, 4\n.minnctapersm 2\n.maxntid 64")
    assert found.required_block == (8, 4, 1)
    assert found.max_block == (64, 1, 1)


def test_comments_strings_functions_and_debug_sections_are_passed_over() -> None:
    text = (
        "/* a .version 1.0 { */ // .entry no()\n" + HEADER + '.file 1 "a{b;.cu"\n'
        ".global .align 4 .b8 table[4] = {1, 2, 3, 4};\n"
        ".func (.param .b32 r) helper(.param .b32 a)\n{ st.param.b32 [r], 1; ret; }\n"
        ".entry declared(.param .u32 a);\n"
        '.entry k(.param .u32 a)\n{\n.loc 1 5 0\n.pragma "nounroll{";\nL_1:\n'
        "{ mov.b64 {%r1, %r2}, 5; }\nret;\n}\n"
        ".section .debug_str\n{\nL:\n.b8 1,2,3\n}\n"
    )
    assert [one.name for one in read(text).entries] == ["k"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not begin"),
        ("hello", "does not begin"),
        (".version 7.0\n", "does not begin"),
        (HEADER + ".entry k() {", "inside a block"),
        (HEADER + ".entry k() { ret; } }", "has not opened"),
        (HEADER + ".entry k() { ret }", None),
        (HEADER + ".entry k(.param .u32", "middle of a statement"),
        (HEADER + "/* no end", "comment is never closed"),
        (HEADER + '.file 1 x\n.pragma "no end', "string is never closed"),
        (HEADER + ".entry k(.param .u7 a) {}", "unknown"),
        (HEADER + ".entry k(.param a) {}", "cannot be read"),
        (HEADER + ".entry k(.param .align 3 .b8 a[4]) {}", "cannot be"),
        (HEADER + ".entry k(.param .b8 a[0]) {}", "cannot be"),
        (HEADER + ".entry k(.param .b8 a[40000]) {}", "32764"),
        (HEADER + ".entry k(" + ",".join(["x"] * 5000) + ") {}", "5000 parameters"),
        (HEADER + ".entry k() {} .entry k() {}", "twice"),
        (HEADER + ".entry ( {}", "cannot be read"),
        (HEADER + ".entry k(.param .u32 a {}", "never closed"),
        (HEADER + ".entry k()) {}", "cannot be read"),
        (HEADER + ".entry k((.param .u32 a)) {}", "cannot be read"),
        (HEADER + ".shared .align 0 .b8 a[4]; .entry k() { mov.u32 %r1, a; }", "aligned to 0"),
        (HEADER + ".entry k() { .shared .align 0 .b8 a[4]; }", "aligned to 0"),
        (HEADER + ".shared .align 12 .b8 a[4];", "aligned to 12"),
    ],
)
def test_refusals(text: str, words: str | None) -> None:
    if words is None:
        read(text)
        return
    with pytest.raises(InvalidImageError, match=words):
        read(text)


@pytest.mark.parametrize(
    ("image", "answer"),
    [
        (b".version 7.0", True),
        (b"\n // one\n/* two */ .version", True),
        (b"\x7fELF", False),
        (b"", False),
        (b"/*" + b"*" * 1000, False),
        (b"// no end", False),
    ],
)
def test_recognition(image: bytes, answer: bool) -> None:
    assert is_ptx(image) is answer


def test_a_nul_ends_the_text() -> None:
    image = (HEADER + ".entry k() { ret; }").encode() + b"\0\0\xff{{{"
    assert [one.name for one in read_ptx(image).entries] == ["k"]


HOSTILE = [
    "{" * 200_000,
    "{}" * 200_000,
    "a {} " * 100_000,
    ".entry " * 100_000,
    ".entry a " * 100_000 + ")",
    ".entry a(" * 100_000,
    "/*" * 200_000,
    '"' * 199_999,
    "@" * 400_000 + ";",
    ".shared .b8 a" + "[ 1 ]" * 50_000 + ";",
    ".entry k(.param .u32 a" + " " * 400_000 + "x) {}",
    ".entry k() { " + "a:" * 100_000 + " }",
    ".entry k() { ld " + "[ " * 100_000 + "; }",
    ".entry k() {" + " .reg .b64 %r<9>;" * 20_000 + " }",
    "\n.loc" * 100_000,
]


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_hostile_text_is_done_with_soon(text: str) -> None:
    # A reader that is not linear would take hours for these texts.
    with contextlib.suppress(InvalidImageError):
        read(HEADER + text)


def test_an_exploding_register_ends() -> None:
    names = [f"a{index}" for index in range(40)]
    loads = "".join(f"ld.param.u64 %rd{i}, [{name}];" for i, name in enumerate(names))
    sums = "".join(f"add.s64 %rd{i}, %rd{i}, %rd{(i * 7 + 1) % 40};" for i in range(40))
    parameters = ", ".join(f".param .u64 {name}" for name in names)
    found = entry(parameters, loads + sums * 10 + "ld.u8 %r1, [%rd3];")
    assert len(found.signature) == 40


def test_damaged_text_is_refused_or_read(seed: int) -> None:
    generator = random.Random(seed)
    original = (DATA / "sm_75.ptx").read_bytes()
    alphabet = b'{}()[];:,."/*\n\0 %@$<>0a\xff'
    for _ in range(rounds(300, 20_000)):
        image = bytearray(original)
        for _ in range(generator.randrange(1, 8)):
            start = generator.randrange(len(image))
            action = generator.randrange(3)
            if action == 0:
                image[start] = generator.choice(alphabet)
            elif action == 1:
                del image[start : start + generator.randrange(1, 200)]
            else:
                image[start:start] = image[generator.randrange(len(image)) :][:100]
        try:
            found = read_ptx(bytes(image))
        except InvalidImageError:
            continue
        for one in found.entries:
            assert isinstance(one.signature, Signature)
            total = one.signature.total_bytes
            assert total is not None and total <= 32764


def test_registers_are_followed_only_in_kernels_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed: list[list[str]] = []

    def classify(names: dict[str, int], body: list[str]) -> dict[int, str]:
        followed.append(list(names))
        return dict.fromkeys(names.values(), "pointer")

    monkeypatch.setattr(ptx, "classify_words", classify)
    kernels = "".join(
        f".entry {name}(.param .u64 {name}_p) {{ ret; }}\n" for name in ("first", "second")
    )
    signatures = read(f"//uhal.sig second: f32* x\n{HEADER}{kernels}").signatures
    assert (list(signatures), len(signatures), "second" in signatures) == (
        ["first", "second"],
        2,
        True,
    )
    assert signatures["second"].declaration == "f32* x"
    assert followed == []
    assert signatures["first"].declaration == signatures["first"].declaration == "ptr"
    assert followed == [["first_p"]]
    with pytest.raises(KeyError):
        signatures["third"]
