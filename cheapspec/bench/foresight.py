"""What somebody who knew every run length would have paid for the measured replies (:mod:`cheapspec.core.oracle`).

Rules
-----
* Nothing is asked before all prompts have been measured: what is asked here would warm the caches of draft hosts and
  target for the turns of a chat that are still to come.
* The target alone is asked once more, with log-probabilities, which tell where its tokens end. A host that refuses them
  is not asked again. A reply that reads otherwise than the one that was measured has no such figure, nor has one whose
  price is unknown. Prompt and cached tokens are those of the measured call.
* The drafters are asked along each reply (:mod:`cheapspec.bench.spoken`). Context is priced as on a warm cache (qs = qh
  = c).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cheapspec.bench.asking import DraftAsker
from cheapspec.bench.measure import Measured
from cheapspec.bench.pairs import Arms
from cheapspec.bench.spoken import Spoken, draft_row, spoken, static_row
from cheapspec.client import OpenAIError
from cheapspec.core.policies import Direct
from cheapspec.core.ports import Drafter
from cheapspec.core.replay import Setting, replay
from cheapspec.core.request import Request
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow

__all__ = ["Foresight", "trace_of"]


class Foresight:
    """Looks at measured replies, one after the other."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms
        self._tells = arms.prices is not None

    def foresee(self, measured: Measured) -> None:
        """Fill in ``clairvoyant``, if it can be known."""
        said = self._said(measured)
        if said is None or self._arms.prices is None:
            return
        trace = trace_of(measured, said, self._arms.drafters, self._arms.model)
        found = replay([trace], Direct(), Setting(Tariff.of(self._arms.prices), oracle=True)).clairvoyant
        measured.clairvoyant = None if found is None else Decimal(str(found))

    def _said(self, measured: Measured) -> Spoken | None:
        """The direct reply, token by token."""
        if not self._tells or measured.failed is not None:
            return None
        create: Any = self._arms.direct.chat.completions.create
        try:
            reply = create(**measured.asked, logprobs=True)
        except OpenAIError as error:
            self._tells = getattr(error, "status_code", None) not in (400, 422)
            return None
        said = spoken(reply, measured.usage)
        return said if said is not None and said.text == measured.text else None


def trace_of(measured: Measured, said: Spoken, drafters: tuple[Drafter, ...], target: str) -> RequestTrace:
    """The reply's trace, with one row a drafter."""
    messages = tuple(measured.messages)
    request = Request("chat", {"messages": list(messages)}, target, False, messages, prediction=measured.prediction)
    drafts: list[DraftRow] = []
    statics: list[StaticRow] = []
    for drafter in drafters:
        if drafter.propose(request, "", 1) is not None:
            statics.append(static_row(drafter, request, said, _counter(said)))
            continue
        asker = DraftAsker(drafter, request)
        try:
            drafts.append(draft_row(asker, said, drafter.name))
        finally:
            asker.close()
    return RequestTrace(
        measured.id,
        measured.kind,
        said.prompt_tokens,
        len(said.sizes),
        said.finish,
        min(said.cached_tokens, said.prompt_tokens),
        target=target,
        drafts=tuple(drafts),
        statics=tuple(statics),
    )


def _counter(said: Spoken) -> Callable[[str], int]:
    """Counts target tokens of other text by the mean length of the reply's own."""
    mean = max(len(said.data) / max(said.texts, 1), 1.0)
    return lambda text: max(1, round(len(text.encode()) / mean))
