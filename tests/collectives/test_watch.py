"""Lines between ranks: identifiers without MPI, and the names of missing ranks."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Listener

import pytest

from tests.children import check_child
from uhal.collectives import share
from uhal.collectives.watch import Watch, call, listen
from uhal.errors import ArgumentValueError

KEY = secrets.token_bytes(32)
IDENTIFIER = secrets.token_bytes(128)


def opened(ranks: int) -> list[Watch]:
    """Return the watches of all ranks, which are threads."""
    listener = Listener(("127.0.0.1", 0), backlog=ranks, authkey=KEY)
    made: dict[int, tuple[bytes, Watch]] = {}

    def join(rank: int) -> None:
        made[rank] = call(rank, ranks, listener.address, KEY, 60)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(1, ranks)]
    for thread in threads:
        thread.start()
    made[0] = listen(listener, ranks, IDENTIFIER, 60)
    for thread in threads:
        thread.join()
    assert {identifier for identifier, _ in made.values()} == {IDENTIFIER}
    return [made[rank][1] for rank in range(ranks)]


def until(text: str, asked: Callable[[], str]) -> None:
    """Wait until a watch says so: a loaded machine may take long."""
    end = time.monotonic() + 60
    while asked() != text:
        assert time.monotonic() < end, asked()
        time.sleep(0.01)


def test_a_rank_that_leaves_rudely_is_named_and_one_that_leaves_politely_is_not() -> None:
    first, second, third, fourth = opened(4)
    for watch, calls in ((first, 7), (second, 5), (third, 7), (fourth, 7)):
        watch.calls = calls
    for watch in (first, second, third, fourth):
        until("rank 1 enqueued 5 of 7 collectives", watch.missing)
    second.close()
    assert [watch.gone() for watch in (first, third)] == ["", ""]
    fourth.close(politely=False)
    for watch in (first, third):
        until("rank 3 has ended or left", watch.gone)
    first.close(politely=False)
    until("", lambda: "running" if third._thread.is_alive() else "")
    assert third.gone() == "rank 3 has ended or left"  # the others leave because of it
    third.close()


def test_ranks_meet_at_an_address_without_mpi() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    told: list[str] = []

    def run(rank: int) -> None:
        environment = {"RANK": str(rank), "WORLD_SIZE": "2"}
        told.append(check_child(meet, port, KEY.hex(), environment=environment))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told[0]) == 256 and told[0] == told[1]


def meet(port: int, key: str) -> None:
    from uhal.collectives import Place, share

    mine = secrets.token_bytes(128) if Place.of().rank == 0 else None
    print(share(mine, f"127.0.0.1:{port}", bytes.fromhex(key)).hex(), end="")


def test_a_rank_that_does_not_come_is_named() -> None:
    listener = Listener(("127.0.0.1", 0), authkey=KEY)
    address = listener.address
    with pytest.raises(TimeoutError, match=r"expected 3 ranks in 0\.1 s; ranks 1, 2 have not come"):
        listen(listener, 3, IDENTIFIER, 0.1)
    with pytest.raises(TimeoutError, match=r"expected rank 0 at 127\.0\.0\.1:.* Start rank 0"):
        call(1, 3, address, KEY, 0.1)


def test_a_rank_tries_again_until_rank_0_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [ConnectionRefusedError("not yet"), ConnectionRefusedError("not yet")]

    def client(*arguments: object, **options: object) -> object:
        if refusals:
            raise refusals.pop()
        return Client(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("uhal.collectives.watch.Client", client)
    for watch in opened(2):
        watch.close()
    assert not refusals


def test_another_key_is_refused_at_both_ends() -> None:
    listener = Listener(("127.0.0.1", 0), authkey=KEY)
    address = listener.address
    strangers: list[str] = []
    watches: list[Watch] = []

    def knock() -> None:
        try:
            call(1, 2, address, b"another key of the job", 60)
        except ArgumentValueError as error:
            strangers.append(str(error))
        watches.append(call(1, 2, address, KEY, 60)[1])

    thread = threading.Thread(target=knock)
    thread.start()
    watches.append(listen(listener, 2, IDENTIFIER, 60)[1])
    thread.join()
    assert "share, key: expected the key of rank 0" in strangers[0]
    for watch in watches:
        watch.close()


@pytest.mark.parametrize("address", ["", "node", ":1", "node:", "node:x", "node:70000", "node:²"])
def test_a_wrong_address_or_key_is_refused(address: str) -> None:
    with pytest.raises(ArgumentValueError, match="share, address: expected host:port"):
        share(IDENTIFIER, address, KEY)
    with pytest.raises(ArgumentValueError, match="share, key: expected 16 bytes or more"):
        share(IDENTIFIER, "127.0.0.1:1", b"short")
    with pytest.raises(ArgumentValueError, match="share, key: expected 16 bytes or more"):
        share(IDENTIFIER, "127.0.0.1:1")
