"""Reads PTX, NVIDIA's assembly text: what it was made for, its kernels and their parameters.

PTX tells the size, alignment and offset of every parameter, but before `sm_100` a pointer and a
64-bit integer look the same, and both 16-bit floats are two bytes. `ptx_addresses` finds pointers
by their use. `<uhal/kernel.h>` leaves a constant that tells the rest, our builds comment lines:

    //uhal.sig saxpy: u64 n, f32 a, const f32* x, f32* y

Everything is found in passes that are linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

from uhal.dtypes import as_dtype
from uhal.errors import ArgumentValueError, InvalidImageError
from uhal.images import header_signature
from uhal.images.ptx_addresses import AddressUse, classify_words
from uhal.images.ptx_numbers import classify_numbers
from uhal.signature import POINTER_BYTES, LazySignatures, Parameter, ParameterKind, Signature, merge

MAX_BYTES = 256 << 20
MAX_PARAMETERS = 4096
MAX_PARAMETER_BYTES = 32764
"""Of all parameters of a kernel together: the most any PTX version allows."""
MAX_DECLARATION = 4096
"""Characters of one declared variable; names take most of them."""
MAX_NAME = 1 << 16
"""Characters of a kernel's name; templates make names of some thousands."""
MAX_PREFACE = 1 << 18
"""Bytes of comments and blanks before `.version` in which `is_ptx` looks for it."""
SIGNATURE_MARK = "//uhal.sig "

Extent = tuple[int, int, int]

_COMMENT_OR_STRING = re.compile(r'//|/\*|"')
_LINE_DIRECTIVE = re.compile(r"^[ \t]*\.(?:loc|file)\s[^\n]*", re.MULTILINE)
"""The two directives inside a body that no semicolon ends."""
_BREAK = re.compile(r'[;{}"]')
_HEADER = re.compile(
    r"\s*\.version\s+(\d{1,3})\.(\d{1,3})\s+\.target\s+(\w+)\s*(?:,\s*\w+\s*){0,16}(?=\.|$)"
)
_ADDRESS_SIZE = re.compile(r"\s*\.address_size\s+(\d{1,3})\b")
_ENTRY_NAME = re.compile(r"\.entry\s+([\w$%]+)\s*")
_FUNCTION = re.compile(r"(?:^|\s)\.(?:entry|func)\s")
_PARAMETER = re.compile(
    r"\s*\.param\s+(?:\.align\s+(\d{1,3})\s+)?\.(\w+)\s+"
    r"(\.ptr\s*(?:\.(\w+)\s*)?(?:\.align\s+\d{1,4}\s*)?)?"
    r"([\w$%]+)(?:\s*\[\s*(\d{1,6})\s*\])?$"
)
_EXTENT = re.compile(
    r"\.(maxntid|reqntid)\s+(\d{1,10})(?:\s*,\s*(\d{1,10}))?(?:\s*,\s*(\d{1,10}))?"
)
_SHARED = re.compile(
    r"(?:\.(?:visible|weak)\s+)?\.shared\s+(?:\.align\s+(\d{1,4})\s+)?\.(\w+)\s+"
    r"([\w$%]+)\s*((?:\[\s*\d{1,9}\s*\]\s*)*)$"
)
_HEADER_SIGNATURE = re.compile(
    r"\.b8\s+" + header_signature.PREFIX + r"([\w$]+)\s*\[\s*\d{1,6}\s*\]\s*=\s*\{([\d,\s]*)\}"
)
_BLANKS = re.compile(rb"[ \t\r\n\v\f]*")
_WIDTH = re.compile(r"[a-z]+(8|16|32|64|128)$")

_FLOATS = {"f16": "f16", "f32": "f32", "f64": "f64"}
_UNTYPED = ("b16", "b32", "b64")
_BY_ITS_USE = "PTX by its use"
_OPAQUE = ("texref", "samplerref", "surfref")


@dataclass(frozen=True)
class PtxEntry:
    """A kernel of a PTX text."""

    name: str
    _make_signature: Callable[[], Signature] = field(repr=False, compare=False)
    static_shared_bytes: int
    """Shared memory the kernel declares or names; what functions it calls use is not in it."""
    max_block: Extent | None = None
    """`.maxntid`: its product is the most threads of a block."""
    required_block: Extent | None = None
    """`.reqntid`: the only block the kernel may be launched with."""

    @cached_property
    def signature(self) -> Signature:
        """Of the text and its `//uhal.sig` line together.

        `InvalidImageError` when a pointer of the line is an integer by its use, or the reverse.
        """
        return self._make_signature()


