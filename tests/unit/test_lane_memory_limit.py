"""A pool respects its limit, and lists the owners of the memory when it is full."""

from __future__ import annotations

import gc
import sys
from collections import Counter

import numpy as np
import pytest

from tests.counting_bench import Bench, use
from tests.counting_driver import OUT_OF_MEMORY
from tests.sampling import rounds
from uhal import DeviceBuffer, Stream
from uhal.errors import ArgumentTypeError, ArgumentValueError, OutOfMemoryError
from uhal.memory import MOST_LISTED, limit_from_environment

MIB = 1 << 20


def here() -> str:
    """Return the file and line of the caller."""
    return f"test_lane_memory_limit.py:{sys._getframe(1).f_lineno}"


# -- the limit -------------------------------------------------------------------------------------


def test_what_is_over_the_limit_is_refused_before_the_driver_is_asked(bench: Bench) -> None:
    bench.device.memory_limit = 4 * MIB
    held = bench.buffer(3 * MIB, "u8")
    bench.quiet()
    with pytest.raises(OutOfMemoryError, match=f"counting:0 is {4 * MIB} bytes; raise it by") as e:
        bench.buffer(2 * MIB, "u8")
    assert isinstance(e.value, MemoryError)
    assert f"Asked for {2 * MIB} bytes; 1 live buffers hold {3 * MIB} bytes" in str(e.value)
    assert bench.driver.count("alloc") == 0
    assert bench.context.pool_statistics()["out_of_memory"] == 1
    bench.device.memory_limit = None
    assert len(bench.buffer(2 * MIB, "u8")) == 2 * MIB
    held.close()


def test_the_limit_is_what_the_pool_may_reserve(bench: Bench) -> None:
    bench.device.memory_limit = 4 * MIB
    kept = [bench.buffer(MIB, "u8") for _ in range(4)]
    assert bench.context.pool_statistics()["bytes_reserved"] == 4 * MIB
    # blocks of small buffers come from a whole segment
    with pytest.raises(OutOfMemoryError, match=f"Asked for {2 * MIB} bytes"):
        bench.buffer(1, "u8")
    del kept


def test_unused_memory_makes_room_under_the_limit(bench: Bench) -> None:
    bench.device.memory_limit = 4 * MIB
    busy = bench.busy_stream()
    pending = bench.buffer(3 * MIB, "u8")
    use(bench, busy, pending)
    pending.close()
    bench.quiet()
    kept = bench.buffer(2 * MIB, "u8")
    # Only a wait for pending work can free memory here.
    assert bench.driver.slots("current", "bind", "stream_query", "event_query") == [
        "stream_synchronize",
        "free",
        "alloc",
    ]
    kept.close()
    bench.quiet()
    bench.buffer(3 * MIB, "u8").close()
    assert bench.driver.slots("current", "bind") == ["free", "alloc"]


def test_a_lower_limit_gives_back_what_is_unused(bench: Bench) -> None:
    bench.buffer(3 * MIB, "u8").close()
    bench.device.memory_limit = 2 * MIB
    assert bench.context.pool_statistics()["bytes_reserved"] == 0
    assert bench.device.memory_limit == 2 * MIB


def test_memory_of_the_drivers_own_allocator_counts(bench: Bench) -> None:
    stream = Stream()
    bench.device.memory_limit = 4 * MIB
    native = DeviceBuffer.uninitialized_async(3 * MIB, "u8", stream, native=True)
    with pytest.raises(OutOfMemoryError, match="memory limit"):
        DeviceBuffer.uninitialized_async(2 * MIB, "u8", stream, native=True)
    with pytest.raises(OutOfMemoryError, match="memory limit"):
        bench.buffer(2 * MIB, "u8")
    native.close()
    assert bench.context.pool_statistics()["bytes_reserved"] == 0
    bench.driver.failures["alloc_async"] = [OUT_OF_MEMORY]
    again = DeviceBuffer.uninitialized_async(2 * MIB, "u8", stream, native=True)
    assert bench.context.pool_statistics()["retries"] == 3
    again.close()


@pytest.mark.bench(UHAL_POOL="guard", UHAL_MEMORY_LIMIT="1M")
def test_the_direct_modes_keep_to_it(bench: Bench) -> None:
    with pytest.raises(OutOfMemoryError, match="UHAL_MEMORY_LIMIT"):
        bench.buffer(MIB, "u8")
    bench.buffer(MIB - 512, "u8").close()


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ArgumentValueError), (-1, ArgumentValueError), (2**63, ArgumentValueError)]
    + [(value, ArgumentTypeError) for value in (True, 1.5, "4G")],
)
def test_a_limit_is_a_number_of_bytes(bench: Bench, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="memory_limit: expected"):
        bench.device.memory_limit = value  # type: ignore[assignment]
    assert bench.device.memory_limit is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("100", {"cuda:0": 100, "cuda:1": 100, "host:0": 100}),
        ("4G", {"cuda:0": 4 << 30, "cuda:1": 4 << 30, "host:0": 4 << 30}),
        ("cuda=2K", {"cuda:0": 2048, "cuda:1": 2048}),
        ("1,2", {"cuda:0": 2, "cuda:1": 2, "host:0": 2}),
        ("cuda=6,cuda=5", {"cuda:0": 5, "cuda:1": 5}),
        ("cuda:0=3,cuda:0=4,cuda=5,7", {"cuda:0": 4, "cuda:1": 5, "host:0": 7}),
        ("cuda:1=3M, 1T,cuda=5", {"cuda:0": 5, "cuda:1": 3 << 20, "host:0": 1 << 40}),
    ],
)
def test_the_variable_names_devices(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: dict[str, int]
) -> None:
    monkeypatch.setenv("UHAL_MEMORY_LIMIT", text)
    for backend, ordinal in (("cuda", 0), ("cuda", 1), ("host", 0)):
        found = limit_from_environment(backend, ordinal)
        assert found == expected.get(f"{backend}:{ordinal}")


