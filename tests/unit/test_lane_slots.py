"""Code generated from the list of slots: declarations for the lane, and its native calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_support.lane_slots import HeaderError, calls, declarations, main, read_slots
from uhal import _lane

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "cython_src"
HEADER = (SOURCES / "hot_table.h").read_text("utf-8")

# The device is made current, a slot is called, the device is restored, a status is raised.
BY_HAND = re.compile(
    r"= enter\((?P<context>[\w.]+)\)\n"
    r"(?:\s+cdef int status\n)?(?:\s+with nogil:\n)?"
    r"\s+(?:cdef int )?status = [\w.]+table\.(?P<slot>\w+)\([^()]*\)\n"
    r"\s+leave\((?P=context), previous\)\n"
    r"\s+(?:return )?(?:check\((?P=context), status, \"(?P=slot)\"\)|status)\n"
)


def test_the_slots_are_those_the_compiler_sees() -> None:
    compiled = _lane.slot_prototypes()
    read = read_slots(HEADER)
    assert [slot.name for slot in read] == list(compiled)
    for slot in read:
        in_c = compiled[slot.name][1].strip("()").replace("struct ", "")
        assert re.sub(r"\s+", " ", in_c) == slot.declared


def test_the_guide_names_the_parameters_of_slots_as_the_header_does() -> None:
    guide = (ROOT / "docs/guide/writing-a-backend.md").read_text("utf-8")
    slots = {slot.name: slot.passed for slot in read_slots(HEADER)}
    shown = [one for one in re.findall(r"`(\w+)\(([^()`]*)\)`", guide) if one[0] in slots]
    assert shown
    assert shown == [(name, slots[name]) for name, _ in shown]


def test_no_call_that_can_be_made_is_written_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match['slot']}"
        for path in sorted(SOURCES.rglob("*.pxi"))
        for match in BY_HAND.finditer(path.read_text("utf-8"))
    ]
    assert not found


def test_a_call_by_hand_is_seen() -> None:
    assert BY_HAND.search(
        "    cdef void *previous = enter(self.context)\n"
        "    cdef int status = self.context.table.event_record(self.handle_, core.handle)\n"
        "    leave(self.context, previous)\n"
        '    check(self.context, status, "event_record")\n'
    )


def test_only_what_a_source_calls_is_made() -> None:
    slots = read_slots(HEADER)
    text = calls(
        slots, ["native_bind(c, x); status_of_alloc_unlocked(c, &a, 1); native_nothing(c)"]
    )
    assert re.findall(r"cdef inline int (\w+)\(", text) == [
        "native_bind",
        "status_of_alloc_unlocked",
    ]
    assert text.split("\n\n\n")[1:] == [
        "cdef inline int native_bind(Context at, void *context) except -1:\n"
        "    cdef void *previous = enter(at)\n"
        "    cdef int status = at.table.bind(context)\n"
        "    leave(at, previous)\n"
        '    return check(at, status, "bind")',
        "cdef inline int status_of_alloc_unlocked(Context at, uint64_t *address, size_t bytes) "
        "except? -1:\n"
        "    cdef void *previous = enter(at)\n"
        "    cdef int status\n"
        "    with nogil:\n"
        "        status = at.table.alloc(address, bytes)\n"
        "    leave(at, previous)\n"
        "    return status\n",
    ]


def test_files_are_written(tmp_path: Path) -> None:
    main(SOURCES, tmp_path / "lane")
    assert "struct uhal_launch_config:" in (tmp_path / "lane" / "hot_table.pxi").read_text("utf-8")
    assert "native_event_record(" in (tmp_path / "lane" / "slot_calls.pxi").read_text("utf-8")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("SLOT(required, bind,", "SLOT(wanted, bind,", "in the list of slots: 'SLOT.wanted, bind"),
        ("(void *context))      ", "(void (*context)(void)))", "in the list of slots"),
        ("#define UHAL_SLOTS(SLOT)", "#define SLOTS(SLOT)", "there is no list"),
        (
            "uint32_t is_pointer;",
            "uint32_t is_pointer : 1, other;",
            "no field of a struct: 'uint32",
        ),
        ("UHAL_SLOTS(UHAL_SLOT_FIELD)\n", "", "no struct uhal_hot_table that begins"),
    ],
)
def test_what_is_not_read_is_refused(before: str, after: str, words: str) -> None:
    assert before in HEADER
    with pytest.raises(HeaderError, match=words):
        declarations(HEADER.replace(before, after, 1))
