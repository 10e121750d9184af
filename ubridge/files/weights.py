"""`load`: files of weights as a mapping from names to tensors and quantized weights."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

from ubridge.core.block_formats import BlockFormat
from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.process_bound import ProcessBound
from ubridge.device.host import has_host_memory
from ubridge.files.entries import TensorEntry
from ubridge.files.errors import InvalidFileError
from ubridge.files.folders import advice_for, files_of
from ubridge.files.gguf_reading import is_gguf, read_gguf, require_parts
from ubridge.files.mapped import Bytes, MappedFile
from ubridge.files.safetensors import is_safetensors, read_safetensors
from ubridge.files.transfers import transfer
from ubridge.quantized import QuantizedWeight
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, DType
from uhal.device import DeviceLike, as_device
from uhal.dtypes import bool_, u8
from uhal.errors import NotSupportedError
from uhal.images.regular_file import path_of
from uhal.progress import Progress

Weight: TypeAlias = DeviceTensor | QuantizedWeight
PathLike: TypeAlias = str | os.PathLike[str]


def load(path: PathLike | Sequence[PathLike], *, device: DeviceLike | None = None) -> Weights:
    """Open a file of weights; the contents decide between safetensors and GGUF.

    For a model in several files, pass all files, their folder, one part of a split GGUF, or the
    `.index.json` of safetensors. Parts lie in one folder. Only headers are read. `Weights` brings a
    tensor to `device`, by default the current one, on first use. On the host backend the pages of
    the file are the tensor's memory.

    Raises `OSError` for a file that cannot be opened, `InvalidFileError` (a subclass of
    `InvalidImageError`) for a damaged file, and `NotFoundError` for a folder without weights.
    """
    wanted = Device.current() if device is None else as_device(device)
    several = path if isinstance(path, Iterable) and not isinstance(path, (str, bytes)) else [path]
    paths = [path_of("load, path", one) for one in several]
    require(
        paths,
        "load: expected a path, got none",
    )
    if len(paths) == 1:
        paths = list(files_of(paths[0]))
    metadata: list[Any] = []
    entries: dict[str, TensorEntry] = {}
    parts = []
    for one in paths:
        file = MappedFile(one)
        if is_gguf(file):
            contents = read_gguf(file)
            parts.append((file, contents))
            told: Mapping[str, Any] = contents.metadata
            found = contents.entries
        elif is_safetensors(file):
            told, found = read_safetensors(file)
        else:
            raise InvalidFileError(
                f"{file.path}: expected a file of safetensors or GGUF, got one that begins with "
                f"{file.pages[:8].tobytes()!r}. {advice_for(file.pages[:8].tobytes())}"
            )
        metadata.append(told)
        for entry in found:
            if entry.name in entries:
                raise InvalidFileError(
                    f"{file.path}: {entry.name!r:.80} is in {entries[entry.name].file.path}, too"
                )
            entries[entry.name] = entry
    require_parts(parts)
    # The first part of a GGUF has all metadata, so its values come first; the others repeat some.
    return Weights(entries, MappingProxyType(ChainMap(*metadata)), wanted)


class Weights(ProcessBound, Mapping[str, Weight]):
    """A model's tensors by name, copied to the device on access.

    On the host backend a tensor is a read-only view of its file's pages, which become resident on
    first use. A tensor that is not aligned for its element type is copied. A view keeps the file
    open. On other devices each access copies; `to_device` copies everything at once.

    Files must not change while they are open. Access to a tensor in a truncated file raises
    `InvalidFileError` with the file's name. If pages disappear later, on Linux the kernel or copy
    fails with the file's name and the device is lost. Elsewhere, and where numpy reads `raw`, the
    process ends.

    Any thread may use it.
    """

    _instead = "Send the files' paths; ubridge.load() there."

    def __init__(
        self, entries: Mapping[str, TensorEntry], metadata: Mapping[str, Any], device: Device
    ) -> None:
        """Made by `load`."""
        self.entries = entries
        """Facts about each tensor, from the files."""
        self.metadata = metadata
        """Metadata of the files: Python texts and numbers, numpy arrays."""
        self.device = device
        """Device that tensors are copied to."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self.entries.values())

    def is_in_file(self, name: str) -> bool:
        """Return whether a tensor's bytes are as in its file."""
        return name in self.entries

    def raw(self, name: str) -> Bytes:
        """Return a tensor's bytes from its file, read-only, of any type."""
        entry = self.entries[name]
        return entry.file.view(entry.start, entry.nbytes)

    def __getitem__(self, name: str) -> Weight:
        entry = self.entries[name]
        word = _word_of(entry)
        if not has_host_memory(self.device):
            return self.to_device(names=[name])[name]
        pages = entry.file.view(entry.start, entry.nbytes)
        if entry.start % word.itemsize or not entry.nbytes:
            buffer = DeviceBuffer.from_numpy(pages, device=self.device)
        else:
            buffer = DeviceBuffer.from_dlpack(pages, device=self.device)
        return made_of(entry, buffer)

    def to_device(
        self,
        device: DeviceLike | None = None,
        *,
        names: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> dict[str, Weight]:
        """Bring tensors, by default all, to a device.

        The default is the device given to `load`.

        Files are read side by side into pinned memory and copied from there while the next part is
        read. Weights too large for the device raise `OutOfMemoryError` before anything is read.
        With `progress=True` a line names the total, and `tqdm` shows a bar if installed. A function
        as `progress` gets the bytes done and the total bytes.

        Waits until all copies are done.
        """
        wanted = self.device if device is None else as_device(device)
        chosen = [self.entries[name] for name in (self.entries if names is None else names)]
        for entry in chosen:
            _word_of(entry)
        buffers = transfer(chosen, wanted, progress)
        return {
            entry.name: made_of(entry, buffer)
            for entry, buffer in zip(chosen, buffers, strict=True)
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} tensors, {self.nbytes} bytes, {self.device!r}>"


def _word_of(entry: TensorEntry) -> DType:
    if isinstance(entry.kind, BlockFormat):
        return entry.kind.word
    if isinstance(entry.kind, str):
        raise NotSupportedError(
            f"{entry.file.path}: {entry.name!r:.80} is of {entry.kind}, which ubridge does not "
            "have; raw() gives its bytes"
        )
    return entry.kind


def made_of(entry: TensorEntry, buffer: DeviceBuffer) -> Weight:
    """Return the object that an entry describes, over its bytes on a device."""
    kind, shape = entry.kind, entry.shape
    if isinstance(kind, BlockFormat):
        shape = shape or (1,)
        return QuantizedWeight(buffer, kind, prod(shape[:-1]), shape[-1], shape=shape)
    assert isinstance(kind, DType)
    stored = u8 if kind is bool_ else kind
    return DeviceTensor(buffer.view(stored), Layout.contiguous(shape), kind)
