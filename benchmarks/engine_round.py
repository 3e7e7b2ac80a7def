"""How long the engine itself takes for a round, without any I/O. Run ``python -m benchmarks.engine_round``.

One round is everything between the draft's last byte and the next call's request: reading the plan, the
dialect's scoring question, judging 256 prepared target tokens, the dialect's next context, showing the
text through the stop strings. Servers, JSON and sockets are left out; the scores are ready-made. ``align``
is what a dialect adds to place 256 tokens in the text. Prints JSON; times are milliseconds of CPU (what
else the machine does is not measured), the median and the best of many repetitions. The target is 1 ms a
round on a small machine.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from cheapspec.core.acceptance import Alternative, DraftToken, TargetLogprob, verify_greedy
from cheapspec.core.alignment import align, align_draft
from cheapspec.core.effects import Answered as AnsweredEvent
from cheapspec.core.effects import Emit, Event, Finish, HttpReply, HttpRequest, Op, Start, Usage, WaitAny
from cheapspec.core.engine import Job, Policy, run
from cheapspec.core.estimate import STATIC, Count, Estimates
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices, plan
from cheapspec.core.ports import Context, DraftPiece, NextToken, NoDraft, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request
from cheapspec.core.tally import Tally

__all__ = ["measure"]

TOKENS = 256
_WORDS = (" the", " quick", " brown", "fox", ",", " jumps", " over", "\n", " lazy", " naïve", "(", "x", ")", " 界")


def _prepared(count: int) -> tuple[tuple[TargetLogprob, ...], tuple[int | None, ...], str]:
    texts = [_WORDS[index % len(_WORDS)] for index in range(count)]
    ends: list[int | None] = []
    tokens: list[TargetLogprob] = []
    for index, text in enumerate(texts):
        ends.append((ends[-1] or 0) + len(text) if ends else len(text))
        top = (Alternative(text, -0.05, index), Alternative(" other", -3.5, 10**6))
        tokens.append(TargetLogprob(text, -0.05, index, 1, top))
    return tuple(tokens), tuple(ends), "".join(texts)


@dataclass
class _Ready:
    """A target whose answers are ready-made; it ends its turn after ``rounds`` rounds."""

    rounds: int
    name: str = "ready"
    can_score: bool = True
    can_force: bool = False
    done: int = 0

    def __post_init__(self) -> None:
        self.tokens, self.ends, self.text = _prepared(TOKENS)
        self.ids = tuple(range(TOKENS))

    def open(self, request: Request) -> Op[Context | Unusable]:
        yield HttpRequest("tokenize", "/tokenize")
        return Context(prompt_tokens=500, ids=tuple(range(500)))

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        yield HttpRequest("score", "completions", {}, billed=True)
        self.done += 1
        following = NextToken(None, 9, ends_turn=True) if self.done == self.rounds else NextToken(" and", 8)
        return Score(self.tokens, self.ends, following, Usage(1000, 1))

    def follow(self, alternative: Alternative) -> NextToken | None:
        return NextToken(alternative.text, alternative.token_id)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        yield from ()
        more = "" if follow is None else follow.text or ""
        ids = (*(context.ids or ()), *self.ids[:accepted], *((8,) if more else ()))
        return Context(500, context.text + draft + more, len(ids) - 500, ids)

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        raise AssertionError("every round holds")


@dataclass
class _Proposal:
    """A drafter that always proposes the same ready-made text."""

    tokens: tuple[DraftToken, ...]
    name: str = "ready"
    base_url: str = ""

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...]:
        return self.tokens

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        raise AssertionError("it proposes at once")


def _play(rounds: int, stops: tuple[str, ...], *, planned: bool) -> float:
    """Seconds of a whole run of so many rounds."""
    target = _Ready(rounds)
    drafter = _Proposal(tuple(DraftToken(token.text, 0.0) for token in target.tokens))
    request = Request("chat", {}, "m", True, messages=({"role": "user", "content": "go"},), stops=stops)
    policy = Policy() if planned else Policy(draft_tokens=TOKENS)
    prices = Prices(Decimal(1), Decimal(50))
    held = Estimates({(drafter.name, STATIC): Count(4000, 4000, 4000)})  # so that all of it is planned to be scored
    job = Job(request, target, [drafter], Tally(), policy, prices, ContextPrices(0.1, 0.1, 0.1), estimates=held)
    reply, calls, told, finished = HttpReply(200, b""), 0, None, False
    begun = time.thread_time()
    steps = run(job)
    while not finished:
        effect = steps.send(told)
        event: Event | None = None
        if isinstance(effect, Start):
            calls = effect.call_id
        elif isinstance(effect, WaitAny):
            event = AnsweredEvent(calls, reply, 0.0)
        elif isinstance(effect, Finish):
            finished = True
        else:
            assert isinstance(effect, Emit) or type(effect).__name__ == "Note"
        told = event
    seconds = time.thread_time() - begun
    assert target.done == rounds
    return seconds


def _milliseconds(action: Callable[[], Any], repeat: int) -> dict[str, float]:
    times: list[float] = []
    for _ in range(repeat):
        begun = time.thread_time()
        action()
        times.append((time.thread_time() - begun) * 1000)
    return {"median": round(statistics.median(times), 4), "best": round(min(times), 4)}


def _round(stops: tuple[str, ...], repeat: int, *, planned: bool, rounds: int = 8) -> dict[str, float]:
    """Milliseconds a round, tokenizing and end included, over runs of eight rounds."""
    times = [_play(rounds, stops, planned=planned) * 1000 / rounds for _ in range(repeat)]
    return {"median": round(statistics.median(times), 4), "best": round(min(times), 4)}


def measure(repeat: int = 40) -> dict[str, Any]:
    """All figures, as plain JSON."""
    tokens, _, text = _prepared(TOKENS)
    surfaces: list[bytes | str] = [token.text.encode() for token in tokens]
    entries = [(token.text, token.text.encode(), token.logprob) for token in tokens]
    draft = [DraftToken(token.text, 0.0) for token in tokens]
    mixed = [DraftToken("x", -0.6 if index % 9 == 4 else -0.001 * (index % 5)) for index in range(512)]
    prices = Prices(Decimal(1), Decimal(50))
    stops = ("\nUser:", "###", "</answer>", "\n\n\n")
    return {
        "draft_tokens": TOKENS,
        "milliseconds_a_round": {
            "fixed_length": _round((), repeat, planned=False),
            "planned": _round((), repeat, planned=True),
            "planned_with_four_stop_strings": _round(stops, repeat, planned=True),
        },
        "milliseconds_of_parts": {
            "verify_greedy": _milliseconds(lambda: verify_greedy(tokens), repeat),
            "plan": _milliseconds(lambda: plan(1, prices, 700, ContextPrices(), draft), repeat),
            "plan_512": _milliseconds(lambda: plan(0, prices, 700, ContextPrices(1, 0.05, 0.05), mixed), repeat),
            "align": _milliseconds(lambda: align(surfaces, text), repeat),
            "align_draft": _milliseconds(lambda: align_draft(entries, text), repeat),
        },
        "target_milliseconds": 1.0,
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
