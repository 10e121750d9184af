"""Builds small libraries with libtopsrt's interface; a test sets their answers.

Memory is host memory, calls on streams run at once, and only the kernel `fill_f32` computes: enough
to check the backend's arguments. Functions of the newer generation can be left out.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ABI = ROOT / "tops_backend" / "abi.h"

_PROTOTYPE = re.compile(r"^topsError_t (\w+)\(([^;]*)\);", re.MULTILINE)

# Functions with an output; the others only return their configured status.
_WRITTEN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "abi.h"

static struct { const char *name; int code; } answers[64];
static int devices = 1, wide_properties, config_bytes = 72;
static char arch[64] = "dtu-enflame-tops--gcu300";
static _Thread_local int current;
static long live;
static unsigned int launched[8];
static void *launched_stream;
static unsigned char image[1 << 16];
static size_t image_bytes;
static unsigned long long asked_flags;

void fake_answer(const char *name, int code) {
    for (int i = 0; i < 64; ++i)
        if (!answers[i].name || !strcmp(answers[i].name, name)) {
            answers[i].name = strdup(name);
            answers[i].code = code;
            return;
        }
}
void fake_devices(int number) { devices = number; }
void fake_arch(const char *name) { strncpy(arch, name, sizeof arch - 1); }
void fake_wide_properties(int more) { wide_properties = more; }
void fake_config_bytes(int bytes) { config_bytes = bytes; }
long fake_live(void) { return live; }
const unsigned int *fake_launched(void) { return launched; }
void *fake_launched_stream(void) { return launched_stream; }
unsigned long long fake_flags(void) { return asked_flags; }
size_t fake_image(const unsigned char **out) { *out = image; return image_bytes; }

static int answer(const char *name) {
    for (int i = 0; i < 64 && answers[i].name; ++i)
        if (!strcmp(answers[i].name, name))
            return answers[i].code;
    return 0;
}
#define BEGIN(name) int code = answer(#name); if (code) return code

topsError_t topsRuntimeGetVersion(int *out) { BEGIN(topsRuntimeGetVersion); *out = 2050; return 0; }
topsError_t topsGetDeviceCount(int *out) { BEGIN(topsGetDeviceCount); *out = devices; return 0; }
topsError_t topsSetDevice(int device) {
    BEGIN(topsSetDevice);
    if (device < 0 || device >= devices)
        return topsErrorInvalidDevice;
    current = device;
    return 0;
}
topsError_t topsGetDevice(int *out) { BEGIN(topsGetDevice); *out = current; return 0; }
topsError_t topsDeviceGet(topsDevice_t *out, int ordinal) {
    BEGIN(topsDeviceGet);
    *out = ordinal;
    return 0;
}
topsError_t topsDeviceGetName(char *name, int len, topsDevice_t device) {
    BEGIN(topsDeviceGetName);
    strncpy(name, "Fake GCU", len);
    return 0;
}
topsError_t topsDeviceGetPCIBusId(char *text, int len, int device) {
    BEGIN(topsDeviceGetPCIBusId);
    snprintf(text, len, "0000:%02x:00.0", device + 1);
    return 0;
}
topsError_t topsDeviceTotalMem(size_t *bytes, topsDevice_t device) {
    BEGIN(topsDeviceTotalMem);
    *bytes = 48ull << 30;
    return 0;
}
topsError_t topsDeviceGetAttribute(int *out, topsDeviceAttribute_t attribute, int device) {
    BEGIN(topsDeviceGetAttribute);
    switch (attribute) {
    case topsDeviceAttributeComputeCapabilityMajor: *out = 3; break;
    case topsDeviceAttributeComputeCapabilityMinor: *out = 0; break;
    case topsDeviceAttributeMultiprocessorCount: *out = 2; break;
    case topsDeviceAttributeMaxThreadsPerBlock: *out = 12; break;
    case topsDeviceAttributeMaxSharedMemoryPerBlock: *out = 67108864; break;
    case topsDeviceAttributeClockRate: *out = 1416000; break;
    default: return topsErrorInvalidValue;
    }
    return 0;
}
topsError_t topsGetDeviceProperties(topsDeviceProp_t *out, int device) {
    BEGIN(topsGetDeviceProperties);
    memset(out, 0, sizeof *out);
    /* A newer library writes past the structure of the header. */
    if (wide_properties)
        memset(out + 1, 0xAB, wide_properties);
    out->maxThreadsPerMultiProcessor = 12;
    strcpy(out->gcuArchName, arch);
    return 0;
}
const char *topsGetErrorName(topsError_t error) { return ""; }
const char *topsGetErrorString(topsError_t error) {
    return error == topsErrorOutOfMemory ? "topsErrorOutOfMemory"
           : error == topsErrorAssert    ? "a kernel asserted"
                                         : NULL;
}
topsError_t topsMemGetInfo(size_t *free, size_t *total) {
    BEGIN(topsMemGetInfo);
    *free = 1 << 20;
    *total = 48ull << 30;
    return 0;
}
static topsError_t give(void **out, size_t size) {
    *out = calloc(1, size ? size : 1);
    ++live;
    return 0;
}
static topsError_t take(void *pointer) {
    live -= pointer != NULL;
    free(pointer);
    return 0;
}
topsError_t topsMalloc(void **out, size_t size) { BEGIN(topsMalloc); return give(out, size); }
topsError_t topsFree(void *pointer) { return take(pointer); }
topsError_t topsMallocAsync(void **out, size_t size, topsStream_t stream, uint64_t flags) {
    BEGIN(topsMallocAsync);
    asked_flags = flags;
    return give(out, size);
}
topsError_t topsFreeAsync(void *pointer, topsStream_t stream) { return take(pointer); }
topsError_t topsHostMalloc(void **out, size_t size, unsigned int flags) {
    BEGIN(topsHostMalloc);
    return give(out, size);
}
topsError_t topsHostFree(void *pointer) { return take(pointer); }
topsError_t topsHostGetDevicePointer(void **out, void *host, unsigned int flags) {
    *out = host;
    return 0;
}
#define COPY(name, destination, source)                                                            \
    topsError_t name(destination d, source s, size_t n, topsStream_t stream) {                     \
        BEGIN(name);                                                                               \
        memcpy(d, s, n);                                                                           \
        return 0;                                                                                  \
    }
COPY(topsMemcpyHtoDAsync, topsDeviceptr_t, void *)
COPY(topsMemcpyDtoHAsync, void *, topsDeviceptr_t)
COPY(topsMemcpyDtoDAsync, topsDeviceptr_t, topsDeviceptr_t)
#define FILL(name, type, told)                                                                     \
    topsError_t name(topsDeviceptr_t d, told value, size_t count, topsStream_t stream) {           \
        BEGIN(name);                                                                               \
        for (size_t i = 0; i < count; ++i)                                                         \
            ((type *)d)[i] = (type)value;                                                          \
        return 0;                                                                                  \
    }
FILL(topsMemsetD8Async, uint8_t, unsigned char)
FILL(topsMemsetD16Async, uint16_t, unsigned short)
FILL(topsMemsetD32Async, uint32_t, int)
topsError_t topsStreamCreateWithFlags(topsStream_t *out, unsigned int flags) {
    BEGIN(topsStreamCreateWithFlags);
    asked_flags = flags;
    return give((void **)out, 8);
}
topsError_t topsStreamDestroy(topsStream_t stream) { return take(stream); }
topsError_t topsStreamAddCallback(topsStream_t stream, topsStreamCallback_t callback, void *data,
                                  unsigned int flags) {
    BEGIN(topsStreamAddCallback);
    callback(stream, 0, data);
    return 0;
}
topsError_t topsLaunchHostFunc(topsStream_t stream, topsHostFn_t function, void *data) {
    BEGIN(topsLaunchHostFunc);
    function(data);
    return 0;
}
topsError_t topsEventCreateWithFlags(topsEvent_t *out, unsigned int flags) {
    BEGIN(topsEventCreateWithFlags);
    return give((void **)out, 8);
}
topsError_t topsEventDestroy(topsEvent_t event) { return take(event); }
topsError_t topsEventElapsedTime(float *out, topsEvent_t start, topsEvent_t stop) {
    BEGIN(topsEventElapsedTime);
    *out = 1.5f;
    return 0;
}
static unsigned long long word(size_t at) {
    unsigned long long value;
    memcpy(&value, image + at, 8);
    return value;
}
topsError_t topsModuleLoadData(topsModule_t *out, const void *data) {
    BEGIN(topsModuleLoadData);
    /* No size is given: it is the end of the second entry of the bundle. */
    memcpy(image, data, 128);
    size_t second = 56 + word(48);
    image_bytes = word(second) + word(second + 8);
    memcpy(image, data, image_bytes);
    return give((void **)out, 8);
}
topsError_t topsModuleUnload(topsModule_t module) { return take(module); }
topsError_t topsModuleGetFunction(topsFunction_t *out, topsModule_t module, const char *name) {
    BEGIN(topsModuleGetFunction);
    for (size_t i = 0; i + strlen(name) < image_bytes; ++i)
        if (!strcmp((char *)image + i, name)) {
            *out = (topsFunction_t)(image + i);
            return 0;
        }
    return topsErrorNotFound;
}
topsError_t topsModuleGetGlobal(topsDeviceptr_t *out, size_t *bytes, topsModule_t module,
                                const char *name) {
    return topsErrorNotFound;
}
topsError_t topsFuncGetAttribute(int *out, topsFunction_attribute attribute, topsFunction_t f) {
    BEGIN(topsFuncGetAttribute);
    *out = attribute == TOPS_FUNC_ATTRIBUTE_NUM_REGS ? 64 : 0;
    return 0;
}
static topsError_t launch(topsFunction_t f, const unsigned int *geometry, topsStream_t stream,
                          void **parameters) {
    memcpy(launched, geometry, sizeof launched);
    launched_stream = stream;
    if (!strcmp((char *)f, "fill_f32"))
        for (int i = 0; i < *(int *)parameters[1]; ++i)
            (*(float **)parameters[0])[i] = *(float *)parameters[2];
    return 0;
}
topsError_t topsModuleLaunchKernel(topsFunction_t f, unsigned int gx, unsigned int gy,
                                   unsigned int gz, unsigned int bx, unsigned int by,
                                   unsigned int bz, unsigned int shared, topsStream_t stream,
                                   void **parameters, void **extra) {
    BEGIN(topsModuleLaunchKernel);
    unsigned int geometry[8] = {gx, gy, gz, bx, by, bz, shared, 0};
    return launch(f, geometry, stream, parameters);
}
#define READ(configuration)                                                                        \
    const configuration *c = config;                                                               \
    int cooperative = c->numAttrs == 1 && c->attrs->id == topsLaunchAttributeCooperative &&        \
                      c->attrs->val.cooperative;                                                   \
    unsigned int geometry[8] = {c->gridDim.x,  c->gridDim.y,  c->gridDim.z,                        \
                                c->blockDim.x, c->blockDim.y, c->blockDim.z,                       \
                                c->dynamicSmemBytes, cooperative};                                 \
    if (c->localSmemBytes)                                                                         \
        return topsErrorInvalidConfiguration;                                                      \
    return launch(f, geometry, c->stream, parameters);
topsError_t topsModuleLaunchKernelEx(const void *config, topsFunction_t f, void **parameters,
                                     void **extra) {
    BEGIN(topsModuleLaunchKernelEx);
    if (config_bytes == 72) {
        READ(uhalTopsLaunchConfig72)
    }
    READ(uhalTopsLaunchConfig64)
}
"""


