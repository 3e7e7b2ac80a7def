"""The books of one request: its rows in the ledger, its facts for :func:`cheapspec.info`, its log line.

Rules
-----
* A row is written before a call goes out and closed when it ended, whichever way: ``ok``, ``failed``,
  ``cancelled``, or ``possibly_billed`` for a call whose answer never came.
* What a direct reply cost is known where its usage and the price are: unstreamed replies here, streamed ones when
  they are over (:mod:`cheapspec.drive.metered`).
* Budgets count of a call what it cost, or the dearer service tier; where its usage is an estimate, its worst case.
* Text is kept only where the ledger was told to (``store_text``): the messages as JSON, and what the model wrote.
* The baseline of a direct reply is what that call cost; what had been spent before is in ``paid_usd`` only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import httpx2

from cheapspec.core.books import Reservations, Ticket
from cheapspec.core.effects import HttpReply, Usage
from cheapspec.core.info import Info, Seconds
from cheapspec.core.job import Job
from cheapspec.core.money import Charge, Prices, charge, format_usd
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.received import content_text, first_choice
from cheapspec.core.reply import Problem, read_completion, read_usage
from cheapspec.core.shadows import fingerprint_of
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.io import Steps, Written
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.permits import BoundPermit, account_keys
from cheapspec.drive.runtime import Passed, Runtime
from cheapspec.drive.state import infos
from cheapspec.drive.urls import masked, paid_route
from cheapspec.drive.work import Work

__all__ = ["Books", "Read"]

log = logging.getLogger("cheapspec")


@dataclass(frozen=True, slots=True)
class Read:
    """What a direct reply says of itself: its id, what it used, what that costs. ``problem``: status 200, but no
    answer in it. ``said``: the visible text of its first choice, where somebody wants it; ``fingerprint``: who wrote it
    (:func:`cheapspec.core.shadows.fingerprint_of`); ``whole``: it came to its end.
    """

    reply_id: str | None = None
    usage: Usage | None = None
    usd: Decimal | None = None
    priced_by: str = "unknown"
    problem: Problem | None = None
    budget_usd: Decimal | None = None
    text: str = ""
    said: str = ""
    fingerprint: str | None = None
    whole: bool = False
    flags: tuple[str, ...] = ()


_NOTHING = Usage()


class Books:
    """Opened with the request, closed once. ``reserved``: budgets hold something for it; ``runtime``: what its client
    shares; ``keeps_text``: the ledger wants prompt and reply. ``heard``: is told the target's own reply when it is
    over.
    """

    def __init__(self, runtime: Runtime, passed: Passed, *, stream: bool) -> None:
        self.runtime = runtime
        self._passed = passed
        self._started = time.monotonic()
        self._rows = 0
        self._billed: set[str] = set()
        self._sent = 0
        self._tickets: dict[str, Ticket[object]] = {}
        self._holds: list[str] = []
        self.heard: Callable[[Read], None] | None = None
        self.reserved = False
        self.closed = False
        settings = passed.settings
        self.keeps_text = runtime.text_book is not None
        kind = paid_route(passed.request, passed.kind) or "other"
        runtime.ledger.open_request(
            RequestRow(
                passed.request_id,
                time.time(),
                passed.model,
                kind,
                stream,
                settings.session,
                workload_of(settings, passed.parsed) or None,
                settings.session_id,
            )
        )

    @property
    def next_id(self) -> str:
        """The id that the next call will have."""
        return f"{self._passed.request_id}.{self._rows + 1}"

    def open_call(self, side: str, purpose: str, *, billed: bool, worst: Decimal | None = None) -> str:
        """A call is about to go out. Its id (the next one). ``worst``: the most that it can cost, ``None`` unknown."""
        call_id = self.next_id
        self._rows += 1
        if billed:
            self._billed.add(call_id)
        tier = self._passed.tier if billed and purpose != "judge" else None
        row = CallRow(call_id, self._passed.request_id, side, purpose, billed, time.time(), format_usd(worst), tier)
        ticket = self.runtime.ledger.open_call(row)
        if ticket is not None:
            self._tickets[call_id] = ticket
        return call_id

    def written(self, call_id: str) -> Steps[None]:
        """Before the call goes out: its row must survive this process."""
        ticket = self._tickets.pop(call_id, None)
        if ticket is not None and not ticket.done:
            yield Written(ticket)
        self._sent += call_id in self._billed

    def close_call(
        self,
        call_id: str,
        status: str,
        usage: Usage | None = None,
        usd: Decimal | None = None,
        seconds: float | None = None,
        http_status: int | None = None,
        budget_usd: Decimal | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
        """A call ended. ``budget_usd``: what budgets count where that is more than ``usd``; ``flags``: what is odd
        about its price.
        """
        call = Call(call_id, status, usage, format_usd(usd), seconds, http_status, format_usd(budget_usd), flags)
        self.runtime.ledger.close_call(call)

    def read(self, response: httpx2.Response, *, stream: bool) -> Read:
        """Read a direct reply; of a stream, another route or an error nothing is known."""
        passed = self._passed
        if (
            stream
            or not paid_route(passed.request, passed.kind)
            or response.status_code >= 300
            or not response.is_stream_consumed
        ):
            return Read()
        if not passed.kind:
            return self._read_other(response)
        reply = HttpReply(response.status_code, response.content)
        body = as_mapping(reply.json())
        if not _answers(body, passed.kind):
            told = read_completion(reply, passed.kind)
            if isinstance(told, Problem):
                return Read(problem=told)
        named = body.get("id")
        reply_id = named if isinstance(named, str) and named else None
        usage = read_usage(body.get("usage"), body.get("service_tier"))
        writer = fingerprint_of(_name(body.get("model")), _name(body.get("system_fingerprint")))
        if usage is None:
            read = Read(reply_id, fingerprint=writer, whole=True)
        else:
            read = self.priced(reply_id, usage, writer, whole=True)
        if self.heard is not None:
            read = replace(read, said=first_choice_text(body))
        return replace(read, text=reply_text(body)) if self.keeps_text else read

    def _read_other(self, response: httpx2.Response) -> Read:
        """Of a route that is none of ours: its usage, if it tells one as chat and responses do."""
        told = as_mapping(HttpReply(response.status_code, response.content).json())
        usage = read_usage(told.get("usage"), told.get("service_tier"))
        if usage is None:
            return Read()
        return self.priced(None, usage)

    def priced(
        self, reply_id: str | None, usage: Usage, fingerprint: str | None = None, *, whole: bool = False
    ) -> Read:
        """Of a direct reply that used so much."""
        passed = self._passed
        prices, source = self.runtime.prices.lookup(passed.model, passed.base_url)
        charged = self.charged(usage, prices)
        priced_by = "unknown" if charged.usd is None else "provider" if usage.cost_usd is not None else source
        return Read(
            reply_id,
            usage,
            charged.usd,
            priced_by,
            budget_usd=charged.budget_usd,
            fingerprint=fingerprint,
            whole=whole,
            flags=charged.flags,
        )

    def charged(self, usage: Usage, prices: Prices | None) -> Charge:
        """What a call of this request costs; a service tier that nobody expected is told of, once."""
        tier = self._passed.tier
        found = charge(usage, prices, tier)
        if found.flags:
            self._warn_of_tier(found, tier)
        return found

    def timed(self, status: str, usage: Usage | None, seconds: float) -> None:
        """A direct call took so long."""
        if status == "ok" and self._passed.kind:
            self.runtime.learning.called(target_of(self._passed), usage, seconds, "direct")

    def _warn_of_tier(self, charged: Charge, asked: str | None) -> None:
        model, warn = self._passed.model, self.runtime.warn
        if "tier_unpriced" in charged.flags:
            what = f"there is no price for the service tier {charged.tier!r} of {model!r}, so what it costs is unknown"
            warn(f"tier:{model}:{charged.tier}", what)
        if "tier_differs" in charged.flags:
            what = f"{model!r} was asked for the service tier {asked!r} and was served {charged.tier!r}"
            warn(f"tier:{model}:{asked}:{charged.tier}", f"{what}; budgets count the dearer")

    def begins_direct(self, passed: Passed, job: Work | None = None) -> Info:
        """The target alone is answering. What is known so far can be asked for; :meth:`went_direct` comes later."""
        info = self._direct(passed, Read(), job)
        infos.put(info)
        return info

    def went_direct(self, passed: Passed, read: Read, job: Work | None = None) -> Info:
        """The target alone answered, or nobody did. ``job``: the run that was tried before, with what it spent."""
        info = self._direct(passed, read, job)
        if job is not None:
            self.runtime.remember(passed.request, job.request)
        self._told(read.fingerprint)
        if self.heard is not None:
            self.heard(read)
        self._settle(passed, job, info.paid_usd, read.usd)
        self._close(info, read.reply_id, read.text, passed.detail)
        return info

    def _direct(self, passed: Passed, read: Read, job: Work | None) -> Info:
        if job is None:
            return self._alone(passed, read)
        tally = job.tally
        usage = read.usage or Usage()
        spent, local = tally.paid(job.prices), tally.local_usd()
        paid = None if read.usd is None or spent is None else read.usd + spent
        reported = usage if read.usage is not None and not usage.estimated else None
        return Info(
            decision=passed.decision,
            request_id=passed.request_id,
            reason=passed.reason,
            drafter=tally.drafter,
            session=passed.settings.session,
            drafted_tokens=tally.drafted_tokens,
            unverified_tokens=tally.unverified_tokens,
            target_calls=self._sent,
            input_tokens=usage.input_tokens + sum(call.input_tokens for call in tally.billed),
            cached_input_tokens=(usage.cached_tokens or 0) + sum(call.cached_tokens or 0 for call in tally.billed),
            output_tokens=usage.output_tokens + sum(call.output_tokens for call in tally.billed),
            paid_usd=paid if paid is None or local is None else paid + local,
            baseline_usd=read.usd,
            baseline="estimated" if read.usd is None or usage.estimated else "exact",
            priced_by=read.priced_by,
            seconds=Seconds(tally.seconds_draft, tally.seconds_verify, 0.0, time.monotonic() - self._started),
            local_usd=local,
            forecast_usd=tally.forecast_usd,
            fixed_draft_tokens=passed.settings.draft_tokens if passed.decision == "direct" else None,
            verdicts=tuple(tally.verdicts),
            target=_target(passed),
            prompt_tokens=None if reported is None else reported.input_tokens,
            cached_prompt_tokens=None if reported is None else reported.cached_tokens,
            reply_tokens=None if reported is None else reported.output_tokens,
        )

    def _alone(self, passed: Passed, read: Read) -> Info:
        """Nothing was tried before: the way of most requests, so nothing is done here that they do not need."""
        usage = read.usage or _NOTHING
        reported = read.usage is not None and not usage.estimated
        return Info(
            decision=passed.decision,
            request_id=passed.request_id,
            reason=passed.reason,
            session=passed.settings.session,
            target_calls=self._sent,
            input_tokens=usage.input_tokens,
            cached_input_tokens=usage.cached_tokens or 0,
            output_tokens=usage.output_tokens,
            paid_usd=read.usd,
            baseline_usd=read.usd,
            baseline="estimated" if read.usd is None or usage.estimated else "exact",
            priced_by=read.priced_by,
            seconds=Seconds(total=time.monotonic() - self._started),
            fixed_draft_tokens=passed.settings.draft_tokens if passed.decision == "direct" else None,
            target=_target(passed),
            prompt_tokens=usage.input_tokens if reported else None,
            cached_prompt_tokens=usage.cached_tokens if reported else None,
            reply_tokens=usage.output_tokens if reported else None,
        )

    def speculated(self, job: Work, priced_by: str, reply_id: str, text: str, *, whole: bool) -> Info:
        """The engine answered. ``whole``: to its end; else it broke off or the caller left, and no saving is booked."""
        passed, tally, runtime = self._passed, job.tally, self.runtime
        if tally.drafter is not None:
            runtime.breaker.worked(tally.drafter)
        settings = passed.settings
        simulated = settings.simulate_scoring and isinstance(job, Job) and job.target.can_force
        info = tally.info(passed.request_id, job.prices, priced_by, session=settings.session, simulated=simulated)
        info = replace(info, target=_target(passed), fixed_draft_tokens=settings.draft_tokens)
        if not whole and info.paid_usd is not None:
            told = info.baseline_usd if tally.reply_tokens is not None else None
            info = replace(info, baseline_usd=info.paid_usd if told is None else min(told, info.paid_usd))
        runtime.remember(passed.request, job.request)
        self._told(fingerprint_of(tally.identity.model, tally.identity.system_fingerprint))
        if isinstance(job.permit, BoundPermit):
            told = info.baseline_usd
            if not whole and tally.reply_tokens is None and told is not None:  # the direct call would have come as far
                sure = tally.sure(job.prices)
                told = None if sure is None else min(told, sure)
            job.permit.settle(info.paid_usd, told)
        self._close(info, reply_id, text)
        return info

    def _told(self, fingerprint: str | None) -> None:
        """The target says who it is."""
        if fingerprint is None or not self._passed.kind:
            return
        target, certificates = target_of(self._passed), self.runtime.certificates
        if not certificates.knows(target, fingerprint):
            certificates.told(target, workload_of(self._passed.settings, self._passed.parsed), fingerprint)

    def _settle(self, passed: Passed, job: Work | None, paid: Decimal | None, usd: Decimal | None) -> None:
        """A direct call costs what the baseline costs, and so earns its share of the allowance; what had been spent
        before it is lost. Of a call whose cost is unknown only the loss counts.
        """
        if job is not None and isinstance(job.permit, BoundPermit):
            spent, local = job.tally.paid(job.prices), job.tally.local_usd() or Decimal(0)
            job.permit.settle(paid if usd is not None or spent is None else spent + local, usd or Decimal(0))
        elif usd is not None and self.runtime.drafters:
            keys = account_keys(passed.settings, passed.parsed)
            self.runtime.permits.of(keys, passed.request_id).settle(usd, usd)

    def release(self, hold: str) -> None:
        """A call beside the request, which reserved for itself under this id, is over. What it holds is given back
        when the books of the request count what it cost.
        """
        self._holds.append(hold)
        if self.closed:
            self._release()

    def _release(self) -> None:
        ledger = self.runtime.ledger
        if not (self.reserved or self._holds) or not isinstance(ledger, Reservations):
            return
        ledger.settle(self._passed.request_id)
        with contextlib.suppress(IndexError):  # another thread may be at it
            while True:
                ledger.settle(self._holds.pop())

    def _close(self, info: Info, reply_id: str | None, text: str, detail: str = "") -> None:
        """Into table, ledger and log."""
        self.closed = True
        infos.put(info, reply_id)
        book = self.runtime.text_book
        if book is not None:
            book.add_text(info.request_id, prompt_text(self._passed), text)
        self.runtime.ledger.close_request(info.request_id, info.to_dict())
        self._release()
        if log.isEnabledFor(logging.INFO):
            extra = f" ({masked(detail, self._passed.request)})" if detail else ""
            trust = " (lossy: on the word of this rule)" if info.on_trust else ""
            log.info("%s %s%s%s %s", info.decision, info.reason or info.rule, trust, extra, info.request_id)


def prompt_text(passed: Passed) -> str:
    """What the request gives the model to read: a prompt as it is, messages (or another route's input) as JSON."""
    if passed.parsed is not None:
        body = passed.parsed.body
    else:
        try:
            body = as_mapping(json.loads(passed.request.content))
        except (httpx2.RequestNotRead, ValueError, RecursionError):
            return ""
    told = next((body[name] for name in ("messages", "prompt", "input") if body.get(name)), "")
    return told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)


