"""The ROCm backend's verbs: what `uhal` asks of a backend, answered by the HSA runtime.

So far: finding the runtime and its devices. `probe` says that launching is not there yet, so that
nothing chooses the backend.
"""

from __future__ import annotations

import ctypes
import os
from typing import NoReturn

from rocm_backend._agents import Gpu, gpus
from rocm_backend._errors import ADVICE, CLASS_OF, status_name
from rocm_backend._library import LIBRARY_VARIABLE, bind, find, header
from uhal.abi import Library
from uhal.contract import Backend, BackendRecord, DeviceSummary, joined_reasons
from uhal.errors import DeviceError, NotSupportedError

_INSTALL = (
    "install AMD's ROCm runtime (Debian and Ubuntu: libhsa-runtime64-1), or set "
    f"{LIBRARY_VARIABLE} to its libhsa-runtime64.so.1"
)
_KERNEL_DRIVER = "/dev/kfd"
_NOT_YET = "launching on AMD devices is not in this version of uhal"


class RocmBackend(Backend):
    """AMD's devices. Only `probe` works in this version."""

    name = "rocm"
    dlpack_device_type = 10  # kDLROCM

    @classmethod
    def probe(cls) -> BackendRecord:
        """Open the HSA runtime, list its GPUs and close it again. Creates nothing on them."""
        search = find()
        if search.handle is None:
            reason = joined_reasons(search.attempts)
            return BackendRecord(cls.name, "absent", reason, _INSTALL, search.attempts)
        found: list[Gpu] = []
        version = None
        library = bind(search, cls._fail)
        try:
            status = library.unchecked("hsa_init")()
            if status == 0:
                try:
                    version = _version(library)
                    found.extend(gpus(library))
                finally:
                    library.unchecked("hsa_shut_down")()
        except DeviceError as error:
            return BackendRecord(cls.name, "refused", str(error), "", search.attempts, search.path)
        devices = tuple(
            DeviceSummary(
                ordinal,
                gpu.name,
                f"{', '.join(map(str, gpu.target.isas))}, {gpu.compute_units} compute units",
            )
            for ordinal, gpu in enumerate(found)
        )
        if devices:
            reason, next_step = f"{_devices(len(devices))}; {_NOT_YET}", ""
        else:
            reason = "runtime found, no device" + (
                f" (hsa_init: {_words(library, status)})" if status else ""
            )
            next_step = _why_no_device()
        return BackendRecord(
            cls.name,
            "refused" if devices else "absent",
            reason,
            next_step,
            search.attempts,
            search.path,
            version,
            devices,
        )

    @classmethod
    def open(cls) -> NoReturn:
        """Refuse: `NotSupportedError`."""
        raise NotSupportedError(_NOT_YET, backend=cls.name)

    @classmethod
    def _fail(cls, call: str, code: int) -> NoReturn:
        name = status_name(header().constants, code)
        advice = f". {ADVICE[name]}" if name in ADVICE else ""
        error = CLASS_OF.get(name, DeviceError)
        raise error(f"{call}: {name} ({code}){advice}", backend=cls.name, call=call, code=code)


def _version(library: Library) -> str:
    numbers = []
    for part in ("MAJOR", "MINOR"):
        value = ctypes.c_uint16()
        attribute = library.header.constants[f"HSA_SYSTEM_INFO_VERSION_{part}"]
        library.hsa_system_get_info(attribute, ctypes.byref(value))
        numbers.append(str(value.value))
    return f"HSA {'.'.join(numbers)}"


def _words(library: Library, status: int) -> str:
    """What the runtime calls a status."""
    text = ctypes.c_char_p()
    if library.unchecked("hsa_status_string")(status, ctypes.byref(text)) or text.value is None:
        return f"status {status:#x}"
    return text.value.decode("utf-8", "replace")


def _why_no_device() -> str:
    if not os.path.exists(_KERNEL_DRIVER):
        return (
            f"there is no {_KERNEL_DRIVER}: load the amdgpu kernel driver (a container needs "
            f"--device={_KERNEL_DRIVER} --device=/dev/dri)"
        )
    if not os.access(_KERNEL_DRIVER, os.R_OK | os.W_OK):
        return f"{_KERNEL_DRIVER} may not be opened: join the group render"
    return "rocminfo lists what the runtime sees; is ROCR_VISIBLE_DEVICES empty?"


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"
