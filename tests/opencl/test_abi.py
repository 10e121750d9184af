"""OpenCL's interface in opencl_backend/abi.h, compared with Khronos's headers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.children import ROOT
from uhal.abi import Header

PATH = ROOT / "opencl_backend" / "abi.h"
HEADER = Header.load(PATH)
OURS = {"UHAL_OPENCL_ABI_H"}


def compiled(program: str, include: Path, folder: Path) -> str:
    """Output of a C program, which must compile without a warning."""
    source = folder / "program.c"
    source.write_text(program)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include}", str(source)]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return subprocess.run(
        [str(folder / "program")], check=True, capture_output=True, text=True
    ).stdout


def test_constants_are_khronoss(packages: Path, tmp_path: Path) -> None:
    names = [name for name in HEADER.constants if name not in OURS]
    lines = "".join(f'    printf("{name} %lld\\n", (long long)({name}));\n' for name in names)
    program = f"""#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
int main(void) {{
{lines}    return 0;
}}
"""
    told = compiled(program, packages / "usr" / "include", tmp_path)
    theirs = {name: int(value) for name, value in (line.split() for line in told.splitlines())}
    mine = {name: HEADER.constants[name] for name in names}
    assert theirs == mine


def test_prototypes_are_khronoss(packages: Path, tmp_path: Path) -> None:
    """Our declarations follow Khronos's: a compiler rejects a different prototype."""
    text = PATH.read_text("utf-8")
    functions = "\n".join(re.findall(r"^(?:void \*|\w+ )cl\w+\([^;]*\);", text, re.MULTILINE))
    assert functions.count(";") == len(HEADER.prototypes)
    # Our names for Khronos's types.
    program = f"""#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#define cl_status cl_int
typedef void(CL_CALLBACK *cl_context_callback)(const char *, const void *, size_t, void *);
typedef void(CL_CALLBACK *cl_program_callback)(cl_program, void *);
typedef void(CL_CALLBACK *cl_event_callback)(cl_event, cl_int, void *);
{functions}
int main(void) {{ return puts("as declared") < 0; }}
"""
    assert compiled(program, packages / "usr" / "include", tmp_path) == "as declared\n"
