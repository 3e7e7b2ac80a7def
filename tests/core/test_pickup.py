"""An edited copy of a text is found again in it: behind insertions, deletions and changed lines."""

from __future__ import annotations

import re

import pytest

from cheapspec.core.lookup import Prediction, realign
from cheapspec.core.pickup import rest_by_lines
from cheapspec.core.request import Request

FILE = '''"""A small store of notes, kept in one file."""

import json
from pathlib import Path


class Store:
    """Notes by title."""

    def __init__(self, path):
        self.path = Path(path)
        self.notes = {}

    def load(self):
        if self.path.exists():
            self.notes = json.loads(self.path.read_text())
        return self

    def save(self):
        text = json.dumps(self.notes, indent=2)
        self.path.write_text(text)
        return self

    def add(self, title, body):
        if title in self.notes:
            raise KeyError(title)
        self.notes[title] = body
        return self

    def remove(self, title):
        if title not in self.notes:
            raise KeyError(title)
        del self.notes[title]
        return self

    def find(self, word):
        found = []
        for title, body in self.notes.items():
            if word in title or word in body:
                found.append(title)
        return found


def open_store(path):
    store = Store(path)
    return store.load()
'''

LOCKED = '''    def locked(self):
        """Whether another process is writing."""
        return self.path.with_suffix(".lock").exists()

'''

EDITS = [
    ("import json\n", "import json\nimport logging\n"),  # a line inserted
    ("from pathlib import Path\n", "from pathlib import Path\n\nlog = logging.getLogger(__name__)\n"),
    ("    def load(self):\n", LOCKED + "    def load(self):\n"),  # a method inserted
    ("indent=2", "indent=4, sort_keys=True"),  # a change inside a line
    ("        del self.notes[title]\n", '        log.info("removing %s", title)\n        del self.notes[title]\n'),
    ("        found = []\n        for title", "        found = list()\n        for title"),  # a line replaced
    ("def open_store(path):\n", "def open_store(path, must_exist=False):\n"),
]


def edited() -> str:
    text = FILE
    for old, new in EDITS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def proposal(reply: str, most: int = 400) -> str:
    request = Request("chat", {}, "m", False, messages=({"role": "user", "content": "Edit"},), prediction=FILE)
    return "".join(token.text for token in Prediction().propose(request, reply, most))


def play(target: str) -> tuple[int, list[str]]:
    """Speculate through a reply: characters accepted, and the words that the target had to write itself."""
    at = accepted = 0
    written: list[str] = []
    while at < len(target):
        given, rest = proposal(target[:at]), target[at:]
        same = next((i for i, pair in enumerate(zip(given, rest, strict=False)) if pair[0] != pair[1]), None)
        accepted += (held := min(len(given), len(rest)) if same is None else same)
        at += held
        word = re.match(r"\s*\w+|\s*[^\w\s]|\s+", target[at:])  # the target's own next token
        if word is not None:
            written.append(word.group())
            at += word.end()
    return accepted, written


def test_an_edited_file_is_followed_through_all_its_edits() -> None:
    """Seven edits, four of them insertions: nearly all of the old text is accepted, few words are the target's."""
    accepted, written = play(edited())
    assert accepted > 0.95 * len(FILE)
    assert len("".join(written)) < 1.2 * (len(edited()) - len(FILE))


def test_the_text_goes_on_right_after_an_insertion() -> None:
    """However long the inserted lines are, the old rest is proposed once they are over."""
    for old, new in EDITS:
        if not new.endswith(old) and not new.startswith(old):
            continue
        if new.startswith(f"{old}\n"):  # which of two blank lines is the new one, nobody can say
            continue
        before, after = FILE[: FILE.index(old)], FILE[FILE.index(old) + len(old) :]
        if new.startswith(old):
            assert proposal(before + new).startswith(after[:60]), new
        else:
            assert proposal(before + new.removesuffix(old)).startswith(old + after[:60]), new


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        ("a = 1\nx = 9\nb = 2\n", "c = 3\nd = 4\n"),  # inserted before
        ("a = 1\nb = 2\nc = 33\n", "d = 4\n"),  # the last line replaces one that it resembles
        ("a = 1\nb = 2\nprint('something else')\n", "c = 3\nd = 4\n"),  # the last line is an insertion
        ("a = 1\nc = 3\n", "d = 4\n"),  # left out
        ("a = 1\nb = 7\nc =", " 3\nd = 4\n"),  # in the line after a replaced one
        ("a = 1\nb = 2\nx = y\nc = ", "3\nd = 4\n"),  # in the line after an inserted one
        ("a = 1\nb = 2\nwhile True:", ""),  # inside an insertion
        ("a = 1\nb = 2\nc = 3\nd = 4\n", ""),  # past the end
        ("zzz\nyyy\n", "a = 1\nb = 2\nc = 3\nd = 4\n"),  # inserted at the beginning
        ("", ""),
    ],
)
def test_each_kind_of_edit(reply: str, rest: str) -> None:
    """Line by line, what is expected to follow."""
    assert rest_by_lines("a = 1\nb = 2\nc = 3\nd = 4\n", reply, realign) == rest


def test_a_change_inside_a_line_is_followed_word_by_word() -> None:
    """The rest of the line comes after the words that were changed."""
    text = "first line\nthe width of a box\nlast\n"
    assert rest_by_lines(text, "first line\nthe height", realign) == " of a box\nlast\n"
    assert rest_by_lines(text, "first line\nthe", realign) == " width of a box\nlast\n"
    assert rest_by_lines(text, "first line\ninserted\nthe height", realign) == " of a box\nlast\n"


def test_more_new_lines_than_the_text_has_left_are_an_insertion() -> None:
    """They cannot all have replaced something."""
    text = "first line\nthe width of a box\n"
    assert rest_by_lines(text, "first line\nsome\nmore\nthe height", realign) == " of a box\n"


def test_text_of_one_line_is_not_for_lines() -> None:
    """Prose without line ends is found by its last words instead."""
    assert rest_by_lines("all in one line", "all in two", realign) == ""


def test_a_long_text_is_aligned_at_its_end() -> None:
    """Thousands of like lines, of which a bounded number is aligned: the answer is still an end of the text."""
    text = "".join(f"    value_{index % 50} = {index % 7}\n" for index in range(6000))
    reply = text[: len(text) // 2].replace("value_7 ", "other_7 ")
    assert text.endswith(rest_by_lines(text, reply, realign))
