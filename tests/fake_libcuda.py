"""Builds small libraries with libcuda's interface; a test sets their answers.

The libraries compute nothing, unlike the simulated driver. Tests make single calls fail, omit
functions, and check the backend's arguments.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ABI = ROOT / "cuda_backend" / "abi.h"

_PROTOTYPE = re.compile(r"^CUresult (\w+)\(([^;]*)\);", re.MULTILINE)

# Functions with an output; the others only return their configured status.
_WRITTEN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "abi.h"

static struct { const char *name; int code; } answers[64];
static int version = 12040, capability = 86, devices = 1, asked_version;
static long retained;
static void *current;
static int shared_limit = 49152, last_stack;
static char last_image[64];

void fake_answer(const char *name, int code) {
    for (int i = 0; i < 64; ++i)
        if (!answers[i].name || !strcmp(answers[i].name, name)) {
            answers[i].name = strdup(name);
            answers[i].code = code;
            return;
        }
}
void fake_version(int number) { version = number; }
void fake_capability(int number) { capability = number; }
void fake_devices(int number) { devices = number; }
long fake_retained(void) { return retained; }
int fake_asked_version(void) { return asked_version; }
int fake_stack(void) { return last_stack; }
const char *fake_image(void) { return last_image; }

static int answer(const char *name) {
    for (int i = 0; i < 64 && answers[i].name; ++i)
        if (!strcmp(answers[i].name, name))
            return answers[i].code;
    return 0;
}
#define BEGIN(name) int code = answer(#name); if (code) return code

CUresult cuDriverGetVersion(int *out) { BEGIN(cuDriverGetVersion); *out = version; return 0; }
CUresult cuDeviceGetCount(int *out) { BEGIN(cuDeviceGetCount); *out = devices; return 0; }
CUresult cuDeviceGet(CUdevice *out, int ordinal) { BEGIN(cuDeviceGet); *out = ordinal; return 0; }
CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    BEGIN(cuDeviceGetName);
    strncpy(name, "Fake GPU", len);
    return 0;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    BEGIN(cuDeviceGetUuid_v2);
    for (int i = 0; i < 16; ++i)
        uuid->bytes[i] = i; /* the first byte is 0, as in a C string of no length */
    return 0;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    BEGIN(cuDeviceTotalMem_v2);
    *bytes = 8ull << 30;
    return 0;
}
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice dev) {
    BEGIN(cuDeviceGetAttribute);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *out = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *out = 101376; break;
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED: return CUDA_ERROR_INVALID_VALUE;
    default: *out = 1000 + attribute;
    }
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev) {
    BEGIN(cuDevicePrimaryCtxRetain);
    ++retained;
    *out = (CUcontext)(uintptr_t)(0x1000 + dev);
    return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    --retained;
    return 0;
}
CUresult cuCtxGetCurrent(CUcontext *out) { *out = current; return 0; }
CUresult cuCtxSetCurrent(CUcontext ctx) { current = ctx; return 0; }
CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    BEGIN(cuCtxPushCurrent_v2);
    current = ctx;
    ++last_stack;
    return 0;
}
CUresult cuCtxPopCurrent_v2(CUcontext *ctx) { *ctx = current; current = 0; --last_stack; return 0; }
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    BEGIN(cuCtxGetStreamPriorityRange);
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *least = 0;
    *greatest = -5;
    return 0;
}
/* A graph of three: kernel 1, then a copy, then kernel 3; the last is listed first. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *number) {
    BEGIN(cuGraphGetNodes);
    for (uintptr_t i = 0; nodes && i < 3; ++i)
        nodes[i] = (CUgraphNode)(3 - i);
    *number = 3;
    return 0;
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *number) {
    BEGIN(cuGraphNodeGetDependencies);
    *number = (uintptr_t)node > 1;
    if (nodes)
        nodes[0] = (CUgraphNode)((uintptr_t)node - 1);
    return 0;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    BEGIN(cuGraphNodeGetType);
    *type = (uintptr_t)node == 2 ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_KERNEL;
    return 0;
}
CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count,
                            CUjit_option *options, void **values) {
    int code = answer("cuModuleLoadDataEx");
    strncpy(last_image, image, sizeof last_image - 1);
    for (unsigned int i = 0; i < count; ++i) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER)
            strcpy(values[i], "ptxas info : 0 bytes gmem\n");
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER && code == CUDA_ERROR_INVALID_PTX)
            strcpy(values[i], "ptxas line 3;\n  error : Unknown   symbol 'x'\n");
    }
    *out = (CUmodule)0x2000;
    return code;
}
CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction f) {
    BEGIN(cuFuncGetAttribute);
    *out = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? shared_limit
           : attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? 1376 : 100 + attribute;
    return 0;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    BEGIN(cuFuncSetAttribute);
    shared_limit = value;
    return 0;
}
CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size) {
    BEGIN(cuFuncGetParamInfo);
    if (index > 2)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 8 * index;
    *size = index == 1 ? 4 : 8;
    return 0;
}
CUresult cuGetErrorName(CUresult error, const char **out) {
    if (error != CUDA_ERROR_OUT_OF_MEMORY) {
        *out = 0;
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = "CUDA_ERROR_OUT_OF_MEMORY";
    return 0;
}
CUresult cuGetErrorString(CUresult error, const char **out) {
    *out = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : 0;
    return *out ? 0 : CUDA_ERROR_INVALID_VALUE;
}
"""

