"""Loading a module, with what the driver's compiler says about it."""

from __future__ import annotations

import ctypes

from cuda_backend._library import DriverLibrary

_LOG_BYTES = 16384


def load_module(library: DriverLibrary, image: bytes) -> tuple[int, int, str]:
    """Load PTX, a cubin or a fatbin into the current context.

    Returns the driver's status, the module's handle, and the log of its compiler, whitespace
    folded: the errors, or where there are none the remarks.
    """
    constants = library.header.constants
    remarks = ctypes.create_string_buffer(_LOG_BYTES)
    errors = ctypes.create_string_buffer(_LOG_BYTES)
    chosen = {
        "CU_JIT_INFO_LOG_BUFFER": ctypes.addressof(remarks),
        "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES": _LOG_BYTES,
        "CU_JIT_ERROR_LOG_BUFFER": ctypes.addressof(errors),
        "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": _LOG_BYTES,
    }
    options = (ctypes.c_int * len(chosen))(*(constants[name] for name in chosen))
    # Sizes are not pointed to but passed in the pointer itself; the driver overwrites them.
    values = (ctypes.c_void_p * len(chosen))(*chosen.values())
    module = ctypes.c_void_p()
    # PTX must end with a NUL, which Python keeps behind the last byte of every bytes object.
    status = library.unchecked("cuModuleLoadDataEx")(
        module, ctypes.cast(ctypes.c_char_p(image), ctypes.c_void_p), len(chosen), options, values
    )
    log = errors.value or remarks.value
    return status, module.value or 0, " ".join(log.decode("utf-8", "replace").split())
