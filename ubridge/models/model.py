"""`Model`: a language model on a device, from tokens to logits."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

import ubridge as ub
from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from ubridge.core.process_bound import ProcessBound
from ubridge.definitions.attention import KV_APPEND, PAGED_ATTENTION, PAGES_OF_BYTES
from ubridge.habits import OF_MODEL
from ubridge.models.architecture import Architecture
from ubridge.models.body import Body, Tables, TextChunk
from ubridge.models.cache import Cache
from ubridge.models.decoder import Decoder
from ubridge.models.loading import Loader
from ubridge.models.paging import PagedCache
from ubridge.models.positions import Rope
from ubridge.models.rwkv5 import Recurrence, Rwkv5
from ubridge.models.serving.batch import PagedModel
from ubridge.models.serving.engine import Engine
from ubridge.models.serving.leading import LeadingModel, follow
from ubridge.models.serving.request import Request
from ubridge.models.sharding import ShardedDecoder
from ubridge.models.sources import open_source
from ubridge.models.text.generation import Generation
from ubridge.models.text.options import ChatOptions, GenerateOptions, takes
from ubridge.models.text.prefix import shared_length
from ubridge.models.text.session import Session
from ubridge.models.tokenizers.tokenizer import Tokenizer, require_one_text
from uhal import Device
from uhal.collectives import Communicator
from uhal.device import DeviceLike, as_device
from uhal.dtypes import DTypeLike, as_dtype
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotSupportedError,
)
from uhal.habits import refuse_names
from uhal.images.regular_file import path_of
from uhal.kept import kept_property
from uhal.progress import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

CHUNK = 512
"""Most tokens of a prompt in the layers at once, which limits the memory of activations."""
_USUAL_CAPACITY = 4096
_MOST_TOGETHER = 16
"""Most prompts of `Model.generate` that run together; the next begin when others end."""
_FIRST_ROOM = 256
"""Tokens in a cache's first memory, on devices whose steps score all of its memory."""


