"""Going on from a prefix: what Ollama's templates do with a trailing assistant message, and how to know.

Four behaviours were recorded (0.24.0, 0.33.0-rc2): the turn is closed and a new one begun; it is left
open; it is left open and the reply repeats it in ``content`` but not in ``logprobs``; it is left open
but trimmed. A reply does not show which: after a closed turn a model may answer what reads like a
continuation. Only a word broken off in the middle tells: nobody begins a new turn with its other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cheapspec.backends.ollama_json import as_object
from cheapspec.backends.ollama_stream import read_entries
from cheapspec.core.effects import HttpReply

__all__ = ["CONTROL", "as_message", "read_control", "read_rendered", "split_prefix"]

CONTROL: tuple[dict[str, str], ...] = (
    {"role": "user", "content": "Repeat this word: hippopotamus"},
    {"role": "assistant", "content": "hippopot"},
)
"""The messages of the control prompt."""

_OTHER_HALF = "amus"


def read_control(reply: HttpReply) -> str:
    """What the control prompt proved: the reply ``"appends"`` to the message, ``"echoes"`` it first, or ``"no"``."""
    answer = as_object(reply.json())
    content = str(as_object(answer.get("message")).get("content", ""))
    if content.startswith(_OTHER_HALF):
        return "appends"
    generated = "".join(token for token, _, _ in read_entries(answer.get("logprobs")))
    echoed = content.startswith(CONTROL[1]["content"] + _OTHER_HALF)
    return "echoes" if echoed and generated.startswith(_OTHER_HALF) else "no"


def read_rendered(reply: HttpReply) -> str | None:
    """The prompt that a ``_debug_render_only`` call wrote; ``None``: the host does not know the field."""
    rendered = as_object(as_object(reply.json()).get("_debug_info")).get("rendered_template")
    return rendered if isinstance(rendered, str) and rendered else None


def as_message(message: Mapping[str, Any]) -> dict[str, str]:
    """A chat message as Ollama takes it: it would put an unknown role (``developer``) into the template as it is."""
    role, content = str(message.get("role", "user")), message.get("content")
    return {"role": "system" if role == "developer" else role, "content": content if isinstance(content, str) else ""}


def split_prefix(prefix: str) -> tuple[str, str]:
    """The prefix and the white space at its end."""
    head = prefix.rstrip()
    return head, prefix[len(head) :]
