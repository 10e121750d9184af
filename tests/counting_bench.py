"""A device on the counting driver, with helpers to create objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.counting_driver import CountingDriver
from uhal import DeviceBuffer, Function, Signature, Stream, _lane


class Bench:
    """One open counting device, made current on the thread by `accounted`."""

    some_test_failed = False
    """True if a test failed: its objects are freed later, and counts may fall below the start."""

    def __init__(self, driver: CountingDriver) -> None:
        self.driver = driver
        self.context = driver.open_context()
        self.device = self.context.device
        self.account_is_settled = True
        """False after a failed test, whose objects do not count as leaks."""

    @classmethod
    @contextmanager
    def accounted(cls, driver: CountingDriver) -> Iterator[Bench]:
        """Yield a bench; check that no native object remains when its objects are gone."""
        gc.collect()
        before = _lane.live_counts()
        bench = cls(driver)
        _lane.push_context(bench.context)
        try:
            yield bench
        finally:
            _lane.pop_context()
        if bench.account_is_settled:
            bench._settle(before)
        else:
            Bench.some_test_failed = True

    def _settle(self, before: dict[str, int]) -> None:
        driver = self.driver
        del self.context, self.device
        driver.on_call = lambda slot, arguments: None
        gc.collect()
        after = _lane.live_counts()
        if Bench.some_test_failed:
            assert all(after[kind] <= before[kind] for kind in before)
        else:
            assert after == before
        assert driver.misuse == []
        if driver.broken is None:
            assert driver.left() == {}

    # -- what tests make ---------------------------------------------------------------------------

    def function(self, signature: str | None, name: str = "k") -> Function:
        parsed = None if signature is None else Signature.parse(signature, entry=name)
        return self.driver.function(self.context, parsed, name)

    def buffer(self, size: int = 4, dtype: str = "f32") -> DeviceBuffer:
        return DeviceBuffer.uninitialized(size, dtype)

    def busy_stream(self) -> Stream:
        """Return a stream with pending work, until a test waits for it."""
        stream = Stream()
        self.driver.busy.add(stream.handle)
        return stream

    def packed(self, function: Function, *arguments: Any) -> list[bytes]:
        """Launch, and return the bytes of each parameter as the driver saw them."""
        assert function.signature is not None
        self.driver.parameter_sizes = [parameter.size or 0 for parameter in function.signature]
        try:
            function[1, 1](*arguments)
        finally:
            self.driver.parameter_sizes = ()
        return self.driver.parameters

    def quiet(self) -> None:
        """Forget the calls made so far."""
        self.driver.calls.clear()


def use(bench: Bench, stream: Stream | None, *buffers: DeviceBuffer) -> list[int]:
    """Launch on the buffers; return their addresses as the driver saw them.

    Unlike `as_device_ptr`, this does not mark the buffer as exported in the pool.
    """
    function = bench.function(", ".join("ptr" for _ in buffers))
    bench.driver.parameter_sizes = [8] * len(buffers)
    function[1, 1, 0, stream](*buffers)
    bench.driver.parameter_sizes = ()
    return [int.from_bytes(data, "little") for data in bench.driver.parameters]
