"""The ABI headers' reader: accepted headers, refused headers, and C's own layouts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from host_backend._backend import FUNCTION_OF_SLOT
from tests.abi_headers import canonical, header_of, parameter_lists, parameters
from tests.host_kernels import compiler, has_compiler
from tests.host_runtime.driver import ROOT
from tests.requirements import needed
from uhal import _lane
from uhal.abi import Header, Library, find_library
from uhal.abi_table import HeaderError, main, table_of
from uhal.errors import LibraryNotFoundError

VENDORS = """
#ifndef SAMPLE_H
#define SAMPLE_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" { template <class T> struct nothing_we_read; }
#else
#define IN_C 1
#endif
/* what a driver header
   looks like */
#define LEAST (-0x80000000LL)  // 64 bits
#define FLAGS (1u << 3 | 0x4 | 2)
#define LEGACY ((Stream)0x1)
#define OCTAL 010
#define LONG_LINE 1 + \\
    2
typedef enum result_enum { OK = 0, BAD, WORSE = 700, WIDE = 0x100000000 } Result;
typedef enum { FIRST = -1, SECOND } Small;
typedef struct Stream_st *Stream;
typedef unsigned long long Address;
typedef int Status;
typedef void (*Callback)(Stream stream, Status status, void *data);
typedef struct { uint64_t handle; } Signal;
typedef struct Packet {
    uint16_t header, setup;
    uint32_t grid[3];
    union {
        uint64_t address;
        struct { uint32_t low; uint32_t high; };
    };
    const char *name;
    struct Packet *next;
    Callback done;
    char uuid[16];
    int (*table[2])(void);
} Packet;
union Value { float f; double d; unsigned char bytes[8]; };
extern Status packetRun(const Packet *packet, Packet *const *all, Address at, size_t bytes);
Status packetName(char *name, int length, const char *said);
void packetForget(Packet packets[], unsigned count);
Address packetAddress(void), packetOther();
Status packetEach(Status (*visit)(Packet *packet, void *data), void *data, unsigned long flags);
#endif
"""


def test_constants() -> None:
    constants = header_of(VENDORS).constants
    assert constants["LEAST"] == -0x80000000
    assert constants["FLAGS"] == 14
    assert constants["LEGACY"] == 1
    assert constants["OCTAL"] == 8
    assert constants["LONG_LINE"] == 3
    assert (constants["BAD"], constants["WORSE"], constants["WIDE"]) == (1, 700, 1 << 32)
    assert (constants["FIRST"], constants["SECOND"]) == (-1, 0)
    assert constants["IN_C"] == 1
    assert "SAMPLE_H" not in constants


def test_types() -> None:
    header = header_of(VENDORS)
    assert header.ctype("Result") is ctypes.c_int64
    assert header.ctype("Small") is ctypes.c_int
    assert header.ctype("Stream") is ctypes.c_void_p
    packet = header.ctype("Packet")()
    packet.grid[2] = 7
    packet.address = (5 << 32) | 3
    assert (packet.low, packet.high) == (3, 5)
    packet.name = b"n"
    packet.next.contents = packet  # type: ignore[attr-defined]
    assert packet.next.contents.grid[2] == 7
    assert ctypes.sizeof(header.ctype("Value")) == 8
    with pytest.raises(KeyError, match="Nothing"):
        header.ctype("Nothing")


def test_prototypes() -> None:
    header = header_of(VENDORS)
    found = {name: parameters(header, name) for name in header.prototypes}
    assert found == {
        "packetRun": ("struct Packet*", "struct Packet**", "u64", "u64"),
        "packetName": ("i8*", "i32", "i8*"),
        "packetForget": ("struct Packet*", "u32"),
        "packetAddress": (),
        "packetOther": (),
        "packetEach": ("i32(struct Packet*, void*)*", "void*", "u64"),
    }
    assert header.prototypes["packetAddress"].line == 42


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("int f(int a, ...);", 1, "variable arguments"),
        ("\n\nint f(unknown_t a);", 3, ""),
        ("int f(unknown_t);", 1, "unknown_t is no type"),
        ("int f(long short a);", 1, "long short is no type"),
        ("int counter;", 1, "variable"),
        ("struct S { int a : 3; };", 1, "bit-fields"),
        ("#define F(x) x", 1, "macro with parameters"),
        ('#define NAME "text"', 1, "integer constant"),
        ("#ifdef A\nint f(void);", 1, "unterminated"),
        ("int f(void) { return 1; }", 1, "no declaration"),
        ("struct S { int a; };\nstruct S { int b; };", 2, "defined twice"),
        ("typedef int T", 1, ""),
        ("#define A B", 1, "integer constant"),
        ("#define A (1", 1, ""),
        ("#define A 1 << 99", 1, "shift by 99"),
        ("int f(void a);", 1, "void"),
        ("struct S { int a[0]; };", 1, "array of 0"),
        ("int f(@);", 1, "@"),
        ("enum E f(void);", 1, "enum E is not declared"),
    ],
)
def test_what_a_table_cannot_hold_is_refused(text: str, line: int, words: str) -> None:
    with pytest.raises(HeaderError) as caught:
        table_of(text, "x.h")
    assert str(caught.value).startswith(f"x.h:{line}:")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("long unsigned int", "u64"),
        ("int long", "i64"),
        ("long long int unsigned", "u64"),
        ("signed", "i32"),
        ("short int signed", "i16"),
        ("char signed", "i8"),
        ("char", "char"),
        ("unsigned char", "u8"),
        ("size_t", "u64"),
    ],
)
def test_specifiers_come_in_any_order(spelled: str, kind: str) -> None:
    table = table_of(f"int f({spelled} a);")
    assert table["functions"]["f"]["parameters"] == [["a", kind]]


def test_the_command_writes_a_table_beside_the_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.h"
    path.write_text("enum { OWN = 3 };\n", encoding="utf-8")
    with pytest.raises(LibraryNotFoundError, match=r"python -m uhal\.abi_table own\.h"):
        Header.load(path)
    assert main([str(path)]) == 0
    assert Header.load(path).constants == {"OWN": 3}
    path.write_text("int counter;\n", encoding="utf-8")
    assert main([str(path)]) == 1
    assert "own.h:1: counter is a variable" in capsys.readouterr().err
    assert main([]) == 2


@needed(has_compiler(), "no C compiler")
def test_the_compiler_agrees(tmp_path: Path) -> None:
    """Sizes, offsets and constants of the host's header agree between C and ctypes."""
    path = ROOT / "host_backend" / "abi.h"
    header = Header.load(path)
    expected: dict[str, int] = {}
    lines: list[str] = []
    for name in ("uhalHostDeviceProperties", "uhalHostKernelInfo", "uhalHostFuncAttributes"):
        structure = header.ctype(name)
        expected[f"sizeof({name})"] = ctypes.sizeof(structure)
        for field, *_ in structure._fields_:
            expected[f"offsetof({name}, {field})"] = getattr(structure, field).offset
    expected |= header.constants
    lines = [f'printf("%lld\\n", (long long)({expression}));' for expression in expected]
    source = tmp_path / "k.cpp"
    source.write_text(
        f'#include "{path}"\n#include <stdio.h>\nint main() {{ {" ".join(lines)} }}\n',
        encoding="utf-8",
    )
    subprocess.run([*compiler(), str(source), "-o", str(tmp_path / "k")], check=True)
    done = subprocess.run([tmp_path / "k"], check=True, capture_output=True, text=True)
    assert [int(word) for word in done.stdout.split()] == list(expected.values())


