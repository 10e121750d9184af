"""Loads kernel images, and finds their kernels and global variables."""

from __future__ import annotations

import codecs
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeVar

import numpy as np

from uhal import _messages, progress
from uhal._lane import (
    DeviceBuffer,
    Function,
    KeptArithmetic,
    ModuleHandle,
    chosen_context,
    refuse_pickle,
)
from uhal._refusal import counted, describe
from uhal.contract import Chosen, LoadedModule
from uhal.device import Device, DeviceLike
from uhal.dtypes import DTypeLike, as_dtype
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NotFoundError,
    NotSupportedError,
)
from uhal.habits import OF_LOADED_MODULE, refuse_names
from uhal.images.regular_file import path_of, require_file
from uhal.signature import LazySignatures, Signature, merge

_Self = TypeVar("_Self", bound="Module")


class Module:
    """A loaded kernel image. Made by `from_file` or `from_bytes`; a context manager.

    Functions and globals keep the native module loaded. `close` unloads the module; later uses of
    its functions and globals are refused. NVIDIA's driver waits for the device's pending work
    before it unloads a module; the wait blocks no other Python thread. Any thread may use a module.
    """

    _fixed_backend: ClassVar[str | None] = None

    def __init__(self, *given: object, **settings: object) -> None:
        raise TypeError("a Module is made by Module.from_file or Module.from_bytes")

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse a missing name; for a kernel's name, say how to get the kernel."""
            known = () if name.startswith("_") else self._names
            advice = OF_LOADED_MODULE.get(name, "")
            advice = f"Write module.get_function({name!r})." if name in known else advice
            message = f"'Module' object has no attribute {name!r}"
            message = f"{message}. {advice}" if advice else message
            raise AttributeError(message, name=name, obj=self)

    def __getitem__(self, name: object) -> NoReturn:
        """Refuse an index; a kernel comes from `get_function`."""
        raise ArgumentTypeError(
            f"module[…]: expected a call, got {describe(name)}. Write module.get_function(name)."
        )

    @classmethod
    def from_file(
        cls: type[_Self],
        path: str | os.PathLike[str],
        *,
        device: DeviceLike | None = None,
        chosen: Chosen | None = None,
    ) -> _Self:
        """Load an image from a file, on `device` or the current one.

        A file `<path>.sig` beside the image may describe parameters that the image leaves out: one
        `entry: u64 n, const f32* x` a line. A caller that picked the file among several may pass
        the reason as `chosen`; `module.chosen` returns it.

        Raises `OSError` when the file cannot be read, `InvalidImageError` when the file is no
        image, such as a FIFO, or does not fit the device. Raises `NotFoundError` when the `.sig`
        file describes a kernel that is not in the image, and `ArgumentValueError` when the `.sig`
        file cannot be parsed. `get_function` reports a contradiction between the image and the
        `.sig` file.
        """
        found = path_of("from_file, path", path)
        require_file(found)
        sidecar = found.with_name(found.name + ".sig")
        signatures: dict[str, Signature] = {}
        if sidecar.is_file():
            text = _text_of(sidecar)
            signatures = Signature.parse_sidecar(text, source=sidecar.name)
        module = cls._load(found.read_bytes(), found, device, signatures)
        if chosen is not None:
            module._chosen = chosen
        return module

    @classmethod
    def from_bytes(
        cls: type[_Self], image: bytes | bytearray | memoryview, *, device: DeviceLike | None = None
    ) -> _Self:
        """Load an image held in memory, on `device` or the current one.

        The bytes are copied.
        """
        if not isinstance(image, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"image: expected bytes, got {describe(image)}")
        return cls._load(bytes(image), None, device, {})

    @classmethod
    def _load(
        cls: type[_Self],
        image: bytes,
        path: Path | None,
        device: DeviceLike | None,
        sidecar: Mapping[str, Signature],
    ) -> _Self:
        context = chosen_context(cls, device)
        words = f"loading {path.name if path else 'a module'}"
        with context.enter(), progress.slow(words), KeptArithmetic():
            loaded = context.backend.module_load(context.ordinal, image, path=path)
        handle = ModuleHandle(context, loaded.handle)
        try:
            signatures = _merged_sidecar(loaded, sidecar, path)
        except BaseException:
            handle.close()
            raise
        module = object.__new__(cls)
        module._handle = handle
        module._signatures = signatures
        module._image_signatures = loaded.signatures
        module._names = tuple(loaded.signatures)
        module._chosen = loaded.chosen
        module._functions = {}
        module._lock = threading.Lock()
        module._messages = _messages.attach(context, module) if loaded.has_messages else None
        handle.asserts = module._messages is not None
        return module

    _handle: ModuleHandle
    _signatures: Mapping[str, Signature]
    """The kernels' signatures in the sidecar, merged with the image's."""
    _image_signatures: Mapping[str, Signature]
    _names: tuple[str, ...]
    _chosen: Chosen
    _functions: dict[str, Function]
    _lock: threading.Lock
    _messages: _messages.KernelMessages | None
    """Printed texts and assertions of its kernels, held as long as kernels may run."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels' names, in the image's order.

        Empty when the image does not list them.
        """
        return self._names

    @property
    def chosen(self) -> Chosen:
        """The loaded image, and the reason for its choice."""
        return self._chosen

    @property
    def device(self) -> Device:
        """The device the module is loaded on."""
        return self._handle.context.device

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._handle.closed

    @property
    def reports(self) -> bool:
        """Whether the kernels may write reports that `Context.watch_reports` watches for.

        Set by the code that gives the module memory for reports. A stream that ran such kernels
        raises the report at its next wait.
        """
        return self._handle.reports

    @reports.setter
    def reports(self, value: bool) -> None:
        self._handle.reports = value

    def get_function(self, name: str, signature: str | Signature | None = None) -> Function:
        """Return the kernel `name`.

        `signature` adds facts that the image lacks, as in `"u64 n, const f32* x"`. Raises
        `NotFoundError` when there is no such kernel, `ArgumentValueError` when `signature` cannot
        be read, and when `signature` or the `.sig` file contradicts the image.
        """
        if signature is None and type(name) is str and name in self._functions:
            self._require_open()
            return self._functions[name]
        self._require_name("get_function", "kernel", name, self._names)
        function = self._make_function(name, self._signature_of(name, signature))
        if signature is not None:
            return function
        with self._lock:
            return self._functions.setdefault(name, function)

    def _signature_of(self, name: str, declared: str | Signature | None) -> Signature | None:
        if isinstance(declared, str):
            declared = Signature.parse(declared, entry=name)
        elif declared is not None and not isinstance(declared, Signature):
            raise ArgumentTypeError(
                f"get_function, signature: expected a str or Signature, got {describe(declared)}"
            )
        signatures = self._signatures if name in self._signatures else self._image_signatures
        return merge(signatures.get(name), declared)

    def _make_function(self, name: str, signature: Signature | None) -> Function:
        context = self._handle.context
        try:
            native = self._handle.find_function(name)
        except DeviceError as error:
            if name in self._names or context.lost is not None:
                raise
            raise self._not_found("kernel", name, self._names) from error
        _check_signature(name, signature, context.limits.max_parameter_bytes)
        with context.enter():
            attributes = context.backend.function_attributes(native, name)
            layout = context.backend.function_layout(native)
        _check_layout(name, signature, layout)
        return Function(self._handle, native, name, signature, attributes)

    def get_global(self, name: str, dtype: DTypeLike = "u8") -> DeviceBuffer:
        """Return a module's global variable as a buffer of `dtype`.

        The buffer closes with the module. Without `close` the module stays loaded while the buffer,
        one of its views or work that uses the buffer exists. Raises `NotFoundError` when there is
        no such variable, `ArgumentValueError` when the variable's size is no multiple of the
        dtype's.
        """
        self._require_name("get_global", "global", name)
        element = as_dtype(dtype)
        address, nbytes = self._handle.find_global(name)
        if nbytes % element.itemsize:
            raise ArgumentValueError(
                f"global {name!r} has {nbytes} bytes, no multiple of the {element.itemsize} of "
                f"{element}"
            )
        size = nbytes // element.itemsize
        return self._handle.describe_global(address, size, element)

    def write_global(self, name: str, value: bytes) -> None:
        """Set the first bytes of a module's global variable, and wait.

        Also works if the driver has no addresses of variables. Raises `NotFoundError` when there is
        no such variable, `ArgumentValueError` when the variable is smaller than `value`.
        """
        self._require_name("write_global", "global", name)
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"write_global, value: expected bytes, got {describe(value)}")
        try:
            self._handle.write_global(name, bytes(value))
        except NotSupportedError:
            raise
        except NotImplementedError:
            variable = self.get_global(name)
            if len(value) > variable.nbytes:
                raise ArgumentValueError(
                    f"global {name!r} has {variable.nbytes} bytes, got {len(value)}"
                ) from None
            if value:
                variable[: len(value)].copy_from(np.frombuffer(value, np.uint8))

    def close(self) -> None:
        """Refuse the module's functions and globals from now on.

        Enqueued work that uses them still runs.

        Idempotent.
        """
        with self._lock:
            self._functions.clear()
        self._handle.close()
        self._messages = None

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle(self, "a loaded image", "Send the image's bytes or its path; load it there.")

    def __repr__(self) -> str:
        state = "closed" if self.closed else counted(len(self._names), "kernel")
        return f"<{type(self).__name__} {self._chosen.description}, {state}>"

    def _require_open(self) -> None:
        if self._handle.closed:
            raise InvalidHandleError("the module is closed")
        self._handle.context.check_usable()

    def _require_name(
        self, operation: str, kind: str, name: object, known: Iterable[str] = ()
    ) -> None:
        """Refuse an invalid name, and a closed module."""
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{operation}, name: expected a str, got {describe(name)}")
        self._require_open()
        if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
            raise self._not_found(kind, name, known)

    def _not_found(self, kind: str, name: str, known: Iterable[str]) -> NotFoundError:
        return NotFoundError(
            f"{self._chosen.description} has no {kind} {name!r}{_similar(name, known)}",
            backend=self._handle.context.backend_name,
        )


