"""`Session`: prompts and chats that share one cache, so that a common beginning is read once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import ubridge as ub
from ubridge.core.closing import Closing
from ubridge.core.fits import require
from ubridge.core.process_bound import ProcessBound
from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.settings import MOST, Settings, shown
from ubridge.habits import OF_SESSION
from ubridge.models.text.assembling import Limits
from ubridge.models.text.generation import Generation, tokens_of
from ubridge.models.text.options import ChatOptions, GenerateOptions, settled, takes
from ubridge.models.text.protocol import CacheLike, LanguageModel
from ubridge.models.text.sampler import Hook
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.shared_cache import SharedCache
from ubridge.models.text.templates import render, require_messages
from ubridge.models.tokenizers.tokenizer import Tokenizer
from uhal.dtypes import i64
from uhal.errors import ArgumentValueError
from uhal.habits import refuse_names

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FORMAT = "ubridge cache 1"
_PARTS_FOR_AN_ANSWER = 4
"""Without `max_tokens`, a chat reserves a quarter of the context for the answer."""


class Session(ProcessBound, Closing):
    """A model, its tokenizer and one cache, in which prompts follow each other.

    The next prompt reads only the tokens that the cache does not hold. The session, not the model,
    holds the cache's memory until it is closed or dropped. One thread at a time may use it. A text
    that begins during the generation of another text takes over the cache. The other text continues
    with its own cache, and both get the right tokens.
    """

    _instead = "Send the file that save() writes; Session.restore() there."

    def __init__(
        self, model: LanguageModel[Any], tokenizer: Tokenizer, capacity: int | None = None
    ) -> None:
        """Prepare a cache for `capacity` tokens, by default the model's context."""
        self.model = model
        self.tokenizer = tokenizer
        self._shared = SharedCache(lambda: model.cache(capacity))

    @property
    def cache(self) -> CacheLike:
        """The cache of the last text; the first access allocates it."""
        return self._shared.cache

    @takes(GenerateOptions)
    def generate(
        self, prompt: str | Iterable[int], **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Return pieces of text that follow a prompt, which is a text or tokens.

        The text ends after `max_tokens` tokens, before a text of `stop`, or where the model ends it
        unless `ignore_end`. `sampling`, or options with the names of its fields, select the tokens;
        the default is the most probable token. `hook` is called with the logits, on the device, and
        all earlier tokens; the logits it returns replace them. `log_probabilities=n` fills the
        generation's `choices` with the log-probabilities of each token and of the n best.

        A prompt longer than the context is refused. When the context is full the text ends, and
        `finish` says `context`: no earlier token is ever dropped.

        Raises `ArgumentTypeError` and `ArgumentValueError`, before anything runs.
        """
        limits, sampling, hook = settled("generate", options)
        return self._begun(tokens_of(self.tokenizer, prompt), limits, sampling, hook)

    @takes(ChatOptions)
    def chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]
    ) -> Generation:
        """Return pieces of the answer to messages, each with a `role` and a `content`.

        The messages become a prompt by `template`, by default the model's own; the template gets
        `names`, such as `tools`. `generate` describes all other options. An answer reserves
        `max_tokens` of the context, but at most half of it. Without `max_tokens` it reserves a
        quarter. When the messages exceed the rest, the oldest after the system message are left
        out, each question with its answer. `left_out` counts these messages.
        """
        template, names = options.pop("template", None), options.pop("names", None)
        limits, sampling, hook = settled("chat", options, ChatOptions.__annotations__)
        tokens, left_out = self._fitting(messages, template, names or {}, limits.max_tokens)
        made = self._begun(tokens, limits, sampling, hook)
        made.left_out = left_out
        return made

    def _begun(
        self, tokens: Sequence[int], limits: Limits, sampling: Sampling, hook: Hook | None
    ) -> Generation:
        return Generation(self.model, self.tokenizer, tokens, self._shared, limits, sampling, hook)

    def prompt_of(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str | None = None,
        **names: Any,
    ) -> str:
        """Return the prompt of messages by `template` or the model's own.

        Raises `ArgumentValueError` if there is no template, or it refuses the messages.
        """
        tokenizer = self.tokenizer
        form = template or tokenizer.chat_template
        if form is None:
            raise ArgumentValueError(
                f"chat: this model ({self.model.architecture}) comes without a chat template, so "
                "it may never have learned to chat: give template=, or use generate()"
            )
        for name, value in tokenizer.template_names.items():
            names.setdefault(name, value)
        for name, token in (("bos_token", tokenizer.begin), ("eos_token", tokenizer.end)):
            names.setdefault(name, "" if token is None else tokenizer.spelling_of(token))
        return render(form, messages, **names)

    def _fitting(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str | None,
        names: Mapping[str, Any],
        max_tokens: int | None,
    ) -> tuple[list[int], int]:
        """The tokens of the messages that fit, and the number of messages left out."""
        if isinstance(messages, (str, Mapping)):
            require_messages(messages)  # a list of its parts would name the first of them
        capacity = self.cache.capacity
        usual = capacity // _PARTS_FOR_AN_ANSWER
        answer = usual if max_tokens is None else min(max_tokens, capacity // 2)
        kept, left_out = list(messages), 0
        while True:
            prompt = self.prompt_of(kept, template, **names)
            tokens = self.tokenizer.encode(prompt, add_special=False)
            if len(tokens) + answer <= capacity:
                return tokens, left_out
            turns = [index for index, one in enumerate(kept) if one["role"] == "user"]
            if len(turns) < 2:
                # Only the last question is left: shorten the answer's part rather than refuse.
                return tokens, left_out
            del kept[turns[0] : turns[1]]
            left_out += turns[1] - turns[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to a safetensors file, with its tokens."""
        cache = self.cache
        ub.save(
            path,
            {
                **cache.tensors,
                "tokens": np.array(cache.tokens, np.int64),
                "turned": np.array(getattr(cache, "turned", ()), np.int64),
            },
            metadata={
                "format": _FORMAT,
                "of": json.dumps(self._described(cache)),
                "model": getattr(self.model, "description", self.model.architecture),
                "weights": getattr(self.model, "fingerprint", ""),
                "room": str(cache.room),
                "kept": str(cache.kept),
            },
        )

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the cache from a file that `save` wrote, of the same model.

        Raises `InvalidFileError` for another file, `ArgumentValueError` for another model, other
        weights or another capacity; the cache is then unchanged.
        """
        saved = ub.load(path, device=self.model.device)
        require_valid(
            saved.metadata.get("format") == _FORMAT,
            path,
            "expected a file that Session.save wrote",
        )
        told = _settings(path, saved.metadata)
        room = told.integer("room")
        found = self.cache if self.cache.room == room else self._shared.another()
        try:
            found.make_room(min(room, found.capacity))
            self._require_ours(told, saved, found)
            tokens = _integers(path, saved, "tokens", found.capacity, self.model.vocabulary - 1)
            turned = _integers(path, saved, "turned", len(tokens))
            kept = told.integer("kept", most=len(tokens))
            values: dict[str, Any] = {name: saved[name] for name in found.tensors}
        except BaseException:
            if found is not self.cache:
                found.close()
            raise
        self._shared.replace(found)
        cache = self._shared.take(self)
        # The cache counts as empty until all of it is read.
        cache.kept = 0
        for name, tensor in cache.tensors.items():
            tensor.copy_from(values[name])
        # The caller may change the file as soon as this call returns.
        self.model.device.synchronize()
        cache.tokens[:] = tokens
        cache.kept = kept
        if hasattr(cache, "turned"):
            cache.turned[:] = turned

    def _require_ours(self, told: Settings, saved: ub.Weights, cache: CacheLike) -> None:
        """Refuse a file of another model, or without a part of the cache."""
        ours, theirs = self._described(cache), told.value("of")
        require(
            ours == theirs,
            f"{told.where}: expected a cache of {ours}, got one of {shown(theirs)}",
        )
        weights = getattr(self.model, "fingerprint", "")
        if saved.metadata.get("weights", "") != weights:
            mine = getattr(self.model, "description", self.model.architecture)
            raise ArgumentValueError(
                f"{told.where}: expected a cache of {mine}, got one of "
                f"{saved.metadata.get('model', 'a model without a name')}, which has the same "
                "shape and other weights. Read the text anew."
            )
        for name, expected in ours["tensors"].items():
            entry = saved.entries.get(name)
            given = None if entry is None else [entry.kind_name, *entry.shape]
            require_valid(
                given == expected,
                told.where,
                f"{name}: expected {expected}, got {given}",
            )

    def close(self) -> None:
        """Free the cache's memory; the next prompt allocates another cache."""
        self._shared.close()

    def _described(self, cache: CacheLike) -> dict[str, Any]:
        """Facts that a saved cache must share with the session."""
        return {
            "architecture": self.model.architecture,
            "vocabulary": self.model.vocabulary,
            "tensors": {name: [one.dtype.name, *one.shape] for name, one in cache.tensors.items()},
        }


refuse_names(Session, OF_SESSION)


def _settings(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> Settings:
    """The values of a file's metadata, which are texts of JSON."""
    values: dict[str, Any] = {}
    for key in ("room", "kept", "of"):
        try:
            values[key] = json.loads(metadata.get(key, "null"))
        except (ValueError, RecursionError):
            values[key] = metadata[key]
    return Settings(os.fspath(path), values)


def _integers(
    path: str | os.PathLike[str], saved: ub.Weights, name: str, most: int, largest: int = MOST
) -> list[int]:
    """The integers of a tensor: at most `most`, each from 0 to `largest`."""
    entry = saved.entries.get(name)
    if entry is None or entry.kind != i64 or len(entry.shape) != 1 or entry.elements > most:
        given = "none" if entry is None else f"{entry.kind_name} of {entry.shape}"
        raise InvalidFileError(f"{path}: {name}: expected i64 of at most ({most},), got {given}")
    found: list[int] = np.frombuffer(saved.raw(name), np.int64).tolist()
    lowest, highest = min(found, default=0), max(found, default=0)
    require_valid(
        lowest >= 0 and highest <= largest,
        path,
        f"{name}: expected 0 to {largest}, got {lowest} to {highest}",
    )
    return found
