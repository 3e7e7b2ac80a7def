"""What one request did and paid, counted as it happens; becomes :class:`~cheapspec.core.info.Info`.

Tokens and money are kept apart: calls add usage, :meth:`Tally.info` prices it at the end, so that an
unknown price leaves the counts standing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cheapspec.core.effects import Usage
from cheapspec.core.info import Info, Seconds
from cheapspec.core.money import LocalPrice, Prices, charge
from cheapspec.core.ports import Identity

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Counts of one request; see INTERFACE's ``reply.cheapspec`` for their meaning.

    ``known_prompt_tokens``, ``known_reply_tokens``: what of the direct call's bill is certain by now.
    ``cached_share``: the part of the prompt (0 to 1) that the direct call would have found in the
    provider's cache, as far as earlier calls tell. ``tier``: the service tier that was asked for.
    ``reply_tokens``: tokens of the reply as the target bills
    them, a verified end-of-turn token included; the baseline counts them. ``uncounted``: a call may have been
    billed of which no usage is known, not even an estimate; what was paid is unknown then. ``forecast_usd``: the
    gain that the planner expected before the first round. ``local_tokens``:
    what draft models wrote, used or not; ``local_price``: what that costs. ``elsewhere``: calls to models other than
    the target (a judge), each with its own prices. ``lossy``: the reply went out on a rule's word; ``verdicts``: what
    the rules said.
    """

    rule: str = "exact"
    drafter: str | None = None
    rounds: int = 0
    ties: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    corrected_tokens: int = 0
    handoff_tokens: int = 0
    unverified_tokens: int = 0
    lenient_tokens: int = 0
    cached_share: float = 0.0
    tier: str | None = None
    usages: list[Usage] = field(default_factory=list[Usage])
    identity: Identity = field(default_factory=Identity)
    seconds_draft: float = 0.0
    seconds_verify: float = 0.0
    seconds_handoff: float = 0.0
    seconds_total: float = 0.0
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    uncounted: bool = False
    forecast_usd: Decimal | None = None
    known_prompt_tokens: int | None = None
    known_reply_tokens: int = 0
    local_tokens: int = 0
    local_price: LocalPrice | None = None
    elsewhere: list[tuple[Usage, Prices | None]] = field(default_factory=list[tuple[Usage, "Prices | None"]])
    lossy: bool = False
    verdicts: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    @property
    def billed(self) -> list[Usage]:
        """Of every call that was billed, whoever answered it."""
        return [*self.usages, *(usage for usage, _ in self.elsewhere)]

    def spend(self, usage: Usage) -> None:
        """A billed call reported its usage."""
        self.usages.append(usage)

    def identify(self, identity: Identity) -> None:
        """The first target call that names itself names the reply."""
        if self.identity.id is None and identity.id is not None:
            self.identity = identity

    def reply_usage(self, prompt_tokens: int | None, output_tokens: int) -> Usage:
        """The usage that the target alone would have reported; cached tokens only if it reports them."""
        prompt = prompt_tokens or 0
        reported = any(usage.cached_tokens is not None for usage in self.usages)
        return Usage(prompt, output_tokens, self._cached(prompt) if reported else None)

    def finish(self, seconds: float, prompt_tokens: int | None, output_tokens: int) -> None:
        """The reply is over."""
        self.seconds_total = seconds
        self.prompt_tokens = prompt_tokens
        self.reply_tokens = output_tokens

    def paid(self, prices: Prices | None) -> Decimal | None:
        """Dollars of all billed calls; ``None`` when one of them has no known price, or is ``uncounted``."""
        if self.uncounted:
            return None
        total = Decimal(0)
        charges = [charge(usage, prices, self.tier) for usage in self.usages]
        for amount in (one.usd for one in (*charges, *(charge(*pair) for pair in self.elsewhere))):
            if amount is None:
                return None
            total += amount
        return total

    def local_usd(self) -> Decimal | None:
        """Dollars of local drafting so far; ``None`` where it has no price."""
        price = self.local_price
        return None if price is None else price.usd(self.local_tokens, self.seconds_draft)

    def spent(self, prices: Prices | None) -> Decimal | None:
        """Dollars of the request so far, local drafting included."""
        paid = self.paid(prices)
        return None if paid is None else paid + (self.local_usd() or Decimal(0))

    def sure(self, prices: Prices | None, prompt_tokens: int | None = None) -> Decimal | None:
        """Dollars that the direct call would certainly have cost by now. ``prompt_tokens``: where it is not known."""
        prompt = self.known_prompt_tokens if prompt_tokens is None else prompt_tokens
        if prompt is None:
            return Decimal(0)
        alone = Usage(prompt, self.known_reply_tokens, self._cached(prompt), service_tier=self._served_tier())
        return charge(alone, prices, self.tier).usd

    def _served_tier(self) -> str | None:
        return next((usage.service_tier for usage in self.usages if usage.service_tier is not None), None)

    def _cached(self, prompt: int) -> int:
        """Tokens of the prompt that a direct call would have read from the cache: what earlier calls had
        put there, or what this request's first call was told, whichever is more.
        """
        told = self.usages[0].cached_tokens if self.usages else None
        return min(prompt, max(int(self.cached_share * prompt), told or 0))

    def info(
        self,
        request_id: str,
        prices: Prices | None,
        priced_by: str,
        *,
        session: str | None = None,
        simulated: bool = False,
    ) -> Info:
        """The facts of a speculated reply, priced.

        The baseline is the direct call's bill: the prompt with its own share of cached tokens, and the
        whole reply, end of turn included, as output. It is *estimated*, since a direct call was not made.
        """
        paid, local = self.paid(prices), self.local_usd()
        told = any(usage.cost_usd is not None for usage in self.billed)
        prompt = self.prompt_tokens or 0
        alone = Usage(prompt, self.reply_tokens or 0, self._cached(prompt), service_tier=self._served_tier())
        reply = charge(alone, prices, self.tier).usd
        return Info(
            decision="speculate",
            request_id=request_id,
            rule=self.rule,
            drafter=self.drafter,
            session=session,
            rounds=self.rounds,
            ties=self.ties,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            corrected_tokens=self.corrected_tokens,
            handoff_tokens=self.handoff_tokens,
            unverified_tokens=self.unverified_tokens,
            lenient_tokens=self.lenient_tokens,
            lossy=self.lossy or self.lenient_tokens > 0,
            verdicts=tuple(self.verdicts),
            target_calls=len(self.billed),
            input_tokens=sum(usage.input_tokens for usage in self.billed),
            cached_input_tokens=sum(usage.cached_tokens or 0 for usage in self.billed),
            output_tokens=sum(usage.output_tokens for usage in self.billed),
            paid_usd=paid if paid is None or local is None else paid + local,
            local_usd=local,
            baseline_usd=reply,
            baseline="estimated",
            priced_by="provider" if told else priced_by,
            seconds=Seconds(self.seconds_draft, self.seconds_verify, self.seconds_handoff, self.seconds_total),
            simulated=simulated,
            forecast_usd=self.forecast_usd,
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=None if self.prompt_tokens is None else self._cached(prompt),
            reply_tokens=self.reply_tokens,
        )
