"""Prompt sets: what ships, and what a user's own file may and may not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from cheapspec.bench.prompts import CHAT, KINDS, chosen, load, shipped
from cheapspec.errors import SettingsError


def test_the_shipped_set_has_sixty_prompts_of_six_kinds_and_ten_chats() -> None:
    """At least ten of each kind and ten conversations of three to five turns, all told apart by their ids."""
    prompts = shipped()
    counts = {kind: sum(prompt.kind == kind for prompt in prompts) for kind in (*KINDS, CHAT)}
    assert sum(counts[kind] for kind in KINDS) >= 60
    assert all(count >= 10 for count in counts.values())
    assert all(3 <= len(prompt.turns) <= 5 for prompt in prompts if prompt.kind == CHAT)
    assert all(len(prompt.turns) == 1 for prompt in prompts if prompt.kind != CHAT)
    assert len({prompt.id for prompt in prompts}) == len(prompts) == sum(counts.values())
    assert len({prompt.turns for prompt in prompts}) == len(prompts)


def test_code_edits_carry_the_file_that_they_change() -> None:
    """Each prompt of kind code has a prediction, which stands in its message; the others have none."""
    for prompt in shipped():
        if prompt.kind == "code":
            assert prompt.prediction is not None
            assert prompt.prediction in prompt.turns[0]
        else:
            assert prompt.prediction is None


def test_some_contexts_are_long_and_most_are_short() -> None:
    """By characters (about four a token): a few prompts of more than 2,500, most of at most 2,000."""
    lengths = [len(prompt.turns[0]) for prompt in shipped() if prompt.kind != CHAT]
    assert sum(length > 2500 for length in lengths) >= 5
    assert sum(length <= 2000 for length in lengths) >= 50


def test_a_chats_messages_alternate_with_the_replies_given() -> None:
    """The messages of a turn are the system prompt, the turns so far, and the replies between them."""
    [prompt] = [prompt for prompt in shipped() if prompt.id == "chat-02"]
    roles = [message["role"] for message in prompt.messages(["one", "two"])]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert prompt.messages(["one", "two"])[2]["content"] == "one"


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    """Prompts and chats are read; a kind may be named, and material with a fence becomes a code block."""
    path = tmp_path / "set.toml"
    path.write_text(
        """
        [[prompts]]
        id = "a"
        kind = "code"
        instruction = "Fix it."
        material = "x = 1"
        fence = "python"
        [[prompts]]
        id = "b"
        instruction = "Hello?"
        system = "Be brief."
        [[chats]]
        id = "c"
        turns = ["one", "two"]
        """
    )
    code, plain, chat = load(path)
    assert code.turns == ("Fix it.\n\n```python\nx = 1\n```",)
    assert code.prediction == "x = 1\n"
    assert plain.kind == "custom"
    assert plain.messages()[0] == {"role": "system", "content": "Be brief."}
    assert chat.turns == ("one", "two")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = [", "is not TOML"),
        ("", "holds no prompts"),
        ("[[question]]\n", "unknown table 'question'"),
        ("prompts = 3\n", "write prompts as tables"),
        ('[[prompts]]\nid = "a"\n', "instruction is missing"),
        ('[[prompts]]\ninstruction = "a"\n', "id is missing"),
        ('[[prompts]]\nid = "a"\ninstruction = 3\n', "instruction must be a text"),
        ('[[prompts]]\nid = "a"\ninstruction = "b"\nanswer = "c"\n', "unknown key 'answer'"),
        ('[[chats]]\nid = "a"\nturns = ["one"]\n', "two texts or more"),
        ('[[chats]]\nid = "a"\nturns = ["x", "y"]\n[[prompts]]\nid = "a"\ninstruction = "b"\n', "two prompts"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The message says what is wrong, and where."""
    path = tmp_path / "set.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=said):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """No traceback of an OSError."""
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load(tmp_path / "nowhere.toml")


def test_kinds_and_numbers_are_chosen() -> None:
    """``first`` counts within each kind; an unknown kind is named with the known ones."""
    some = chosen(shipped(), ["open", "chat"], 2)
    assert [prompt.id for prompt in some] == ["open-01", "open-02", "chat-01", "chat-02"]
    assert chosen(shipped()) == shipped()
    with pytest.raises(SettingsError, match=r"'poem'; there are json, code"):
        chosen(shipped(), ["poem"])
