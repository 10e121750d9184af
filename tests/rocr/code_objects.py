"""Code objects as other readers see them: AMD's loader, and other ELF and MessagePack readers.

`load` is called in a process that has AMD's runtime.
"""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from tests.simulated.hsa import CONSTANT, HEADER, AnyHsa, Failure
from uhal.images.amd_target import PROCESSORS
from uhal.images.hsaco import is_hsaco
from uhal.images.offload_bundle import read_offload_bundle

_FLAGS_OFFSET = 48
_PROCESSOR_MASK = 0xFF
CODE_BYTES = 64
"""Number of compared bytes of each kernel's code."""

_INFO = {
    "kernarg": ("KERNARG_SEGMENT_SIZE", ctypes.c_uint32),
    "alignment": ("KERNARG_SEGMENT_ALIGNMENT", ctypes.c_uint32),
    "group": ("GROUP_SEGMENT_SIZE", ctypes.c_uint32),
    "private": ("PRIVATE_SEGMENT_SIZE", ctypes.c_uint32),
    "dynamic": ("DYNAMIC_CALLSTACK", ctypes.c_bool),
    "object": ("OBJECT", ctypes.c_uint64),
}


def payload(path: Path, target: str) -> bytes:
    """Return the code object for a target from a file, which is a bundle or a code object."""
    image = path.read_bytes()
    if is_hsaco(image):
        return image
    (found,) = (
        entry.payload
        for entry in read_offload_bundle(image)
        if not entry.for_host and entry.target.split("--")[-1] == target
    )
    return found


def for_processor(image: bytes, processor: str) -> bytes:
    """Return the code object with another processor in its header; loaders only check the
    header."""
    (number,) = (number for number, name in PROCESSORS.items() if name == processor)
    flags = int.from_bytes(image[_FLAGS_OFFSET : _FLAGS_OFFSET + 4], "little")
    changed = (flags & ~_PROCESSOR_MASK | number).to_bytes(4, "little")
    return image[:_FLAGS_OFFSET] + changed + image[_FLAGS_OFFSET + 4 :]


def load(jobs: Sequence[tuple[str, str, Sequence[str]]], processor: str) -> list[dict[str, Any]]:
    """Load code objects and look up their kernels; return the results.

    A job is a file, the target to read from it, and names of kernels.
    """
    hsa = AnyHsa(Path(os.environ["UHAL_ROCM_LIBRARY"]))
    hsa.open()
    return [
        _load(hsa, for_processor(payload(Path(path), target), processor), names)
        for path, target, names in jobs
    ]


def _load(hsa: AnyHsa, image: bytes, names: Sequence[str]) -> dict[str, Any]:
    executable = hsa.load(image)
    agent = hsa.gpus[0]
    symbols: list[Any] = []

    def visit(*arguments: Any) -> int:
        symbols.append(HEADER.ctype("hsa_executable_symbol_t")(arguments[2].handle))
        return 0

    callback = HEADER.ctype("hsa_executable_symbol_callback_t")(visit)
    hsa.call.hsa_executable_iterate_agent_symbols(executable, agent, callback, None)
    told: dict[str, Any] = {
        "symbols": sorted(_symbol_name(hsa, symbol) for symbol in symbols),
        "kernels": {name: _kernel(hsa, executable, name) for name in names},
    }
    hsa.call.hsa_executable_destroy(executable)
    return told


def _symbol_name(hsa: AnyHsa, symbol: Any) -> str:
    call = "hsa_executable_symbol_get_info"
    length = CONSTANT["HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH"]
    text = ctypes.create_string_buffer(hsa.info(call, symbol, length, ctypes.c_uint32) + 1)
    name = CONSTANT["HSA_EXECUTABLE_SYMBOL_INFO_NAME"]
    hsa.call.hsa_executable_symbol_get_info(symbol, name, text)
    return text.value.decode()


def _kernel(hsa: AnyHsa, executable: Any, name: str) -> dict[str, Any] | str:
    """Return the runtime's facts about a kernel and its descriptor, or the lookup's error."""
    try:
        symbol = hsa.symbol(executable, f"{name}.kd")
    except Failure as failure:
        return str(failure)
    call = "hsa_executable_symbol_get_info"
    facts: dict[str, Any] = {
        fact: hsa.info(call, symbol, CONSTANT[f"HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_{ending}"], of)
        for fact, (ending, of) in _INFO.items()
    }
    address = facts.pop("object")
    descriptor = ctypes.string_at(address, 64)
    entry = address + int.from_bytes(descriptor[16:24], "little", signed=True)
    facts["descriptor"] = descriptor.hex()
    facts["code"] = ctypes.string_at(entry, CODE_BYTES).hex()
    return facts


@dataclass(frozen=True)
class Stranger:
    """A code object, read by pyelftools and msgpack."""

    image: bytes

    @cached_property
    def _elf(self) -> Any:
        return ELFFile(io.BytesIO(self.image))

    @cached_property
    def symbols(self) -> dict[str, Any]:
        """Return the symbols of `.symtab` by name; empty without the table."""
        table = self._elf.get_section_by_name(".symtab")
        return {} if table is None else {one.name: one.entry for one in table.iter_symbols()}

    @cached_property
    def kernels(self) -> dict[str, dict[str, Any]]:
        """The metadata of each kernel, by name."""
        for segment in self._elf.iter_segments("PT_NOTE"):
            data = segment.data()
            name_bytes, bytes_, kind = (
                int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8)
            )
            if (data[12 : 12 + name_bytes], kind) == (b"AMDGPU\0", 32):
                start = 12 + (name_bytes + 3) // 4 * 4
                found = msgpack.unpackb(data[start : start + bytes_])
                return {one[".name"]: one for one in found["amdhsa.kernels"]}
        raise AssertionError("it has no metadata")

    def at(self, address: int, count: int) -> bytes:
        """Return the bytes at an address, as the code object was linked."""
        for segment in self._elf.iter_segments("PT_LOAD"):
            inside = address - segment["p_vaddr"]
            if 0 <= inside < segment["p_filesz"]:
                start = segment["p_offset"] + inside
                return self.image[start : start + count]
        raise AssertionError(f"nothing is loaded at {address:#x}")
