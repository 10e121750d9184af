"""Kernels that are written in WGSL for a module, in place of their translations.

They are in a file beside the image, `<image>.wgsl`. A section of the file is a template for one or
several kernels. `needs` names functions of the translator's library. A template with the line
`//! reports` has `report_index(position, value, bound)`, as in `uhal/report.h`: it writes the
kernel's name to the record of the module's `uhal_fault`. `value` is two words, the low one first.
`//! with FILE` puts the text of a file in the same folder at the template's beginning.

    //! kernel scale_f16: const f16* x, f16* out, u64 n
    //! kernel scale_f32: const f32* x, f32* out, u64 n
    //! needs half
    @compute @workgroup_size(block_x, block_y, block_z)
    fn kernel(@builtin(workgroup_id) dispatched: vec3<u32>, …) { … }

The parameters' functions and arrays come before the text. A number `n` is `n()`: its low word, a
float (also of an f64), or a bool. An integer `n` of 64 bits is also `n_limited()`: 2^32 - 1 if it
is larger. A pointer `x` is an array of words `x` and the offset `x_at()`
in bytes; pointers to f32, f16 and bf16 also have `x_load(i)`, `x_pair(i)`, which needs a multiple
of 4 bytes, and, if not const, `x_store(i, value)`. `first_block()` is the block's place along x
in a split launch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from uhal.errors import InvalidImageError
from uhal.signature import Parameter, Signature
from webgpu_backend.translator.library import library
from webgpu_backend.translator.writer import GRID_WORDS, Argument, Translation

SUFFIX = ".wgsl"
FAULT = "uhal_fault"
"""The module's pointer to a record of a wrong index."""
_MOST_BYTES = 1 << 20
_SHARED = re.compile(r"var<workgroup> \w+: array<[fiu]32, (\d+)>")
_SHORT = {
    "f16": ("half_of", "halves_of", "half_bits"),
    "bf16": ("brain_of", "brains_of", "brain_bits"),
}
"""Functions from bits to a number, from a word to two numbers, and from a number to bits."""


