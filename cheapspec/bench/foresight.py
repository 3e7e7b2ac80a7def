"""What somebody who knew every run length would have paid for the measured replies (:mod:`cheapspec.core.oracle`).

The drafters are asked again along each direct reply (:mod:`cheapspec.bench.spoken`). Replies whose tokens the target
did not tell, or whose price is unknown, have no such figure. Context is priced as on a warm cache (qs = qh = c).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from cheapspec.bench.asking import DraftAsker
from cheapspec.bench.measure import Measured
from cheapspec.bench.pairs import Arms
from cheapspec.bench.spoken import Spoken, draft_row, static_row
from cheapspec.core.policies import Direct
from cheapspec.core.ports import Drafter
from cheapspec.core.replay import Setting, replay
from cheapspec.core.request import Request
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow

__all__ = ["foresee", "trace_of"]


def foresee(arms: Arms, measured: Measured) -> None:
    """Fill in ``clairvoyant``, if it can be known."""
    if arms.prices is None or measured.failed is not None or measured.said is None:
        return
    trace = trace_of(measured, measured.said, arms.drafters, arms.model)
    found = replay([trace], Direct(), Setting(Tariff.of(arms.prices), oracle=True)).clairvoyant
    measured.clairvoyant = None if found is None else Decimal(str(found))


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
