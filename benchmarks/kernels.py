"""The kernels every library launches, with nothing in them but their parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tests import hsaco_writer

THREE = ("u64 n", "const f32* x", "f32* out")
EIGHT = (
    *("u64 n", "u64 rank", "const u64* info", "const f32* x", "f32* out"),
    *("f32 mul", "f32 add", "u32 mode"),
)
SIXTEEN = (*EIGHT, *(parameter + "_again" for parameter in EIGHT))
KERNELS = {"none": (), "three": THREE, "eight": EIGHT, "sixteen": SIXTEEN}
"""Parameters by entry, in the words of a signature."""


def ptx() -> bytes:
    """A module with all of them; a pointer is told from an integer by its being read from."""
    text = [".version 7.0", ".target sm_75", ".address_size 64"]
    for entry, parameters in KERNELS.items():
        text.append(f"//uhal.sig {entry}: {', '.join(parameters)}")
        declared = ", ".join(
            f".param {_register(parameter)} {entry}_{index}"
            for index, parameter in enumerate(parameters)
        )
        text.append(f".visible .entry {entry}({declared}) {{ {_reads(entry, parameters)} ret; }}")
    return ("\n".join(text) + "\n").encode()


def hsaco() -> bytes:
    """A code object with all of them; what it does not tell, `declaration` does."""
    made = []
    for entry, parameters in KERNELS.items():
        arguments = []
        end = 0
        for parameter, size in zip(parameters, sizes(entry), strict=True):
            offset = -(-end // size) * size
            kind = "global_buffer" if "*" in parameter else "by_value"
            arguments.append(hsaco_writer.Argument(offset, size, kind))
            end = offset + size
        made.append(hsaco_writer.Kernel(entry, arguments, -(-end // 8) * 8))
    return hsaco_writer.write(made)


def declaration(entry: str) -> str:
    """The words `Module.get_function` takes."""
    return ", ".join(KERNELS[entry])


def sizes(entry: str) -> list[int]:
    """Bytes of each parameter."""
    return [8 if _register(parameter).endswith("64") else 4 for parameter in KERNELS[entry]]


def _register(parameter: str) -> str:
    if "*" in parameter:
        return ".u64"
    return "." + parameter.split()[0]


def _reads(entry: str, parameters: Sequence[str]) -> str:
    pointers = [index for index, parameter in enumerate(parameters) if "*" in parameter]
    lines = [".reg .b64 %address; .reg .b32 %value;"] if pointers else []
    for index in pointers:
        lines.append(
            f"ld.param.u64 %address, [{entry}_{index}]; "
            "cvta.to.global.u64 %address, %address; ld.global.u32 %value, [%address];"
        )
    return " ".join(lines)