def test_the_hot_table_fits_the_header() -> None:
    """Each slot has the prototype of the function that fills it."""
    path = ROOT / "host_backend" / "abi.h"
    header = Header.load(path)
    slots = _lane.slot_prototypes()
    assert set(FUNCTION_OF_SLOT) <= set(slots)
    required = {slot for slot, (need, _) in slots.items() if need == "required"}
    assert required <= set(FUNCTION_OF_SLOT)
    expected = parameter_lists(path, {slot: slots[slot][1] for slot in FUNCTION_OF_SLOT})
    for slot, name in FUNCTION_OF_SLOT.items():
        assert parameters(header, name) == expected[slot], slot
        assert canonical(header.prototypes[name].result) == "i32"


def test_libraries_are_found_by_override_or_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = tmp_path / "libnothing.so"
    monkeypatch.setenv("UHAL_TEST_LIBRARY", str(missing))
    search = find_library("UHAL_TEST_LIBRARY", ["libc.so.6"])
    assert search.handle is None
    assert [attempt.path for attempt in search.attempts] == [str(missing)]
    assert "cannot open" in search.attempts[0].outcome

    monkeypatch.delenv("UHAL_TEST_LIBRARY")
    search = find_library("UHAL_TEST_LIBRARY", ["libnothing.so.9", "libc.so.6"])
    assert search.handle is not None and search.path is not None
    assert Path(search.path).is_absolute()
    assert [attempt.path for attempt in search.attempts] == ["libnothing.so.9", "libc.so.6"]
    assert search.attempts[1].outcome == "opened"


