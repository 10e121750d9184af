"""The signature grammar, its messages, and how two descriptions of a kernel are merged."""

from __future__ import annotations

import itertools
import random

import pytest

from uhal import dtypes
from uhal.errors import ArgumentValueError, DeviceError
from uhal.signature import Parameter, Signature, merge


@pytest.mark.parametrize(
    ("text", "canonical", "codes", "offsets", "total"),
    [
        (
            "u64 n, const f32* x, ptr y, f32 a",
            "u64 n, const f32* x, ptr y, f32 a",
            "QPPf",
            [0, 8, 16, 24],
            28,
        ),
        ("(u32 n, f64 a, f32 *x)", "u32 n, f64 a, f32* x", "IdP", [0, 8, 16], 24),
        ("", "", "", [], 0),
        ("()", "", "", [], 0),
        ("( void )", "", "", [], 0),
        ("unsigned long long n, unsigned, size_t", "u64 n, u32, u64", "QIQ", [0, 8, 16], 24),
        (
            "float const *__restrict__ x, void *, const void* q, const ptr z",
            "const f32* x, ptr, const ptr q, const ptr z",
            "PPPP",
            [0, 8, 16, 24],
            32,
        ),
        ("char c, short s, int i", "i8 c, i16 s, i32 i", "bhi", [0, 2, 4], 8),
        ("bytes[12] shape, u32 n", "bytes[12] shape, u32 n", "VI", [0, 12], 16),
        ("f32 a, bytes[12] b, u32 n", "f32 a, bytes[12] b, u32 n", "fVI", [0, None, None], None),
        ("unknown u, unknown[8] v", "unknown u, unknown[8] v", "UU", [0, None], None),
        ("f32 **r, bool b, half h", "ptr r, bool b, f16 h", "P?e", [0, 8, 10], 12),
        ("bf16 g, f8e4m3 q, i64 n", "bf16 g, f8e4m3 q, i64 n", "g8q", [0, 2, 8], 16),
        ("u32 n,  # the number of elements\n f32 a", "u32 n, f32 a", "If", [0, 4], 8),
    ],
)
def test_parse(
    text: str, canonical: str, codes: str, offsets: list[int | None], total: int | None
) -> None:
    signature = Signature.parse(text, entry="k")
    assert signature.declaration == canonical
    assert "".join(parameter.code for parameter in signature) == codes
    assert [parameter.offset for parameter in signature] == offsets
    assert signature.total_bytes == total
    assert signature.entry == "k"
    assert Signature.parse(str(signature), entry="k") == signature


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u64 n,", "parameter 1, column 7: expected a parameter"),
        (",", "parameter 0, column 1: expected a parameter"),
        ("flot x", "parameter 0, column 1: unknown type 'flot'"),
        ("u64 n, struct foo x", "parameter 1, column 8: unknown type 'struct'"),
        ("Foo *p", "unknown type 'Foo'; known are .* and ptr for a pointer"),
        ("u64 n, f32 n", "parameter 1, column 12: the name 'n' is used twice"),
        ("f32 x y", "column 7: expected ',' or the end after the parameter, got 'y'"),
        ("(u32 n", r"column 1: '\(' is never closed"),
        ("u32 n)", r"column 6: unexpected '\)'"),
        ("bytes[0] q", "column 7: expected a size in 1…1048576, got 0"),
        ("bytes[", r"expected bytes\[SIZE\]"),
        ("u32 a, u32 &x", "parameter 1, column 12: cannot read '&'"),
        ("u32 n; f32 y", "column 6: cannot read ';'"),
        ("* x", r"column 1: a '\*' follows the type"),
        ("f32 * x *", r"a '\*' follows the type"),
        ("const", "expected a type"),
        ("u32 n, long double x", "parameter 1, column 8: unknown type 'long double'"),
        ("double long *x", "unknown type 'double long'"),
        ("float complex z", "unknown type 'float complex'"),
        ("unsigned __int128", "unknown type 'unsigned __int128'"),
        ("unsigned float x", "unknown type 'unsigned float'"),
        ("long long long n", "unknown type 'long long long'"),
        ("u32 int", "column 5: expected a name after the type, got C's word 'int'"),
        ("void *long", "column 7: expected a name after the type, got C's word 'long'"),
    ],
)
def test_parse_names_the_spot(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Signature.parse(text, entry="saxpy")
    assert str(caught.value).startswith("signature of saxpy, parameter ")


# C11, 6.7.2: the sets of words that name the same type.
C_INTEGERS = {
    "i8": ("char", "char signed"),
    "u8": ("char unsigned",),
    "i16": ("short", "short signed", "int short", "int short signed"),
    "u16": ("short unsigned", "int short unsigned"),
    "i32": ("int", "signed", "int signed"),
    "u32": ("unsigned", "int unsigned"),
    "i64": (
        "long",
        "long signed",
        "int long",
        "int long signed",
        "long long",
        "long long signed",
        "int long long",
        "int long long signed",
    ),
    "u64": ("long unsigned", "int long unsigned", "long long unsigned", "int long long unsigned"),
}


def test_words_of_a_c_type_stand_in_any_order() -> None:
    for expected, multisets in C_INTEGERS.items():
        for words in multisets:
            for order in set(itertools.permutations([*words.split(), "const"])):
                spelling = " ".join(order)
                named, unnamed, pointer = Signature.parse(f"{spelling} n, {spelling}, {spelling} *")
                assert str(named) == f"{expected} n", spelling
                assert str(unnamed) == expected, spelling
                assert str(pointer) == f"const {expected}*", spelling


def test_other_combinations_of_words_are_refused_whole() -> None:
    words = ["char", "short", "int", "long", "signed", "unsigned", "float", "double", "complex"]
    valid = {tuple(text.split()) for texts in C_INTEGERS.values() for text in texts}
    valid |= {("float",), ("double",)}
    for count in (1, 2, 3, 4):
        for several in itertools.combinations_with_replacement(sorted(words), count):
            if several not in valid:
                with pytest.raises(ArgumentValueError, match=f"unknown type '{' '.join(several)}'"):
                    Signature.parse(f"{' '.join(several)} n")


def test_parse_answers_any_text_with_a_signature_or_a_value_error(seed: int) -> None:
    pieces = [
        "u32",
        "f32",
        " ",
        "*",
        ",",
        "(",
        ")",
        "[",
        "]",
        "12",
        "x",
        "const",
        "ptr",
        "bytes",
        "é",
    ]
    generator = random.Random(seed)
    for _ in range(3000):
        text = "".join(generator.choices(pieces, k=generator.randrange(12)))
        try:
            signature = Signature.parse(text)
        except ArgumentValueError:
            continue
        assert Signature.parse(str(signature)) == signature


def test_facts_of_a_parameter() -> None:
    pointer, scalar = Signature.parse("const f16 *x, u32 n")
    assert (pointer.is_pointer, pointer.is_const, pointer.size) == (True, True, 8)
    assert pointer.dtype is dtypes.f16
    assert (scalar.is_pointer, scalar.is_const, scalar.size) == (False, None, 4)
    assert scalar.dtype is dtypes.u32


def test_is_an_immutable_sequence() -> None:
    signature = Signature.parse("u32 n, f32 a", entry="k")
    assert len(signature) == 2
    assert signature[-1].name == "a"
    assert [parameter.index for parameter in signature] == [0, 1]
    assert signature[:1] == (signature[0],)
    assert {signature: 1}[Signature.parse("u32 n, f32 a", entry="k")] == 1
    assert signature != Signature.parse("u32 n, f32 a", entry="other")
    with pytest.raises(AttributeError):
        signature[0].name = "m"  # type: ignore[misc]


def test_indexes_must_count_up() -> None:
    with pytest.raises(ArgumentValueError, match="position 0 has index 1"):
        Signature([Parameter(1)])


def test_kind_and_is_pointer_must_agree() -> None:
    assert Parameter(0).is_pointer is None
    with pytest.raises(ArgumentValueError, match="is of kind scalar"):
        Parameter(0, kind="scalar", is_pointer=True)


def test_sidecar() -> None:
    text = "# from our build\nsaxpy: u64 n, const f32* x  # in place\n\nnothing:\n"
    found = Signature.parse_sidecar(text)
    assert list(found) == ["saxpy", "nothing"]
    assert str(found["saxpy"]) == "u64 n, const f32* x  # sidecar"
    assert found["saxpy"].entry == "saxpy"
    assert len(found["nothing"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("saxpy u32 n", "line 1: expected 'entry: parameters'"),
        ("\na: flt x", "line 2: signature of a, parameter 0, column 2: unknown type 'flt'"),
        ("a:\na:", "line 2: a is described twice"),
    ],
)
def test_sidecar_names_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signature.parse_sidecar(text, source="k.so.sig")


def _image(*parameters: Parameter) -> Signature:
    return Signature(parameters, "k")


def test_merge_fills_in_what_the_image_does_not_say() -> None:
    image = _image(
        Parameter(0, size=8, offset=0, source="image"),
        Parameter(1, "x", "pointer", 8, 8, source="image"),
    )
    merged = merge(image, Signature.parse("u64 n, const f32* x"))
    assert merged is not None
    assert merged.declaration == "u64 n, const f32* x"
    assert merged.entry == "k"
    assert [parameter.code for parameter in merged] == ["Q", "P"]
    assert str(merged).endswith(
        "# 0: image, kind, name, dtype from declaration; 1: image, dtype, const from declaration"
    )


def test_integers_of_unknown_sign() -> None:
    image = Signature.parse("integer[4], integer[8], scalar[2]", source="image")
    assert [one.is_integer for one in image] == [True, True, None]
    assert [one.code for one in image] == ["n", "N", "S"]
    assert str(image) == "integer[4], integer[8], scalar[2]  # image"
    declared = Signature.parse("u32 n, integer[8] m, integer[2] k")
    merged = merge(image, declared)
    assert merged is not None
    assert merged.declaration == "u32 n, integer[8] m, integer[2] k"
    assert [one.is_integer for one in merged] == [None, True, True]
    assert merged[2].source == "image, name, integer from declaration"
    for types in (("integer[4]", "f32"), ("f32", "integer[4]")):
        one, other = (Signature.parse(text, source=text) for text in types)
        with pytest.raises(ArgumentValueError, match="they differ in type"):
            merge(one, other)
    with pytest.raises(ArgumentValueError, match=r"expected integer\[1\], \[2\], \[4\] or \[8\]"):
        Signature.parse("integer[3] x")


def test_merge_with_nothing() -> None:
    declared = Signature.parse("u32 n")
    assert merge(None, None) is None
    assert merge(declared, None) is declared
    assert merge(None, declared) is declared


def test_merge_keeps_the_images_offsets_and_constness() -> None:
    image = _image(
        Parameter(0, "n", "scalar", 4, 0, dtypes.u32, source="image"),
        Parameter(1, "x", "pointer", 8, 16, dtypes.f32, is_const=True, source="image"),
    )
    merged = merge(image, Signature.parse("u32 n, f32* x"))
    assert merged == image


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("u64 n", "the image has 2 parameters .* the declaration has 1"),
        ("u32 n, ptr x", "parameter 0 is 'unknown.8.' by the image and 'u32 n' .* differ in size"),
        ("u64 n, u64 x", "parameter 1 is 'f32. x' .* they differ in kind"),
        ("u64 n, f64 *x", "they differ in dtype"),
        ("u64 n, f32 *y", "they differ in name"),
    ],
)
def test_merge_names_a_contradiction(declared: str, message: str) -> None:
    image = _image(
        Parameter(0, size=8, offset=0, source="image"),
        Parameter(1, "x", "pointer", 8, 8, dtypes.f32, source="image"),
    )
    with pytest.raises(DeviceError, match=message) as caught:
        merge(image, Signature.parse(declared))
    assert isinstance(caught.value, ValueError)
    assert "signature of k" in str(caught.value)