@pytest.mark.parametrize("text", ["4GB", "-1", "0", "cuda:x=1", "half", "1,,2", "0x10", "cuda=0"])
def test_a_wrong_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("UHAL_MEMORY_LIMIT", text)
    with pytest.raises(ValueError, match="UHAL_MEMORY_LIMIT: expected bytes such as"):
        limit_from_environment("cuda", 0)


@pytest.mark.parametrize(
    "text", [str(1 << 63), str(1 << 64), "8388608T", "host=99999999999T", "9" * 5000, "1G,cuda=9e9"]
)
def test_a_limit_that_no_pool_counts_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("UHAL_MEMORY_LIMIT", text)
    with pytest.raises(ValueError, match="UHAL_MEMORY_LIMIT: expected"):
        limit_from_environment("cuda", 0)
    # The largest value is accepted, and so are leading zeros.
    monkeypatch.setenv("UHAL_MEMORY_LIMIT", "0" * 5000 + str((1 << 63) - 1))
    assert limit_from_environment("cuda", 0) == (1 << 63) - 1


# -- the owners ------------------------------------------------------------------------------------


def test_owners_are_the_lines_that_made_what_is_alive(
    bench: Bench, rng: np.random.Generator
) -> None:
    """Compare with a separate count, while buffers are created and freed at random."""
    books: Counter[str] = Counter()
    kept: list[tuple[DeviceBuffer, str, int]] = []
    for _ in range(rounds(300, 5000)):
        size = int(rng.integers(1, 2000)) * 256
        before = bench.context.pool_statistics()["bytes_in_use"]
        match rng.integers(4):
            case 0:
                made, site = DeviceBuffer.uninitialized(size, "u8"), here()
            case 1:
                made, site = DeviceBuffer.zeros(size, "u8"), here()
            case _ if kept:
                gone, site, taken = kept.pop(rng.integers(len(kept)))
                gone.close()
                books[site] -= taken
                continue
            case _:
                continue
        taken = bench.context.pool_statistics()["bytes_in_use"] - before
        kept.append((made, site, taken))
        books[site] += taken
    found = bench.device.memory_owners()
    assert {owner.site: owner.nbytes for owner in found} == {s: n for s, n in books.items() if n}
    assert sum(owner.buffers for owner in found) == len(kept)
    assert [owner.nbytes for owner in found] == sorted(books.values(), reverse=True)[: len(found)]


def test_a_line_that_is_gone_is_kept_by_what_it_made_only(bench: Bench) -> None:
    names = {"DeviceBuffer": DeviceBuffer}
    exec(compile("made = DeviceBuffer.uninitialized(8, 'u8')", "gone.py", "exec"), names)
    assert [owner.site for owner in bench.device.memory_owners()] == ["gone.py:1"]
    names.pop("made").close()
    gc.collect()
    assert bench.device.memory_owners() == []


def test_the_error_lists_the_largest_and_sums_up_the_rest(bench: Bench) -> None:
    lines = "\n".join(
        f"b{i} = DeviceBuffer.uninitialized({i + 1} << 20, 'u8')" for i in range(MOST_LISTED + 3)
    )
    names = {"DeviceBuffer": DeviceBuffer}
    exec(compile(lines, "many.py", "exec"), names)
    bench.driver.failures["alloc"] = [OUT_OF_MEMORY, OUT_OF_MEMORY]
    with pytest.raises(OutOfMemoryError) as caught:
        bench.buffer(MIB, "u8")
    told = str(caught.value).split("The largest owners:\n")[1].splitlines()
    largest = range(MOST_LISTED + 3, 3, -1)
    assert told[:MOST_LISTED] == [f"  {n << 20} bytes in 1 buffer [many.py:{n}]" for n in largest]
    assert told[MOST_LISTED:] == [f"  {6 << 20} bytes of 3 other lines."]


def test_statistics_have_pytorchs_names(bench: Bench) -> None:
    kept = bench.buffer(1000, "u8")
    bench.buffer(1000, "u8").close()
    bench.buffer(1000, "u8").close()
    found = bench.device.memory_stats()
    assert found == {
        "allocated_bytes.all.current": 1024,
        "allocated_bytes.all.peak": 2048,
        "reserved_bytes.all.current": 2 * MIB,
        "reserved_bytes.all.peak": 2 * MIB,
        "requested_bytes.all.current": 1000,
        "allocation.all.current": 1,
        "allocation.all.allocated": 3,
        "segment.all.current": 1,
        "num_device_alloc": 1,
        "num_device_free": 0,
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }
    del kept
