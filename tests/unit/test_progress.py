"""Progress is only reported to listeners, every byte once."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import uhal
from uhal import progress

PIECE = 256 << 20


class Bars(ModuleType):
    """A `tqdm` that remembers."""

    def __init__(self) -> None:
        super().__init__("tqdm")
        self.made: list[Any] = []

    def tqdm(self, total: int, **words: object) -> Any:
        made = ModuleType("bar")
        made.total, made.steps, made.closed = total, [], False  # type: ignore[attr-defined]
        made.update = made.steps.append  # type: ignore[attr-defined]
        made.close = lambda: setattr(made, "closed", True)  # type: ignore[attr-defined]
        self.made.append(made)
        return made


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bars]:
    found = Bars()
    monkeypatch.setitem(sys.modules, "tqdm", found)
    yield found
    progress.show(False)


def test_nothing_is_said_unasked(bars: Bars, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Bar(None, 10, "reading"), progress.slow("loading"):
        pass
    assert not bars.made and capsys.readouterr().err == "" and not progress.is_shown()


def test_what_is_told_needs_neither_a_thread_nor_a_terminal(
    bars: Bars, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    progress.show()
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(progress, "_SLOW", 0)
    monkeypatch.setattr(sys, "stdout", None)
    for stderr in (None, io.TextIOWrapper(io.BytesIO(), "ascii")):
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress.slow("größer"), progress.Bar(True, 10, "größer"):
            pass


def test_a_load_tells_a_function_or_shows_a_bar(
    bars: Bars, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[int, int]] = []
    with progress.Bar(lambda done, total: told.append((done, total)), 10, "reading") as bar:
        bar.add(4)
        bar.add(6)
    assert told == [(4, 10), (10, 10)] and not bars.made
    progress.show()
    for asked in (None, True):
        with progress.Bar(asked, 10, "reading ten bytes") as bar:
            bar.add(4)
        assert bars.made[-1].steps == [4] and bars.made[-1].closed
    with progress.Bar(False, 10, "reading"):
        pass
    assert len(bars.made) == 2
    assert capsys.readouterr().err == "reading ten bytes\n" * 2


def test_a_long_copy_shows_how_far_it_is(bars: Bars) -> None:
    array = np.zeros(PIECE + 3, np.uint8)
    with uhal.DeviceBuffer.uninitialized(array.size, "u8", device="host") as buffer:
        buffer.copy_from(array)
        assert not bars.made
        progress.show()
        buffer.copy_from(array)
        buffer[:PIECE].copy_from(array[:PIECE])
    (bar,) = bars.made
    assert (bar.total, bar.steps, bar.closed) == (array.size, [PIECE, 3], True)


def test_what_is_slow_is_told_when_it_is(
    bars: Bars, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SLOW", 0.02)
    progress.show()
    written = io.StringIO()
    with monkeypatch.context() as patch:
        # capsys loses parts of another thread's output while it is read.
        patch.setattr(sys, "stderr", written)
        with progress.slow("loading x"):
            deadline = time.monotonic() + 60
            while not written.getvalue().endswith("\n"):
                assert time.monotonic() < deadline
    first, second = written.getvalue().splitlines()
    assert first == "loading x …"
    assert second.startswith("loading x: ")
    monkeypatch.setattr(progress, "_SLOW", 60.0)
    with progress.slow("loading y"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("nbytes", "told"),
    [
        *(
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (65_540, "65.5 kB"),
            (1_044_992, "1.04 MB"),
        ),
        *((999_499_999, "999 MB"), (999_999_999, "1.00 GB"), (13_600_000_000_000, "13600 GB")),
    ],
)
def test_sizes_have_three_digits(nbytes: int, told: str) -> None:
    assert progress.in_units(nbytes) == told
