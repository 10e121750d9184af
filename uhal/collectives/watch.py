"""Connections (lines) between ranks, which carry the group's identifier and name missing ranks.

Every rank has a line to rank 0. Four times a second, rank 0 sends the state of all ranks to every
rank. A line that ends without a last message means that the process has ended. Collectives never
wait for the lines.

The lines are Python's `multiprocessing.connection`: bytes, never pickles, and both ends of a line
prove that they have the group's key.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from uhal.collectives.engine import ID_BYTES
from uhal.errors import ArgumentValueError, DeviceError

Address = tuple[str, int]
_TURN_SECONDS = 0.25
_SILENT_SECONDS = 2.0
"""A stopped process is silent for longer; a busy process seldom is."""
_MOST_BYTES = 1 << 20
_BYE = "bye"
_FAREWELL = json.dumps(_BYE).encode()


class Watch:
    """A rank's lines, served by a thread of their own. Any thread may ask."""

    def __init__(self, rank: int, lines: dict[int, Connection], ranks: int) -> None:
        """Own the lines: on rank 0 to every other rank, elsewhere to rank 0."""
        self.calls = 0
        """Number of collectives that this rank has enqueued."""
        self._rank = rank
        self._lines = lines
        now = time.monotonic()
        self._heard = [now] * ranks
        self._calls = [0] * ranks
        self._states = ["here"] * ranks
        self._silent: list[int] = []
        self._gone: list[int] = []
        self._ended = threading.Event()
        self._polite = False
        self._thread = threading.Thread(target=self._serve, name="uhal ranks", daemon=True)
        self._thread.start()

    def gone(self) -> str:
        """Return the ranks whose processes ended first; empty while none has ended.

        Other ranks leave because of these ranks.
        """
        gone = list(self._gone)
        return _named(gone, "has ended or left", "have ended or left") if gone else ""

    def missing(self) -> str:
        """Return the ranks that delay the other ranks; empty if unknown."""
        silent = list(self._silent)
        if self._rank and time.monotonic() - self._heard[0] > _SILENT_SECONDS:
            silent = [0]
        if silent:
            return _named(silent, "does not answer", "do not answer")
        calls = [self.calls if rank == self._rank else one for rank, one in enumerate(self._calls)]
        behind = [rank for rank, one in enumerate(calls) if one < max(calls)]
        number = f"of {max(calls)} collectives"
        least = min(calls)
        return _named(behind, f"enqueued {least} {number}", f"enqueued {least} {number}")

    def close(self, politely: bool = True) -> None:
        """End the lines. Idempotent. Unless `politely`, the other ranks see an ended process."""
        self._polite = politely
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    # -- the thread --------------------------------------------------------------------------------

    def _serve(self) -> None:
        turn = 0.0
        while self._lines and not self._ended.is_set():
            for line in wait(list(self._lines.values()), _TURN_SECONDS):
                self._read(next(rank for rank, one in self._lines.items() if one is line))
            if time.monotonic() - turn > _TURN_SECONDS:
                turn = time.monotonic()
                self._say(self._news())
        if self._polite:
            self._say(_FAREWELL)
            self._hear_out()
        for line in self._lines.values():
            line.close()

    def _hear_out(self) -> None:
        """Read until the other ranks have read the farewell.

        Closing a connection with unread messages resets it, and the other end loses the farewell.
        """
        end = time.monotonic() + _SILENT_SECONDS
        left = list(self._lines.values())
        while left and time.monotonic() < end:
            for line in wait(left, _TURN_SECONDS):
                assert isinstance(line, Connection)
                try:
                    is_last = line.recv_bytes(_MOST_BYTES) == _FAREWELL
                except (EOFError, OSError):
                    is_last = True
                if is_last:
                    left.remove(line)

    def _read(self, rank: int) -> None:
        try:
            message = json.loads(self._lines[rank].recv_bytes(_MOST_BYTES))
        except (EOFError, OSError, ValueError):
            message = None
        if message is None or message == _BYE:
            self._states[rank] = "gone" if message is None else "left"
            self._lines.pop(rank).close()
            self._note_gone()
            if self._rank == 0:
                self._say(self._news())
            return
        self._heard[rank] = time.monotonic()
        if self._rank == 0:
            self._calls[rank] = message
        else:
            self._calls, self._states, self._silent = message
            self._note_gone()

    def _note_gone(self) -> None:
        if not self._gone:
            self._gone = [rank for rank, state in enumerate(self._states) if state == "gone"]

    def _news(self) -> bytes:
        if self._rank:
            return json.dumps(self.calls).encode()
        self._calls[0] = self.calls
        now = time.monotonic()
        self._silent = [rank for rank in self._lines if now - self._heard[rank] > _SILENT_SECONDS]
        return json.dumps([self._calls, self._states, self._silent]).encode()

    def _say(self, message: bytes) -> None:
        for line in self._lines.values():
            with suppress(OSError):
                line.send_bytes(message)


