"""wgpu-native's interface in abi.h, compared with the headers of its wheel."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.requirements import missing
from webgpu_backend._library import header

OURS = {"UHAL_WEBGPU_ABI_H", "UHAL_WGPU_NATIVE_RELEASE", "WGPU_WHOLE_SIZE"}
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


@pytest.fixture(scope="module")
def include() -> Path:
    """Folder of the library's headers in the wheel."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        missing('pip install "uhal-py[webgpu]"')
    return Path(found.origin).parent / "resources"


def test_constants_and_layouts_are_wgpu_natives(include: Path, tmp_path: Path) -> None:
    ours = header()
    expected = {name: value for name, value in ours.constants.items() if name not in OURS}
    lines = [f'printf("{name} %lld\\n", (long long)({name}));' for name in expected]
    for name in STRUCTURES:
        made = ours.ctype(name)
        expected[f"{name}.size"] = ctypes.sizeof(made)
        lines.append(f'printf("{name}.size %zu\\n", sizeof({name}));')
        for member, _ in made._fields_:
            expected[f"{name}.{member}"] = getattr(made, member).offset
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
    source = tmp_path / "program.c"
    body = "\n".join(lines)
    source.write_text(
        f'#include "wgpu.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {body} }}\n'
    )
    subprocess.run(
        ["cc", "-std=c11", f"-I{include}", str(source), "-o", str(tmp_path / "program")], check=True
    )
    told = subprocess.run(
        [str(tmp_path / "program")], check=True, capture_output=True, text=True
    ).stdout
    theirs = {name: int(value) for name, value in (line.split() for line in told.splitlines())}
    assert theirs == expected