class Model(ProcessBound):
    """A language model whose weights are on a device. `Model.load` makes it::

        model = Model.load("TinyLlama-1.1B")
        cache = model.cache()
        logits = model.logits([1, 15043], cache)    # of the next token

    The state of a text is in caches and sessions that the program holds, not in the model. Any
    thread may use it, each with caches or sessions of its own.
    """

    _instead = "Send the path of its files; Model.load() there."

    def __new__(cls, body: object = None, *_: object, **__: object) -> Model:
        """Refuse a path and nothing: `load` reads models."""
        if body is None or isinstance(body, (str, os.PathLike)):
            raise TypeError("a Model is made by Model.load(path)")
        return super().__new__(cls)

    def __init__(
        self,
        body: Body,
        design: Architecture,
        source: Path,
        capacity: int,
        description: str,
        fingerprint: str,
    ) -> None:
        """Made by `load`."""
        self._body = body
        # GCUs append and rotate one token at a time, and score all keys in the memory of a cache.
        at = ub.DeviceExecutor.of(body.device)
        self._reads_one_by_one = at.has(KV_APPEND) and at.lowering(KV_APPEND).of_one_token
        self.design = design
        """The architecture, from the table and the configuration."""
        self.architecture = design.name
        """The name of its row in the table of architectures."""
        self.vocabulary = design.vocabulary
        """The number of different tokens."""
        self.context = min(capacity, design.context) if design.has_learned_positions else capacity
        """The capacity of caches and sessions in tokens, unless another capacity is given."""
        self.trained_context = design.context
        """Tokens of its training context; a `UserWarning` names the first longer text."""
        self._is_beyond = design.rope is None or design.rope.kind == "dynamic"
        self.end_tokens = design.end_tokens
        """Tokens that end a text."""
        self.source = source
        """The folder or file of its weights."""
        self.description = description
        """The name of its folder or file, the architecture and the types of its weights."""
        self.fingerprint = fingerprint
        """A digest of its axes and of samples of its weights; saved sessions compare it."""
        self._led: LeadingModel | None = None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        quantize: str | None = None,
        context: int | None = None,
        progress: Progress = None,
        group: Communicator | None = None,
    ) -> Model:
        """Read a model: a folder with `config.json` and safetensors, or a GGUF file.

        `device` is the current device by default. `dtype`, f32, f16 or bf16, is the type of
        activations, caches and weights that are not quantized. Its default is the type of most
        weights, or f32 if they are quantized. `quantize` converts matrices during loading, to a
        format of `ubridge.quantized.ENCODED` or a mixture such as `Q4_K_M`. `context` is the
        default capacity of caches in tokens; its default is 4096, or the training context if that
        is less. With `progress=True` standard error first names the memory needed. A function as
        `progress` is called with bytes done and bytes in all.

        With `group` each rank holds its share of the heads and of the MLPs, and reads only this
        share of the files. All ranks then make the same calls in the same order; each gets all
        logits. While rank 0 runs an `Engine`, the other ranks call `follow`. The communicator is of
        `device`, and lives as long as the model.

        On the host, weights in the type of their file stay in the pages of that file. A
        `FileWarning` names settings of the files that have no effect.

        Raises `NotFoundError`, `NotSupportedError` (kinds of files, architectures),
        `InvalidFileError` (damaged files, tensors that do not fit the configuration) and
        `OutOfMemoryError`, the last before anything is read.
        """
        at = Device.current() if device is None else as_device(device)
        source = open_source(path_of("Model.load, path", path), at)
        design = source.design
        capacity = _tokens("context", context) or min(_USUAL_CAPACITY, design.context)
        member = (0, 1) if group is None else (group.rank, group.ranks)
        kind = None if dtype is None else as_dtype(dtype)
        if kind is not None and kind.name not in ("f32", "f16", "bf16"):
            raise ArgumentTypeError(
                f"Model.load, dtype: expected f32, f16 or bf16, got {kind.name}. Pass "
                'quantize="q8_0" for smaller weights.'
            )
        loader = Loader(source, at, kind, quantize, member)
        own = design if loader.share is None else loader.share.own
        loader.require_room(own.state_bytes(capacity, loader.dtype.itemsize), progress)
        for notice in (*source.notices, *loader.notices):
            warnings.warn(notice, ub.FileWarning, stacklevel=2)
        parts = loader.load(progress)
        body: Body
        if isinstance(design, Rwkv5):
            body = Recurrence(design, *parts, loader.dtype)
        elif group is not None and loader.share is not None:
            body = ShardedDecoder(loader.share, group, *parts, loader.dtype)
        else:
            body = Decoder(design, *parts, loader.dtype)
        return cls(body, design, source.path, capacity, loader.description, loader.fingerprint())

    @property
    def device(self) -> Device:
        """The device of its weights."""
        return self._body.device

    def cache(self, capacity: int | None = None) -> Cache:
        """Return an empty cache for `capacity` tokens, by default the context."""
        tokens = _tokens("capacity", capacity) or self.context
        if self.design.has_learned_positions:
            tokens = min(tokens, self.trained_context)
        grows = self._reads_one_by_one and not self._body.is_recurrent
        return Cache(self._body, tokens, _FIRST_ROOM if grows else None)

    def logits(
        self, tokens: Sequence[int], cache: Cache | None = None, *, every: bool = False
    ) -> ub.DeviceTensor:
        """Append tokens to the cache, and return logits of the next token.

        Without a cache, the tokens are a whole text, and nothing is kept for the next call.

        The logits are f32: (vocabulary,) after the last token, or with `every` (tokens,
        vocabulary). A call with a single token runs a captured step. Its logits are in the same
        memory each time, valid until the next call with the same cache.

        Raises `ArgumentValueError` for no tokens, for ids outside the vocabulary, and for more
        tokens than the cache can hold; the cache is then unchanged.
        """
        self._require_no_engine("Model.logits")
        if cache is None:
            tokens = self._checked(tokens)
            cache = self.cache(len(tokens))
        elif not isinstance(cache, Cache):
            raise ArgumentTypeError(
                f"Model.logits, cache: expected a Cache, got {type(cache).__name__}. Write "
                "model.cache()."
            )
        ids = self._checked(tokens, cache.capacity - cache.length)
        length = cache.length + len(ids)
        if length > self.trained_context and not self._is_beyond:
            self._warn_of_context(length)
        rope = self.design.rope
        if rope is not None and rope.depends_on_length:
            cache.kept = self._rightly_turned(rope, cache, length)
        pending = [*cache.tokens[cache.kept :], *ids]
        found = self._read(pending, cache, len(ids) if every else 0)
        cache.tokens.extend(ids)
        if rope is not None and rope.depends_on_length:
            del cache.turned[cache.kept :]
            cache.turned += self._turned(rope, cache.kept, length, len(pending) == 1)
        cache.kept, cache.is_cut = length, False
        return found

    def __call__(self, tokens: Sequence[int]) -> ub.DeviceTensor:
        """Return the logits after each token of a text: f32, (tokens, vocabulary)."""
        return self.logits(tokens, every=True)

    # -- text ------------------------------------------------------------------------------------

    @kept_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights, read at the first access; may be set."""
        return Tokenizer.load(self.source)

    def session(self, capacity: int | None = None) -> Session:
        """Return a new session with a cache for `capacity` tokens, by default the context.

        A session's next prompt reads only tokens that its cache lacks. For example::

            session = model.session()
            session.chat([{"role": "user", "content": "Hello"}]).read()
        """
        return Session(self, self.tokenizer, capacity)

    @overload
    def generate(
        self, prompt: str | Iterable[int], **options: Unpack[GenerateOptions]
    ) -> Generation: ...
    @overload
    def generate(
        self, prompt: list[str] | list[list[int]], **options: Unpack[GenerateOptions]
    ) -> list[Request]: ...
    @takes(GenerateOptions)
    def generate(
        self,
        prompt: str | Iterable[int] | list[str] | list[list[int]],
        **options: Unpack[GenerateOptions],
    ) -> Generation | list[Request]:
        """Return pieces of text that follow a prompt, in a new cache.

        `Session.generate` describes the options and errors. A session reads only new tokens of a
        prompt. For example::

            for piece in model.generate("Once upon a time", max_tokens=100, temperature=0.8):
                print(piece, end="", flush=True)

        Several prompts, a list of texts or of lists of tokens, give a list of requests of an
        `Engine`, which reads them together::

            texts = [one.read() for one in model.generate(["Once", "One day"], max_tokens=100)]
        """
        if not _are_several(prompt):
            return self.session().generate(cast("str | Iterable[int]", prompt), **options)
        prompts = cast("list[str]", prompt)
        if isinstance(self._body, ShardedDecoder):
            raise NotSupportedError(
                f"Model.generate: expected one prompt for a model of a group, got {len(prompts)}. "
                "Use Engine(model) on rank 0 and Model.follow() on the other ranks."
            )
        engine = Engine(self, sequences=min(len(prompts), _MOST_TOGETHER))
        return [engine.submit(one, **options) for one in prompts]

    def paged(
        self,
        pages: int,
        page_size: int,
        sequences: int,
        context: int,
        cache_dtype: DTypeLike | None = None,
    ) -> PagedModel:
        """Return the layers over a cache of pages, for batches of several sequences.

        `Engine` uses it. Raises `NotSupportedError` for recurrent models and for devices without
        attention over pages (GCUs).
        """
        if not isinstance(self._body, Decoder):
            raise NotSupportedError(
                f"Engine: expected a model with keys and values, got {self.architecture}, which is "
                "recurrent. Use Model.generate."
            )
        if not ub.DeviceExecutor.of(self.device).has(PAGED_ATTENTION):
            raise NotSupportedError(
                f"Engine: expected a device with attention over pages, got {self.device!r}. Use "
                "Model.generate, or a model on another device."
            )
        rope = self.design.rope
        if rope is not None and rope.kind == "longrope":
            # In a longer text the angles of all keys would change.
            context = min(context, rope.trained)
        if self.design.has_learned_positions:
            context = min(context, self.trained_context)
        kept = self._body.dtype if cache_dtype is None else as_dtype(cache_dtype)
        if kept is not self._body.dtype:
            width = self.design.width
            require(
                kept in PAGES_OF_BYTES and width % 4 == 0,
                f"Engine, cache_dtype: expected {self._body.dtype}, the dtype of activations, or "
                f"i8 or f8e4m3 with heads of a multiple of 4, got {kept} with heads of {width}",
            )
        cache = PagedCache(pages, page_size)
        if not isinstance(self._body, ShardedDecoder):
            return PagedModel(self._body, cache, sequences, context, kept)
        group = self._body.group
        if group.rank:
            raise NotSupportedError(
                f"Engine: expected rank 0 of the group, got rank {group.rank}. Call "
                "Model.follow() on this rank."
            )
        self._require_no_engine("Engine")
        self._led = LeadingModel(group, self._body, cache, sequences, context, kept)
        return self._led

    def follow(self) -> None:
        """Run the steps of rank 0's `Engine` on this rank's share, until the engine is closed.

        For the other ranks of a model that was loaded with `group`. Rank 0 makes the engine. For
        example::

            if group.rank == 0:
                with Engine(model) as engine:
                    texts = [one.read() for one in [engine.submit(prompt) for prompt in prompts]]
            else:
                model.follow()

        Raises `NotSupportedError` without other ranks and on rank 0, and `DeviceError` after a
        failure of another rank. The communicator is then aborted.
        """
        body = self._body
        if not isinstance(body, ShardedDecoder) or body.group.rank == 0:
            raise NotSupportedError(
                "Model.follow: expected a rank behind rank 0 of a group, got "
                f"{'rank 0' if isinstance(body, ShardedDecoder) else 'a model of one rank'}. Use "
                "Engine(model) here."
            )
        follow(body.group, body)

    @takes(ChatOptions)
    def chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]
    ) -> Generation:
        """Return pieces of the answer to messages, in a new cache.

        `Session.chat` describes the options and errors. A session reads only the newest messages.
        For example::

            model.chat([{"role": "user", "content": "Hello"}]).read()
        """
        return self.session().chat(messages, **options)

    # -- inside ----------------------------------------------------------------------------------

    def _require_no_engine(self, call: str) -> None:
        """Refuse a call while the other ranks follow the steps of an engine."""
        if self._led is not None and self._led.is_open:
            raise InvalidHandleError(
                f"{call}: expected no open engine of this model, because the other ranks follow "
                "it. Close the engine first."
            )

    def _warn_of_context(self, length: int) -> None:
        self._is_beyond = True
        warnings.warn(
            f"{self.source}: this text has {length} tokens and the model was made for "
            f"{self.trained_context}, beyond which its logits may mean nothing. "
            f"Model.load(…, context={self.trained_context}) ends texts there.",
            UserWarning,
            stacklevel=3,
        )

    def _checked(self, tokens: Sequence[int], room: int | None = None) -> list[int]:
        try:
            ids = [operator.index(one) for one in tokens]
        except TypeError:
            wrong = next(one for one in require_one_text("model", tokens) if not _is_index(one))
            raise ArgumentTypeError(f"tokens: expected ints, got {type(wrong).__name__}") from None
        require(
            ids,
            "tokens: expected at least one, got none",
        )
        if room is not None and len(ids) > room:
            raise ArgumentValueError(
                f"tokens: expected at most {room}, the free capacity of the cache, got {len(ids)}; "
                "cache.truncate(n) makes room, model.cache(capacity) makes a larger one"
            )
        wrong = next((one for one in ids if not 0 <= one < self.vocabulary), None)
        if wrong is not None:
            raise ArgumentValueError(
                f"tokens: expected ids of 0 to {self.vocabulary - 1}, got {wrong}"
            )
        return ids

    def _turned(self, rope: Rope, first: int, length: int, is_step: bool = False) -> list[int]:
        """`Rope.stretch` of each key from a position on, in a text of `length` tokens."""
        if rope.kind == "dynamic" and (is_step or self._reads_one_by_one):
            return [rope.stretch(position + 1) for position in range(first, length)]
        return [rope.stretch(length)] * (length - first)

    def _rightly_turned(self, rope: Rope, cache: Cache, length: int) -> int:
        """Number of keys in a cache whose angles fit a text of `length`.

        Dynamic angles change with each appended token, but earlier keys keep theirs. A new text
        needs the angles of its own length, even if other text was read before.
        """
        goes_on = rope.kind == "dynamic" or cache.turned[:1] == [rope.stretch(length)]
        if goes_on and not cache.is_cut:
            return cache.kept
        return shared_length(cache.turned[: cache.kept], self._turned(rope, 0, length))

    def _read(self, ids: list[int], cache: Cache, every: int) -> ub.DeviceTensor:
        """Read ids after the cached ones; return logits of the last, or of the `every` last."""
        if cache.kept == 0 and self._body.is_recurrent:
            for one in cache.tensors.values():
                one.fill(0)
        first, length = cache.kept, cache.kept + len(ids)
        cache.make_room(length)
        rope, tables = self.design.rope, cache.tables
        if rope is not None and rope.kind == "longrope":
            cache.stretch(rope.stretch(length), length)
        if self._reads_one_by_one or len(ids) == 1:
            return self._one_by_one(ids, cache, every)
        if rope is not None and rope.kind == "dynamic":
            tables = self._body.tables(length, length)
        rows: list[ub.DeviceTensor] = []
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            x = self._body(self._chunk(some, first + start, tables), cache.tensors)
            is_last = start + len(some) == len(ids)
            wanted = start + len(some) - (len(ids) - every) if every else int(is_last)
            if wanted > 0:
                rows.append(self._body.logits(x[max(0, len(some) - wanted) :]))
        found = rows[0] if len(rows) == 1 else ub.concatenate(rows, 0)
        return found if every else found.reshape(self.vocabulary)

    def _one_by_one(self, ids: list[int], cache: Cache, every: int) -> ub.DeviceTensor:
        """As `_read`, with a captured step for each id."""
        rows: list[ub.DeviceTensor] = []
        for position, token in enumerate(ids, cache.kept):
            found = cache.read_one(token, position)
            if position >= cache.kept + len(ids) - every:
                rows.append(found.copy())
        return ub.stack(rows) if every else found

    def _chunk(self, ids: list[int], first: int, tables: Tables) -> TextChunk:
        tokens, position = (
            ub.asarray(np.asarray(one, np.int64), device=self.device) for one in (ids, [first])
        )
        return TextChunk(tokens, position, tables)


def _tokens(name: str, given: int | None) -> int | None:
    """An optional number of tokens, or its default."""
    return None if given is None else whole_number(name, given, 1)


def _are_several(prompt: object) -> bool:
    """Whether a prompt is a list of texts or of lists of tokens."""
    return (
        isinstance(prompt, list)
        and len(prompt) > 0
        and all(isinstance(one, (str, list)) for one in prompt)
    )


def _is_index(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return False
    return True


refuse_names(Model, OF_MODEL)
