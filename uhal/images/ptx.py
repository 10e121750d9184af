"""Reads PTX, NVIDIA's assembly text: its target, its kernels and their parameters.

PTX has the size, alignment and offset of every parameter. Before `sm_100` a pointer and a 64-bit
integer look the same, and both 16-bit floats are two bytes. `ptx_addresses` finds pointers by their
use. `<uhal/kernel.h>` records the other facts in a constant, and uhal's builds record them in
comment lines:

    //uhal.sig saxpy: u64 n, f32 a, const f32* x, f32* y

All passes take time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from uhal.errors import ArgumentValueError
from uhal.images import header_signature
from uhal.images.ptx_addresses import classify_words
from uhal.images.ptx_numbers import classify_numbers
from uhal.images.ptx_parameters import (
    MAX_DECLARATION,
    aligned,
    is_power_of_two,
    read_parameters,
    width_of,
    with_use,
)
from uhal.images.ptx_text import code_of, fail, statements
from uhal.kept import kept_property
from uhal.signature import LazySignatures, Signature, merge

MAX_BYTES = 256 << 20
MAX_NAME = 1 << 16
"""Characters of a kernel's name; templates make names of some thousands."""
MAX_PREFACE = 1 << 18
"""Most bytes of comments and blanks that `is_ptx` accepts before `.version`."""
SIGNATURE_MARK = "//uhal.sig "

Extent = tuple[int, int, int]

_HEADER = re.compile(
    r"\s*\.version\s+(\d{1,3})\.(\d{1,3})\s+\.target\s+(\w+)\s*(?:,\s*\w+\s*){0,16}(?=\.|$)"
)
_ADDRESS_SIZE = re.compile(r"\s*\.address_size\s+(\d{1,3})\b")
_ENTRY_NAME = re.compile(r"\.entry\s+([\w$%]+)\s*")
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


@dataclass(frozen=True)
class PtxEntry:
    """A kernel of a PTX text."""

    name: str
    _make_signature: Callable[[], Signature] = field(repr=False, compare=False)
    static_shared_bytes: int
    """Shared memory that the kernel declares or names; called functions may need more."""
    max_block: Extent | None = None
    """`.maxntid`: the product is the largest number of threads of a block."""
    required_block: Extent | None = None
    """`.reqntid`: the only block the kernel may be launched with."""

    @kept_property
    def signature(self) -> Signature:
        """The signature from the text and its `//uhal.sig` line together.

        `InvalidImageError` if a pointer in the line is used as an integer, or the reverse.
        """
        return self._make_signature()


@dataclass(frozen=True)
class PtxImage:
    """Description of a PTX text, from the text."""

    version: tuple[int, int]
    target: str
    """Spelling in the text: `sm_75`, `sm_90a`, `sm_100f`."""
    address_size: int
    entries: tuple[PtxEntry, ...]

    @property
    def signatures(self) -> LazySignatures:
        """Maps an entry's name to its signature, in the text's order."""
        entries = {entry.name: entry for entry in self.entries}
        return LazySignatures(entries, lambda name: entries[name].signature)


