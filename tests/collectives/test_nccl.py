"""Collectives of GPUs: by the simulated NCCL over simulated devices, and the real NCCL's basics."""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.children import check_child
from tests.sampling import SOAK
from tests.simulated.process import LIBRARY, needs_simulator, run_python
from ubridge.models.making import make_model
from uhal import Api
from uhal.collectives import nccl

SIMULATED = LIBRARY.with_name("libnccl.so.2")
_ENVIRONMENT = {"UHAL_NCCL_LIBRARY": str(SIMULATED), "UHAL_SIM_CUDA_DEVICES": "2"}


@needs_simulator
@pytest.mark.drawn(1)
@pytest.mark.parametrize("schedule", ["eager", "random:1"])
def test_every_collective_equals_numpy_eager_and_replayed(schedule: str, seed: int) -> None:
    program = ("-m", "tests.collectives.over_nccl", str(seed))
    said = run_python(*program, **_ENVIRONMENT, UHAL_SIM_SCHEDULE=schedule)
    assert "124 results are the same on all ranks" in said


@needs_simulator
def test_the_simulated_library_refuses_misuses() -> None:
    said = run_python("-m", "tests.collectives.nccl_misuses", **_ENVIRONMENT)
    assert int(said.split()[0]) >= 20


REFUSED = """
import uhal
from uhal import DeviceBuffer
from uhal.collectives import Communicator, unique_id

uhal.Api.quick_init(0, "cuda")
one = Communicator(1, unique_id(), 0)
for dtype, size in (("i16", 3), ("u16", 3), ("f8e4m3", 3), ("bool", 3), ("c64", 3)):
    try:
        one.all_reduce(DeviceBuffer.zeros(size, dtype))
    except uhal.NotSupportedError as error:
        taken = "bf16, f16, f32, f64, i32, i64, i8, u32, u64, u8"
        assert f"NCCL takes {taken}, got {dtype}" in str(error)
    except uhal.ArgumentTypeError:
        assert dtype == "c64"
    else:
        raise AssertionError(dtype)
one.close()
gone = Communicator(1, unique_id(), 0)
gone.abort()
try:
    Communicator(2, b"x" * 128, 0)
except uhal.DeviceError as error:
    assert "ncclCommInitRankConfig: ncclInvalidArgument (4): invalid argument" in str(error)
    assert "commId: expected an id of ncclGetUniqueId" in str(error)
    print("refused")
"""


@needs_simulator
def test_limits_are_refused_before_the_call() -> None:
    assert run_python("-c", REFUSED, **_ENVIRONMENT) == "refused\n"


NO_RCCL = """
import uhal
from uhal.collectives import Communicator, unique_id

uhal.Api.quick_init(0, "rocm")
for call in (unique_id, lambda: Communicator(1, b"x" * 128, 0)):
    try:
        call()
    except uhal.NotSupportedError as error:
        assert "got rocm:0. RCCL enqueues in streams of HIP" in str(error), error
    else:
        raise AssertionError(call)
print("refused")
"""


@needs_simulator
def test_rocm_is_refused_with_the_reason() -> None:
    library = str(LIBRARY.with_name("libhsa-runtime64.so.1"))
    assert run_python("-c", NO_RCCL, UHAL_ROCM_LIBRARY=library) == "refused\n"


FAILED = """
import threading
import uhal
from uhal import DeviceBuffer
from uhal.collectives import Communicator, unique_id

devices = [uhal.Device(at, "cuda") for at in range(2)]
with devices[0]:
    identifier = unique_id()
joined = threading.Barrier(2)


def leave() -> None:
    with devices[1]:
        other = Communicator(2, identifier, 1)
        joined.wait()
        other.abort()


thread = threading.Thread(target=leave)
thread.start()
with devices[0]:
    one = Communicator(2, identifier, 0)
    x = DeviceBuffer.zeros(4, "f4")
    joined.wait()
    thread.join()
    try:
        one.all_reduce(x)
        one.wait(60)
    except uhal.DeviceError as error:
        assert "ncclRemoteError (6): remote process exited" in str(error), str(error)
        print("failed")
    one.abort()
    assert (x.to_numpy() == 0).all()
    with Communicator(1, unique_id(), 0) as another:
        another.all_reduce(x)
"""