_FINDER = r"""
/* Finds a function by its name without the version, as the driver does, and denies one it has. */
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int wanted, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    static const char *const endings[] = {"_v2", ""};
    Dl_info self;
    *pfn = 0;
    if (!strcmp(symbol, "cuMemAlloc")) {
        asked_version = wanted;
        *pfn = (void *)hidden_alloc;
    } else if (strcmp(symbol, "cuMemsetD16Async") && dladdr((void *)hidden_alloc, &self)) {
        void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        for (int i = 0; i < 2 && !*pfn; ++i) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", symbol, endings[i]);
            *pfn = dlsym(library, name);
        }
        dlclose(library);
    }
    return 0;
}
"""


def build(folder: Path, *, without: Iterable[str] = (), finder: bool = False) -> Path:
    """Compile a library in `folder` that lacks the functions `without`; return its path."""
    left_out = set(without)
    own = set(re.findall(r"^CUresult (\w+)\(", _WRITTEN, re.MULTILINE))
    parts = [_WRITTEN]
    for name, parameters in _PROTOTYPE.findall(ABI.read_text("utf-8")):
        if name not in own and not name.startswith("cuGetProcAddress"):
            flat = " ".join(parameters.split())
            parts.append(f'CUresult {name}({flat}) {{ return answer("{name}"); }}')
    if finder:
        parts.append("static CUresult hidden_alloc(CUdeviceptr *p, size_t n)")
        parts.append("{ *p = 0xABC0 + n; return 0; }")
        parts.append(_FINDER)
    source = folder / "libcuda.c"
    text = "\n".join(parts)
    for name in left_out:
        text = re.sub(rf"^CUresult {name}\(", f"CUresult hidden_{name}(", text, flags=re.MULTILINE)
    source.write_text(text, encoding="utf-8")
    output = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", f"-I{ABI.parent}"]
    renamed = [f"-D{name}=hidden_{name}" for name in left_out]
    subprocess.run([*command, *renamed, str(source), "-o", str(output), "-ldl"], check=True)
    return output


class Fake:
    """Functions that control a library made by `build`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.fake_image.restype = ctypes.c_char_p
        self._library.fake_retained.restype = ctypes.c_long

    def answer(self, function: str, code: int) -> None:
        """Make every further call of a function return `code`."""
        self._library.fake_answer(function.encode(), code)

    def be(self, *, version: int = 12040, capability: int = 86, devices: int = 1) -> None:
        """Set the driver's version (12040 is 12.4), the devices' capability and number."""
        self._library.fake_version(version)
        self._library.fake_capability(capability)
        self._library.fake_devices(devices)

    @property
    def retained(self) -> int:
        """Primary contexts retained and not released."""
        return int(self._library.fake_retained())

    @property
    def pushed(self) -> int:
        """Contexts pushed and not popped."""
        return int(self._library.fake_stack())

    @property
    def asked_version(self) -> int:
        """Arguments of cuGetProcAddress for `cuMemAlloc`."""
        return int(self._library.fake_asked_version())

    @property
    def image(self) -> bytes:
        """First bytes of the last loaded image."""
        return bytes(self._library.fake_image())