def listen(
    listener: Listener, ranks: int, identifier: bytes | None, seconds: float
) -> tuple[bytes, Watch]:
    """Wait for the other ranks, then send them rank 0's identifier. Closes the listener.

    Raises `TimeoutError` for ranks that do not connect within `seconds`.
    """
    if identifier is None or len(identifier) != ID_BYTES:
        raise ArgumentValueError(f"share: expected {ID_BYTES} bytes on rank 0. Pass unique_id().")
    lines: dict[int, Connection] = {}
    with listener:
        _set_timeout(listener, seconds)
        while len(lines) < ranks - 1:
            missing = sorted(set(range(1, ranks)) - set(lines))
            try:
                line = listener.accept()
                rank = int.from_bytes(line.recv_bytes(8), "little")
            except TimeoutError:
                raise TimeoutError(
                    f"share: expected {ranks} ranks in {seconds:g} s; "
                    f"{_named(missing, 'has not come', 'have not come')}. Start them, or give "
                    "more seconds."
                ) from None
            except (AuthenticationError, OSError, EOFError):
                continue  # a stranger, who has no key
            if rank not in missing:
                raise DeviceError(
                    f"share: expected ranks 1 to {ranks - 1} once each, got rank {rank} again. "
                    "Give each process its own rank."
                )
            lines[rank] = line
    for line in lines.values():
        line.send_bytes(identifier)
    return identifier, Watch(0, lines, ranks)


def call(
    rank: int, ranks: int, address: Address, key: bytes, seconds: float
) -> tuple[bytes, Watch]:
    """Open the line to rank 0; return its identifier, and this rank's watch.

    Raises `TimeoutError` if rank 0 does not answer within `seconds`.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            line = Client(address, authkey=key)
            break
        except AuthenticationError:
            raise ArgumentValueError(
                f"share, key: expected the key of rank 0 at {address[0]}:{address[1]}, got another "
                "key. Give every rank the same one."
            ) from None
        except OSError as error:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"share: expected rank 0 at {address[0]}:{address[1]} in {seconds:g} s, got "
                    f"{error}. Start rank 0, or correct the address."
                ) from None
            time.sleep(0.05)
    line.send_bytes(rank.to_bytes(8, "little"))
    if not line.poll(max(0.0, end - time.monotonic())):
        raise TimeoutError(
            f"share: expected {ranks} ranks in {seconds:g} s; some have not come. Start them, or "
            "give more seconds."
        )
    return line.recv_bytes(_MOST_BYTES), Watch(rank, {0: line}, ranks)


def _set_timeout(listener: Any, seconds: float) -> None:
    # The standard library's listener has no timeout of its own.
    listener._listener._socket.settimeout(seconds)


def _named(ranks: list[int], one: str, several: str) -> str:
    if not ranks:
        return ""
    numbers = ", ".join(map(str, ranks))
    return f"rank {numbers} {one}" if len(ranks) == 1 else f"ranks {numbers} {several}"


__all__ = ["Address", "Watch", "call", "listen"]
