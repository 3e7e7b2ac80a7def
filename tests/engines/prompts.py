"""What the engines are asked: short requests of many kinds, each with a small limit.

SmolLM2-135M answers them badly, and that is fine: a reply is compared with the same target's own reply,
not with the truth. Wanted is variety at the seams: code and its indents, JSON, lists, quotations, scripts
whose characters are several tokens, runs of spaces and line ends, several turns, and raw completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PROMPTS", "Prompt", "by_kind"]


@dataclass(frozen=True)
class Prompt:
    """One request without its model. ``body``: fields of a chat (``messages``) or of a completion (``prompt``)."""

    name: str
    kind: str
    body: Mapping[str, Any]

    @property
    def chat(self) -> bool:
        """Asked on the chat route, not on that of raw completions."""
        return "messages" in self.body


def _chat(name: str, kind: str, *turns: str, system: str | None = None, max_tokens: int = 24) -> Prompt:
    """Turns alternate between user and assistant, beginning and ending with the user."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    messages += [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
    return Prompt(name, kind, {"messages": messages, "temperature": 0, "max_tokens": max_tokens})


def _raw(name: str, kind: str, prompt: str, max_tokens: int = 24) -> Prompt:
    return Prompt(name, kind, {"prompt": prompt, "temperature": 0, "max_tokens": max_tokens})


_FUNCTION = """```python
def area(width, height):
    total = width * height
    return total
```"""

PROMPTS: tuple[Prompt, ...] = (
    _chat("code_fibonacci", "code", "Write a Python function that returns the n-th Fibonacci number.", max_tokens=36),
    _chat("code_rename", "code", f"Rename `total` to `result` in this code:\n\n{_FUNCTION}", max_tokens=28),
    _chat("code_repeat", "code", f"Repeat this code exactly:\n\n{_FUNCTION}", max_tokens=28),
    _chat("code_html", "code", "Write a minimal HTML page with a heading and a list of two items.", max_tokens=28),
    _chat("code_sql", "code", "Write an SQL query that counts the rows of the table orders by customer."),
    _chat("json_person", "json", 'Give a JSON object with "name" and "age" for Alice, who is 30.'),
    _chat("json_list", "json", "Return a JSON array of three colours, nothing else."),
    _chat("json_nested", "json", 'Complete this JSON: {"user": {"id": 7, "tags": ["a", "b"]}, "ok": '),
    _chat("list_fruits", "list", "List five fruits, one a line, numbered."),
    _chat("list_bullets", "list", "Give three bullet points about water. Start each with a dash."),
    _chat("list_count", "list", "Count from one to ten in words, separated by commas."),
    _chat("list_table", "list", "Make a Markdown table of two cities and their countries.", max_tokens=28),
    _chat("quote_sentence", "quote", 'Repeat exactly: "The quick brown fox jumps over the lazy dog."'),
    _chat(
        "quote_extract",
        "quote",
        "Text: The meeting is on Tuesday, 4 March, at 10:30 in room B-12. Bring the report.\nWhere is the meeting? "
        "Answer with the words of the text.",
    ),
    _chat("quote_numbers", "quote", "Copy this line: 3.14159, 2.71828, 1,414.21 and 1/3."),
    _chat("translate_french", "translation", "Translate to French: Good morning, how are you today?"),
    _chat("translate_german", "translation", "Übersetze ins Deutsche: The weather is nice and the birds are singing."),
    _chat("german", "language", "Schreibe einen kurzen Satz über Käse, Äpfel und Größe."),
    _chat("french", "language", "Écris une phrase sur l'été à la plage, s'il te plaît."),
    _chat("emoji", "unicode", "Repeat these emoji and add one: 🎉 👩‍🚀 ❤️ 🇩🇪 👍🏽", max_tokens=28),
    _chat("japanese", "unicode", "次の文を繰り返してください：私は猫が好きです。", max_tokens=28),
    _chat("chinese", "unicode", "请重复：今天天气很好，我们去公园。", max_tokens=28),
    _chat("arabic", "unicode", "Repeat: مرحبا بالعالم"),
    _chat("whitespace_poem", "whitespace", "Write a four-line poem with an empty line between the lines."),
    _chat("whitespace_indent", "whitespace", "Repeat, keeping the spaces:\n\n    a\n        b\n\n\n    c\n\td"),
    _chat("short_greeting", "short", "Say hello.", max_tokens=36),
    _chat("short_sum", "short", "What is 2 + 2?", max_tokens=36),
    _chat("short_capital", "short", "What is the capital of France?", max_tokens=36),
    _chat("turns_name", "turns", "My name is Ada.", "Nice to meet you, Ada!", "What is my name?"),
    _chat(
        "turns_story",
        "turns",
        "Tell me the beginning of a story about a fox.",
        "Once upon a time a fox lived at the edge of a wood.",
        "Go on with one sentence.",
    ),
    _chat("system_pirate", "system", "Where is the treasure?", system="You are a pirate. Answer in one sentence."),
    _chat("system_terse", "system", "Name a planet.", system="Answer with one word."),
    _raw("raw_story", "raw", "Once upon a time, in a small village by the sea,"),
    _raw("raw_code", "raw", "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n"),
    _raw("raw_pattern", "raw", "one two three four, one two three four, one two three four, one two three"),
    _raw("raw_emoji", "raw", "I ❤️ cats 🎉 and dogs 👍🏽! " * 3 + "I ❤️ cats 🎉"),
    _raw("raw_hello", "raw", "Hello is 你好, thanks is 谢谢. " * 3 + "Hello is 你好,", max_tokens=22),
    _raw("raw_newlines", "raw", "A\n\nB\n\n\nC\n\nD\n\n\n"),
    _raw("raw_cjk", "raw", "春天来了，花儿开了。夏天来了，"),
)


def by_kind(*kinds: str) -> tuple[Prompt, ...]:
    """The prompts of these kinds, in order."""
    return tuple(prompt for prompt in PROMPTS if prompt.kind in kinds)
