"""`Fields`: the fields of a request's JSON object, each checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_PROMPTS = 64


class BadRequest(Exception):
    """A request that cannot be answered, with its status and the field that is wrong."""

    def __init__(self, message: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.status = status


class Fields:
    """A JSON object from a stranger. Every reader raises `BadRequest` for a wrong value."""

    def __init__(self, given: object) -> None:
        """Take a decoded body, which must be an object."""
        if not isinstance(given, dict):
            raise BadRequest(f"body: expected a JSON object, got {_kind(given)}.")
        self._given: dict[str, Any] = given

    def get(self, name: str) -> Any:
        """Return a field unchanged; None without the field."""
        return self._given.get(name)

    def integer(
        self, name: str, default: int | None, least: int, most: int | None = None
    ) -> int | None:
        """Return a whole number within bounds."""
        found = self.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            raise BadRequest(f"{name}: expected an integer, got {_kind(found)}.", name)
        if found < least or (most is not None and found > most):
            upper = "more" if most is None else str(most)
            raise BadRequest(f"{name}: expected {least} to {upper}, got {found}.", name)
        return found

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Return a number within bounds."""
        found = self.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise BadRequest(f"{name}: expected a number, got {_kind(found)}.", name)
        if not least <= found <= most:
            raise BadRequest(f"{name}: expected {least:g} to {most:g}, got {found}.", name)
        return float(found)

    def flag(self, name: str) -> bool:
        """Return a boolean, by default False."""
        found = self.get(name)
        if found is None:
            return False
        if not isinstance(found, bool):
            raise BadRequest(f"{name}: expected true or false, got {_kind(found)}.", name)
        return found

    def texts(self, name: str, most: int) -> Sequence[str]:
        """Return a text or a list of texts as a list; none by default."""
        found = self.get(name)
        if found is None:
            return []
        texts = [found] if isinstance(found, str) else found
        if not isinstance(texts, list) or not all(isinstance(one, str) and one for one in texts):
            raise BadRequest(f"{name}: expected a text or texts that are not empty.", name)
        if len(texts) > most:
            raise BadRequest(f"{name}: expected at most {most} texts, got {len(texts)}.", name)
        return texts

    def refuse(self, name: str, why: str) -> None:
        """Refuse a field unless it is missing, false or empty."""
        if self.get(name):
            raise BadRequest(f"{name}: {why}", name)


def prompts_of(given: object) -> Sequence[str | Sequence[int]]:
    """Return a prompt or several, each a text or tokens."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(_is_token(one) for one in given):
            return [given]
        if len(given) > _MOST_PROMPTS:
            raise BadRequest(f"prompt: expected at most {_MOST_PROMPTS} prompts.", "prompt")
        if all(
            isinstance(one, str) or (isinstance(one, list) and one and all(map(_is_token, one)))
            for one in given
        ):
            return given
    raise BadRequest("prompt: expected a text, tokens, or a list of these.", "prompt")


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def messages_of(given: object) -> list[Mapping[str, Any]]:
    """Return messages with a role and a text; a list of text parts is joined."""
    if not isinstance(given, list) or not given:
        raise BadRequest("messages: expected a list of messages.", "messages")
    made: list[Mapping[str, Any]] = []
    for one in given:
        content = one.get("content") if isinstance(one, dict) else None
        if isinstance(content, list) and all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
        ):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str) or not isinstance(one.get("role"), str):
            raise BadRequest("messages: expected a role and a text in each.", "messages")
        made.append({**one, "content": content})
    return made


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