class Written:
    """A kernel in WGSL."""

    def __init__(
        self, name: str, signature: Signature, needs: Sequence[str], reports: bool, text: str
    ) -> None:
        """Keep the parts of a section for one kernel."""
        self.reports = reports
        """Whether its last argument is the memory behind `uhal_fault`."""
        self._name = name
        self._signature = signature
        self._needs = needs
        self._text = text

    def translation(self, own: Signature, immediate_bytes: int) -> Translation:
        """Return the kernel's whole text; `own` is the signature in the image.

        Raises `InvalidImageError` if the image's parameters differ.
        """
        if [_shape(one) for one in own] != [_shape(one) for one in self._signature]:
            raise InvalidImageError(
                f"{self._name} in WGSL: expected the image's parameters ({own}), got "
                f"({self._signature}). Compile the kernels again, or change the WGSL file.",
                backend="webgpu",
            )
        arguments: list[Argument] = []
        lines: list[str] = []
        words = GRID_WORDS
        needs = set(self._needs)
        for index, one in enumerate(self._signature):
            size = one.size or 4
            if one.kind == "pointer":
                binding = sum(other.kind == "pointer" for other in self._signature[:index])
                arguments.append(Argument("pointer", index, size, words, 1, binding))
                lines += _pointer(one, words, binding)
                if one.dtype is not None and one.dtype.name in _SHORT:
                    needs.add("half" if one.dtype.name == "f16" else "brain")
            else:
                arguments.append(Argument("value", index, size, words))
                lines.append(_number(one, words))
                if one.dtype is not None and one.dtype.name == "f64":
                    needs.add("double_resize")
            words += -(-size // 4)
        bindings = sum(one.kind == "pointer" for one in self._signature)
        if self.reports:
            arguments.append(Argument("indirect", len(self._signature), 8, words, 1, bindings))
            lines += _report(self._name, words, bindings)
            bindings += 1
            words += 2
        words = -(-words // 4) * 4
        has_uniform = words * 4 > immediate_bytes
        space = "@group(0) @binding(0) var<uniform>" if has_uniform else "var<immediate>"
        head = [
            f"struct Params {{ w: array<vec4<u32>, {words // 4}> }}",
            f"{space} P: Params;",
            *(f"override block_{axis}: u32 = 1u;" for axis in "xyz"),
            "fn first_block() -> u32 { return P.w[0].w; }",
        ]
        text = "\n".join([*head, library(needs), *lines, self._text])
        shared = 4 * sum(int(count) for count in _SHARED.findall(self._text))
        return Translation(text, words, tuple(arguments), bindings, (), shared, False, has_uniform)


def written_beside(path: Path | None) -> Mapping[str, Written]:
    """Return the kernels in the file beside an image, by name; none without such a file.

    Raises `InvalidImageError` for a file that is no list of templates.
    """
    if path is None:
        return {}
    beside = path.with_name(path.name + SUFFIX)
    text = _text_of(beside)
    return {} if text is None else dict(_sections(text, beside))


def _text_of(path: Path) -> str | None:
    """The text of a file, or `None` without such a file."""
    try:
        with path.open("rb") as file:
            found = file.read(_MOST_BYTES + 1)
    except OSError:
        return None
    if len(found) > _MOST_BYTES:
        raise InvalidImageError(
            f"{path.name}: expected at most {_MOST_BYTES} bytes", backend="webgpu"
        )
    return found.decode("utf-8", "replace")


def _sections(text: str, path: Path) -> Iterator[tuple[str, Written]]:
    file = path.name
    signatures: list[str] = []
    needs: list[str] = []
    reports = False
    body: list[str] = []

    def kernels() -> Iterator[tuple[str, Written]]:
        parsed = Signature.parse_sidecar("\n".join(signatures), source=file)
        for name, signature in parsed.items():
            yield name, Written(name, signature, tuple(needs), reports, "\n".join(body))

    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        word, _, rest = rest.partition(" ")
        if mark != "//!":
            body.append(line)
        elif word == "kernel":
            if body:
                yield from kernels()
                signatures, needs, reports, body = [], [], False, []
            signatures.append(rest)
        elif word == "needs":
            needs += rest.split()
        elif word == "reports":
            reports = True
        elif word == "with":
            body.append(_shared_text(path, rest))
        else:
            raise InvalidImageError(
                f"{file}: expected '//! kernel', '//! needs', '//! reports' or '//! with', "
                f"got {line!r}",
                backend="webgpu",
            )
    yield from kernels()


def _shared_text(path: Path, name: str) -> str:
    text = _text_of(path.with_name(name)) if name == Path(name).name != "" else None
    if text is None:
        raise InvalidImageError(
            f"{path.name}: expected a file in its folder, got '//! with {name}'", backend="webgpu"
        )
    return text


def _shape(one: Parameter) -> tuple[bool, int | None]:
    return one.kind == "pointer", one.size


def _word(index: int) -> str:
    return f"P.w[{index >> 2}].{'xyzw'[index & 3]}"


def _number(one: Parameter, word: int) -> str:
    text, type_, more = _word(word), "u32", ""
    if one.dtype is not None and one.dtype.name == "f32":
        text, type_ = f"bitcast<f32>({text})", "f32"
    elif one.dtype is not None and one.dtype.name == "f64":
        bits = f"u64({text}) | (u64({_word(word + 1)}) << 32u)"
        text, type_ = f"float_of_double({bits}, false)", "f32"
    elif one.dtype is not None and one.dtype.name == "bool":
        text, type_ = f"({text} & 0xffu) != 0u", "bool"
    elif one.size is not None and one.size < 4:
        text = f"{text} & {(1 << 8 * one.size) - 1}u"
    elif one.size == 8:
        limited = f"select({text}, 0xffffffffu, {_word(word + 1)} != 0u)"
        more = f"\nfn {one.name}_limited() -> u32 {{ return {limited}; }}"
    return f"fn {one.name}() -> {type_} {{ return {text}; }}{more}"


def _report(name: str, word: int, binding: int) -> Iterator[str]:
    """`report_index`: the first wrong index fills the record, as `uhal/fault.h` lays it out."""
    where = f"@group(0) @binding({binding + 1}) var<storage, read_write>"
    entry = struct.unpack("<8I", name.encode()[:31].ljust(32, b"\0"))
    record = ["position", "0u", "value.x", "value.y", "bound", "0u", *(f"{one}u" for one in entry)]
    yield f"{where} {FAULT}: array<atomic<u32>>;"
    yield "fn report_index(position: u32, value: vec2<u32>, bound: u32) {"
    yield f"  if ({_word(word + 1)} == 0u) {{ return; }}"
    yield f"  let at = {_word(word)} >> 2u;"
    yield "  loop {"
    yield f"    let found = atomicCompareExchangeWeak(&{FAULT}[at], 0u, 1u);"
    yield "    if (found.exchanged) { break; }"
    # A weak exchange may fail without a reason.
    yield "    if (found.old_value != 0u) { return; }"
    yield "  }"
    for index, value in enumerate(record):
        yield f"  atomicStore(&{FAULT}[at + {index + 2}u], {value});"
    yield f"  atomicStore(&{FAULT}[at], 2u);"
    yield "}"


def _pointer(one: Parameter, word: int, binding: int) -> Iterator[str]:
    name = one.name
    dtype = one.dtype.name if one.dtype is not None else ""
    shared = dtype in _SHORT and not one.is_const
    element = "atomic<u32>" if shared else "u32"
    where = f"@group(0) @binding({binding + 1}) var<storage, read_write>"
    yield f"{where} {name}: array<{element}>;"
    yield f"fn {name}_at() -> u32 {{ return {_word(word)}; }}"
    yield f"fn {name}_is_null() -> bool {{ return {_word(word + 1)} == 0u; }}"
    if dtype == "f32":
        stored = f"{name}[({name}_at() >> 2u) + i]"
        yield f"fn {name}_load(i: u32) -> f32 {{ return bitcast<f32>({stored}); }}"
        pair = f"vec2<f32>({name}_load(i), {name}_load(i + 1u))"
        yield f"fn {name}_pair(i: u32) -> vec2<f32> {{ return {pair}; }}"
        if not one.is_const:
            yield f"fn {name}_store(i: u32, value: f32) {{ {stored} = bitcast<u32>(value); }}"
    elif dtype in _SHORT:
        number, numbers, bits = _SHORT[dtype]
        at = f"let at = {name}_at() + 2u * i;"
        half = "((at & 2u) << 3u)"
        found = f"atomicLoad(&{name}[at >> 2u])" if shared else f"{name}[at >> 2u]"
        value = f"{number}(({found} >> {half}) & 0xffffu)"
        yield f"fn {name}_load(i: u32) -> f32 {{ {at} return {value}; }}"
        yield f"fn {name}_pair(i: u32) -> vec2<f32> {{ {at} return {numbers}({found}); }}"
        if shared:
            differs = f"((({found} >> {half}) ^ {bits}(value)) & 0xffffu) << {half}"
            change = f"atomicXor(&{name}[at >> 2u], {differs});"
            yield f"fn {name}_store(i: u32, value: f32) {{ {at} {change} }}"
