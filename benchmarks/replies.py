"""What a target says to a prompt set, token by token, from llama.cpp's own server; kept in the weights' cache.

A *reply* is the target's greedy one (temperature 0), with its ids, and with its bytes token by token. Token i of
a character of several tokens has no bytes but the last of them, which has all.

What was recorded is kept as one file a reply, under a key made of the model file and of everything that was sent,
so an interrupted recording goes on where it stopped, and a changed prompt is recorded anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2

from cheapspec.backends.llamacpp_wire import Entry, exact_grammar, greedy, read_entries, spread
from cheapspec.bench.prompts import Message, Prompt
from cheapspec.embedded import cache_folder

__all__ = ["Engine", "Reply", "Store", "Token", "converse", "kept_replies"]


_ENDS = ("<|im_end|>", "<|endoftext|>")
"""Names of the tokens that end a turn, in Qwen2.5 and SmolLM2 alike."""


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token. ``logprob``: the model's own, ``None`` unknown; ``end``: it ends the turn."""

    id: int
    data: bytes
    logprob: float | None
    end: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. ``prompt``: the ids it answers; ``ids`` and ``sizes`` (bytes of each token) cover the reply and,
    with ``finish`` ``"stop"``, its end-of-turn token. ``shared``: tokens of the prompt that stood in the prompt and
    reply of the chat's turn before.
    """

    id: str
    kind: str
    messages: list[Message]
    prompt: list[int]
    ids: list[int]
    sizes: list[int]
    text: str
    finish: str
    shared: int = 0
    prediction: str | None = None


class Store:
    """Files of JSON by key, in ``bench/`` of the weights' cache."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder() / "bench"
        self._folder.mkdir(parents=True, exist_ok=True)

    def path(self, *key: object) -> Path:
        """The file of a key."""
        told = json.dumps(key, sort_keys=True, ensure_ascii=True)
        return self._folder / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.json"

    def get(self, *key: object) -> Any:
        """What was put there, or ``None``."""
        path = self.path(*key)
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    def put(self, value: Any, *key: object) -> None:
        """Keep it; a killed process leaves no half of a file under the final name."""
        path = self.path(*key)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(value), "utf-8")
        partial.replace(path)


class Engine:
    """A running llama.cpp server at ``url``. ``slot``: the one whose prompt cache serves these calls; ``model``:
    the name of its weights. ``end_ids``: the tokens that end a turn.
    """

    def __init__(self, url: str, model: str, slot: int = 0) -> None:
        self.url = url
        self.model = model
        self._slot = slot
        self._http = httpx2.Client(
            base_url=url,
            timeout=None,
            trust_env=False,
            limits=httpx2.Limits(max_keepalive_connections=0),  # llama.cpp hangs up on idle ones without a word
        )
        self.end_ids = frozenset(ids[0] for name in _ENDS if len(ids := self.tokenize(name, special=True)) == 1)

    def close(self) -> None:
        """Drop the connection."""
        self._http.close()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self._http.post(path, json=body)
        reply.raise_for_status()
        told: dict[str, Any] = reply.json()
        return told

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text that the model's chat template makes of the messages."""
        return str(self._post("/apply-template", {"messages": list(messages)})["prompt"])

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; ``special``: control tokens in it are read as such."""
        told = self._post("/tokenize", {"content": text, "add_special": special, "parse_special": special})
        return list(told["tokens"])

    def generate(self, prompt: list[int] | str, count: int) -> list[Token]:
        """At most ``count`` greedy tokens after the prompt, the end of the turn among them."""
        body = {**greedy(), "prompt": prompt, "n_predict": count, "n_probs": 1, "id_slot": self._slot}
        told = self._post("/completion", body)
        entries, ids = read_entries(told), list(told["tokens"])
        ended = told.get("stop_type") == "eos"
        if ended and len(ids) < int(told["tokens_predicted"]):
            assert entries[-1].token_id is not None
            ids.append(entries[-1].token_id)  # some builds leave the end out of `tokens`
        placed = spread(entries, ids)
        if placed is None and count == 1:
            return [Token(ids[0], b"", None, ended)]  # a part of a character: nothing else is told of it
        if placed is None:
            raise ValueError(f"{self.model}: entries and ids of a reply do not fit: {told}")
        tokens = [Token(i, entry.data if own else b"", entry.logprob if own else None) for i, entry, own in placed]
        if ended:
            last = tokens[-1]
            assert not last.data, told
            tokens[-1] = Token(last.id, b"", last.logprob, end=True)
        return tokens

    def follow(self, prompt: list[int], text: str) -> list[Entry]:
        """Make the model write ``text``: one entry a token that it wrote, the end of the turn last, each with what
        it would rather have written at the top of its alternatives (probabilities are those without constraint).
        """
        grammar, count = exact_grammar(text), len(text.encode()) + 2
        body = {**greedy(), "prompt": prompt, "grammar": grammar, "n_predict": count, "n_probs": 2}
        told = self._post("/completion", {**body, "id_slot": self._slot})
        if told.get("content") != text:
            raise ValueError(f"{self.model} did not write the reply")
        return read_entries(told)


def converse(engine: Engine, store: Store, prompt: Prompt, max_tokens: int) -> list[Reply]:
    """The target's replies to all turns of a prompt; what is in the store is not asked again."""
    replies = kept_replies(store, engine.model, prompt, max_tokens)
    while len(replies) < len(prompt.turns):
        messages = prompt.messages([reply.text for reply in replies])
        reply = _ask(engine, prompt, messages, len(replies), max_tokens, replies[-1] if replies else None)
        store.put(asdict(reply), *_key(engine.model, prompt, messages, max_tokens))
        replies.append(reply)
    return replies


def kept_replies(store: Store, model: str, prompt: Prompt, max_tokens: int) -> list[Reply]:
    """The replies that are in the store, up to the first turn that is not."""
    replies: list[Reply] = []
    for _ in prompt.turns:
        messages = prompt.messages([reply.text for reply in replies])
        kept = store.get(*_key(model, prompt, messages, max_tokens))
        if kept is None:
            break
        replies.append(Reply(**kept))
    return replies


def _key(model: str, prompt: Prompt, messages: list[Message], max_tokens: int) -> tuple[object, ...]:
    return "reply", model, prompt.id, messages, max_tokens


def _ask(
    engine: Engine, prompt: Prompt, messages: list[Message], turn: int, max_tokens: int, before: Reply | None
) -> Reply:
    ids = engine.tokenize(engine.render(messages), special=True)
    tokens = engine.generate(ids, max_tokens)
    data = b"".join(token.data for token in tokens)
    name = f"{prompt.id}.{turn + 1}" if len(prompt.turns) > 1 else prompt.id
    return Reply(
        id=name,
        kind=prompt.kind,
        messages=messages,
        prompt=ids,
        ids=[token.id for token in tokens],
        sizes=[len(token.data) for token in tokens],
        text=data.decode("utf-8", "replace"),
        finish="stop" if tokens[-1].end else "length",
        shared=0 if before is None else _common(before.prompt + before.ids, ids),
        prediction=prompt.prediction,
    )


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading ids agree."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
