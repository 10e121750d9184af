"""Messages for calls that a capture refuses, and for wrong slots of a plan.

Stream.synchronize: stream 5 is being captured into plan 'decode' (since demo.py:10), and nothing
runs before the plan is replayed; synchronize after plan.replay(). [demo.py:14]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from uhal._lane import DeviceBuffer
from uhal._refusal import argument_name, call_site, counted, describe
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CaptureError,
    DeviceError,
    InvalidHandleError,
)

if TYPE_CHECKING:
    from uhal._lane import Function, Plan, PlanSlot

__all__ = [
    "call_site",
    "describe_plan",
    "refuse_barred",
    "refuse_buffer",
    "refuse_call",
    "refuse_capture",
    "refuse_count",
    "refuse_event",
    "refuse_plan",
    "refuse_slot_name",
    "refuse_unjoined",
    "tell_slot",
]


_WHY = {
    "one capture": (
        "a stream belongs to one capture at a time",
        "end that one first, or close its plan",
    ),
    "another thread": ("only the thread that captures may use it", "use another stream here"),
    "a thread that ended": (
        "only the thread that captures may use it, which has ended",
        "plan.close() gives the stream back",
    ),
    "nothing runs": (
        "nothing that is captured runs before the plan is replayed",
        "wait for the stream after plan.replay()",
    ),
    "no waiting copies": (
        "nothing that is captured runs before the plan is replayed",
        "capture copy_from_async or copy_to_async, or copy outside the capture",
    ),
    "pinned only": (
        "a plan can copy pinned memory of the host only, at every replay",
        "use a HostBuffer, or copy before the capture",
    ),
    "one device": ("a plan runs on one device", "copy between devices outside the capture"),
    "no Python": (
        "a plan runs without Python, so it can call nothing back",
        "add the callback to the stream after plan.replay()",
    ),
    "no driver memory": (
        "memory of the driver's would be allocated anew by every replay",
        "leave out native=True: the plan keeps the memory that its capture allocates",
    ),
    "no other library": (
        "a plan cannot wait for another library's streams",
        "take its memory over before the capture, with DeviceBuffer.from_dlpack",
    ),
    "nothing exported": (
        "a plan cannot wait for the work that fills the memory",
        "export it before the capture, or for another stream",
    ),
    "an event outside": (
        "the event was not recorded in this capture",
        "wait for it before the capture, or let the stream of the replay wait for it",
    ),
    "nothing closes": (
        "a stream or plan in a capture cannot be closed",
        "end the capture first, or abandon it with plan.close()",
    ),
    "no plan in a plan": (
        "a plan cannot be part of another",
        "capture its launches again, or replay the two plans in turn",
    ),
}
"""Why a call is refused on a stream that is being captured, and what to do instead."""


def refuse_call(name: str, begun: str, stream_id: int, call: str, why: str) -> NoReturn:
    """Raise the error of a `call` that needs a stream that is being captured."""
    reason, advice = _WHY[why]
    raise CaptureError(
        f"{call}: stream {stream_id} is being captured into plan {name!r} (since {begun}), and "
        f"{reason}; {advice}. [{call_site()}]"
    )


def refuse_barred(name: str, begun: str, stream_id: int, call: str, reason: str) -> NoReturn:
    """Raise the error of work in a stream that a capture blocks."""
    raise CaptureError(
        f"{call}: stream {stream_id} takes no work while plan {name!r} is being captured (since "
        f"{begun}): {reason}. [{call_site()}]"
    )


def refuse_capture(problem: str) -> NoReturn:
    """Raise the error of a capture that cannot begin or continue, with the reason."""
    raise CaptureError(f"Stream.capture: {problem}. [{call_site()}]")


def refuse_event(call: str, name: str) -> NoReturn:
    """Raise the error of an event from a capture, which has no time."""
    raise CaptureError(
        f"{call}: the event was recorded in the capture of plan {name!r}, and marks a point in the "
        "plan, not work that runs; record it anew after plan.replay(). "
        f"[{call_site()}]"
    )


def refuse_unjoined(name: str, streams: list[tuple[int, str]]) -> NoReturn:
    """Raise the error of joined streams that nothing waits for. `streams`: id, place."""
    listed = ", ".join(f"stream {number} (joined at {site})" for number, site in streams)
    raise CaptureError(
        f"Stream.capture: the work of {listed} was not waited for by the stream that plan {name!r} "
        "is captured on; let it wait for an event of the other before the capture ends: "
        f"stream.wait_event(other.record_event()). Nothing was captured. [{call_site()}]"
    )


def refuse_plan(plan: Plan, problem: str) -> NoReturn:
    """Raise the error of a plan that cannot be replayed."""
    raise InvalidHandleError(f"plan {plan.name!r}: {problem}. [{call_site()}]")


def refuse_count(plan: Plan, listed: int, launched: int) -> NoReturn:
    """Raise the error of a graph whose kernels differ from the launches."""
    raise CaptureError(
        f"Stream.capture: expected the driver to list the {counted(launched, 'kernel')} that uhal "
        f"launched into plan {plan.name!r}, got {listed}. It cannot tell them from another "
        "library's: with slots, make every launch through uhal, or capture without slots. "
        f"[{call_site()}]"
    )


def refuse_slot_name(plan: Plan, name: object, problem: str) -> NoReturn:
    """Raise the error of a missing or impossible slot."""
    raise ArgumentValueError(f"plan {plan.name!r}, slot {name!r}: {problem}. [{call_site()}]")


def refuse_buffer(
    plan: Plan, slot: PlanSlot, value: object, function: Function, index: int
) -> NoReturn:
    """Raise the error of a `value` that cannot replace the slot's memory."""
    held = slot.value
    wanted = f"a DeviceBuffer of at least {held.size} {held.dtype} on {held.device!r}"
    problem = f"expected {wanted}, got {describe(value)}"
    error: type[DeviceError] = ArgumentTypeError
    if isinstance(value, DeviceBuffer):
        if value.closed:
            problem, error = f"expected {wanted}, got a closed one", InvalidHandleError
        elif value.device != held.device:
            problem, error = f"{problem} on {value.device!r}", InvalidHandleError
        elif value.dtype is held.dtype and value.size < held.size:
            error = ArgumentValueError
        elif value.dtype is held.dtype and value.readonly:
            problem = "a kernel may write through it: expected a writable DeviceBuffer"
    where = argument_name(function, index)
    raise error(
        f"plan {plan.name!r}, slot {slot.name!r} ({where}): {problem}. Nothing was launched. "
        f"[{call_site()}]"
    )


def describe_plan(plan: Plan, launches: Sequence[Mapping[str, Any]]) -> str:
    """Return a text of several lines with the plan's slots and launches."""
    lines = [repr(plan)[1:-1]]
    lines.extend(f"  slot {name} = {slot.value!r}" for name, slot in plan.slots.items())
    for launch in launches:
        shared = f", shared {launch['shared']}" if launch["shared"] else ""
        lines.append(
            f"  {launch['index']:>4} {launch['kernel']} grid {launch['grid']}, block "
            f"{launch['block']}{shared}"
        )
    return "\n".join(lines)


def tell_slot(plan: Plan, slot: PlanSlot, error: DeviceError) -> None:
    """Put the names of the plan and the slot before the message about an argument."""
    error.args = (f"plan {plan.name!r}, slot {slot.name!r}: {error}",)
