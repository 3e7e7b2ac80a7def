"""Asks each prompt of both arms and notes what either cost.

Rules
-----
* Temperature 0, the same fields in both arms. The history of a chat is the direct arm's replies, in both.
* A kind of prompts is a workload: estimates are learned for each by itself, and nothing is known at the start
  (both pairs keep books of their own).
* Direct is priced by its reply's usage; cheapspec's side by its own account (:class:`cheapspec.core.info.Info`).
* A text that differs is reported with the place where it begins to differ, never repaired.
* A request that fails ends its prompt, not the bench; the failure is in the result.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from cheapspec.bench.pairs import Arms
from cheapspec.bench.prompts import Message, Prompt
from cheapspec.bench.spoken import common
from cheapspec.client import OpenAIError
from cheapspec.core.effects import Usage
from cheapspec.core.info import Info
from cheapspec.core.money import cost
from cheapspec.core.received import read_usage
from cheapspec.doors import info as facts

__all__ = ["Bench", "Measured"]


@dataclass(slots=True)
class Measured:
    """One reply, asked twice. ``differs_at``: the first byte that is not the direct reply's, ``None`` when
    equal. ``paid``, ``baseline``, ``clairvoyant``: dollars, ``None`` unknown. ``seconds``: of cheapspec's reply,
    ``seconds_direct`` of the other. ``failed``: what went wrong, then the rest says nothing. ``asked``: the fields of
    both requests; ``text``, ``usage``: of the direct reply.
    """

    id: str
    kind: str
    equal: bool = False
    differs_at: int | None = None
    paid: Decimal | None = None
    baseline: Decimal | None = None
    clairvoyant: Decimal | None = None
    rounds: int = 0
    target_calls: int = 0
    decision: str | None = None
    reason: str | None = None
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    ties: int = 0
    reply_tokens: int = 0
    seconds: float = 0.0
    seconds_direct: float = 0.0
    failed: str | None = None
    messages: list[Message] = field(default_factory=list[Message])
    prediction: str | None = None
    asked: dict[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    usage: Usage | None = None


class Bench:
    """Measures prompts, one after the other. ``prediction``: code edits carry the original file as ``prediction``,
    in both arms.
    """

    def __init__(self, arms: Arms, *, max_tokens: int = 200, prediction: bool = False) -> None:
        self._arms = arms
        self._max_tokens = max_tokens
        self._prediction = prediction
        self._asked = 0

    def measure(self, prompt: Prompt) -> Generator[Measured]:
        """Each turn as soon as both arms have given their reply. A failure is the prompt's last."""
        direct_first = self._asked % 2 == 0
        self._asked += 1
        replies: list[str] = []
        for turn in range(len(prompt.turns)):
            messages = prompt.messages(replies)
            name = f"{prompt.id}.{turn + 1}" if len(prompt.turns) > 1 else prompt.id
            measured = Measured(name, prompt.kind, messages=messages)
            measured.prediction = prompt.prediction if self._prediction else None
            try:
                text = self._both(self._fields(prompt, messages), measured, direct_first)
            except OpenAIError as error:
                measured.failed = f"{type(error).__name__}: {error}"
                yield measured
                return
            replies.append(text)
            yield measured

    def _fields(self, prompt: Prompt, messages: list[Message]) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self._arms.model, "messages": messages}
        fields |= {"temperature": 0, "max_tokens": self._max_tokens}
        if self._prediction and prompt.prediction is not None:
            fields["prediction"] = {"type": "content", "content": prompt.prediction}
        return fields

    def _both(self, fields: dict[str, Any], measured: Measured, direct_first: bool) -> str:
        measured.asked = fields
        if direct_first:
            text = self._direct(fields, measured)
            other = self._speculated(fields, measured)
        else:
            other = self._speculated(fields, measured)
            text = self._direct(fields, measured)
        measured.equal = text == other
        measured.differs_at = None if measured.equal else common(text.encode(), other.encode())
        return text

    def _direct(self, fields: dict[str, Any], measured: Measured) -> str:
        started = time.perf_counter()
        direct: Any = self._arms.direct.chat.completions
        reply: Any = direct.create(**fields)
        measured.seconds_direct = time.perf_counter() - started
        usage = read_usage(reply.usage.model_dump() if reply.usage is not None else None)
        if usage is not None:
            measured.baseline = cost(usage, self._arms.prices)
            measured.reply_tokens = usage.output_tokens
        measured.usage = usage
        measured.text = str(reply.choices[0].message.content or "")
        return measured.text

    def _speculated(self, fields: dict[str, Any], measured: Measured) -> str:
        started = time.perf_counter()
        alike = {"cheapspec": {"workload": measured.kind}}  # what is learned is learned of this kind
        reply = cast(Any, self._arms.speculating.chat.completions.create(**fields, extra_body=alike))
        measured.seconds = time.perf_counter() - started
        info = facts(reply)
        if info is not None:
            _note(measured, info)
        return str(reply.choices[0].message.content or "")


def _note(measured: Measured, info: Info) -> None:
    measured.paid = info.paid_usd
    measured.rounds, measured.target_calls = info.rounds, info.target_calls
    measured.decision, measured.reason = info.decision, info.reason
    measured.drafted_tokens, measured.accepted_tokens = info.drafted_tokens, info.accepted_tokens
    measured.ties = info.ties
