"""Encoding of layouts as u64 words for kernels."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ubridge.device.content_cache
from ubridge import Layout, LayoutCache, SlicePtrOrNull
from uhal import CaptureError, Device, DeviceError, Stream, StreamFlags


@pytest.fixture
def cache(device: Device) -> LayoutCache:
    return LayoutCache(device)


def words(argument: SlicePtrOrNull) -> list[int]:
    assert argument.pointer is not None
    assert argument.pointer.dtype == np.uint64
    return [int(word) for word in argument.pointer.to_numpy()]


def test_contiguous_is_null_wherever_it_starts(cache: LayoutCache) -> None:
    assert SlicePtrOrNull.from_layout(Layout.contiguous((2, 3), 5), cache) == (None, "null")
    assert SlicePtrOrNull.from_layout(Layout.contiguous(()), cache) == (None, "null")
    assert cache.counters() == (0, 0, 0, 0)


def test_lengths_then_strides(cache: LayoutCache) -> None:
    layout = Layout.contiguous((2, 3, 4), 7).transpose(0, 2)
    argument = SlicePtrOrNull.from_layout(layout, cache)
    assert argument.state == "uploaded"
    assert words(argument) == [4, 3, 2, 1, 4, 12]


def test_a_ternary_lists_condition_true_false(cache: LayoutCache) -> None:
    """Three different layouts of one shape give the lengths once, then each layout's strides."""
    condition = Layout.contiguous((4, 3, 2)).permute((2, 1, 0))
    on_true = Layout.contiguous((3, 1)).broadcast_to((2, 3, 4))
    on_false = Layout.contiguous((2, 3, 9), 3).narrow(2, 1, 4)
    argument = SlicePtrOrNull.from_layouts(cache, condition, on_true, on_false)
    assert words(argument) == [2, 3, 4, 1, 2, 6, 0, 1, 0, 27, 9, 1]


def test_one_strided_operand_is_enough(cache: LayoutCache) -> None:
    whole = Layout.contiguous((2, 3))
    assert SlicePtrOrNull.from_layouts(cache, whole, whole).state == "null"
    row = Layout.contiguous(3).broadcast_to((2, 3))
    assert words(SlicePtrOrNull.from_layouts(cache, whole, row)) == [2, 3, 3, 1, 0, 1]


def test_the_same_content_is_uploaded_once(cache: LayoutCache) -> None:
    first = SlicePtrOrNull.from_layout(Layout((2, 3), (1, 2)), cache)
    again = SlicePtrOrNull.from_layout(Layout.contiguous((3, 2), 40).transpose(), cache)
    assert (first.state, again.state) == ("uploaded", "cached")
    assert first.pointer is again.pointer
    other = SlicePtrOrNull.from_layout(Layout((2, 3), (1, 4)), cache)
    assert other.state == "uploaded"
    assert cache.counters() == (1, 2, 0, 2)


def test_a_capture_refuses_to_upload(cache: LayoutCache) -> None:
    known, unknown = Layout((2, 3), (1, 2)), Layout((2, 3), (1, 4))
    SlicePtrOrNull.from_layout(known, cache)
    with cache.capture():
        assert SlicePtrOrNull.from_layout(known, cache).state == "cached"
        with pytest.raises(DeviceError, match=r"\(2, 3, 1, 4\).*the warm-up was incomplete"):
            SlicePtrOrNull.from_layout(unknown, cache)
    assert SlicePtrOrNull.from_layout(unknown, cache).state == "uploaded"


def test_a_thread_that_captures_a_stream_uploads_nothing(
    cache: LayoutCache, device: Device
) -> None:
    known, unknown = Layout((2, 3), (1, 2)), Layout((2, 3), (1, 4))
    SlicePtrOrNull.from_layout(known, cache)
    with Stream(device=device) as stream:
        with stream.capture() as plan:
            assert SlicePtrOrNull.from_layout(known, cache).state == "cached"
            with pytest.raises(CaptureError, match=r"warm-up was incomplete.*\[test_slice_ptr.py:"):
                SlicePtrOrNull.from_layout(unknown, cache)
            threads = [threading.Thread(target=cache.get, args=((2, 3, 1, 8),))]
            for thread in threads:
                thread.start()
                thread.join()
            assert SlicePtrOrNull.from_layout(Layout((2, 3), (1, 8)), cache).state == "cached"
        plan.close()
    assert SlicePtrOrNull.from_layout(unknown, cache).state == "uploaded"


def test_the_oldest_goes_but_not_a_captured_one(
    cache: LayoutCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ubridge.device.content_cache, "CACHED_ARRAYS", 3)
    for stride in range(3):
        cache.get((2, stride))
    with cache.capture():
        cache.get((2, 0))
    for stride in range(3, 5):
        cache.get((2, stride))
    assert cache.counters() == (1, 5, 2, 3)
    for stride in (0, 3, 4):
        cache.get((2, stride))
    assert cache.counters().uploads == 5


def test_many_threads_upload_once(device: Device, cache: LayoutCache) -> None:
    found: list[int] = []

    def ask() -> None:
        stream = Stream(StreamFlags.NON_BLOCKING, device=device)
        for stride in range(50):
            array = cache.get((7, stride))
            assert list(array.to_numpy(stream=stream)) == [7, stride]
            found.append(id(array))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert len(set(found)) == 50
    assert cache.counters().uploads == 50
