"""The kernels that every library launches, empty except for their parameters.

Do-nothing drivers count launches; on the host the kernels themselves count.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulators.topsfb.writer import Gcu
from simulators.topsfb.writer import topsfb as write_topsfb
from tests import host_kernels, hsaco_writer

THREE = ("u64 n", "const f32* x", "f32* out")
EIGHT = (
    *("u64 n", "u64 rank", "const u64* info", "const f32* x", "f32* out"),
    *("f32 mul", "f32 add", "u32 mode"),
)
SIXTEEN = (*EIGHT, *(parameter + "_again" for parameter in EIGHT))
KERNELS = {"none": (), "three": THREE, "eight": EIGHT, "sixteen": SIXTEEN}
"""Parameters by entry, in the words of a signature."""


def ptx() -> bytes:
    """A module with all kernels; a kernel reads through its pointers to mark them as pointers."""
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
    """A code object with all kernels; `declaration` adds facts that the object lacks."""
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


def topsfb() -> bytes:
    """A GCU's module with all kernels; `declaration` adds facts that the module lacks."""
    return write_topsfb(
        Gcu({entry: [_c_type(one) for one in parameters] for entry, parameters in KERNELS.items()})
    )


def host() -> bytes:
    """A library for the host whose kernels count launches, and add up the bits of arguments."""
    return host_kernels.build(_counting())


def spirv() -> bytes:
    """A module for OpenCL with the same kernels."""
    # `opencl_backend` imports uhal, which a peer's Python lacks.
    from opencl_backend import compile as opencl_compile

    return opencl_compile.kernels(_counting())


def opencl_c() -> str:
    """The same kernels in OpenCL C, and `tell`, which returns and resets the counts."""
    types = {"u64": "ulong", "u32": "uint", "f32": "float"}
    text = ["global ulong counts[2];"]
    text += ["kernel void tell(global ulong *out) {"]
    text += ["out[0] = counts[0]; out[1] = counts[1]; counts[0] = counts[1] = 0; }"]
    for entry, parameters in KERNELS.items():
        listed = []
        lines = []
        for parameter, size in zip(parameters, sizes(entry), strict=True):
            kind = parameter.removeprefix("const ").split()[0]
            name = _name(parameter)
            star = " *" if "*" in kind else " "
            space = "global " if "*" in kind else ""
            listed.append(f"{space}{types[kind.removesuffix('*')]}{star}{name}")
            bits = f"(ulong){name}" if size == 8 else f"as_uint({name})"
            lines.append(f"counts[1] += {bits};")
        text += [f"kernel void {entry}({', '.join(listed)}) {{ counts[0] += 1;", *lines, "}"]
    return "\n".join(text) + "\n"


def _counting() -> str:
    text = ["#include <string.h>", "#include <uhal/kernel.h>", "DEVICE_GLOBAL(u64, counts, 2);"]
    for entry, parameters in KERNELS.items():
        lines = [
            f"{{ u{8 * size} bits; memcpy(&bits, &{name}, {size}); counts[1] += bits; }}"
            for name, size in zip(map(_name, parameters), sizes(entry), strict=True)
        ]
        text.append(f"KERNEL({entry}, ({', '.join(parameters)})) {{ counts[0] += 1;")
        text += [*lines, "}"]
    return "\n".join(text) + "\n"


def declaration(entry: str) -> str:
    """The signature for `Module.get_function`."""
    return ", ".join(KERNELS[entry])


def sizes(entry: str) -> list[int]:
    """Bytes of each parameter."""
    return [8 if _register(parameter).endswith("64") else 4 for parameter in KERNELS[entry]]


def _name(parameter: str) -> str:
    return parameter.split()[-1]


def _c_type(parameter: str) -> str:
    kind = parameter.removeprefix("const ").split()[0]
    pointed = kind.removesuffix("*")
    return {"u64": "uint64_t", "u32": "uint32_t", "f32": "float"}[pointed] + kind[len(pointed) :]


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
