"""Weight files of a path: the files of a folder, or all parts of a split model."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from ubridge.files.errors import require_valid
from ubridge.files.gguf_reading import parts_of
from ubridge.files.settings import Settings, shown
from uhal.errors import NotFoundError, NotSupportedError

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_INDEX = ".index.json"
_LONGEST_NAME = 255
"""Most bytes of a file's name."""


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return the weight files of a folder, an index, or a part of a split model.

    Raises `NotFoundError` and `NotSupportedError` for a folder without any, `InvalidFileError` for
    an index that is damaged.
    """
    given = Path(path)
    if given.is_dir():
        found = weights_in(given)
        return found if len(found) > 1 else files_of(found[0])
    if given.name.endswith(_INDEX):
        return _parts_of_index(given)
    return parts_of(given)


def weights_in(folder: Path) -> list[Path]:
    """Return a folder's safetensors, or their index, else its one GGUF file."""
    for name in (f"model.safetensors{_INDEX}", "model.safetensors"):
        if (folder / name).exists():
            return [folder / name]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    # The first part of a split model stands for the whole model.
    found = [one for one in sorted(folder.glob("*.gguf")) if "-of-" not in one.name]
    found += sorted(folder.glob("*-00001-of-*.gguf"))
    if len(found) == 1:
        return found
    pickles = [one for one in sorted(folder.iterdir()) if one.suffix in PICKLES]
    if pickles and not found:
        raise pickled(pickles[0])
    given = ", ".join(one.name for one in found) or "neither"
    raise NotFoundError(f"{folder}: expected *.safetensors or one .gguf file, got {given}")


def expanded(path: Path) -> Path:
    """Return a path with `~` replaced. Raises `NotFoundError` for an unknown user."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise NotFoundError(f"{path}: {error}") from None


_PICKLED = (b"PK\3\4", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5")
"""First bytes of files by torch.save: a zip file, or before 1.6 a pickle."""
_LLAMA2_C = b"24ka"
_SIZES = struct.Struct("<7i")


def pickled(path: Path) -> NotSupportedError:
    """Return the error for a file that torch, or else llama2.c, has written."""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_SIZES.size)
        if head.startswith(_LLAMA2_C) or _is_of_llama2_c(head):
            return NotSupportedError(
                f"{path}: this is a checkpoint of llama2.c, which is not read; its export.py "
                "writes the same model as a folder of Hugging Face's: --version -1"
            )
        if not head.startswith(_PICKLED):
            return NotSupportedError(
                f"{path}: expected a file of safetensors or GGUF, got one that begins with "
                f"{head[:8]!r}"
            )
    return NotSupportedError(
        f"{path}: a pickle can run any program when it is read, so it is not; save the model as "
        "safetensors: transformers' save_pretrained() does"
    )


def advice_for(head: bytes) -> str:
    """Return advice for a file of another kind, by its first bytes."""
    if head.startswith(_PICKLED):
        return (
            "Pickles and zips, as torch.save and np.savez write, are not read: save safetensors, "
            "for example with ubridge.save(path, arrays)."
        )
    if head.startswith(b"{"):
        return "For a model, give the folder that holds config.json."
    return "Save safetensors, for example with ubridge.save(path, arrays)."


def _is_of_llama2_c(head: bytes) -> bool:
    """Return whether a file begins with the sizes of a model, as older files of llama2.c do."""
    if len(head) < _SIZES.size:
        return False
    width, inner, layers, heads, kv_heads, tokens, length = _SIZES.unpack(head)
    sizes = (width, inner, layers, heads, kv_heads, abs(tokens), length)
    return all(0 < one < 1 << 20 for one in sizes) and width % heads == heads % kv_heads == 0


def _is_name(text: str) -> bool:
    """Return whether a folder can have a file of this name."""
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return 0 < len(raw) <= _LONGEST_NAME and b"\0" not in raw and Path(text).name == text


def _parts_of_index(path: Path) -> list[Path]:
    files = Settings.read(path).section("weight_map")
    names = dict.fromkeys(files.text(tensor) for tensor in files)
    for name in names:
        require_valid(
            _is_name(name),
            path,
            f"weight_map: expected names of files beside it, got {shown(name)}",
        )
    require_valid(
        names,
        path,
        "weight_map: expected names of files, got none",
    )
    return [path.with_name(name) for name in names]
