"""Facts about a kernel's parameters, and the grammar to declare them.

A fact is known or it is `None`; nothing is guessed here. Facts come from the image, from a
sidecar file or from the caller, and `merge` puts them together.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import overload

from uhal._parameter import POINTER_BYTES as POINTER_BYTES
from uhal._parameter import Parameter as Parameter
from uhal._parameter import ParameterKind as ParameterKind
from uhal._signature_text import parse_parameters
from uhal.errors import ArgumentTypeError, ArgumentValueError


class Signature(Sequence[Parameter]):
    """The parameters of a kernel, in order. Immutable.

    `str(signature)` is the grammar that `Signature.parse` reads, with a comment about the sources
    of the facts.
    """

    # With docstrings, for `help` and `inspect.getdoc`.
    __slots__ = {
        "_parameters": "",
        "entry": "The kernel's name, `None` when it was not given one.",
        "names": "The parameters' names; an empty text for a parameter without one.",
    }

    entry: str | None
    names: tuple[str, ...]

    def __init__(self, parameters: Iterable[Parameter], entry: str | None = None) -> None:
        self._parameters = tuple(parameters)
        self.entry = entry
        self.names = tuple([one.name or "" for one in self._parameters])
        for position, parameter in enumerate(self._parameters):
            if parameter.index != position:
                raise ArgumentValueError(
                    f"{_of(entry)}: parameter at position {position} has index {parameter.index}"
                )

    @classmethod
    def parse(
        cls, text: str, *, entry: str | None = None, source: str = "declaration"
    ) -> Signature:
        """Read `"u64 n, const f32* x, ptr y, bytes[12] shape"`.

        Names are optional, types are ours or C's, `ptr` is a pointer to anything, `bytes[N]` an
        aggregate; outer parentheses and `#` comments are ignored. Offsets are C's natural ones as
        far as sizes and alignments are known. Raises `ArgumentValueError`, which says where the
        mistake is.
        """
        return cls(with_natural_offsets(parse_parameters(text, entry, source)), entry)

    @staticmethod
    def parse_sidecar(text: str, *, source: str = "sidecar") -> dict[str, Signature]:
        """Read a `.sig` file: one `entry: parameters` a line.

        `#` starts a comment.
        """
        signatures: dict[str, Signature] = {}
        for number, line in enumerate(text.splitlines(), 1):
            content = line.partition("#")[0].strip()
            if not content:
                continue
            entry, colon, parameters = content.partition(":")
            entry = entry.strip()
            if not colon or not entry or " " in entry:
                raise ArgumentValueError(
                    f"{source}, line {number}: expected 'entry: parameters', got {content!r}"
                )
            if entry in signatures:
                raise ArgumentValueError(f"{source}, line {number}: {entry} is described twice")
            try:
                signatures[entry] = Signature.parse(parameters, entry=entry, source=source)
            except ArgumentValueError as error:
                raise ArgumentValueError(f"{source}, line {number}: {error}") from None
        return signatures

    @property
    def total_bytes(self) -> int | None:
        """Bytes of the parameter block; `None` if unknown."""
        end = 0
        for parameter in self._parameters:
            if parameter.offset is None or parameter.size is None:
                return None
            end = max(end, parameter.offset + parameter.size)
        return end

    @property
    def declaration(self) -> str:
        """The parameters in the grammar, without the sources of the facts."""
        return ", ".join(str(parameter) for parameter in self._parameters)

    @overload
    def __getitem__(self, index: int) -> Parameter: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Parameter, ...]: ...
    def __getitem__(self, index: int | slice) -> Parameter | tuple[Parameter, ...]:
        return self._parameters[index]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            raise ArgumentTypeError(
                "operator ==: expected two Signatures, got Signature and str. Compare "
                "signature.declaration."
            )
        if not isinstance(other, Signature):
            return NotImplemented
        return self._parameters == other._parameters and self.entry == other.entry

    def __hash__(self) -> int:
        return hash((self._parameters, self.entry))

    def __str__(self) -> str:
        if not self._parameters:
            return "# no parameters"
        runs: list[tuple[int, int, str]] = []
        for parameter in self._parameters:
            if runs and runs[-1][2] == parameter.source:
                runs[-1] = (runs[-1][0], parameter.index, parameter.source)
            else:
                runs.append((parameter.index, parameter.index, parameter.source))
        if len(runs) == 1:
            return f"{self.declaration}  # {runs[0][2]}"
        reported = "; ".join(
            f"{first}: {source}" if first == last else f"{first}-{last}: {source}"
            for first, last, source in runs
        )
        return f"{self.declaration}  # {reported}"

    def __repr__(self) -> str:
        return f"Signature.parse({self.declaration!r}, entry={self.entry!r})"


class LazySignatures(Mapping[str, Signature]):
    """Signatures by kernel, each computed at its first look-up. Any thread may use it.

    Following the registers of a large PTX text takes long, and few programs use all its kernels. A
    look-up may raise the errors of `make`, which reads a signature.
    """

    def __init__(self, names: Iterable[str], make: Callable[[str], Signature]) -> None:
        self._made: dict[str, Signature | None] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Signature:
        signature = self._made[name]
        if signature is None:
            signature = self._made[name] = self._make(name)
        return signature

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


_FACTS = {"is_const": "const", "is_integer": "integer"}
"""Names of facts in messages, where they differ from the fields' names."""


