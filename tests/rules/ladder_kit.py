"""What the tests of the ladder share: a run without a clock, a thread or a server."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cheapspec.core.effects import Broke, HttpReply, Side, Start
from cheapspec.core.job import Policy
from cheapspec.core.money import Prices
from cheapspec.core.request import Request, admit
from cheapspec.core.tally import Tally
from cheapspec.rules.ladder import Ladder, run
from cheapspec.rules.prospects import Bench, VerdictRule
from cheapspec.testing.scripted import Answer as Replied
from cheapspec.testing.scripted import Played, ScriptedDrafter, play
from cheapspec.testing.toy import ToyModel

QUESTION = "How many are three and four?"
DRAFT = "Three and four make 7."
PRICES = Prices(Decimal(1), Decimal(10), Decimal("0.1"))


def asked(*, stream: bool = False, question: str = QUESTION, **fields: Any) -> Request:
    """A chat request as admission reads it; no temperature, as most have none."""
    body = {"model": "m", "messages": [{"role": "user", "content": question}], "stream": stream, **fields}
    found = admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode(), whole=True)
    assert isinstance(found, Request)
    return found


def drafter(text: str | None = DRAFT, name: str = "ollama:qwen2.5:3b", question: str = QUESTION) -> ScriptedDrafter:
    """A model that writes this and ends its turn; ``None``: whatever comes."""
    model = ToyModel(3) if text is None else ToyModel(3, replies={question: text})
    return ScriptedDrafter(model, name, f"http://{name.rpartition(':')[0].replace(':', '-')}.test")


def said(text: str, prompt: int = 40, output: int = 3, finish: str = "stop", top: Mapping[str, float] | None = None,
         **usage: Any) -> HttpReply:  # fmt: skip
    """A chat completion. ``top``: probabilities of the only token."""
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if top is not None:
        listed = [{"token": one, "logprob": math.log(share), "bytes": list(one.encode())} for one, share in top.items()]
        own = math.log(top[text])
        choice["logprobs"] = {
            "content": [{"token": text, "logprob": own, "bytes": list(text.encode()), "top_logprobs": listed}]
        }
    told = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **usage}
    reply = {"id": "chatcmpl-7", "object": "chat.completion", "created": 1, "model": "m-2026", "choices": [choice]}
    return HttpReply(200, json.dumps({**reply, "usage": told}).encode())


def refused(status: int, message: str = "no") -> HttpReply:
    return HttpReply(status, json.dumps({"error": {"message": message}}).encode())


Verdicts = HttpReply | Broke | Callable[[Start], HttpReply | Broke | None] | None


@dataclass
class Ran:
    """A run, and what was in it. ``asked``: the bodies of verdicts' calls, in order."""

    played: Played
    ladder: Ladder
    asked: list[Start] = field(default_factory=list[Start])

    @property
    def tally(self) -> Tally:
        return self.ladder.tally

    @property
    def direct(self) -> tuple[str, str]:
        """Reason and detail."""
        assert self.played.direct is not None
        return self.played.direct.reason, self.played.direct.detail

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Rule and outcome of each verdict."""
        return [(str(one["rule"]).partition("(")[0], str(one["outcome"])) for one in self.tally.verdicts]


def climbed(
    rules: Sequence[VerdictRule],
    verdicts: Sequence[Verdicts] = (),
    *,
    request: Request | None = None,
    drafters: Sequence[ScriptedDrafter] | None = None,
    weighs: bool = False,
    leave_after: int | None = None,
    **more: Any,
) -> Ran:
    """Play one request. ``verdicts``: how calls are answered, in order. Nothing is weighed unless asked for."""
    models = [drafter()] if drafters is None else list(drafters)
    given: dict[str, Any] = {"prices": PRICES, "policy": Policy(draft_seconds=5.0), "salt": "salt", "weighs": weighs}
    ladder = Ladder(request or asked(), rules, models, Tally(), **{**given, **more})
    waiting, calls = list(verdicts), list[Start]()

    def answer(start: Start) -> Replied:
        if start.side is Side.DRAFT:
            return next(one for one in models if one.base_url == start.host).answer(start)
        calls.append(start)
        found = waiting.pop(0)
        found = found(start) if callable(found) else found
        return Broke(start.call_id, found.kind, found.message) if isinstance(found, Broke) else found

    played = play(run(ladder), answer, leave_after=leave_after, permit=ladder.permit)
    assert not waiting, "not every verdict was asked for"
    return Ran(played, ladder, calls)


def elsewhere(side: Side = Side.JUDGE) -> Bench:
    """A judge that is not the target."""
    prices = Prices(Decimal("0.1"), Decimal("0.4"))
    return Bench(prices=prices, side=side, host="https://judge.test/v1", own=False, seconds=2.0)