@needs_simulator
def test_a_failed_communicator_raises_and_the_device_goes_on() -> None:
    assert run_python("-c", FAILED, **_ENVIRONMENT) == "failed\n"


@needs_simulator
@pytest.mark.skipif(not SOAK, reason="a model's kernels are translated: make soak")
def test_simulated_gpus_with_shares_of_a_model_give_its_logits(tmp_path: Path, seed: int) -> None:
    """A plan with slots contains the NCCL calls for the sums."""
    pytest.importorskip("tokenizers")
    Api.quick_init(0, "host")
    make_model(tmp_path / "made", "llama", seed=seed)
    program = ("-m", "tests.collectives.sharded_by_nccl", str(seed), str(tmp_path / "made"))
    assert "difference" in run_python(*program, **_ENVIRONMENT)


def test_a_missing_library_is_named_with_its_package() -> None:
    check_child(no_library, environment={"UHAL_NCCL_LIBRARY": "/nowhere/libnccl.so.2"})


def no_library() -> None:
    import uhal

    with pytest.raises(uhal.LibraryNotFoundError, match="pip install nvidia-nccl-cu13"):
        nccl.version("cuda")


def _real() -> Path | None:
    found = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    folders = list(found.submodule_search_locations or []) if found else []
    paths = [Path(folder) / "lib" / "libnccl.so.2" for folder in folders]
    return next((path for path in paths if path.exists()), None)


@pytest.mark.skipif(not SOAK, reason="the library has 300 MB: make soak")
@pytest.mark.skipif(_real() is None, reason="pip install nvidia-nccl-cu13 brings it")
def test_the_real_library_has_the_names_results_and_checks(tmp_path: Path) -> None:
    """Without a GPU the library cannot make communicators, because NCCL starts CUDA first."""
    path = str(_real())
    said = run_python("-c", REAL, path, UHAL_NCCL_LIBRARY=path, NCCL_SOCKET_IFNAME="lo")
    assert said == "judged\n"


REAL = """
import ctypes, sys
from pathlib import Path
import uhal
from uhal.abi import Header, Library
from uhal.collectives import nccl

header = Header.load(Path(uhal.__file__).parent / "collectives" / "nccl_abi.h")
real = Library(ctypes.CDLL(sys.argv[1]), sys.argv[1], header, status="ncclResult_t",
               check=lambda name, code: None)
assert real.missing() == ()
assert tuple(map(int, nccl.version("cuda").split("."))) >= (2, 14)
first, second = (header.ctype("ncclUniqueId")() for _ in range(2))
assert real.ncclGetUniqueId(first) == real.ncclGetUniqueId(second) == 0
assert bytes(first) != bytes(second)
texts = {code: real.unchecked("ncclGetErrorString")(code).decode() for code in range(9)}
assert texts[0] == "no error" and "invalid usage" in texts[5] and "in progress" in texts[7], texts
assert real.ncclGroupEnd() == header.constants["ncclInvalidUsage"]
assert real.ncclAllReduce(None, None, 4, 7, 0, None, None) == 4
assert real.ncclCommAbort(None) in (0, 4)
assert real.ncclCommGetAsyncError(None, ctypes.c_int()) == 4
print("judged")
"""


def test_the_tables_are_the_headers() -> None:
    constants = nccl.header().constants
    numbers = [constants[f"nccl{name}"] for name in nccl._TYPES.values()]
    assert numbers == list(range(len(numbers)))
    operations = [constants[f"nccl{op.capitalize()}"] for op in nccl.NcclEngine.operations]
    assert operations == list(range(5))
    assert all(name in nccl.header().prototypes for name, _ in nccl._CALLS.values())
    for name, fields in nccl._CALLS.values():
        parameters = nccl.header().prototypes[name].parameters
        assert len(parameters) == len(fields) + 2, name
    assert ctypes.sizeof(nccl.header().ctype("ncclConfig_t")) == 24 and sys.maxsize > 2**32
