"""The prompt set: six kinds of single-turn prompts and conversations of several turns.

Rules
-----
* A set is TOML: tables ``[[prompts]]`` (``id``, ``instruction``, perhaps ``system``, ``material``, ``fence``,
  ``kind``) and ``[[chats]]`` (``id``, ``turns``, perhaps ``system``, ``kind``). The shipped set is one file a
  kind, whose name is the kind; a file of the user's own may name a kind a table (``custom`` by default).
* The user message is the instruction, an empty line and the material; with ``fence`` the material stands in a
  code block of that language. What a prompt of kind ``code`` shows is the original of what is asked for, so a
  client may send the material as ``prediction``.
* Of a chat only the user's turns are given: the replies between are the target's own.
* Everything is checked on reading; an error names the file, the table and the key.

The shipped texts were written for this project (MIT, as the rest of it); names in them are invented.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cheapspec.core.untyped import as_list, as_mapping, is_list, is_mapping
from cheapspec.errors import SettingsError

__all__ = ["CHAT", "KINDS", "Message", "Prompt", "chosen", "load", "shipped"]

KINDS = ("json", "code", "quote", "summary", "open", "translation")
"""The kinds of single-turn prompts, most predictable first."""

CHAT = "chat"
"""The kind of conversations."""

Message = Mapping[str, str]
"""``{"role": …, "content": …}``, as chat endpoints take it."""

_KEYS = {
    "prompts": {"id", "instruction", "system", "material", "fence", "kind"},
    "chats": {"id", "turns", "system", "kind"},
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One entry of a set. ``turns``: the user's messages, one but for chats. ``prediction``: the text that the
    reply will largely repeat, where a client would know one.
    """

    id: str
    kind: str
    turns: tuple[str, ...]
    system: str | None = None
    prediction: str | None = None

    def messages(self, replies: Sequence[str] = ()) -> list[Message]:
        """The messages of the turn that follows ``replies``, the replies so far (turn 1: none)."""
        out: list[Message] = [{"role": "system", "content": self.system}] if self.system is not None else []
        for turn, reply in zip(self.turns, replies, strict=False):
            out += [{"role": "user", "content": turn}, {"role": "assistant", "content": reply}]
        return [*out, {"role": "user", "content": self.turns[len(replies)]}]


def shipped() -> tuple[Prompt, ...]:
    """The set that comes with the package: the kinds in the order of :data:`KINDS`, then the chats."""
    folder = resources.files("cheapspec.bench") / "prompts"
    out: list[Prompt] = []
    for kind in (*KINDS, CHAT):
        name = "chats.toml" if kind == CHAT else f"{kind}.toml"
        out += _read((folder / name).read_text("utf-8"), name, kind)
    return _distinct(out, "the shipped set")


def load(path: Path) -> tuple[Prompt, ...]:
    """A set of the user's own.

    :raises SettingsError: the file cannot be read, or is no prompt set.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return _distinct(_read(text, str(path), None), str(path))


def chosen(prompts: Iterable[Prompt], kinds: Sequence[str] = (), first: int | None = None) -> tuple[Prompt, ...]:
    """Only these kinds (all if none is given), and of each only the ``first`` so many.

    :raises SettingsError: a kind that no prompt has.
    """
    everything = tuple(prompts)
    known = dict.fromkeys(prompt.kind for prompt in everything)
    for kind in kinds:
        if kind not in known:
            raise SettingsError(f"No prompt is of the kind {kind!r}; there are {', '.join(known)}.")
    out: list[Prompt] = []
    for kind in known:
        alike = [prompt for prompt in everything if prompt.kind == kind]
        out += alike[:first] if not kinds or kind in kinds else []
    return tuple(out)


def _read(text: str, source: str, kind: str | None) -> list[Prompt]:
    try:
        data: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source} is not TOML: {error}") from None
    for name in data:
        if name not in _KEYS:
            raise SettingsError(f"{source}: unknown table {name!r}; a set has [[prompts]] and [[chats]].")
    out: list[Prompt] = []
    for name, known in _KEYS.items():
        tables: object = data.get(name, [])
        if not is_list(tables) or not all(is_mapping(table) for table in tables):
            raise SettingsError(f"{source}: write {name} as tables, [[{name}]].")
        for number, table in enumerate(tables, 1):
            where = f"{source}, [[{name}]] {number}"
            out.append(_entry(as_mapping(table), known, where, kind or (CHAT if name == "chats" else "custom")))
    if not out:
        raise SettingsError(f"{source} holds no prompts.")
    return out


def _entry(table: Mapping[str, Any], known: set[str], where: str, kind: str) -> Prompt:
    for key in table:
        if key not in known:
            raise SettingsError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known))}.")
    kind = _text(table, "kind", where) or kind
    system = _text(table, "system", where)
    if "turns" in known:
        turns = as_list(table.get("turns"))
        if len(turns) < 2 or not all(isinstance(turn, str) and turn.strip() for turn in turns):
            raise SettingsError(f"{where}: turns must be a list of two texts or more.")
        return Prompt(_required(table, "id", where), kind, tuple(turn.strip() for turn in turns), system)
    instruction, material = _required(table, "instruction", where), _text(table, "material", where)
    fence = _text(table, "fence", where)
    shown = "" if material is None else material if fence is None else f"```{fence}\n{material}\n```"
    user = f"{instruction}\n\n{shown}".strip()
    prediction = f"{material}\n" if material is not None and kind == "code" else None
    return Prompt(_required(table, "id", where), kind, (user,), system, prediction)


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value: object = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{where}: {key} must be a text.")
    return value.strip()


def _required(table: Mapping[str, Any], key: str, where: str) -> str:
    value = _text(table, key, where)
    if value is None:
        raise SettingsError(f"{where}: {key} is missing.")
    return value


def _distinct(prompts: list[Prompt], source: str) -> tuple[Prompt, ...]:
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise SettingsError(f"{source}: two prompts are called {prompt.id!r}.")
        seen.add(prompt.id)
    return tuple(prompts)
