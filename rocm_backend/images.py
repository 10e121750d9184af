"""Finds the code object to load in a user's image: a single object, or an offload bundle."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rocm_backend.targets import DeviceTarget, judge_code_object
from uhal.contract import Chosen
from uhal.errors import InvalidImageError
from uhal.images.amd_target import TargetId
from uhal.images.chooser import Fit, Judgement, choose
from uhal.images.hsaco import HsacoImage, is_hsaco, read_hsaco
from uhal.images.offload_bundle import BundleEntry, is_offload_bundle, read_offload_bundle


@dataclass(frozen=True)
class Selection:
    """The bytes for the runtime, and their description."""

    payload: bytes
    chosen: Chosen
    contents: HsacoImage


def select(image: bytes, device: DeviceTarget) -> Selection:
    """Choose the code object for a device.

    Raises `InvalidImageError` when the bytes have neither format or are damaged. If no candidate
    fits, the error lists every candidate. Raises `NotSupportedError` for a bundle whose compression
    this Python cannot read.
    """
    if is_offload_bundle(image):
        entries = [entry for entry in read_offload_bundle(image) if not entry.for_host]
        judged = [_judge_entry(entry, device) for entry in entries]
        index, chosen = choose(judged, str(device))
        payload = entries[index].payload
        contents = _read(payload)
        if contents.target != TargetId.parse(entries[index].target):
            raise InvalidImageError(
                f"this offload bundle says {entries[index].target} of code for {contents.target}"
            )
        return Selection(payload, chosen, contents)
    if not is_hsaco(image):
        raise InvalidImageError(
            "this is no image for AMD devices: expected a code object (HSACO) or an offload "
            f"bundle, got {len(image)} bytes that begin with {image[:8]!r}"
        )
    contents = _read(image)
    description = f"code object for {contents.target}"
    judgement = judge_code_object(description, contents.target, device)
    _, chosen = choose([judgement], str(device))
    return Selection(image, chosen, contents)


def _read(image: bytes) -> HsacoImage:
    """Read a code object and check that the runtime will find its kernels.

    The runtime finds no kernel and no variable in a stripped code object, and answers
    HSA_STATUS_ERROR_INVALID_SYMBOL_NAME for each.
    """
    # This parsing of the variable is the same as in ROCr's loader.
    dynamic = not os.environ.get(_DYNAMIC_VARIABLE, "0").startswith("0")
    contents = read_hsaco(image, dynamic=dynamic)
    if contents.stripped and contents.kernels:
        table, remedy = (
            (".dynsym", "") if dynamic else (".symtab", f", or set {_DYNAMIC_VARIABLE}=1")
        )
        raise InvalidImageError(
            f"this code object for {contents.target} has no symbols in {table}, where AMD's "
            f"runtime looks for its {len(contents.kernels)} kernels: it was linked with "
            "--strip-all. Link it without (--strip-debug and --discard-all keep the symbols)"
            f"{remedy}"
        )
    return contents


_DYNAMIC_VARIABLE = "LOADER_USE_DYNSYM"


def _judge_entry(entry: BundleEntry, device: DeviceTarget) -> Judgement:
    """Judge an entry by its name in the bundle; the code of other entries is not read."""
    description = f"code object for {entry.target[:80]}"
    try:
        target = TargetId.parse(entry.target)
    except InvalidImageError:
        return Judgement(description, Fit.REFUSED, "not machine code of an AMD device")
    return judge_code_object(f"code object for {target}", target, device)