@dataclass(frozen=True)
class PtxImage:
    """What a PTX text says of itself."""

    version: tuple[int, int]
    target: str
    """As written: `sm_75`, `sm_90a`, `sm_100f`."""
    address_size: int
    entries: tuple[PtxEntry, ...]

    @property
    def signatures(self) -> LazySignatures:
        """Entry name to signature, in the text's order."""
        entries = {entry.name: entry for entry in self.entries}
        return LazySignatures(entries, lambda name: entries[name].signature)


def is_ptx(image: bytes) -> bool:
    """Say whether the bytes begin as PTX does: with `.version`, after comments and blanks.

    Looks at the first `MAX_PREFACE` bytes and no further.
    """
    image = image[:MAX_PREFACE]
    position = 0
    while True:
        position = _skip_blanks(image, position)
        if image.startswith(b"//", position):
            end = image.find(b"\n", position)
        elif image.startswith(b"/*", position):
            end = image.find(b"*/", position + 2) + 1
        else:
            return image.startswith(b".version", position)
        if end <= 0:
            return False
        position = end + 1


def read_ptx(image: bytes) -> PtxImage:
    """Read a PTX text; a NUL ends it.

    Raises `InvalidImageError` when it is no PTX, breaks off, declares impossible parameters, or
    contradicts its own `//uhal.sig` lines.
    """
    if len(image) > MAX_BYTES:
        _fail(f"it has {len(image)} bytes, more than the {MAX_BYTES} that are read")
    # Names and directives are ASCII; comments and strings may hold anything.
    text = image.partition(b"\0")[0].decode("latin-1")
    code = _LINE_DIRECTIVE.sub("", _without_comments(text))
    header = _HEADER.match(code)
    if header is None:
        _fail("it does not begin with .version and .target")
    size = _ADDRESS_SIZE.match(code, header.end())
    start = header.end() if size is None else size.end()
    raw_entries = _collect(_statements(code, start))
    declared = _declared_signatures(text)
    told = _header_signatures(code)
    unknown = sorted(set(declared) - {raw.name for raw in raw_entries})
    if unknown:
        _fail(f"a //uhal.sig line describes {unknown[0]!r}, which it has not")
    return PtxImage(
        version=(int(header[1]), int(header[2])),
        target=header[3],
        # Without the directive PTX means the compiler's default, which has long been 64 bits.
        address_size=64 if size is None else int(size[1]),
        entries=tuple(
            _entry(raw, _both(told.get(raw.name), declared.get(raw.name))) for raw in raw_entries
        ),
    )


# -- text to statements ----------------------------------------------------------------------------


def _skip_blanks(image: bytes, position: int) -> int:
    found = _BLANKS.match(image, position)
    assert found is not None
    return found.end()


def _without_comments(text: str) -> str:
    kept: list[str] = []
    position = 0
    while True:
        found = _COMMENT_OR_STRING.search(text, position)
        if found is None:
            kept.append(text[position:])
            return "".join(kept)
        mark = found[0]
        if mark == '"':
            end = _string_end(text, found.end())
            kept.append(text[position:end])
        elif mark == "//":
            kept.append(text[position : found.start()])
            end = text.find("\n", found.end())
            end = len(text) if end < 0 else end
        else:
            kept.append(text[position : found.start()] + " ")
            end = text.find("*/", found.end()) + 2
            if end < 2:
                _fail("a comment is never closed")
        position = end


def _string_end(text: str, position: int) -> int:
    end = text.find('"', position)
    if end < 0:
        _fail("a string is never closed")
    return end + 1


def _statements(code: str, position: int) -> Iterator[tuple[str, str]]:
    """Yield (text, what ended it): `;`, `{` for a block that opens after it, `}` for its end.

    Braces within a statement (vectors, initializers) stay part of it.
    """
    start = position
    inner = 0
    has_braces = False
    while True:
        found = _BREAK.search(code, position)
        if found is None:
            break
        position = found.end()
        mark = found[0]
        if mark == '"':
            position = _string_end(code, position)
            continue
        if mark == "{" and not has_braces:
            has_braces = not _opens_block(code[start : found.start()])
        if inner or (mark == "{" and has_braces):
            inner += {"{": 1, "}": -1}.get(mark, 0)
            continue
        yield code[start : found.start()].strip(), mark
        start = position
        has_braces = False
    if inner or code[start:].strip():
        _fail("it breaks off in the middle of a statement")


def _opens_block(before: str) -> bool:
    """Say whether a `{` after this text begins a block: it follows nothing, a label or a head."""
    head = before.strip()
    if not head or head.endswith(":"):
        return True
    return head.startswith(".section") or _FUNCTION.search(head) is not None


# -- statements to entries -------------------------------------------------------------------------


@dataclass
class _RawEntry:
    name: str
    parameters: str
    directives: str
    body: list[str] = field(default_factory=list)
    shared_bytes: int = 0


