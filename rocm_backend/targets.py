"""AMD's rule for the code objects that run on a device."""

from __future__ import annotations

from dataclasses import dataclass

from uhal.images.amd_target import TargetId
from uhal.images.chooser import Fit, Judgement


@dataclass(frozen=True)
class DeviceTarget:
    """A device and its runtime, for which code objects are chosen."""

    name: str
    """`rocm:0`."""
    isas: tuple[TargetId, ...]
    """Targets that the device runs, best first: its own target, then perhaps a generic target.

    A runtime that lists no generic target does not load code for generic targets.
    """

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, self.isas))})"


def judge_code_object(description: str, target: TargetId, device: DeviceTarget) -> Judgement:
    """Judge whether the runtime loads code for `target` on the device.

    If two targets fit, the target with more features ranks first, because it is more specific.
    """
    newness = (len(target.features),)
    conflicts = [target.conflict(isa) for isa in device.isas]
    if conflicts and not conflicts[0]:
        return Judgement(description, Fit.EXACT, "made for exactly this device", newness)
    if "" in conflicts:
        reason = f"{device.isas[0].processor} runs such code too"
        return Judgement(description, Fit.COMPATIBLE, reason, newness)
    if target.generic and not any(isa.generic for isa in device.isas):
        reason = "code for a whole family, which this runtime does not load: a newer ROCm may"
        return Judgement(description, Fit.REFUSED, reason, newness)
    reason = _nearest(target, device) or "the runtime lists no code that the device runs"
    return Judgement(description, Fit.REFUSED, reason, newness)


def _nearest(target: TargetId, device: DeviceTarget) -> str:
    """Conflict with the listed target of the same processor, else with the device's own."""
    same = [isa for isa in device.isas if isa.processor == target.processor]
    return next((target.conflict(isa) for isa in (*same, *device.isas)), "")
