"""From a past request to what can be said of it: is it ours to speculate on, and what would the drafters have done?

Rules
-----
* A request that production would send direct is a case too, with its named reason: its cost counts on both sides. So
  does one whose target thought (``reasoning_tokens``), and one of several choices.
* Temperature and its like bar the ``exact`` rule only; whole replies are compared all the same.
* Requests belong to a workload as in production (a hash of the system prompt), or to what their metadata say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cheapspec.bench.spoken import Spoken
from cheapspec.core.request import Bypass, Request, admit, sampling
from cheapspec.core.traces import RequestTrace
from cheapspec.core.untyped import as_list, as_mapping
from cheapspec.drive.learning import workload_of
from cheapspec.drive.settings import Settings
from cheapspec.estimating.along import Along, Rows, spoken_of
from cheapspec.estimating.answers import Compared, answer_kind, compare
from cheapspec.estimating.logs import Logged

__all__ = ["Case", "Cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """``trace`` has rows only where the ``exact`` rule could be used; else ``reason`` says why not. ``compared``: the
    draft's final answer with the reply's. ``estimated``: its tokens were not reported; ``rebuilt``: where they begin
    was not.
    """

    model: str
    trace: RequestTrace
    reason: str = ""
    compared: Compared | None = None
    estimated: bool = False
    rebuilt: bool = False


class Cases:
    """Makes them, one after the other. ``workload``: the key of a request's metadata that names its workload;
    ``answers``: compare final answers.
    """

    def __init__(
        self,
        along: Along,
        *,
        assume_temperature: float | None = None,
        workload: str | None = None,
        answers: bool = True,
    ) -> None:
        self._along = along
        self._assume_temperature = assume_temperature
        self._workload = workload
        self._answers = answers

    def case(self, logged: Logged) -> Case:
        """:raises DraftFailed: the draft host does not draft."""
        route = "/v1/chat/completions" if logged.kind == "chat" else "/v1/completions"
        parsed = admit("POST", route, {}, json.dumps(dict(logged.body)).encode())
        if isinstance(parsed, Bypass):
            return self._direct(logged, parsed.reason)
        if logged.usage.reasoning_tokens:
            return self._direct(logged, "reasoning")
        if not logged.text:
            return self._direct(logged, "no_draft")
        said = spoken_of(logged)
        kind = answer_kind(logged.text) if self._answers and logged.finish == "stop" else None
        drawn = sampling(parsed, self._assume_temperature, plain_defaults=True)
        if isinstance(drawn, Bypass):
            written = None if kind is None else self._along.reply(parsed, said)
            compared = None if kind is None else compare(kind, written, logged.text)
            return self._direct(logged, drawn.reason, compared)
        rows = self._along.rows(parsed, said, whole=kind is not None)
        compared = None if kind is None else compare(kind, rows.written, logged.text)
        trace = self._trace(logged, len(said.sizes), rows, said)
        if not rows.drafts and not rows.statics:
            return Case(logged.model, trace, "no_draft", compared, logged.usage.estimated)
        return Case(logged.model, trace, "", compared, logged.usage.estimated, logged.sizes is None)

    def _direct(self, logged: Logged, reason: str, compared: Compared | None = None) -> Case:
        trace = self._trace(logged, logged.usage.output_tokens)
        return Case(logged.model, trace, reason, compared, logged.usage.estimated)

    def _trace(
        self, logged: Logged, reply_tokens: int, rows: Rows | None = None, said: Spoken | None = None
    ) -> RequestTrace:
        usage = logged.usage
        limit = logged.body.get("max_completion_tokens", logged.body.get("max_tokens"))
        return RequestTrace(
            id=logged.id,
            workload=self._name(logged.body),
            prompt_tokens=usage.input_tokens,
            reply_tokens=reply_tokens,
            finish=logged.finish,
            cached_prompt_tokens=usage.cached_tokens or 0,
            max_tokens=limit if isinstance(limit, int) and said is not None and limit >= reply_tokens else None,
            target=logged.model or None,
            drafts=() if rows is None else rows.drafts,
            statics=() if rows is None else rows.statics,
        )

    def _name(self, body: Mapping[str, Any]) -> str:
        if self._workload is not None:
            named = as_mapping(body.get("metadata")).get(self._workload)
            return str(named) if named else f"without {self._workload}"
        messages = tuple(as_mapping(message) for message in as_list(body.get("messages")))
        found = workload_of(Settings(), Request("chat", body, "", False, messages))
        return f"system {found[:8]}" if found else "no system prompt"