refuse_names(Module, OF_LOADED_MODULE)


def _merged_sidecar(
    loaded: LoadedModule, sidecar: Mapping[str, Signature], path: Path | None
) -> Mapping[str, Signature]:
    """Check the names at once; contradictions are reported when a kernel is looked up."""
    image = loaded.signatures
    for entry in sidecar:
        if image and entry not in image:
            raise NotFoundError(
                f"{path}.sig describes {entry!r}, which the image has not{_similar(entry, image)}"
            )

    def signature(entry: str) -> Signature:
        try:
            return merge(image.get(entry), sidecar[entry]) or sidecar[entry]
        except ArgumentValueError as error:
            raise ArgumentValueError(f"{path}.sig: {error}") from None

    return LazySignatures(sidecar, signature)


def _check_signature(name: str, signature: Signature | None, most_bytes: int) -> None:
    """Refuse parameters that cannot be laid out on this device."""
    if signature is None:
        return
    for parameter in signature:
        if parameter.size is None:
            raise ArgumentValueError(
                f"{name}: the size of parameter {parameter.index} is unknown; give get_function a "
                f"signature that tells it"
            )
    total = signature.total_bytes
    if total is not None and total > most_bytes:
        raise ArgumentValueError(
            f"{name} takes {total} bytes of parameters; the device takes at most {most_bytes}"
        )


