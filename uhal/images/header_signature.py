"""Reads the constants in which `<uhal/kernel.h>` records each kernel's parameters.

For a kernel `saxpy` the constant is `uhal_signature_saxpy`. `uhal/include/uhal/signature.h` makes
it and documents its contents. The image's own facts take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from uhal.errors import ArgumentValueError, InvalidImageError
from uhal.images.host_module import CONST, POINTER, ParameterFacts, signature_of
from uhal.signature import Signature, merge

PREFIX = "uhal_signature_"
MAX_BYTES = 1 << 16
"""Bytes of one constant: 4096 bytes of parameters are at most 4096 parameters."""
SOURCE = "kernel.h"

_PARAMETER = re.compile(r"([pcv])([?bBhHiIqQ8egfd-])([0-9a-f]{4})")
_FLAGS = {"p": POINTER, "c": POINTER | CONST, "v": 0}


def read_signature(entry: str, constant: bytes) -> Signature:
    """Decode a kernel's constant. Raises `InvalidImageError` for a damaged constant."""
    codes, bar, text = constant[:MAX_BYTES].partition(b"\0")[0].decode("latin-1").partition("|")
    if not bar or len(codes) % 6:
        raise _damaged(entry)
    facts: list[ParameterFacts] = []
    for start in range(0, len(codes), 6):
        found = _PARAMETER.fullmatch(codes, start, start + 6)
        if found is None:
            raise _damaged(entry)
        size = int(found[3], 16)
        dtype = 0 if found[2] == "-" else ord(found[2])
        facts.append(ParameterFacts(size, 1, _FLAGS[found[1]], dtype))
    try:
        reported = signature_of(entry, text, facts)
    except ArgumentValueError as error:
        raise InvalidImageError(f"{PREFIX}{entry}: {error}") from error
    # Only the image knows the parameters' offsets.
    return Signature((replace(one, offset=None, source=SOURCE) for one in reported), entry)


def with_header(image: Signature, constants: Mapping[str, bytes]) -> Signature:
    """Return a kernel's signature, merged with its constant in `constants` (by entry).

    Raises `InvalidImageError` if the two contradict each other.
    """
    constant = constants.get(image.entry or "")
    if constant is None:
        return image
    reported = read_signature(image.entry or "", constant)
    try:
        return merge(image, reported) or image
    except ArgumentValueError as error:
        raise InvalidImageError(str(error)) from error


def _damaged(entry: str) -> InvalidImageError:
    return InvalidImageError(f"{PREFIX}{entry} is damaged")
