"""Finds the image to load in a user's image: PTX, a cubin, or a fatbin of several, also gzipped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cuda_backend.targets import DeviceTarget, judge_cubin, judge_ptx
from uhal.contract import MESSAGES, Chosen
from uhal.errors import ArgumentValueError, InvalidImageError, NotSupportedError
from uhal.images.chooser import Fit, Judgement, choose
from uhal.images.cubin import CubinImage, is_cubin, read_cubin
from uhal.images.fatbin import FatbinEntry, is_fatbin, read_fatbin
from uhal.images.gzipped import unpacked
from uhal.images.ptx import PtxImage, is_ptx, read_ptx
from uhal.signature import LazySignatures, Signature, merge

_HIDDEN_MESSAGES = re.compile(rb"^\.global [^;\n]*\b" + MESSAGES + rb"\b", re.MULTILINE)


@dataclass(frozen=True)
class Selection:
    """The bytes for the driver, and their description."""

    payload: bytes
    chosen: Chosen
    signatures: Mapping[str, Signature]


@dataclass(frozen=True)
class _Candidate:
    judgement: Judgement
    payload: bytes | None
    """`None` if the payload cannot be decompressed here."""
    contents: PtxImage | CubinImage | None


def select(image: bytes, device: DeviceTarget) -> Selection:
    """Choose the image for a device.

    `image` is in one of the three formats, plain or compressed by gzip. Raises `InvalidImageError`
    for other and for damaged bytes, and with every image listed when none fits.
    """
    image = unpacked(image, "this CUDA image")
    if is_fatbin(image):
        candidates = [_in_fatbin(entry, device) for entry in read_fatbin(image)]
    elif is_cubin(image):
        candidates = [_cubin(image, device)]
    elif is_ptx(image):
        candidates = [_ptx(image, device)]
    else:
        raise InvalidImageError(
            f"this is no CUDA image: expected PTX, a cubin or a fatbin, got {len(image)} bytes "
            f"that begin with {image[:8]!r}"
        )
    index, chosen = choose([candidate.judgement for candidate in candidates], str(device))
    winner = candidates[index]
    if winner.payload is None:
        # The driver has its own zstd, so the driver gets the whole file and chooses alike.
        return Selection(image, chosen, {})
    return Selection(winner.payload, chosen, _signatures(winner, candidates))


def _ptx(image: bytes, device: DeviceTarget) -> _Candidate:
    contents = read_ptx(image)
    if MESSAGES in image:
        # Without -rdc=true nvcc keeps every variable to the module.
        image = _HIDDEN_MESSAGES.sub(rb".visible \g<0>", image)
    description = f"PTX {contents.version[0]}.{contents.version[1]} for {contents.target}"
    if contents.address_size != 64:
        reason = f"{contents.address_size}-bit addresses; this driver takes 64-bit code only"
        return _Candidate(Judgement(description, Fit.REFUSED, reason), image, contents)
    judgement = judge_ptx(description, contents.version, contents.target, device)
    return _Candidate(judgement, image, contents)


def _cubin(image: bytes, device: DeviceTarget) -> _Candidate:
    contents = read_cubin(image)
    description = f"cubin for {contents.target}"
    if contents.relocatable:
        reason = "a relocatable object, which has to be linked first (nvcc -dlink, or no -rdc)"
        return _Candidate(Judgement(description, Fit.REFUSED, reason), image, contents)
    judgement = judge_cubin(description, contents.target, contents.toolkit, device)
    return _Candidate(judgement, image, contents)


def _in_fatbin(entry: FatbinEntry, device: DeviceTarget) -> _Candidate:
    """Judge an entry by its contents, or by its header if it cannot be decompressed."""
    if entry.kind == "other":
        reason = "neither PTX nor a cubin"
        return _Candidate(Judgement(entry.description, Fit.REFUSED, reason), None, None)
    try:
        payload = entry.image()
    except NotSupportedError:
        if entry.ptx_version is not None:
            judgement = judge_ptx(entry.description, entry.ptx_version, entry.target, device)
        else:
            judgement = judge_cubin(entry.description, entry.target, None, device)
        return _Candidate(judgement, None, None)
    return _ptx(payload, device) if entry.kind == "PTX" else _cubin(payload, device)


def _signatures(winner: _Candidate, candidates: list[_Candidate]) -> Mapping[str, Signature]:
    """Description of the chosen image; for a cubin also of PTX from the same program."""
    if winner.contents is None:
        return {}
    found = winner.contents.signatures
    if isinstance(winner.contents, PtxImage):
        return found
    texts = [one.contents.signatures for one in candidates if isinstance(one.contents, PtxImage)]

    def signature(name: str) -> Signature:
        known = found[name]
        for text in texts:
            if name in text:
                known = _merged(known, text[name])
        return known

    return LazySignatures(found, signature)


def _merged(cubin: Signature, ptx: Signature) -> Signature:
    try:
        both = merge(cubin, ptx)
    except ArgumentValueError:
        # A source may declare a kernel differently for each target; the cubin runs here.
        return cubin
    return cubin if both is None else both
