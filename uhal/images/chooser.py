"""Chooses one of several images of a program for a device, for every backend.

A backend judges each image by the rules of its vendor. All backends take the first of these that
fits: a binary for exactly this device, the newest image that the driver compiles for this device, a
binary for an older device that also runs on this device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from uhal.contract import Chosen, ImageCandidate
from uhal.errors import InvalidImageError


class Fit(IntEnum):
    """Fit of an image to a device; the largest value wins."""

    REFUSED = 0
    COMPATIBLE = 1
    """A binary for another device that also runs on this device."""
    PORTABLE = 2
    """Code that the driver compiles for the device at load time."""
    EXACT = 3
    """A binary for exactly this device."""


@dataclass(frozen=True)
class Judgement:
    """A backend's rating of an image."""

    description: str
    fit: Fit
    reason: str
    """Why it fits or not, for a message."""
    newness: tuple[int, ...] = ()
    """Decides between images of equal fit: the largest value wins, then the first image."""


def choose(judged: Sequence[Judgement], device: str) -> tuple[int, Chosen]:
    """Return the index of the image to load, and the record of the choice.

    `device` describes the device: `cuda:0 (compute capability 8.6, driver for CUDA 12.4)`. When no
    image fits, raises `InvalidImageError` with every image and its reason.
    """
    if not judged:
        raise InvalidImageError(f"there is no image in it for {device}")
    best = max(range(len(judged)), key=lambda index: (*_merit(judged[index]), -index))
    winner = judged[best]
    if winner.fit is Fit.REFUSED:
        listed = "".join(f"\n  {one.description}: {one.reason}" for one in judged)
        raise InvalidImageError(f"no image fits {device}:{listed}")
    candidates = tuple(
        ImageCandidate(
            one.description,
            accepted=index == best,
            reason=one.reason if index == best else _passed_over(one, winner),
        )
        for index, one in enumerate(judged)
    )
    return best, Chosen(winner.description, winner.reason, candidates)


def _merit(one: Judgement) -> tuple[Fit, tuple[int, ...]]:
    return one.fit, one.newness


def _passed_over(one: Judgement, winner: Judgement) -> str:
    if one.fit is Fit.REFUSED:
        return one.reason
    if one.fit is winner.fit:
        return f"{winner.description} is as good or newer"
    if winner.fit is Fit.EXACT:
        return f"{winner.description} is made for exactly this device"
    return f"{winner.description} can be compiled for exactly this device"
