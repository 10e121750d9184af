"""Finds the image to load in a user's file: a `.topsfb` of images, or a GCU ELF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tops_backend.entries import named
from uhal.contract import Chosen
from uhal.errors import InvalidImageError
from uhal.images.chooser import Fit, Judgement, choose
from uhal.images.topsfb import (
    GcuImage,
    TopsfbEntry,
    is_gcu,
    is_topsfb,
    read_gcu,
    read_topsfb,
    write_topsfb,
)
from uhal.signature import Signature


@dataclass(frozen=True)
class Selection:
    """The bytes for the runtime, and their description."""

    payload: bytes
    chosen: Chosen
    signatures: Mapping[str, Signature]


@dataclass(frozen=True)
class _Candidate:
    judgement: Judgement
    payload: bytes
    contents: GcuImage | None


def select(image: bytes, device: str, target: str | None) -> Selection:
    """Choose the image for a device of the architecture `target`; `None` if unknown.

    Raises `InvalidImageError` for damaged bytes or another format. If no image fits, the error
    lists every image.
    """
    if is_topsfb(image):
        candidates = [_in_bundle(entry, target) for entry in read_topsfb(image)]
    elif is_gcu(image):
        candidates = [_gcu(image, None, image, target)]
    else:
        raise InvalidImageError(
            f"this is no GCU image: expected a .topsfb or a GCU ELF file, got {len(image)} bytes "
            f"that begin with {image[:8]!r}"
        )
    described = f"{device} ({target or 'of an architecture it does not tell'})"
    index, chosen = choose([candidate.judgement for candidate in candidates], described)
    winner = candidates[index]
    assert winner.contents is not None
    return Selection(winner.payload, chosen, named(winner.contents.signatures))


def _in_bundle(entry: TopsfbEntry, target: str | None) -> _Candidate:
    if not is_gcu(entry.payload):
        reason = "no ELF file for GCUs"
        return _Candidate(Judgement(f"image {entry.id}", Fit.REFUSED, reason), b"", None)
    # The runtime was never seen with a bundle of several images, so it gets a bundle of one.
    return _gcu(entry.payload, entry.target, write_topsfb(entry), target)


def _gcu(file: bytes, by_id: str | None, payload: bytes, target: str | None) -> _Candidate:
    contents = read_gcu(file)
    made_for = contents.target or by_id
    description = f"GCU image for {made_for or 'an architecture it does not tell'}"
    if None not in (contents.target, by_id) and contents.target != by_id:
        reason = f"the bundle says it is for {by_id}"
        return _Candidate(Judgement(description, Fit.REFUSED, reason), payload, contents)
    fit, reason = _fit(made_for, target)
    return _Candidate(Judgement(description, fit, reason), payload, contents)


def _fit(made_for: str | None, target: str | None) -> tuple[Fit, str]:
    if made_for is None or target is None:
        return Fit.COMPATIBLE, "one of image and device does not tell; the runtime decides"
    if made_for == target:
        return Fit.EXACT, f"it is for exactly this device, a {target}"
    return Fit.REFUSED, f"this device is a {target}, and machine code runs on its own only"
