"""Collectives over an ECCL stub that records its arguments, in separate processes.

ECCL has fewer functions than NCCL: no configuration, no reduce, no split.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from tests.children import check_child
from tests.fake_libtopsrt import ROOT, build
from tops_backend import eccl

ABI = ROOT / "uhal" / "collectives" / "nccl_abi.h"

STUB = r"""
#include <string.h>
#include <stdint.h>
#include "eccl_abi.h"

long long noted[8];
const void *noted_send, *noted_recv;
char noted_id[128];
int answer, asynchronous, depth, alive, aborted;

static ecclResult_t note(const char *what, const void *send, void *recv, size_t count, int type,
                         int third, ecclComm_t comm, ecclStream_t stream) {
    memset(noted, 0, sizeof noted);
    memcpy(noted, what, strlen(what) < 8 ? strlen(what) : 8);
    noted[1] = count; noted[2] = type; noted[3] = third;
    noted[4] = (intptr_t)comm; noted[5] = (intptr_t)stream;
    noted_send = send; noted_recv = recv;
    return answer;
}
ecclResult_t ecclGetVersion(int *v) { *v = 30102; return 0; }
ecclResult_t ecclGetUniqueId(ecclUniqueId *id) {
    for (int i = 0; i < 128; ++i) id->internal[i] = i;
    return 0;
}
ecclResult_t ecclCommInitRank(ecclComm_t *comm, int nranks, ecclUniqueId id, int rank) {
    memcpy(noted_id, id.internal, 128);
    noted[6] = nranks; noted[7] = rank;
    if (answer) return answer;
    *comm = (ecclComm_t)0x51; ++alive;
    return 0;
}
ecclResult_t ecclCommDestroy(ecclComm_t comm) { --alive; return 0; }
ecclResult_t ecclCommAbort(ecclComm_t comm) { --alive; ++aborted; return 0; }
ecclResult_t ecclCommGetAsyncError(ecclComm_t comm, ecclResult_t *e) {
    *e = asynchronous; return 0;
}
const char *ecclGetErrorString(ecclResult_t r) { return r == 5 ? "invalid usage" : NULL; }
ecclResult_t ecclBroadcast(const void *s, void *r, size_t n, ecclDataType_t t, int root,
                           ecclComm_t c, ecclStream_t q) {
    return note("bcast", s, r, n, t, root, c, q);
}
ecclResult_t ecclAllReduce(const void *s, void *r, size_t n, ecclDataType_t t, ecclRedOp_t op,
                           ecclComm_t c, ecclStream_t q) {
    return note("reduce", s, r, n, t, op, c, q);
}
ecclResult_t ecclReduceScatter(const void *s, void *r, size_t n, ecclDataType_t t, ecclRedOp_t op,
                               ecclComm_t c, ecclStream_t q) {
    return note("scatter", s, r, n, t, op, c, q);
}
ecclResult_t ecclAllGather(const void *s, void *r, size_t n, ecclDataType_t t, ecclComm_t c,
                           ecclStream_t q) {
    return note("gather", s, r, n, t, 0, c, q);
}
ecclResult_t ecclSend(const void *s, size_t n, ecclDataType_t t, int peer, ecclComm_t c,
                      ecclStream_t q) {
    return note("send", s, NULL, n, t, peer, c, q);
}
ecclResult_t ecclRecv(void *r, size_t n, ecclDataType_t t, int peer, ecclComm_t c,
                      ecclStream_t q) {
    return note("recv", NULL, r, n, t, peer, c, q);
}
ecclResult_t ecclGroupStart(void) { ++depth; return 0; }
ecclResult_t ecclGroupEnd(void) { --depth; return answer; }
"""


def test_programs_over_the_stub(tmp_path: Path) -> None:
    source = tmp_path / "eccl.c"
    source.write_text(STUB, encoding="utf-8")
    header = ABI.read_text("utf-8").replace("nccl", "eccl")
    source.with_name("eccl_abi.h").write_text(header, encoding="utf-8")
    stub = tmp_path / "libeccl.so"
    command = ["cc", "-shared", "-fPIC", "-w", str(source), "-o", str(stub)]
    subprocess.run(command, check=True)
    environment = {
        "UHAL_TOPS_LIBRARY": str(build(tmp_path)),
        "UHAL_ECCL_LIBRARY": str(stub),
    }
    for program in (collectives, refusals, failures):
        assert check_child(program, str(stub), environment=environment) == ""


def test_without_the_library() -> None:
    check_child(no_library, environment={"UHAL_ECCL_LIBRARY": "/nowhere/libeccl.so"})


def collectives(path: str) -> None:
    import uhal

    uhal.Api.quick_init(0, "tops")
    stub = ctypes.CDLL(path)
    noted = (ctypes.c_longlong * 8).in_dll(stub, "noted")
    stream = uhal.Stream()

    def called() -> tuple[str, list[int]]:
        name = bytes(noted)[:8].rstrip(b"\0").decode()
        assert noted[4] == 0x51
        return name, [noted[1], noted[2], noted[3], noted[5]]

    def passed(name: str) -> int | None:
        address: int | None = ctypes.c_void_p.in_dll(stub, f"noted_{name}").value
        return address

    assert eccl.version() == "3.1.2"
    identifier = eccl.unique_id()
    assert identifier == bytes(range(128))
    with eccl.Communicator(4, identifier, 2) as ranks:
        assert (noted[6], noted[7]) == (4, 2)
        assert (ctypes.c_char * 128).in_dll(stub, "noted_id").raw == identifier
        small = uhal.DeviceBuffer.zeros(8, "bf16")
        large = uhal.DeviceBuffer.zeros(32, "bf16")
        ranks.all_reduce(small, small, "max", stream)
        assert called() == ("reduce", [8, 9, 2, stream.handle])
        assert passed("send") == passed("recv") == small.as_device_ptr().address
        ranks.all_gather(small, large, stream)
        assert called() == ("gather", [8, 9, 0, stream.handle])
        ranks.reduce_scatter(large, small, stream=stream)
        assert called() == ("scatter", [8, 9, 0, stream.handle])
        assert passed("send") == large.as_device_ptr().address
        assert passed("recv") == small.as_device_ptr().address
        ranks.broadcast(uhal.DeviceBuffer.zeros(3, "i64"), uhal.DeviceBuffer.zeros(3, "i64"), 3)
        assert called() == ("bcast", [3, 4, 3, uhal.Stream.default().handle])
        ranks.broadcast(small, root=0, stream=stream)
        assert called() == ("bcast", [8, 9, 0, stream.handle])
        ranks.barrier(stream)
        assert called() == ("reduce", [1, 2, 2, stream.handle])
        ranks.send(small, 0, stream)
        assert called() == ("send", [8, 9, 0, stream.handle])
        with eccl.group():
            ranks.send(small, 0, stream)
            ranks.recv(large, 1, stream)
            assert called()[0] == "send"
        assert called() == ("recv", [32, 9, 1, stream.handle])
        ranks.all_to_all(large, uhal.DeviceBuffer.zeros(32, "bf16"), stream)
        assert called() == ("recv", [8, 9, 3, stream.handle])
        assert ctypes.c_int.in_dll(stub, "depth").value == 0
        ranks.check()
    assert ctypes.c_int.in_dll(stub, "alive").value == 0
    ranks.close()
    assert ctypes.c_int.in_dll(stub, "aborted").value == 0


def refusals(path: str) -> None:
    import pytest

    import uhal

    identifier = bytes(128)
    with uhal.Device(0, "host"):
        foreign = uhal.DeviceBuffer.zeros(4, "f32")
    uhal.Api.quick_init(0, "tops")
    with pytest.raises(uhal.ArgumentValueError, match="rank: expected a number from 0 to 1, got 2"):
        eccl.Communicator(2, identifier, 2)
    with pytest.raises(uhal.ArgumentValueError, match="expected the 128 bytes"):
        eccl.Communicator(2, b"short", 0)
    ranks = eccl.Communicator(2, identifier, 0)
    buffer = uhal.DeviceBuffer.zeros(4, "f32")
    wide = uhal.DeviceBuffer.zeros(4, "f64")
    with pytest.raises(uhal.ArgumentValueError, match="all_reduce, recv: expected 4 elements"):
        ranks.all_reduce(buffer, uhal.DeviceBuffer.zeros(5, "f32"))
    with pytest.raises(uhal.ArgumentValueError, match="all_gather, recv: expected 8 elements"):
        ranks.all_gather(buffer, buffer)
    with pytest.raises(uhal.ArgumentTypeError, match="recv: expected f32 as send, got f64"):
        ranks.all_reduce(buffer, wide)
    with pytest.raises(uhal.NotSupportedError, match="takes f64 in broadcast and all_gather only"):
        ranks.all_reduce(wide, wide)
    with pytest.raises(uhal.NotSupportedError, match=r"reduce: this ECCL 3\.1\.2 has no reduce"):
        ranks.reduce(buffer)
    with pytest.raises(uhal.NotSupportedError, match=r"split: this ECCL 3\.1\.2 has no split"):
        ranks.split(0)
    with pytest.raises(uhal.NotSupportedError, match=r"ECCL takes bf16, .*, got f8e4m3"):
        ranks.send(uhal.DeviceBuffer.zeros(4, "f8e4m3"), 1)
    with pytest.raises(uhal.NotSupportedError, match="got bool"):
        ranks.send(uhal.DeviceBuffer.zeros(4, "bool"), 1)
    with pytest.raises(uhal.ArgumentValueError, match="op: expected one of sum"):
        ranks.all_reduce(buffer, buffer, "xor")
    with pytest.raises(
        uhal.ArgumentValueError, match="send, peer: expected a number from 0 to 1, got 2"
    ):
        ranks.send(buffer, 2)
    with pytest.raises(
        uhal.InvalidHandleError, match="expected one of tops:0, the communicator's device"
    ):
        ranks.all_reduce(foreign, foreign)
    ranks.close()
    with pytest.raises(uhal.InvalidHandleError, match="closed"):
        ranks.all_reduce(buffer, buffer)


def failures(path: str) -> None:
    import pytest

    import uhal

    uhal.Api.quick_init(0, "tops")
    stub = ctypes.CDLL(path)
    answer = ctypes.c_int.in_dll(stub, "answer")
    buffer = uhal.DeviceBuffer.zeros(4, "f32")
    ranks = eccl.Communicator(2, bytes(128), 0)
    answer.value = 5
    with pytest.raises(uhal.DeviceError, match=r"ecclSend: ecclInvalidUsage \(5\): invalid usage"):
        ranks.send(buffer, 1)
    with pytest.raises(uhal.DeviceError, match="ecclSend"):
        with eccl.group():
            ranks.send(buffer, 1)
    assert ctypes.c_int.in_dll(stub, "depth").value == 0
    with pytest.raises(ZeroDivisionError):
        with eccl.group():
            raise ZeroDivisionError
    answer.value = 77
    with pytest.raises(uhal.DeviceError, match=r"unknown \(77\): the library says no more"):
        eccl.Communicator(2, bytes(128), 0)
    answer.value = 0
    ctypes.c_int.in_dll(stub, "asynchronous").value = 6
    with pytest.raises(uhal.DeviceError, match="ecclRemoteError"):
        ranks.check()
    with pytest.raises(ZeroDivisionError):
        with ranks:
            raise ZeroDivisionError
    assert ctypes.c_int.in_dll(stub, "aborted").value == 1
    ranks.abort()
    assert ctypes.c_int.in_dll(stub, "alive").value == 0


def no_library() -> None:
    import pytest

    import uhal

    with pytest.raises(uhal.LibraryNotFoundError, match=r"/nowhere/libeccl\.so: .*TopsRider"):
        eccl.version()