def _collect(statements: Iterable[tuple[str, str]]) -> list[_RawEntry]:
    """Gather each entry with the statements of its body."""
    entries: dict[str, _RawEntry] = {}
    module_shared: dict[str, tuple[int, int]] = {}
    current: _RawEntry | None = None
    depth = 0
    for text, ended_by in statements:
        if depth == 0:
            current = _entry_head(text) if ".entry" in text else None
            if current is not None and ended_by == "{":
                if current.name in entries:
                    _fail(f"it defines {current.name!r} twice")
                entries[current.name] = current
            elif text.startswith((".shared", ".visible", ".weak")) and ended_by == ";":
                module_shared.update(_shared_variable(text))
        elif current is not None and text:
            current.body.append(text)
        depth += {"{": 1, "}": -1}.get(ended_by, 0)
        if depth < 0:
            _fail("it closes a block that it has not opened")
    if depth:
        _fail("it breaks off inside a block")
    for entry in entries.values():
        entry.shared_bytes = _shared_bytes(entry.body, module_shared)
    return list(entries.values())


def _entry_head(text: str) -> _RawEntry:
    found = _ENTRY_NAME.match(text, text.find(".entry"))
    if found is None:
        _fail(f"an .entry cannot be read: {text[:80]!r}")
    name = found[1]
    if len(name) > MAX_NAME:
        _fail(f"the name of an .entry has {len(name)} characters, more than {MAX_NAME}")
    parameters, rest = "", text[found.end() :]
    if rest.startswith("("):
        parameters, closed, rest = rest[1:].partition(")")
        if not closed:
            _fail(f"the parameters of {name[:80]!r} are never closed")
    if "(" in parameters or "(" in rest or ")" in rest:
        _fail(f"an .entry cannot be read: {text[:80]!r}")
    return _RawEntry(name, parameters, rest)


def _shared_variable(text: str) -> dict[str, tuple[int, int]]:
    """Return {name: (alignment, bytes)} of a declaration of shared memory, else nothing."""
    found = _SHARED.match(text) if len(text) <= MAX_DECLARATION else None
    if found is None:
        return {}
    element = _width(found[2])
    count = 1
    for extent in re.findall(r"\d+", found[4]):
        count = min(count * int(extent), 1 << 40)
    alignment = int(found[1] or element)
    if not _is_power_of_two(alignment):
        _fail(f"the shared variable {found[3][:80]!r} cannot be aligned to {alignment}")
    return {found[3]: (alignment, count * element)}


def _shared_bytes(body: Iterable[str], module_shared: dict[str, tuple[int, int]]) -> int:
    """Bytes of the shared variables declared in a body or named by it."""
    used: dict[str, tuple[int, int]] = {}
    for text in body:
        if text.startswith(".shared"):
            used.update(_shared_variable(text))
        elif module_shared:
            for name in re.findall(r"[\w$%]+", text):
                if name in module_shared:
                    used[name] = module_shared[name]
    total = 0
    for alignment, size in used.values():
        total = _aligned(total, alignment) + size
    return total


def _entry(raw: _RawEntry, declared: Signature | None) -> PtxEntry:
    extents = {found[1]: found.groups()[1:] for found in _EXTENT.finditer(raw.directives)}
    parameters, names, untyped = _parameters(raw)
    stated = _merged(Signature(parameters, raw.name), declared)
    # A declaration that leaves nothing open saves following the registers.
    told = declared is not None and all(one.kind != "unknown" for one in declared)

    def signature() -> Signature:
        if told or not (names or untyped):
            return stated
        uses = classify_words(names, raw.body)
        # What a declaration says of a number counts more: bits may be worked on as another type's.
        numbers = classify_numbers(
            {
                name: index
                for name, index in untyped.items()
                if declared is None or declared[index].dtype is None
            },
            raw.body,
        )
        described = [
            _with_use(parameter, uses.get(parameter.index), numbers.get(parameter.index, ""))
            for parameter in parameters
        ]
        return _merged(Signature(described, raw.name), declared)

    return PtxEntry(
        raw.name,
        signature,
        raw.shared_bytes,
        max_block=_extent(extents.get("maxntid")),
        required_block=_extent(extents.get("reqntid")),
    )


def _merged(image: Signature, declared: Signature | None) -> Signature:
    try:
        return merge(image, declared) or image
    except ArgumentValueError as error:
        _fail(str(error))


def _extent(numbers: tuple[str | None, ...] | None) -> Extent | None:
    if numbers is None:
        return None
    x, y, z = (min(int(number or 1), 1 << 32) for number in numbers)
    return (x, y, z)


# -- parameters ------------------------------------------------------------------------------------