def newer_functions() -> frozenset[str]:
    """The functions that only the newer generation has."""
    found = re.findall(r"#define UHAL_TOPS_NEWER_(\w+) 1", ABI.read_text("utf-8"))
    return frozenset(found)


def build(folder: Path, *, without: Iterable[str] = ()) -> Path:
    """Compile a library in `folder` that lacks the functions `without`; return its path."""
    left_out = set(without)
    own = set(re.findall(r"^(?:const char \*|topsError_t )(\w+)\(", _WRITTEN, re.MULTILINE))
    own |= set(re.findall(r"^(?:COPY|FILL)\((\w+)", _WRITTEN, re.MULTILINE))
    parts = [_WRITTEN]
    for name, parameters in _PROTOTYPE.findall(ABI.read_text("utf-8")):
        if name not in own:
            flat = " ".join(parameters.split())
            parts.append(f'topsError_t {name}({flat}) {{ return answer("{name}"); }}')
    source = folder / "libtopsrt.c"
    source.write_text("\n".join(parts), encoding="utf-8")
    output = folder / "libtopsrt.so.1"
    command = ["cc", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", f"-I{ABI.parent}"]
    renamed = [f"-D{name}=hidden_{name}" for name in left_out]
    subprocess.run([*command, *renamed, str(source), "-o", str(output)], check=True)
    return output


class Fake:
    """Functions that control a library made by `build`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.fake_live.restype = ctypes.c_long
        self._library.fake_image.restype = ctypes.c_size_t
        self._library.fake_flags.restype = ctypes.c_ulonglong
        self._library.fake_launched.restype = ctypes.POINTER(ctypes.c_uint)
        self._library.fake_launched_stream.restype = ctypes.c_void_p

    def answer(self, function: str, code: int) -> None:
        """Make every further call of a function return `code`."""
        self._library.fake_answer(function.encode(), code)

    def be(self, *, devices: int = 1, arch: str = "dtu-enflame-tops--gcu300") -> None:
        """Set the number of devices and their architecture."""
        self._library.fake_devices(devices)
        self._library.fake_arch(arch.encode())

    def widen_properties(self, more: int) -> None:
        """Write `more` bytes past the end of the published structure of properties."""
        self._library.fake_wide_properties(more)

    def read_config_of(self, nbytes: int) -> None:
        """Accept launch configurations of 64 or of 72 bytes."""
        self._library.fake_config_bytes(nbytes)

    @property
    def live(self) -> int:
        """Number of living objects."""
        return int(self._library.fake_live())

    @property
    def flags(self) -> int:
        """The flags of the last stream or stream-ordered allocation."""
        return int(self._library.fake_flags())

    @property
    def launched(self) -> list[int]:
        """Grid, block, shared bytes of the last launch, and 1 when it was cooperative."""
        return list(self._library.fake_launched()[:8])

    @property
    def launched_stream(self) -> int | None:
        """The stream of the last launch."""
        found: int | None = self._library.fake_launched_stream()
        return found

    @property
    def image(self) -> bytes:
        """The last image loaded."""
        data = ctypes.POINTER(ctypes.c_ubyte)()
        size = self._library.fake_image(ctypes.byref(data))
        return bytes(data[:size])
