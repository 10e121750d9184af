# cython: language_level=3, binding=True, embedsignature=False
# cython: cdivision=True, auto_pickle=False
"""The compiled lane: devices, streams, events, buffers, functions and launches over a hot table.

It checks every launch before any native call and calls the backend through C function pointers. It
must not know any vendor, load any library, or word an error about an argument (`uhal/arguments.py`
does). Locking: all state here changes under the GIL, which is released only around native calls
that may block.

One translation unit, a file for each idea:

    native.pxi, elements.pxi    the C it is written against; element types
    slot_calls.pxi              a native call of a slot: device made current, result raised
    device/     an opened device: binding it, its state, native failures; fork and exit
    streams/    streams, how far their work is known to be done, waits, host callbacks, events
    memory/     blocks and who uses them, the pool and its modes, buffers, copies, sharing
    interop/    streams and memory of other libraries, DLPack, their tensors as arguments
    launch/     modules and kernels; arguments read and checked; launches, also into new buffers
    capture/    streams that record; plans, which replay the recording; values that change
    profile/    calls and their times, on the host and on devices, while a profile is running
"""

import atexit as _atexit
import operator as _operator
import sys as _sys
import threading as _threading
import time as _time
import warnings as _warnings
import weakref as _weakref
from contextvars import ContextVar as _ContextVar

import numpy as _numpy

cimport numpy as _cnumpy

from uhal import dtypes as _dtypes
from uhal import environment as _environment
from uhal import errors as _errors
from uhal import habits as _habits
from uhal import records as _records

include "native.pxi"

_cnumpy.import_array()

cdef enum:
    STREAM_NON_BLOCKING = 1     # CU_STREAM_NON_BLOCKING
    EVENT_BLOCKING_SYNC = 1     # CU_EVENT_BLOCKING_SYNC
    EVENT_DISABLE_TIMING = 2    # CU_EVENT_DISABLE_TIMING
    HOST_ALLOC_PORTABLE = 1     # CU_MEMHOSTALLOC_PORTABLE
    HOST_ALLOC_MAPPED = 2       # CU_MEMHOSTALLOC_DEVICEMAP

    DL_CPU = 1                  # DLDeviceType of the DLPack specification
    DL_CUDA = 2
    DL_CUDA_HOST = 3
    DL_CUDA_MANAGED = 13

cdef size_t NO_LIMIT = <size_t>-1
cdef double EXIT_DEADLINE_SECONDS = 10.0

# These modules import the lane, so the lane imports them when first needed.
cdef object _words = None
cdef object _memory = None
cdef object _host_values = None
cdef object _config_class = None


cdef object words():
    global _words
    if _words is None:
        from uhal import arguments
        _words = arguments
    return _words


cdef object memory_words():
    global _memory
    if _memory is None:
        from uhal import memory
        _memory = memory
    return _memory


cdef object host_values():
    global _host_values
    if _host_values is None:
        from uhal import _host_values as found
        _host_values = found
    return _host_values


cdef bint is_config(object value) except -1:
    global _config_class
    if _config_class is None:
        from uhal.launch_config import LaunchConfig
        _config_class = LaunchConfig
    return isinstance(value, _config_class)


cdef class Device
cdef class LeftWait
cdef class StreamCore
cdef class Stream
cdef class Event
cdef class _Moment
cdef class _Reported
cdef class Segment
cdef class Block
cdef class Pool
cdef class DeviceBuffer
cdef class PinnedYard
cdef class PinnedBlock
cdef class HostMemory
cdef class HostBuffer
cdef class ModuleHandle
cdef class Function
cdef class BoundLaunch
cdef class Recording
cdef class PlanSlot
cdef class Capture
cdef class Plan
cdef struct Packed
cdef struct Watched
cdef class ProfileSession
cdef class ProfiledDevice

include "integers.pxi"
include "habits.pxi"
include "elements.pxi"
include "profile/session.pxi"
include "profile/device_times.pxi"
include "device/hot_table.pxi"
include "device/context.pxi"
include "device/failures.pxi"
include "slot_calls.pxi"    # made of hot_table.h by the build, as native.pxi says
include "device/process.pxi"
include "device/float_control.pxi"
include "device/device.pxi"
include "streams/waiting.pxi"
include "streams/stream_core.pxi"
include "streams/reports.pxi"
include "streams/stream.pxi"
include "streams/callbacks.pxi"
include "streams/event.pxi"
include "streams/awaiting.pxi"
include "memory/owners.pxi"
include "memory/block.pxi"
include "memory/free_list.pxi"
include "memory/segments.pxi"
include "memory/exported.pxi"
include "memory/held.pxi"
include "memory/pool.pxi"
include "memory/pool_native.pxi"
include "memory/pool_modes.pxi"
include "memory/pointer.pxi"
include "memory/array_habits.pxi"
include "memory/buffer.pxi"
include "memory/new_buffer.pxi"
include "memory/host_buffer.pxi"
include "memory/native_copies.pxi"
include "memory/copies.pxi"
include "memory/fills.pxi"
include "memory/copies_2d.pxi"
include "interop/foreign.pxi"
include "interop/dlpack.pxi"
include "interop/dlpack_in.pxi"
include "interop/exchange.pxi"
include "memory/sharing.pxi"
include "launch/observing.pxi"
include "launch/function.pxi"
include "launch/packing.pxi"
include "launch/launch_ex.pxi"
include "launch/launch.pxi"
include "launch/launch_sequence.pxi"
include "launch/slot_maker.pxi"
include "launch/remembered_call.pxi"
include "launch/remembered_view.pxi"
include "launch/remembered_creation.pxi"
include "launch/read_number.pxi"
include "capture/recording.pxi"
include "capture/capture.pxi"
include "capture/capture_order.pxi"
include "capture/captured_work.pxi"
include "capture/plan.pxi"
include "capture/plan_slots.pxi"
include "profile/watching.pxi"
include "profile/range.pxi"
include "made_by.pxi"

# A free-threaded Python turns the GIL on for a module that does not declare support without it.
# This module declares no support, so the GIL is off here only if the user forced it off.
if hasattr(_sys, "_is_gil_enabled") and not _sys._is_gil_enabled():
    raise ImportError(
        "uhal needs the GIL, and this Python was started with the GIL forced off. Leave out "
        "PYTHON_GIL=0 and -X gil=0."
    )
refuse_names()
if uhal_state_watch_forks() != 0:
    raise OSError("pthread_atfork failed")