def _parameters(raw: _RawEntry) -> tuple[list[Parameter], dict[str, int], dict[str, int]]:
    """Return the parameters and, by the text's name, those that may be pointers and the untyped."""
    parts = raw.parameters.split(",") if raw.parameters.strip() else []
    if len(parts) > MAX_PARAMETERS:
        _fail(f"{raw.name!r} has {len(parts)} parameters")
    parameters: list[Parameter] = []
    names: dict[str, int] = {}
    untyped: dict[str, int] = {}
    end = 0
    for index, part in enumerate(map(str.strip, parts)):
        found = _PARAMETER.match(part) if len(part) <= MAX_DECLARATION else None
        if found is None:
            _fail(f"parameter {index} of {raw.name!r} cannot be read: {part[:80]!r}")
        width = _width(found[2])
        size = width * int(found[6]) if found[6] is not None else width
        alignment = int(found[1] or width)
        if not size or not _is_power_of_two(alignment):
            _fail(f"parameter {index} of {raw.name!r} cannot be: {part[:80]!r}")
        offset = _aligned(end, alignment)
        end = offset + size
        if end > MAX_PARAMETER_BYTES:
            _fail(f"the parameters of {raw.name!r} take more than {MAX_PARAMETER_BYTES} bytes")
        kind, dtype = _kind(found[2], size, is_array=found[6] is not None)
        if found[3] and size == 8 and found[4] not in ("shared", "local"):
            kind = "pointer"
        elif kind == "unknown" and size == 8 and found[6] is None:
            names[found[5]] = index
        if kind == "unknown" and found[2] in _UNTYPED and found[6] is None:
            untyped[found[5]] = index
        parameters.append(
            Parameter(
                index,
                kind=kind,
                size=size,
                offset=offset,
                dtype=None if dtype is None else as_dtype(dtype),
                is_integer=True if kind == "scalar" and dtype is None else None,
                source="PTX",
            )
        )
    return parameters, names, untyped


def _kind(type_name: str, size: int, *, is_array: bool) -> tuple[ParameterKind, str | None]:
    """What a PTX type tells. The sign of an integer is not among it: compilers write `.u32`."""
    if is_array:
        # f16, bf16 and f8 are byte arrays too, and so is a structure of one pointer.
        return ("unknown" if size in (1, 2, 8) else "aggregate"), None
    if type_name in _FLOATS:
        return "scalar", _FLOATS[type_name]
    if type_name[0] in "us" and size < 8:
        return "scalar", None
    return "unknown", None


def _with_use(parameter: Parameter, use: AddressUse | None, number: str) -> Parameter:
    """A parameter with what its use tells: as part of an address, or as a number.

    Arithmetic on 64-bit integers says nothing by itself: addresses are made by it.
    """
    if use == "pointer":
        return replace(parameter, kind="pointer", is_pointer=None, source=_BY_ITS_USE)
    dtype = as_dtype(number) if number not in ("", "integer") else None
    if dtype is not None and dtype.itemsize == parameter.size:
        return replace(parameter, kind="scalar", is_pointer=None, dtype=dtype, source=_BY_ITS_USE)
    if use == "integer" or (number == "integer" and parameter.size != POINTER_BYTES):
        return replace(
            parameter, kind="scalar", is_pointer=None, is_integer=True, source=_BY_ITS_USE
        )
    return parameter


def _width(type_name: str) -> int:
    """Bytes of a PTX type."""
    if type_name in _OPAQUE:
        return 8
    found = _WIDTH.match(type_name)
    if found is None:
        _fail(f"it uses the type .{type_name[:20]}, which is unknown")
    return int(found[1]) // 8


def _declared_signatures(text: str) -> dict[str, Signature]:
    lines = [
        line[len(SIGNATURE_MARK) :] for line in text.splitlines() if line.startswith(SIGNATURE_MARK)
    ]
    try:
        return Signature.parse_sidecar("\n".join(lines), source="//uhal.sig")
    except ArgumentValueError as error:
        _fail(str(error))


def _header_signatures(code: str) -> dict[str, Signature]:
    """What the constants that `<uhal/kernel.h>` left say, by entry."""
    told: dict[str, Signature] = {}
    for found in _HEADER_SIGNATURE.finditer(code):
        if len(found[2]) > 6 * header_signature.MAX_BYTES:
            _fail(f"{header_signature.PREFIX}{found[1]} is too long")
        characters = [int(number) for number in re.findall(r"\d{1,9}", found[2])]
        if max(characters, default=0) > 0xFF:
            _fail(f"{header_signature.PREFIX}{found[1]} holds no bytes")
        told[found[1]] = header_signature.read_signature(found[1], bytes(characters))
    return told


def _both(told: Signature | None, declared: Signature | None) -> Signature | None:
    """The header's word and the comment's."""
    return declared if told is None else _merged(told, declared)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _fail(problem: str) -> NoReturn:
    raise InvalidImageError(f"this PTX cannot be read: {problem}")