def reply_text(body: Mapping[str, Any]) -> str:
    """What a whole reply says: its text, of several choices or of one without text all choices as JSON."""
    choices = body.get("choices")
    told = [as_mapping(one) for one in cast("list[object]", choices)] if isinstance(choices, list) else []
    if len(told) == 1:
        text = told[0].get("text", as_mapping(told[0].get("message")).get("content"))
        if isinstance(text, str):
            return text
    return json.dumps(told, ensure_ascii=False) if told else ""


def first_choice_text(body: Mapping[str, Any]) -> str:
    """The visible text of a reply's first choice, empty without one."""
    first = first_choice(body)
    if "message" in first:
        return content_text(as_mapping(first.get("message")).get("content"))
    return _name(first.get("text")) or ""


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _target(passed: Passed) -> str | None:
    """``MODEL@BASE_URL``."""
    return passed.target if passed.model else None


def _answers(body: Mapping[str, Any], kind: str) -> bool:
    """Whether a reply is what a good one usually is: on the way of every direct request only this is looked at."""
    choices = body.get("choices")
    if "error" in body or body.get("object") == "error" or not isinstance(choices, list) or not choices:
        return False
    first = as_mapping(cast("list[object]", choices)[0])
    return bool(as_mapping(first.get("message"))) if kind == "chat" else isinstance(first.get("text"), str)
