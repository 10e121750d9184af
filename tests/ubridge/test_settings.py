"""`Settings`, the reader of named values: every type and range, by the file's name and the key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ubridge.files.errors import InvalidFileError
from ubridge.files.settings import Settings, object_of, text_of_file
from uhal.errors import NotSupportedError

VALUES = (
    *(None, True, False, 0, 1, -1, 1 << 63, -(1 << 70), 10**400, 0.5, -2.0, 1e308),
    *(float("nan"), float("inf"), "", "2", "a", [], [1], [None], ["a"], [[1]], {}, {"a": 1}),
)
READERS: dict[str, tuple[Callable[[Settings], Any], Callable[[Any], bool]]] = {
    "integer": (lambda one: one.integer("k"), lambda v: type(v) is int and 0 <= v < 1 << 63),
    "bounded": (lambda one: one.integer("k", least=1, most=1), lambda v: type(v) is int and v == 1),
    "number": (
        lambda one: one.number("k"),
        lambda v: type(v) in (int, float) and abs(v) < 10**309,
    ),
    "positive": (
        lambda one: one.number("k", above=0.0, most=1.0),
        lambda v: type(v) in (int, float) and 0 < v <= 1,
    ),
    "flag": (lambda one: one.flag("k"), lambda v: type(v) is bool),
    "text": (lambda one: one.text("k"), lambda v: type(v) is str),
    "integers": (lambda one: one.integers("k"), lambda v: v in ([], [1])),
    "one_or_more": (
        lambda one: one.one_or_more("k"),
        lambda v: v in ([], [1]) or (type(v) is int and 0 <= v < 1 << 63),
    ),
    "numbers": (lambda one: one.numbers("k"), lambda v: v in ([], [1])),
    "texts": (lambda one: one.texts("k"), lambda v: v in ([], ["a"])),
    "section": (lambda one: one.section("k"), lambda v: v is None or type(v) is dict),
}


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("reader", READERS)
def test_a_value_fits_or_is_named(reader: str, value: Any) -> None:
    read, fits = READERS[reader]
    settings = Settings("folder/some.json", {"k": value})
    if fits(value):
        read(settings)
        return
    with pytest.raises(InvalidFileError, match=r"^folder/some\.json: k: expected .*, got ."):
        read(settings)


def test_names_defaults_and_bounds() -> None:
    told = Settings(
        "x.gguf",
        {"llama.block_count": 7, "n_head": None, "num_heads": 3},
        names={"layers": ("llama.block_count",), "heads": ("n_head", "num_heads")},
        defaults={"kept": 5},
        bounds={"layers": (6, "for there are 6 tensors")},
    )
    assert told.integer("heads") == 3
    assert told.integer("kept", 1) == 5
    assert told.integer("other", None) is None
    with pytest.raises(InvalidFileError, match=r"x.gguf: kept: .* 0 to 4, got 5, the default$"):
        told.integer("kept", most=4)
    with pytest.raises(InvalidFileError, match=r"x.gguf: llama.block_count: .*0 to 6, for there"):
        told.integer("layers")
    assert told.read_as({}, bounds={"layers": (9, "")}).integer("layers") == 7
    with pytest.raises(InvalidFileError, match=r"x\.gguf: missing: expected a value, got none"):
        told.integer("missing")
    with pytest.raises(NotSupportedError, match=r"x: kind: expected one of a, b, got .c.$"):
        Settings("x", {"kind": "c"}).text("kind", among=("a", "b"))


def test_what_nobody_asked_for_is_listed() -> None:
    told = Settings("x", {"a": 1, "b": {"c": 2, "d": 3}, "e": 4})
    told.integer("a")
    told.section("b").integer("c")
    assert dict(told.unread()) == {"e": 4, "b.d": 3}


@pytest.mark.parametrize(
    "raw", [b"", b"[", b"[1]", b"\xff{}", b"null", b"[" * 100_000, b"1" * 9999, b'{"a": }']
)
def test_what_is_no_object_of_json_is_named(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(raw)
    with pytest.raises(InvalidFileError, match=f"^{path}: expected "):
        Settings.read(path)


def test_a_byte_order_mark_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"a": 1}).encode())
    assert Settings.read(path).integer("a") == 1
    assert object_of("here", '{"b": 2}') == {"b": 2}


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in (
        (tmp_path, "a folder"),
        (tmp_path / "fifo", "a FIFO"),
        (Path("/dev/zero"), "a device"),
    ):
        with pytest.raises(InvalidFileError, match=f"expected a file, got {kind}"):
            text_of_file(path)
    with pytest.raises(FileNotFoundError):
        text_of_file(tmp_path / "nothing")
