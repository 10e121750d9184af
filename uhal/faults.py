"""Messages that name the launches at fault, and the error in a forked child.

A driver reports an asynchronous fault at some later call, on any stream, without naming the launch.
The lane keeps a ledger of recent launches; this module turns it into sentences.
"""

from __future__ import annotations

import os.path
import struct
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from uhal import _lane
from uhal.errors import from_code
from uhal.records import Launch as Launch

if TYPE_CHECKING:
    from uhal.signature import Parameter, Signature

_MOST_LISTED = 8
_STRUCT_CODES = frozenset("?bBhHiIqQefd")


def raise_fault(
    context: _lane.Context, call: str, code: int, launches: Sequence[Mapping[str, Any]]
) -> NoReturn:
    """Raise the error of `call`, with the launches since the last known completion.

    `launches` are the lane's ledger entries, oldest first. The exception carries them as
    `.candidates`. The device is lost from here on.
    """
    device = f"{context.backend_name}:{context.ordinal}"
    error = from_code(
        context.backend, call, code, f"The device {device} is lost: it takes no more work."
    )
    error.candidates = tuple(_read(launch) for launch in launches)
    error.args = (f"{error} {_tell(error.candidates)}",)
    raise error


def fork_sentence() -> str:
    """Return the message for a device opened before a fork: the place, and the remedy."""
    site = _lane.initialization_site() or "an unknown line"
    return (
        f"the device was initialised before fork at {site}, and a forked process cannot use it: "
        "initialise after the fork, or start processes with multiprocessing's 'spawn' method"
    )


def describe_site(code: CodeType | None, offset: int) -> str:
    """Return `file.py:line` of an instruction offset in bytes, or its known part."""
    if code is None:
        return "unknown"
    line = code.co_firstlineno
    for start, end, found in code.co_lines():
        if start <= offset < end and found is not None:
            line = found
            break
    return f"{os.path.basename(code.co_filename)}:{line}"


def _tell(candidates: Sequence[Launch]) -> str:
    if not candidates:
        return "No launch of the last 256 of each stream was pending."
    if len(candidates) == 1:
        return f"It was this one: {candidates[0]}"
    lines = [f"It was one of the {len(candidates)} launches since the last known completion:"]
    lines.extend(f"  {launch}" for launch in candidates[:_MOST_LISTED])
    if len(candidates) > _MOST_LISTED:
        lines.append(f"  … and {len(candidates) - _MOST_LISTED} more")
    return "\n".join(lines)


def _read(launch: Mapping[str, Any]) -> Launch:
    return Launch(
        kernel=launch["kernel"],
        grid=tuple(launch["grid"]),
        block=tuple(launch["block"]),
        shared=launch["shared"],
        stream_id=launch["stream_id"],
        site=describe_site(launch["code"], launch["instruction_offset"]),
        arguments=_arguments_text(launch["signature"], launch["arguments"]),
        plan=launch.get("plan", ""),
        index=launch["index"],
        replay_site=describe_site(*launch["replayed"]) if "replayed" in launch else "",
    )


def _arguments_text(signature: Signature | None, data: bytes) -> str:
    """Decode the ledger's copy of the arguments; each starts at a multiple of 8 bytes."""
    if signature is None:
        return f"{len(data)} bytes: {data.hex(' ', 8)}" if data else ""
    texts: list[str] = []
    offset = 0
    for parameter in signature:
        size = parameter.size or 0
        name = parameter.name or str(parameter.index)
        held = data[offset : offset + size]
        # The ledger keeps the first bytes only.
        texts.append(f"{name}={_value_text(parameter, held) if len(held) == size else '…'}")
        offset += -(-size // 8) * 8
    return ", ".join(texts)


def _value_text(parameter: Parameter, data: bytes) -> str:
    if parameter.kind == "pointer":
        address = int.from_bytes(data, "little")
        return hex(address) if address else "null"
    if parameter.code in _STRUCT_CODES:
        (value,) = struct.unpack(f"={parameter.code}", data)
        return f"{value:g}" if isinstance(value, float) else str(value)
    return f"0x{data[::-1].hex()}"
