"""The error classes that users catch, their messages, and the classes of native codes."""

from __future__ import annotations

import pickle

import pytest

from uhal import errors
from uhal.contract import BackendRecord, ErrorText

CAUGHT_AS = {
    errors.DeviceError: RuntimeError,
    errors.OutOfMemoryError: MemoryError,
    errors.ArgumentTypeError: TypeError,
    errors.ArgumentValueError: ValueError,
    errors.ArgumentRangeError: OverflowError,
    errors.InvalidHandleError: ValueError,
    errors.NotFoundError: KeyError,
    errors.InvalidImageError: ValueError,
    errors.LibraryNotFoundError: OSError,
    errors.NotSupportedError: NotImplementedError,
    errors.NoDeviceError: RuntimeError,
}


class _Driver:
    """The parts of a backend that an error reads."""

    name = "host"

    def __init__(self, text: ErrorText, error_class: type[Exception]) -> None:
        self._text = text
        self._error_class = error_class

    def error_text(self, code: int) -> ErrorText:
        return self._text

    def error_class(self, code: int) -> type[Exception]:
        return self._error_class


@pytest.mark.parametrize(("error_class", "builtin"), CAUGHT_AS.items())
def test_is_caught_as_what_a_python_user_would_write(
    error_class: type[errors.DeviceError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin) as caught:
        raise error_class("two words")
    assert isinstance(caught.value, errors.DeviceError)
    assert str(caught.value) == "two words"


@pytest.mark.parametrize("error_class", CAUGHT_AS)
def test_pickles_with_its_attributes(error_class: type[errors.DeviceError]) -> None:
    error = error_class("words", backend="host", call="f", code=7, name="SEVEN")
    if isinstance(error, errors.NoDeviceError):
        error.records = (BackendRecord("cuda", "absent", "not found"),)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is error_class
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_attributes_are_none_by_default() -> None:
    error = errors.DeviceError("words")
    assert (error.backend, error.call, error.code, error.name) == (None, None, None, None)
    assert error.candidates == ()


def test_from_code_words_the_vendors_error() -> None:
    driver = _Driver(ErrorText("NO_ROOM", "out of memory", "free something"), MemoryError)
    driver._error_class = errors.OutOfMemoryError
    error = errors.from_code(driver, "cuMemAlloc_v2", 2)  # type: ignore[arg-type]
    assert type(error) is errors.OutOfMemoryError
    assert str(error) == "cuMemAlloc_v2: NO_ROOM (2): out of memory. free something."
    assert (error.backend, error.call, error.code, error.name) == (
        "host",
        "cuMemAlloc_v2",
        2,
        "NO_ROOM",
    )


def test_from_code_appends_a_note_and_never_doubles_a_full_stop() -> None:
    driver = _Driver(ErrorText("X", "It broke."), errors.DeviceError)
    error = errors.from_code(driver, "call", -3, "While copying")  # type: ignore[arg-type]
    assert str(error) == "call: X (-3): It broke. While copying."


def test_from_code_never_raises_a_class_of_another_family() -> None:
    driver = _Driver(ErrorText("X", "broke"), ZeroDivisionError)
    assert type(errors.from_code(driver, "f", 1)) is errors.DeviceError  # type: ignore[arg-type]


def test_no_device_prints_a_record_a_line() -> None:
    records = [
        BackendRecord("cuda", "absent", "libcuda.so.1: not found", "install the NVIDIA driver"),
        BackendRecord("host", "refused", "not built"),
    ]
    error = errors.NoDeviceError("no backend has a device:", records=records)
    assert error.records == tuple(records)
    assert str(error).splitlines() == [
        "no backend has a device:",
        "  cuda   absent   libcuda.so.1: not found → install the NVIDIA driver",
        "  host   refused  not built",
    ]