def test_the_working_directory_is_not_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libhere.so").write_bytes((ROOT / "host_backend" / "libuhal_host.so").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert find_library("UHAL_TEST_LIBRARY", ["libhere.so"]).handle is None
    monkeypatch.setenv("UHAL_TEST_LIBRARY", "libhere.so")
    assert find_library("UHAL_TEST_LIBRARY", []).handle is None
    monkeypatch.setenv("UHAL_TEST_LIBRARY", "./libhere.so")
    assert find_library("UHAL_TEST_LIBRARY", []).handle is not None


@pytest.mark.skipif(sys.platform != "linux", reason="the loader of Linux")
@pytest.mark.parametrize("before", ["", "/nowhere:", "{here}:"])
def test_an_empty_element_of_the_loaders_path_plants_nothing(tmp_path: Path, before: str) -> None:
    """The system's loader reads an empty path element as the working directory, in path order."""
    here, planted = tmp_path / "here", tmp_path / "planted"
    library = (ROOT / "host_backend" / "libuhal_host.so").read_bytes()
    for folder in (here, planted):
        folder.mkdir()
        (folder / "libcuda.so.1").write_bytes(library)
    program = (
        "from uhal.abi import find_library; "
        "print([one.outcome for one in find_library('X', ['libcuda.so.1']).attempts][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=planted,
        env={"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": f"{before.format(here=here)}:/usr/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "{here}" in before:
        assert done.stdout == "opened\n"
    else:
        assert done.stdout.startswith("LD_LIBRARY_PATH has an empty element, by which the loader")
        assert str(planted) in done.stdout


def test_a_path_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    strange = os.fsencode(tmp_path) + b"/lib\xff\xfe.so"
    for has_file in (False, True):
        if has_file:
            Path(os.fsdecode(strange)).write_text("no library")
        monkeypatch.setenv("UHAL_TEST_LIBRARY", os.fsdecode(strange))
        search = find_library("UHAL_TEST_LIBRARY", [])
        assert search.handle is None
        (attempt,) = search.attempts
        assert attempt.path == f"{tmp_path}/lib\\xff\\xfe.so"
        attempt.outcome.encode()
        assert ("too short" if has_file else "cannot open") in attempt.outcome
    Path(os.fsdecode(strange)).write_bytes((ROOT / "host_backend" / "libuhal_host.so").read_bytes())
    assert find_library("UHAL_TEST_LIBRARY", []).path == f"{tmp_path}/lib\\xff\\xfe.so"


def test_a_function_carries_its_check() -> None:
    header = header_of(
        "typedef int Status;\nStatus abs(int x);\nint labs(int x);\nStatus not_in_libc(void);"
    )
    search = find_library("UHAL_TEST_LIBRARY", ["libc.so.6"])
    assert search.handle is not None
    told: list[tuple[str, int]] = []
    library = Library(
        search.handle,
        "libc.so.6",
        header,
        status="Status",
        check=lambda name, code: told.append((name, code)),
    )
    assert library.abs(0) == 0 and told == []
    assert library.abs(-3) == 3 and told == [("abs", 3)]
    assert library.unchecked("abs")(-4) == 4
    assert library.labs(-5) == 5  # `labs` returns an integer that is not a status
    assert told == [("abs", 3)]
    assert library.missing() == ("not_in_libc",)
    assert library.has("abs") and library.address("abs") != 0
    with pytest.raises(LibraryNotFoundError, match=r"libc\.so\.6 has no function not_in_libc"):
        library.not_in_libc()
    with pytest.raises(AttributeError, match="declares no function nothing"):
        library.nothing()
