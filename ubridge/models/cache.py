"""`Cache`: the tokens that a model has read, with their keys and values or its state."""

from __future__ import annotations

import ubridge as ub
from ubridge.core.closing import Closing
from ubridge.core.fits import require
from ubridge.core.operand_checks import whole_number
from ubridge.core.process_bound import ProcessBound
from ubridge.habits import OF_CACHE
from ubridge.models.body import Body
from ubridge.models.step import Step
from uhal.habits import refuse_names


class Cache(ProcessBound, Closing):
    """The tokens of one text and the state of each layer. Made by `Model.cache`.

    A cache belongs to the model that made it, and holds device memory until it is closed or
    dropped. One thread at a time may use it.
    """

    _instead = "Send the tokens, or a session's file."

    def __init__(self, body: Body, capacity: int, room: int | None = None) -> None:
        """Allocate memory for `room` tokens, which doubles when a text needs more."""
        self._body = body
        self.step: Step | None = None
        """The captured step of one token, after the first such step."""
        self.capacity = capacity
        """The most tokens that the cache can hold."""
        self.tokens: list[int] = []
        """The tokens in the cache, in order."""
        self.kept = 0
        """The number of leading tokens with layer state; `Model.logits` reads the others again."""
        self.room = capacity if room is None else min(room, capacity)
        """The number of tokens with memory so far; `make_room` grows it up to the capacity."""
        self.tensors = body.state(self.room)
        """The state of the layers, by layer and part: for saving or copying."""
        self.tables = body.tables(self.room)
        """Tables that depend on positions alone, and with longrope on the length of the text."""
        self.turned: list[int] = []
        """`Rope.stretch` of each key, for models whose angles depend on the length of a text."""
        self.is_cut = False
        """Whether the text was truncated, so that the next tokens begin another text."""
        self._stretch = 0

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        """Forget all tokens after the first `length`, without work on the device.

        A recurrent model cannot truncate its state, so it reads the kept tokens again with the next
        tokens. A model whose angles change with the text's length also reads them again. Raises
        `ArgumentTypeError` for a length that is no int, `ArgumentValueError` for a length below 0
        or above the text's length.
        """
        length = whole_number("truncate, length", length)
        require(
            length <= len(self.tokens),
            f"truncate: expected 0 to {len(self.tokens)} tokens, got {length}",
        )
        self.is_cut = True
        if length < len(self.tokens):
            del self.tokens[length:]
            self.kept = 0 if self._body.is_recurrent else min(self.kept, length)

    def make_room(self, length: int) -> None:
        """Grow the memory for a text of `length` tokens; the next step is then captured again."""
        if length <= self.room:
            return
        room = self.room
        while room < length:
            room *= 2
        room = min(room, self.capacity)
        if self.step is not None:
            self.step.close()
            self.step = None
        for name, more in self._body.state(room - self.room).items():
            self.tensors[name] = ub.concatenate([self.tensors[name], more], 2)
        self.tables = self._body.tables(room)
        self.room, self._stretch = room, 0

    def stretch(self, stretch: int, length: int) -> None:
        """Write the tables for a text of `length` to the memory that captured steps read."""
        if stretch != self._stretch:
            found = self._body.tables(self.room, length)
            for table, values in ((self.tables.cos, found.cos), (self.tables.sin, found.sin)):
                if table is not None and values is not None:
                    table.copy_from(values)
            self._stretch = stretch

    def read_one(self, token: int, position: int) -> ub.DeviceTensor:
        """Enqueue the captured step; return its logits, (vocabulary,), always the same memory."""
        if self.step is None:
            self.step = Step(self._body, self.tensors, self.tables, self.room, token, position)
            return self.step.logits
        return self.step(token, position)

    def close(self) -> None:
        """Wait for pending work and free the memory. A second call does nothing."""
        if self.step is not None:
            self.step.close()
            self.step = None
        self.tensors = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.tokens)} of {self.capacity} tokens>"


refuse_names(Cache, OF_CACHE)
