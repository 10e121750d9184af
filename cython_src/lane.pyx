# cython: language_level=3, binding=True, embedsignature=False
# cython: cdivision=True, auto_pickle=False
"""The compiled lane: streams, events, buffers, functions and launches over a backend's hot table.

It checks every launch before anything native is called and calls the backend through C function
pointers. It must not know any vendor, load any library, or word an error about an argument
(`uhal/arguments.py` does). Locking: every book kept here changes under the GIL, which is let go
of only around native calls that may block.

One translation unit, a file an idea:

    native.pxi       the C it is written against
    elements.pxi     element types
    context.pxi      an opened device: binding it, its state, native failures
    process.pxi      which device is meant; fork and exit
    waiting.pxi      waiting on the host, and the signals that end it
    stream_core.pxi  the native half of a stream, and what is known to be done in it
    stream.pxi       streams as users hold them
    callbacks.pxi    host callbacks
    event.pxi        events
    block.pxi        pieces of device memory, and who still uses them
    owners.pxi       who has memory, for when there is none left
    free_list.pxi    blocks that nobody has
    segments.pxi     what the pool has from the driver
    exported.pxi     memory used out of the pool's sight
    pool.pxi         device memory handed out and taken back
    pool_native.pxi  stream-ordered allocation by the driver itself
    pool_modes.pxi   UHAL_POOL=direct and guard
    buffer.pxi       DeviceBuffer and its views
    host_buffer.pxi  pinned host memory
    copies.pxi       copies and fills
    copies_2d.pxi    copies of rows a pitch apart
    foreign.pxi      streams and memory of other libraries
    dlpack.pxi       tensors by DLPack: its terms, and out
    dlpack_in.pxi    and in
    exchange.pxi     tensors of other libraries as arguments of a launch
    sharing.pxi      memory across devices and processes
    function.pxi     modules, kernels, bound launches
    packing.pxi      geometry and arguments read and checked
    launch_ex.pxi    launches that ask for more than geometry
    launch.pxi       a launch
    result_launch.pxi    a launch that makes the buffer of its result
    slot_maker.pxi       objects of classes with slots, made in one call
    recording.pxi    the launches of a plan, and its slots
    capture.pxi      streams that record instead of running
    capture_order.pxi    what streams may do meanwhile
    captured_work.pxi    what they record
    plan.pxi         what was recorded, run as a whole
    plan_slots.pxi   the values that change from run to run
"""

import atexit as _atexit
import operator as _operator
import os as _os
import sys as _sys
import threading as _threading
import time as _time
import warnings as _warnings
import weakref as _weakref

import numpy as _numpy

cimport numpy as _cnumpy

from uhal import dtypes as _dtypes
from uhal import errors as _errors

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


cdef bint is_config(object value) except -1:
    global _config_class
    if _config_class is None:
        from uhal.launch_config import LaunchConfig
        _config_class = LaunchConfig
    return isinstance(value, _config_class)


cdef class LeftWait
cdef class StreamCore
cdef class Stream
cdef class Event
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

include "elements.pxi"
include "context.pxi"
include "process.pxi"
include "waiting.pxi"
include "stream_core.pxi"
include "stream.pxi"
include "callbacks.pxi"
include "event.pxi"
include "owners.pxi"
include "block.pxi"
include "free_list.pxi"
include "segments.pxi"
include "exported.pxi"
include "pool.pxi"
include "pool_native.pxi"
include "pool_modes.pxi"
include "buffer.pxi"
include "host_buffer.pxi"
include "copies.pxi"
include "copies_2d.pxi"
include "foreign.pxi"
include "dlpack.pxi"
include "dlpack_in.pxi"
include "exchange.pxi"
include "sharing.pxi"
include "function.pxi"
include "packing.pxi"
include "launch_ex.pxi"
include "launch.pxi"
include "result_launch.pxi"
include "slot_maker.pxi"
include "recording.pxi"
include "capture.pxi"
include "capture_order.pxi"
include "captured_work.pxi"
include "plan.pxi"
include "plan_slots.pxi"

# A free-threaded Python turns its lock on for a module that does not say it can do without, and this
# one does not, unless it was started with the lock forced off.
if hasattr(_sys, "_is_gil_enabled") and not _sys._is_gil_enabled():
    raise ImportError(
        "uhal keeps its books under the GIL, and this Python was started with it forced off: leave "
        "out PYTHON_GIL=0 and -X gil=0"
    )
if uhal_state_watch_forks() != 0:
    raise OSError("pthread_atfork failed")