def is_ptx(image: bytes) -> bool:
    """Say whether the bytes begin like PTX: with `.version`, after comments and blanks.

    Examines only the first `MAX_PREFACE` bytes.
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


def _skip_blanks(image: bytes, position: int) -> int:
    found = _BLANKS.match(image, position)
    assert found is not None
    return found.end()


def read_ptx(image: bytes) -> PtxImage:
    """Read a PTX text; a NUL ends it.

    Raises `InvalidImageError` if it is no PTX, is truncated, declares impossible parameters, or
    contradicts its own `//uhal.sig` lines.
    """
    if len(image) > MAX_BYTES:
        fail(f"it has {len(image)} bytes, more than the {MAX_BYTES} that are read")
    # Names and directives are ASCII; comments and strings may hold anything.
    text = image.partition(b"\0")[0].decode("latin-1")
    code = code_of(text)
    header = _HEADER.match(code)
    if header is None:
        fail("it does not begin with .version and .target")
    size = _ADDRESS_SIZE.match(code, header.end())
    start = header.end() if size is None else size.end()
    raw_entries = _collect(statements(code, start))
    declared = _declared_signatures(text)
    reported = _header_signatures(code)
    unknown = sorted(set(declared) - {raw.name for raw in raw_entries})
    if unknown:
        fail(f"a //uhal.sig line describes {unknown[0]!r}, which it has not")
    return PtxImage(
        version=(int(header[1]), int(header[2])),
        target=header[3],
        # Without the directive the compiler's default applies, which is 64 bits.
        address_size=64 if size is None else int(size[1]),
        entries=tuple(
            _entry(raw, _both(reported.get(raw.name), declared.get(raw.name)))
            for raw in raw_entries
        ),
    )


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
                    fail(f"it defines {current.name!r} twice")
                entries[current.name] = current
            elif text.startswith((".shared", ".visible", ".weak")) and ended_by == ";":
                module_shared.update(_shared_variable(text))
        elif current is not None and text:
            current.body.append(text)
        depth += {"{": 1, "}": -1}.get(ended_by, 0)
        if depth < 0:
            fail("it closes a block that it has not opened")
    if depth:
        fail("it breaks off inside a block")
    for entry in entries.values():
        entry.shared_bytes = _shared_bytes(entry.body, module_shared)
    return list(entries.values())


def _entry_head(text: str) -> _RawEntry:
    found = _ENTRY_NAME.match(text, text.find(".entry"))
    if found is None:
        fail(f"an .entry cannot be read: {text[:80]!r}")
    name = found[1]
    if len(name) > MAX_NAME:
        fail(f"the name of an .entry has {len(name)} characters, more than {MAX_NAME}")
    parameters, rest = "", text[found.end() :]
    if rest.startswith("("):
        parameters, closed, rest = rest[1:].partition(")")
        if not closed:
            fail(f"the parameters of {name[:80]!r} are never closed")
    if "(" in parameters or "(" in rest or ")" in rest:
        fail(f"an .entry cannot be read: {text[:80]!r}")
    return _RawEntry(name, parameters, rest)


def _shared_variable(text: str) -> dict[str, tuple[int, int]]:
    """Return {name: (alignment, bytes)} of a declaration of shared memory, else nothing."""
    found = _SHARED.match(text) if len(text) <= MAX_DECLARATION else None
    if found is None:
        return {}
    element = width_of(found[2])
    count = 1
    for extent in re.findall(r"\d+", found[4]):
        count = min(count * int(extent), 1 << 40)
    alignment = int(found[1] or element)
    if not is_power_of_two(alignment):
        fail(f"the shared variable {found[3][:80]!r} cannot be aligned to {alignment}")
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
        total = aligned(total, alignment) + size
    return total


def _entry(raw: _RawEntry, declared: Signature | None) -> PtxEntry:
    extents = {found[1]: found.groups()[1:] for found in _EXTENT.finditer(raw.directives)}
    parameters, names, untyped = read_parameters(raw.name, raw.parameters)
    stated = _merged(Signature(parameters, raw.name), declared)
    # With a complete declaration the registers need not be followed.
    reported = declared is not None and all(one.kind != "unknown" for one in declared)

    def signature() -> Signature:
        if reported or not (names or untyped):
            return stated
        uses = classify_words(names, raw.body)
        # A number's declaration takes precedence, because code may use its bits as another type.
        numbers = classify_numbers(
            {
                name: index
                for name, index in untyped.items()
                if declared is None or declared[index].dtype is None
            },
            raw.body,
        )
        described = [
            with_use(parameter, uses.get(parameter.index), numbers.get(parameter.index, ""))
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
        fail(str(error))


def _extent(numbers: tuple[str | None, ...] | None) -> Extent | None:
    if numbers is None:
        return None
    x, y, z = (min(int(number or 1), 1 << 32) for number in numbers)
    return (x, y, z)


def _declared_signatures(text: str) -> dict[str, Signature]:
    lines = [
        line[len(SIGNATURE_MARK) :] for line in text.splitlines() if line.startswith(SIGNATURE_MARK)
    ]
    try:
        return Signature.parse_sidecar("\n".join(lines), source="//uhal.sig")
    except ArgumentValueError as error:
        fail(str(error))


def _header_signatures(code: str) -> dict[str, Signature]:
    """Signatures from the constants of `<uhal/kernel.h>`, by entry."""
    reported: dict[str, Signature] = {}
    for found in _HEADER_SIGNATURE.finditer(code):
        if len(found[2]) > 6 * header_signature.MAX_BYTES:
            fail(f"{header_signature.PREFIX}{found[1]} is too long")
        characters = [int(number) for number in re.findall(r"\d{1,9}", found[2])]
        if max(characters, default=0) > 0xFF:
            fail(f"{header_signature.PREFIX}{found[1]} holds no bytes")
        reported[found[1]] = header_signature.read_signature(found[1], bytes(characters))
    return reported


def _both(reported: Signature | None, declared: Signature | None) -> Signature | None:
    """The signature from the header's constant, merged with the comment's."""
    return declared if reported is None else _merged(reported, declared)
