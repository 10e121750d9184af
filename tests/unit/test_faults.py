"""Messages of asynchronous faults about the launches that may have caused them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.counting_driver import ILLEGAL_ADDRESS, CountingDriver
from uhal import DeviceBuffer, Signature, Stream, launch
from uhal.errors import DeviceError
from uhal.faults import describe_site


class Bench:
    """A stream that stays busy until it fails."""

    def __init__(self) -> None:
        self.driver = CountingDriver()
        self.context = self.driver.open_context()
        self.device = self.context.device
        self.stream = Stream(device=self.device)
        self.driver.busy.add(self.stream.handle)
        self.kernel = self.driver.function(
            self.context, Signature.parse("u64 n, f32* x, f32 a, bool b, f16 h"), "saxpy"
        )

    def fail(self) -> DeviceError:
        self.driver.failures["stream_synchronize"] = [ILLEGAL_ADDRESS]
        with pytest.raises(DeviceError) as caught:
            self.stream.synchronize()
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_single_launch_is_this_one(bench: Bench) -> None:
    x = DeviceBuffer.uninitialized(4, "f32", device=bench.device)
    address = int(x.as_device_ptr())
    launch(bench.kernel, 2, (8, 4), (3, x, 1.5, True, 0.5), 16, bench.stream)
    error = bench.fail()
    assert (error.backend, error.code, error.name) == (
        "counting",
        ILLEGAL_ADDRESS,
        "ILLEGAL_ADDRESS",
    )
    assert "The device counting:0 is lost: it takes no more work." in str(error)
    (candidate,) = error.candidates
    assert candidate.grid == (2, 1, 1)
    assert candidate.block == (8, 4, 1)
    assert candidate.shared == 16
    assert candidate.site.startswith("test_faults.py:")
    assert candidate.arguments == f"n=3, x={address:#x}, a=1.5, b=True, h=0.5"
    assert str(error).endswith(f"It was this one: {candidate}")
    assert bench.context.lost is not None


def test_several_launches_are_listed_oldest_first(bench: Bench) -> None:
    for n in range(11):
        launch(bench.kernel, 1, 1, (n, None, 0.0, False, 0.0), stream=bench.stream)
    error = bench.fail()
    assert [candidate.arguments.split(",")[0] for candidate in error.candidates] == [
        f"n={n}" for n in range(11)
    ]
    lines = str(error).splitlines()
    assert lines[0].endswith("one of the 11 launches since the last known completion:")
    assert len(lines) == 10
    assert "(n=0, x=null, a=0, b=False, h=0)" in lines[1]
    assert lines[-1] == "  … and 3 more"


def test_without_a_signature_the_bytes_are_shown(bench: Bench) -> None:
    kernel = bench.driver.function(bench.context, None, "mystery")
    launch(kernel, 1, 1, (np.uint32(0x01020304),), stream=bench.stream)
    assert bench.fail().candidates[0].arguments == "4 bytes: 04030201"


def test_no_launch_pending(bench: Bench) -> None:
    assert str(bench.fail()).endswith("No launch of the last 256 of each stream was pending.")


def test_arguments_beyond_the_ledger_are_marked(bench: Bench) -> None:
    kernel = bench.driver.function(
        bench.context, Signature.parse(", ".join(f"u64 p{i}" for i in range(20))), "wide"
    )
    launch(kernel, 1, 1, tuple(range(20)), stream=bench.stream)
    arguments = bench.fail().candidates[0].arguments
    assert arguments.startswith("p0=0, p1=1, ")
    assert arguments.endswith("p18=…, p19=…")


def test_a_fault_pickles_with_its_candidates(bench: Bench) -> None:
    launch(bench.kernel, 1, 1, (1, None, 0.0, False, 0.0), stream=bench.stream)
    error = bench.fail()
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.candidates == error.candidates


def test_a_site_is_named_as_far_as_it_is_known() -> None:
    code = compile("a = 1\nb = 2\n", "/somewhere/demo.py", "exec")
    offset = next(start for start, _, line in code.co_lines() if line == 2)
    assert describe_site(code, offset) == "demo.py:2"
    assert describe_site(code, 10**6).startswith("demo.py:")
    assert describe_site(None, 0) == "unknown"
