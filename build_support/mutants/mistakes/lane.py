"""Mistakes in the lane."""

from __future__ import annotations

from build_support.mutants.compiled import Compiled


def _lane(path: str, text: str, replacement: str, *tests: str, behind: str = "") -> Compiled:
    files = tuple(f"tests/unit/{test}.py" for test in tests)
    return Compiled(f"cython_src/{path}", text, replacement, files, behind)


MISTAKES = (
    _lane(
        "memory/fills.pxi",
        "buffer.nbytes % width or buffer.address % width",
        "buffer.nbytes % width",
        *("test_lane_buffers", "test_lane_refusals"),
    ),
    _lane(
        "memory/copies.pxi",
        "array.nbytes != buffer.nbytes",
        "array.nbytes > buffer.nbytes",
        *("test_lane_buffers", "test_lane_refusals"),
        behind='array = host_values().byte_array("source", source)\n        if ',
    ),
    _lane(
        "memory/pointer.pxi",
        "isinstance(address, bool) or not isinstance(address, int)",
        "not isinstance(address, int)",
        *("test_lane_buffers", "test_lane_refusals", "test_lane_objects"),
    ),
    _lane(
        "memory/block.pxi",
        "(<Block>block).stamp_count == 0 or (<Block>block).stamps.stream_id != stream_id",
        "(<Block>block).stamp_count == 0",
        *("test_lane_pool", "test_lane_memory_of_launches"),
    ),
    _lane(
        "launch/launch_sequence.pxi",
        "passed.start + passed.size * passed.dtype.itemsize > buffer.nbytes",
        "passed.start + passed.size > buffer.nbytes",
        "test_lane_launch_sequence",
    ),
    _lane(
        "launch/launch_sequence.pxi",
        "(size is None) != (dtype is None)",
        "False",
        "test_lane_launch_sequence",
    ),
    _lane(
        "launch/packing.pxi",
        "fabs(number) <= FLT_MAX or not isfinite(number)",
        "True",
        "test_lane_arguments",
    ),
    _lane(
        "launch/remembered_call.pxi",
        "taken.layouts[index] != layout",
        "False",
        "test_lane_remembered_call",
    ),
    _lane(
        "launch/remembered_view.pxi",
        "slot_at(<PyObject *>made, at[0]) == slot_at(given[0], at[0])",
        "True",
        "test_lane_remembered_view",
    ),
    _lane(
        "launch/remembered_creation.pxi",
        "<uint64_t>axes << 3 | TUPLE_WORD",
        "<uint64_t>TUPLE_WORD",
        "test_lane_remembered_creation",
    ),
    _lane(
        "interop/dlpack.pxi",
        "buffer.readonly and not copy",
        "False",
        *("test_lane_interop", "test_lane_buffers"),
        behind="return versioned_capsule(exported, shape, strides, own, flags)\n    if ",
    ),
    _lane(
        "interop/foreign.pxi",
        "where is not None and where != context.ordinal",
        "False",
        *("test_lane_interop", "test_lane_buffers"),
    ),
    _lane(
        "interop/foreign.pxi",
        "type(producer) is int and 0 < producer < 2**64",
        "type(producer) is int and 0 <= producer < 2**64",
        *("test_malformed_tensors", "test_lane_interop"),
    ),
    _lane(
        "streams/stream.pxi",
        'min(max(read_index("priority", priority), greatest), least)',
        'read_index("priority", priority)',
        *("test_lane_objects", "test_lane_refusals"),
    ),
    _lane(
        "profile/session.pxi",
        "session.count >= session.limit",
        "session.count > session.limit",
        "test_profile",
    ),
    Compiled(
        "cython_src/profile/watching.pxi",
        "2 if kind == OPERATION_SET_16 else 1",
        "1",
        ("tests/conformance/test_profile.py",),
    ),
    _lane(
        "launch/packing.pxi",
        "<uint64_t>geometry[axis] * geometry[3 + axis] > function.max_grid_threads",
        "<uint64_t>geometry[axis] * geometry[3 + axis] > function.max_grid_threads + 1",
        "test_launch_config",
    ),
    _lane(
        "capture/capture_order.pxi",
        "max(clock.get(number, 0), reached)",
        "reached",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "not (buffer.readonly and slot.is_written)",
        "True",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.context is plan.context",
        "True",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.context is not plan.context or not buffer.nbytes",
        "not buffer.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "one.address < other.address + other.nbytes",
        "one.address <= other.address + other.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "capture/plan_slots.pxi",
        "buffer.address + buffer.nbytes <= slot.buffer.address + slot.buffer.nbytes",
        "buffer.address + buffer.nbytes < slot.buffer.address + slot.buffer.nbytes",
        "test_lane_plans",
    ),
    _lane(
        "memory/copies_2d.pxi",
        "(height - 1) * step + width > size",
        "height * step > size",
        *("test_lane_buffers", "test_lane_refusals"),
    ),
    _lane(
        "memory/copies_2d.pxi",
        "first.start < second.start + (second.height - 1) * second.pitch + second.width",
        "first.start <= second.start + (second.height - 1) * second.pitch + second.width",
        "test_lane_buffers",
    ),
    _lane(
        "memory/copies_2d.pxi",
        "second.start < first.start + (first.height - 1) * first.pitch + first.width",
        "second.start < first.start + (first.height - 1) * first.pitch",
        "test_lane_buffers",
    ),
    _lane(
        "memory/segments.pxi",
        "bytes",
        "0",
        *("test_lane_pool", "test_lane_memory_limit"),
        behind="except BaseException:\n        pool.bytes_reserved -= ",
    ),
    _lane(
        "memory/sharing.pxi",
        "note_exported(buffer)",
        "0",
        *("test_lane_interop", "test_lane_pool"),
    ),
    _lane(
        "interop/dlpack.pxi",
        "UHAL_DLPACK_COPIED",
        "0",
        *("test_lane_interop", "test_lane_buffers"),
        behind="copy_in(exported, buffer, None)\n        flags = ",
    ),
    _lane(
        "memory/pool.pxi",
        "left == 0 or core is None or block.stamps[0].stream_id == core.id",
        "True",
        "test_lane_pool",
    ),
    _lane(
        "memory/pool.pxi",
        "block.stamp_count == 1",
        "False",
        "test_lane_pool",
        behind="block.ready.stream_id = 0\n    if ",
    ),
    _lane(
        "memory/pool_modes.pxi",
        "zones[RED_ZONE_BYTES + i] != RED_ZONE_BYTE",
        "False",
        "test_lane_settings",
    ),
    _lane(
        "memory/native_copies.pxi",
        "destination.address < source.address + count",
        "destination.address <= source.address + count",
        "test_lane_objects",
    ),
    _lane(
        "streams/stream.pxi",
        "one.handle == other.handle",
        "True",
        *("test_lane_objects", "test_lane_interop"),
    ),
    _lane(
        "streams/stream_core.pxi",
        "held_until > core.completed",
        "held_until >= core.completed",
        *("test_lane_objects", "test_lane_memory_of_launches"),
    ),
    _lane(
        "streams/stream_core.pxi",
        "core.launches_since_mark >= context.launch_marks",
        "core.launches_since_mark > context.launch_marks",
        "test_lane_faults",
    ),
    _lane(
        "streams/event.pxi",
        "event.bits & EVENT_DISABLE_TIMING",
        "False",
        "test_lane_objects",
    ),
    _lane(
        "capture/captured_work.pxi",
        "clock.get(number, 0) < used",
        "False",
        "test_lane_plans",
    ),
    _lane(
        "capture/captured_work.pxi",
        "not function.slots[parameter].is_const",
        "False",
        "test_lane_plans",
    ),
)