def _check_layout(
    name: str, signature: Signature | None, layout: Sequence[tuple[int, int]] | None
) -> None:
    """Refuse a signature whose offsets differ from the driver's."""
    if signature is None or layout is None:
        return
    if len(signature) != len(layout):
        raise ArgumentValueError(
            f"{name}: the signature has {len(signature)} parameters ({signature.declaration}), the "
            f"loaded kernel {len(layout)}"
        )
    for parameter, (offset, size) in zip(signature, layout, strict=True):
        if parameter.size != size or parameter.offset not in (offset, None):
            raise ArgumentValueError(
                f"{name}: parameter {parameter.index} '{parameter}' has {parameter.size} bytes at "
                f"offset {parameter.offset} by the {parameter.source}, and {size} at {offset} in "
                f"the loaded kernel"
            )


def _similar(name: str, known: Iterable[str]) -> str:
    """Name similar known names, or the way to list all names."""
    import difflib

    names = list(known)
    close = _mangled(name, names) or difflib.get_close_matches(name, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close[:3])}?"
    return f"; it has {', '.join(names[:8])}{', …' if len(names) > 8 else ''}" if names else ""


def _mangled(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that C++ compilers make of `ns::kernel<T>(…)`, without its parameters."""
    plain = re.sub(r"[<(].*", "", name, flags=re.DOTALL).replace(" ", "").removeprefix("::")
    coded = "".join(f"{len(part)}{part}" for part in plain.split("::"))
    wanted = re.compile(rf"_Z(N{re.escape(coded)}[EI]|{re.escape(coded)}\D)")
    return [one for one in known if wanted.match(one)]


def _text_of(sidecar: Path) -> str:
    """Read a text in UTF-8, or in UTF-16 with its mark, as editors on Windows write it."""
    content = sidecar.read_bytes()
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArgumentValueError(
            f"{sidecar}: expected text in UTF-8, got the byte 0x{content[error.start]:02x} at "
            f"{error.start}. Save the file as UTF-8."
        ) from None
