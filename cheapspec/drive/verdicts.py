"""Admission to the ladder of rules: what an endpoint takes, what a verdict costs, what is known of it.

Rules
-----
* Nothing is probed for it: an endpoint is taken for what its URL says, and for what its replies have shown since.
* A judge that is not the target has prices, limits and a cooldown of its own, by its own URL and model.
* The target's cooldown bars rules that would call it; rules without a call are tried all the same.
* An unknown price bars calls, not rules that make none. With fixed ``draft_tokens`` (tests and bench) nothing is
  weighed, and the allowance is not asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import httpx2

from cheapspec.backends.chat_learning import learn
from cheapspec.core.assumed import assumed_prompt
from cheapspec.core.effects import Side
from cheapspec.core.job import Policy
from cheapspec.core.money import Prices
from cheapspec.core.planner import call_prices
from cheapspec.core.ports import Drafter
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.contexts import context_prices
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.passed import Passed
from cheapspec.drive.permits import account_keys
from cheapspec.drive.runtime import Runtime
from cheapspec.drive.state import TargetFacts, targets
from cheapspec.drive.urls import api_base, cannot_score
from cheapspec.errors import CapabilityError
from cheapspec.rules.agree import Agree
from cheapspec.rules.judge import Judge
from cheapspec.rules.ladder import Ladder
from cheapspec.rules.prospects import Bench, VerdictRule
from cheapspec.rules.validator import Validator

__all__ = ["SERVED", "judge_facts", "ladder_for", "refuse_scoring"]

SERVED = "rules about whole drafts: accept=[Validator(fn), Agree(), Answer('last_number')], Judge, OkOrAnswer, Patch"
"""What an endpoint that only chats can do."""

_JUDGE_SECONDS = 60.0
"""A judge elsewhere is waited for as long as the caller waits for a read, and no longer than this."""


def ladder_for(
    runtime: Runtime,
    passed: Passed,
    parsed: Request,
    facts: TargetFacts,
    drafters: Sequence[Drafter],
    now: float,
    seconds: float,
) -> tuple[Ladder, str]:
    """The run, and whose prices it is priced with. ``seconds``: the deadline of its drafts."""
    settings, base_url, target = passed.settings, api_base(passed.request.url), target_of(passed)
    listed, priced_by = runtime.prices.lookup(parsed.model, base_url)
    prices = None if listed is None else listed.of_text
    share = runtime.cached_share(passed.request, parsed, now)
    context = context_prices(call_prices(prices, passed.tier, assumed_prompt(parsed)), facts, share)
    own = Validator.of(parsed) if parsed.formatted else None
    rules = settings.rules if own is None else (own, *(rule for rule in settings.rules if rule.name != own.name))
    read = as_mapping(passed.request.extensions.get("timeout")).get("read")
    longest = min(_JUDGE_SECONDS, read) if read else _JUDGE_SECONDS
    if facts.cooldown_until > now:
        rules = tuple(rule for rule in rules if not _asks_target(rule))
    ladder = Ladder(
        parsed,
        rules,
        drafters,
        Tally(cached_share=share, tier=passed.tier, local_price=settings.local_price),
        Policy(
            draft_tokens=settings.draft_tokens,
            max_draft_tokens=settings.max_draft_tokens,
            draft_seconds=seconds,
            latest=None if settings.max_added_latency is None else now + settings.max_added_latency,
        ),
        Bench(runtime.chat_endpoint(base_url, parsed.model, parsed.body), prices),
        _judges(runtime, base_url, rules, now, longest),
        prices,
        context.q0,
        None if facts.qh is None else context.qh,
        runtime.permits.of(account_keys(settings, parsed), passed.request_id),
        now,
        secrets.token_hex(8),
        runtime.cutoffs(passed, rules, drafters),
        runtime.learning.estimates(target, workload_of(settings, parsed)),
        runtime.learning.lengths(target),
        learn,
        weighs=settings.draft_tokens is None and settings.objective == "cost",
    )
    return ladder, priced_by


def refuse_scoring(base_url: str, rule: str) -> None:
    """A caller who asks for scored drafts at a host that is known to score none is told so at once.

    :raises CapabilityError: naming what the host lacks, and the rules that it does serve.
    """
    host = httpx2.URL(base_url).host
    if cannot_score(host):
        raise CapabilityError(
            f"accept={rule!r}: {host} returns no log-probabilities of text that it is sent, so nothing can be scored "
            f"there. It serves {SERVED}; without accept requests go direct."
        )


def _asks_target(rule: VerdictRule) -> bool:
    return not isinstance(rule, Validator | Agree) and not (isinstance(rule, Judge) and rule.base_url is not None)


def _judges(
    runtime: Runtime, base_url: str, rules: Sequence[VerdictRule], now: float, seconds: float
) -> Mapping[str, Bench | None]:
    """Judges that are another model, at the target's URL or at one of their own."""
    found: dict[str, Bench | None] = {}
    for rule in rules:
        if not isinstance(rule, Judge) or rule.model is None:
            continue
        url = rule.base_url or base_url
        if judge_facts(url, rule.model).cooldown_until > now:
            found[rule.name] = None
            continue
        prices: Prices | None = runtime.prices.lookup(rule.model, url)[0]
        bench = Bench(runtime.chat_endpoint(url, rule.model, {}), prices, own=False)
        if rule.base_url is not None:
            bench = replace(bench, side=Side.JUDGE, host=rule.base_url, seconds=seconds)
        found[rule.name] = bench
    return found


def judge_facts(base_url: str, model: str) -> TargetFacts:
    """What has been noted of a judge's endpoint."""
    return targets.get((base_url.rstrip("/"), model, "judge", False))
