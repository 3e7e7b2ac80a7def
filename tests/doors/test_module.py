"""``import cheapspec as openai``: names, settings and the module-level client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, doorway

import cheapspec
from cheapspec.module import SETTINGS

THEIRS: Any = openai
OURS: Any = cheapspec


@pytest.fixture
def module() -> Iterator[Doorway]:
    """The module's own client is made anew and forgotten again."""
    with doorway("sync") as way:
        THEIRS._reset_client()
        kept = {name: getattr(openai, name) for name in ("api_key", "base_url", "http_client", "max_retries")}
        try:
            yield way
        finally:
            for name, value in kept.items():
                setattr(openai, name, value)
            THEIRS._reset_client()


def test_every_public_name_is_forwarded() -> None:
    """What openai has, cheapspec has: ours where we have one of that name, else openai's own object."""
    ours = set(OURS.__all__)
    for name in [
        *THEIRS.__all__,
        "chat",
        "BadRequestError",
        "types",
        "NOT_GIVEN",
        "resources",
        "pydantic_function_tool",
    ]:
        if name.startswith("__"):
            continue
        value = getattr(cheapspec, name)
        assert name in ours or name == "chat" or value is getattr(openai, name)


def test_type_checkers_are_told_of_every_name() -> None:
    """The list of forwarded names that type checkers read has all that openai shows, and nothing of ours."""
    source = Path(cheapspec.__file__).read_text("utf-8")
    listed = set(re.findall(r"(\w+) as \1,", source))
    promised = {name for name in THEIRS.__all__ if not name.startswith("__")}
    resources = {
        name for name in vars(openai) if name.islower() and type(getattr(openai, name)).__name__.endswith("Proxy")
    }
    assert (promised | resources | SETTINGS) - set(OURS.__all__) <= listed
    assert not listed & set(OURS.__all__)
    assert [name for name in listed if not hasattr(openai, name)] == []


def test_names_can_be_imported() -> None:
    """``from cheapspec import …`` works for names that are openai's."""
    from cheapspec import NOT_GIVEN, BadRequestError, types

    assert (BadRequestError, NOT_GIVEN, types) == (openai.BadRequestError, openai.NOT_GIVEN, openai.types)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The message names the module that was asked."""
    with pytest.raises(AttributeError, match="module 'cheapspec' has no attribute 'chatt'"):
        _ = cheapspec.chatt  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def test_module_level_settings_and_client(module: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings assigned to the module are openai's; ``OURS.chat`` speculates with them."""
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "ollama:toy:latest")
    monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", module.draft.url)
    http = module.http()
    OURS.api_key = "module-key"
    base_url = f"{module.target.base_url}/"  # openai's module-level setting is joined as it stands
    OURS.base_url = base_url
    OURS.http_client = http
    assert (THEIRS.api_key, THEIRS.base_url) == ("module-key", base_url)
    chat = OURS.chat
    reply = chat.completions.create(**ASKED)
    assert reply.choices[0].message.content == ANSWER
    told = OURS.info(reply)
    assert told is not None
    assert told.reason == "price_unknown"
    assert module.target.requests[0].headers["authorization"] == "Bearer module-key"
    assert OURS.chat.completions._client is chat.completions._client
    THEIRS.api_key = "another"
    OURS.chat.completions.create(**ASKED)
    assert module.target.requests[-1].headers["authorization"] == "Bearer another"
    http.close()
