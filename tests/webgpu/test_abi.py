"""wgpu-native's interface in abi.h and release_27.h, compared with the headers of its wheel."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import webgpu_backend
from tests.requirements import missing
from webgpu_backend._library import header

RUNTIME = Path(webgpu_backend.__file__).parent / "runtime"
OURS = {
    "UHAL_WEBGPU_ABI_H",
    "UHAL_WGPU_NATIVE_RELEASE",
    "UHAL_WGPU_NATIVE_OLD_RELEASE",
    "WGPU_WHOLE_SIZE",
}
STRUCTURES = """
WGPUStringView WGPUChainedStruct WGPUInstanceEnumerateAdapterOptions WGPUAdapterInfo WGPULimits
WGPURequestDeviceCallbackInfo WGPUDeviceLostCallbackInfo WGPUUncapturedErrorCallbackInfo
WGPUQueueDescriptor WGPUDeviceDescriptor WGPUBufferDescriptor WGPUBufferMapCallbackInfo
WGPUBufferBindingLayout WGPUSamplerBindingLayout WGPUTextureBindingLayout
WGPUStorageTextureBindingLayout WGPUBindGroupLayoutEntry WGPUBindGroupLayoutDescriptor
WGPUBindGroupEntry WGPUBindGroupDescriptor WGPUPipelineLayoutDescriptor
WGPUShaderModuleDescriptor WGPUShaderSourceWGSL WGPUConstantEntry WGPUComputeState
WGPUComputePipelineDescriptor WGPUQueueWorkDoneCallbackInfo WGPUQuerySetDescriptor
""".split()
RENAMED = {"WGPUComputeState": "WGPUProgrammableStageDescriptor"}
"""Names of structures in release 27."""
ADDED = {
    "WGPUFeatureName_Subgroups",
    "WGPUNativeFeature_Immediates",
    "WGPULimits.maxImmediateSize",
    "WGPULimits.sizeof",
    "WGPUPipelineLayoutDescriptor.immediateSize",
    "WGPUPipelineLayoutDescriptor.sizeof",
}
"""Constants, and last members of structures, that release 27 lacks."""


@pytest.fixture(scope="module")
def include() -> Path:
    """Folder of the library's headers in the wheel."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        missing('pip install "uhal-py[webgpu]"')
    return Path(found.origin).parent / "resources"


def test_constants_and_layouts_are_wgpu_natives(include: Path, tmp_path: Path) -> None:
    is_old = "wgpuDeviceCreateShaderModuleTrusted" not in (include / "wgpu.h").read_text()
    old = old_interface() if is_old else {}
    expected = current_interface()
    if is_old:
        kept = {name for name in expected if name.partition(".")[0] not in old} - ADDED
        expected = {name: expected[name] for name in kept}
        expected |= dict.fromkeys(old, 1)
    lines = []
    for name in expected:
        value = told_by(name, is_old)
        if name in old:
            value = " && ".join(equal_parts(name, old[name]))
        lines.append(f'printf("{name} %lld\\n", (long long)({value}));')
    source = tmp_path / "program.c"
    source.write_text(
        '#include "wgpu.h"\n#include <stddef.h>\n#include <stdio.h>\n#include "release_27.h"\n'
        f"int main(void) {{ {chr(10).join(lines)} }}\n"
    )
    program = str(tmp_path / "program")
    paths = (f"-I{include}", f"-I{RUNTIME}")
    subprocess.run(["cc", "-std=c11", *paths, str(source), "-o", program], check=True)
    told = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    theirs = {name: int(value) for name, value in (line.split() for line in told.splitlines())}
    assert theirs == expected


def current_interface() -> dict[str, int]:
    """Return abi.h's constants, the sizes of its structures and their members' offsets."""
    ours = header()
    found = {name: value for name, value in ours.constants.items() if name not in OURS}
    for name in STRUCTURES:
        made = ours.ctype(name)
        found[f"{name}.sizeof"] = ctypes.sizeof(made)
        for member, _ in made._fields_:
            found[f"{name}.{member}"] = getattr(made, member).offset
    return found


def old_interface() -> Mapping[str, list[str]]:
    """Return the names in release_27.h without 27, with the members of structures."""
    text = (RUNTIME / "release_27.h").read_text()
    found: dict[str, list[str]] = {
        name: [] for name in re.findall(r"^#define (WGPU\w+)27 ", text, re.MULTILINE)
    }
    for body, name in re.findall(r"^typedef struct \w+ \{(.*?)^\} (\w+)27;", text, re.M | re.S):
        found[name] = re.findall(r"(\w+);", body)
    return found


def equal_parts(name: str, members: list[str]) -> list[str]:
    if not members:
        return [f"{name}27 == {name}"]
    offsets = [f"offsetof({name}27, {one}) == offsetof({name}, {one})" for one in members]
    return [f"sizeof({name}27) == sizeof({name})", *offsets]


def told_by(name: str, is_old: bool) -> str:
    """Return the C expression of a constant, a size or an offset."""
    structure, dot, member = name.partition(".")
    if not dot:
        return name
    if is_old:
        structure = RENAMED.get(structure, structure)
    return f"sizeof({structure})" if member == "sizeof" else f"offsetof({structure}, {member})"
