"""Asks AMD's loader, or the simulated loader, about code objects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.simulated.hsa import AnyHsa, Failure


def answers(images: Sequence[str], library: str | None = None) -> list[list[str]]:
    """Return the loader's answers for each code object, given in hexadecimal.

    An answer has one entry if the load failed, else the status for each of three names.
    """
    hsa = AnyHsa(Path(library or os.environ["UHAL_ROCM_LIBRARY"]))
    hsa.open()
    return [_ask(hsa, bytes.fromhex(image)) for image in images]


def _ask(hsa: AnyHsa, image: bytes) -> list[str]:
    try:
        executable = hsa.load(image)
    except Failure as failure:
        return [_status(failure)]
    found = []
    for name in ("first.kd", "first", "table"):
        try:
            hsa.symbol(executable, name)
        except Failure as failure:
            found.append(_status(failure))
        else:
            found.append("found")
    hsa.call.hsa_executable_destroy(executable)
    return found


def _status(failure: Failure) -> str:
    return str(failure).split(": ")[1].removeprefix("HSA_STATUS_ERROR_")