def merge(image: Signature | None, declared: Signature | None) -> Signature | None:
    """Merge two descriptions of one kernel; the image's facts stand.

    Raises `ArgumentValueError` with both descriptions if they contradict each other: in the number
    of parameters, in a name, kind, size, offset or dtype. The image's constness stands if the image
    has it.
    """
    if image is None or declared is None:
        return image if declared is None else declared
    entry = image.entry if image.entry is not None else declared.entry
    if len(image) != len(declared):
        raise ArgumentValueError(
            f"{_of(entry)}: {_source_of(image)} has {len(image)} parameters ({image.declaration}), "
            f"{_source_of(declared)} has {len(declared)} ({declared.declaration})"
        )
    pairs = zip(image, declared, strict=True)
    return Signature((_merge_parameter(entry, first, second) for first, second in pairs), entry)


def _merge_parameter(entry: str | None, image: Parameter, declared: Parameter) -> Parameter:
    added: dict[str, object] = {}
    kinds_differ = image.kind != declared.kind
    if kinds_differ and "unknown" not in (image.kind, declared.kind):
        _contradiction(entry, "kind", image, declared)
    if kinds_differ and image.kind == "unknown":
        added["kind"] = declared.kind
    for fact in ("name", "size", "offset", "dtype"):
        known = getattr(image, fact)
        reported = getattr(declared, fact)
        if known is None and reported is not None:
            added[fact] = reported
        # A declaration's offsets are computed; a packed or reordered image's are known.
        elif known is not None and reported is not None and known != reported and fact != "offset":
            _contradiction(entry, fact, image, declared)
    _merge_integer(entry, image, declared, added)
    if image.is_const is None and declared.is_const is not None:
        added["is_const"] = declared.is_const
    if not added:
        return image
    added_facts = [fact for fact, value in added.items() if value is not None]
    facts = ", ".join(_FACTS.get(fact, fact) for fact in added_facts)
    merged = replace(image, is_pointer=None, **added)  # type: ignore[arg-type]
    return replace(merged, source=f"{image.source}, {facts} from {declared.source}")


def _merge_integer(
    entry: str | None, image: Parameter, declared: Parameter, added: dict[str, object]
) -> None:
    """A merge gives an integer of unknown sign its sign, but never makes it a float."""
    for one, other in ((image, declared), (declared, image)):
        if one.is_integer and other.dtype is not None and other.dtype.kind == "float":
            _contradiction(entry, "type", image, declared)
    if "dtype" in added:
        added["is_integer"] = None
    elif declared.is_integer and image.dtype is None and not image.is_integer:
        added["is_integer"] = True


def with_natural_offsets(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Give each parameter a C compiler's offset, up to the first unknown alignment."""
    placed: list[Parameter] = []
    end: int | None = 0
    for parameter in parameters:
        size = parameter.size
        aligned = parameter.kind in ("pointer", "scalar") and size is not None
        if end is None or not (aligned or end == 0):
            offset = None
        else:
            offset = -(-end // size) * size if aligned and size else end
        placed.append(replace(parameter, offset=offset))
        end = None if offset is None or size is None else offset + size
    return placed


def _contradiction(entry: str | None, fact: str, image: Parameter, declared: Parameter) -> None:
    raise ArgumentValueError(
        f"{_of(entry)}: parameter {image.index} is '{image}' by the {image.source} and "
        f"'{declared}' by the {declared.source}: they differ in {fact}"
    )


def _of(entry: str | None) -> str:
    return "signature" if entry is None else f"signature of {entry}"


def _source_of(signature: Signature) -> str:
    return f"the {signature[0].source}" if signature else "one"


def call_signature(signature: Signature | None) -> inspect.Signature:
    """Return the kernel's call as `inspect.Signature`, with typed positional parameters.

    A parameter without a usable name is `argument` and its number. An unknown signature gives
    `*args`.
    """
    kind = inspect.Parameter
    if signature is None:
        return inspect.Signature([kind("args", kind.VAR_POSITIONAL)])
    names: list[str] = []
    for parameter in signature:
        name = parameter.name or ""
        is_fit = name.isidentifier() and not keyword.iskeyword(name) and name not in names
        names.append(name if is_fit else f"argument{parameter.index}")
    return inspect.Signature(
        [
            kind(name, kind.POSITIONAL_ONLY, annotation=parameter.type_text)
            for name, parameter in zip(names, signature, strict=True)
        ]
    )
