"""The linker of the simulated CUDA driver: PTX of several texts becomes one module."""

from __future__ import annotations

import textwrap

from tests.simulated.process import needs_simulator, run_python

pytestmark = needs_simulator

PROLOGUE = """
import ctypes
import numpy as np
from uhal import *

HEAD = ".version 7.8\\n.target sm_80\\n.address_size 64\\n"
SIGNATURE = ".func (.param .b32 got) raised (.param .b32 given)"
LIBRARY = HEAD + ".visible " + SIGNATURE + '''
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [given];
    add.s32 %r2, %r1, BONUS;
    st.param.b32 [got], %r2;
    ret;
}
'''
KERNEL = HEAD + ".extern " + SIGNATURE + ''';
.visible .entry raise_all (.param .u64 .ptr .global values)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.s32 %r2, [%rd3];
    {
    .param .b32 given;
    .param .b32 got;
    st.param.b32 [given], %r2;
    call (got), raised, (given);
    ld.param.b32 %r3, [got];
    }
    st.global.s32 [%rd3], %r3;
    ret;
}
'''
PTX, OBJECT, NVVM = 1, 3, 5
INVALID_VALUE, INVALID_PTX, INVALID_HANDLE, FILE_NOT_FOUND, NOT_SUPPORTED = 1, 218, 400, 301, 801

device = Api.quick_init(0, "cuda")
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
log = ctypes.create_string_buffer(1000)

def created():
    # an error log and the bytes it has; both stay the caller's
    options = (ctypes.c_int * 2)(5, 6)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    state = ctypes.c_void_p()
    assert driver.cuLinkCreate_v2(2, options, values, ctypes.byref(state)) == 0
    state.kept = options, values
    return state

def added(state, text, kind=PTX, name=b"a text"):
    data = text.encode() + bytes(1)
    size = ctypes.c_size_t(len(data))
    return driver.cuLinkAddData_v2(state, kind, data, size, name, 0, None, None)

def completed(state):
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    code = driver.cuLinkComplete(state, ctypes.byref(image), ctypes.byref(size))
    return code, ctypes.string_at(image, size.value) if code == 0 else b""
"""


def run(script: str) -> None:
    run_python("-c", PROLOGUE + textwrap.dedent(script))


def test_a_kernel_calls_what_another_text_defines() -> None:
    run(
        """
        import tempfile
        values = np.random.default_rng().integers(-1000, 1000, 32, dtype="i4")
        bonus = int(np.random.default_rng().integers(1, 1000))
        state = created()
        with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
            file.write(LIBRARY.replace("BONUS", str(bonus)).encode())
            file.flush()
            assert driver.cuLinkAddFile_v2(state, PTX, file.name.encode(), 0, None, None) == 0
        assert added(state, KERNEL) == 0
        code, image = completed(state)
        assert code == 0
        kernel = Module.from_bytes(image).get_function("raise_all")
        assert driver.cuLinkDestroy(state) == 0
        x = DeviceBuffer.from_numpy(values)
        launch(kernel, 1, 32, (x,))
        assert np.array_equal(x.to_numpy(), values + bonus), (values, bonus)
        """
    )


def test_what_cannot_be_linked_is_said_in_the_log() -> None:
    run(
        """
        state = created()
        assert added(state, LIBRARY.replace("BONUS", "1")) == 0
        assert added(state, LIBRARY.replace("BONUS", "2")) == 0
        assert completed(state)[0] == INVALID_PTX and b"raised" in log.value, log.value
        assert added(state, "no code at all") != 0 and b"a text" in log.value, log.value
        assert added(state, "ELF", OBJECT) == NOT_SUPPORTED and b"host objects" in log.value
        assert added(state, "BC", NVVM) == NOT_SUPPORTED
        missing = driver.cuLinkAddFile_v2(state, PTX, b"/nowhere.ptx", 0, None, None)
        assert missing == FILE_NOT_FOUND
        assert driver.cuLinkDestroy(state) == 0
        assert added(state, KERNEL) == INVALID_HANDLE
        assert driver.cuLinkDestroy(state) == INVALID_HANDLE
        assert completed(created())[0] == INVALID_VALUE
        """
    )
