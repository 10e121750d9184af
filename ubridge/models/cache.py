"""`Cache`: what a model keeps of a text it has read, so that it need not read it again."""

from __future__ import annotations

import ubridge as ub
from ubridge.models.body import Body
from ubridge.models.step import Step
from uhal.errors import ArgumentValueError


class Cache:
    """The tokens of one text and what layers keep of them. Made by `Model.cache`.

    It belongs to the model that made it, and holds device memory until it is closed or let go of.
    One thread at a time may use it.
    """

    def __init__(self, body: Body, capacity: int, room: int | None = None) -> None:
        """Made by `Model.cache`; it begins with `room`, and doubles that as a text needs it."""
        self._body = body
        self.step: Step | None = None
        """The captured reading of one token, once there was one."""
        self.capacity = capacity
        """Tokens it has room for."""
        self.tokens: list[int] = []
        """The tokens it holds, in order."""
        self.kept = 0
        """Of how many of them layers keep what they need; `Model.logits` reads the rest again."""
        self.room = capacity if room is None else min(room, capacity)
        """Tokens that its memory is for so far; `make_room` brings it up to the capacity."""
        self.tensors = body.state(self.room)
        """What layers keep, by layer and part: for saving or copying."""
        self.tables = body.tables(self.room)
        """What depends on positions alone, and with longrope on whether the text is a long one."""
        self.turned: list[int] = []
        """Of models whose angles depend on the length of a text: `Rope.stretch` of each key."""
        self.is_cut = False
        """Whether the next tokens begin another text rather than go on with what was read."""
        self._stretch = 0

    @property
    def length(self) -> int:
        """The number of tokens it holds."""
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        """Forget all tokens behind the first `length`, in no time.

        A recurrent model cannot go back: it reads the tokens that stay again with the next ones. So
        does a model whose angles depend on the length of a text, where that needs others now.
        Raises `ArgumentValueError` for a length that is negative or above that of the text.
        """
        if not 0 <= length <= len(self.tokens):
            raise ArgumentValueError(
                f"truncate: expected 0 to {len(self.tokens)} tokens, got {length}"
            )
        self.is_cut = True
        if length < len(self.tokens):
            del self.tokens[length:]
            self.kept = 0 if self._body.is_recurrent else min(self.kept, length)

    def make_room(self, length: int) -> None:
        """Have memory for a text of `length` tokens, and another captured step where that grows."""
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
        """Have tables for a text of `length`; captured steps read them where they lie."""
        if stretch != self._stretch:
            found = self._body.tables(self.room, length)
            for table, values in ((self.tables.cos, found.cos), (self.tables.sin, found.sin)):
                if table is not None and values is not None:
                    table.copy_from(values)
            self._stretch = stretch

    def read_one(self, token: int, position: int) -> ub.DeviceTensor:
        """Enqueue the captured step; return where its logits, (vocabulary,), come."""
        if self.step is None:
            self.step = Step(self._body, self.tensors, self.tables, self.room, token, position)
            return self.step.logits
        return self.step(token, position)

    def close(self) -> None:
        """Wait for what uses it and let go of its memory. Closing twice is fine."""
        if self.step is not None:
            self.step.close()
            self.step = None
        self.tensors = {}

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.tokens)} of {self.capacity} tokens>"


__all__ = ["Cache"]
