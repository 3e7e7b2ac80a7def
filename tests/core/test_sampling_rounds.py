"""Temperature above 0 in the loop: what goes wrong, what is booked, what a seed fixes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from engine_kit import Proposing, TextTarget, asked
from sampling_kit import PROMPT, Chance, SampledTarget, TinyModel, Writer

from cheapspec.core.acceptance import Alternative, TargetLogprob
from cheapspec.core.effects import Broke, HttpReply, Op, Start
from cheapspec.core.engine import Job, Policy, run
from cheapspec.core.estimate import SAMPLED
from cheapspec.core.fetching import LONGEST
from cheapspec.core.money import Prices
from cheapspec.core.planner import ContextPrices
from cheapspec.core.ports import Context, Drafter, Score, Unusable
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import SeededDraws
from cheapspec.core.tally import Tally
from cheapspec.testing.play import Answer, Played, play
from cheapspec.testing.toy import ToyModel


class Seeded(Chance):
    """The server's own randomness, fixed: its draws come from another seed than ours."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self.source, self.count = SeededDraws(seed), 0

    def choose(self, weights: Sequence[float]) -> int:
        self.count += 1
        return self.source.pick(weights, self.count, 0)


def question(limit: int = 8, *, stream: bool = True, temperature: float = 1.0, top_p: float = 1.0) -> Request:
    body = {"model": "tiny", "prompt": PROMPT, "temperature": temperature, "top_p": top_p}
    sampling = Sampling(temperature, top_p)
    return Request("completion", body, "tiny", stream, prompt=PROMPT, max_tokens=limit, sampling=sampling)


def asked_with(
    seed: int,
    tokens: int = 3,
    *,
    target: SampledTarget | None = None,
    drafter: Drafter | None = None,
    request: Request | None = None,
    fault: Callable[[Start, int], Answer] | None = None,
    lenient: float | None = None,
) -> tuple[Played, Tally]:
    target = target or SampledTarget(TinyModel(1), chance=Seeded(seed))
    tally, seen = Tally(), dict[str, int]()

    def answer(start: Start) -> Answer:
        path = start.request.path
        seen[path] = seen.get(path, 0) + 1
        told = fault(start, seen[path]) if fault is not None else None
        return told if told is not None else target.answer(start)

    policy = Policy(draft_tokens=tokens, lenient_nats=lenient)
    job = Job(request or question(), target, [drafter or Writer()], tally, policy, draws=SeededDraws(seed))
    return play(run(job), answer), tally


def test_neither_rounds_nor_their_length_change_what_is_accepted_or_corrected() -> None:
    """The same seed gives the same tokens for every K, as far as the server draws none itself."""
    down = HttpReply(500, b"{}")
    lengths: set[int] = set()
    for seed in range(60):
        texts: list[str] = []
        for tokens in (1, 2, 3, 6):
            played, _ = asked_with(seed, tokens, fault=refusing(("scripted/draw", "scripted/continue"), down))
            texts.append(played.text)  # the server writes nothing, so this is ours
        longest = max(texts, key=len)
        assert all(longest.startswith(text) for text in texts), seed
        lengths |= {len(text) for text in texts}
    assert len(lengths) > 5


def test_every_draw_is_in_the_books() -> None:
    """A fetched token is a paid call like any other, and counts as the target's own token."""
    for seed in range(30):
        played, tally = asked_with(seed)
        billed = [call for call in played.calls if call.request.billed]
        booked = [note for note in played.notes if note.kind == "usage"]
        assert len(tally.usages) == len(billed) == len(booked)
        assert played.finish is not None
        total = tally.accepted_tokens + tally.corrected_tokens + tally.handoff_tokens
        ended = played.finish.finish_reason == "stop"
        assert (
            total == played.finish.usage.output_tokens - (ended and "continue" not in played.purposes()[-1:]) or ended
        )


def refusing(paths: Sequence[str], reply: Answer, first: int = 1) -> Callable[[Start, int], Answer]:
    return lambda start, count: reply if start.request.path in paths and count >= first else None


def writes_what_is_banned(start: Start, count: int) -> Answer:
    if start.request.path != "scripted/draw" or start.request.body is None or not start.request.body["banned"]:
        return None
    told = {"id": start.request.body["banned"][0], "logprob": -1.0, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return HttpReply(200, json.dumps(told).encode())


FAILURES = {
    "refused": refusing(["scripted/draw"], HttpReply(500, b"{}")),
    "broken": refusing(["scripted/draw"], Broke(0, "cut")),
    "banned token": writes_what_is_banned,
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", FAILURES.values(), ids=FAILURES)
def test_a_server_that_does_not_draw_is_left_to_go_on(fault: Callable[[Start, int], Answer], stream: bool) -> None:
    """Before anything was verified the request goes direct, after that the target goes on from there; all is booked."""
    directs = handed = asked = 0
    for seed in range(40):
        request = question(stream=stream)
        played, tally = asked_with(seed, request=request, fault=fault)
        draws = [call for call in played.calls if call.request.path == "scripted/draw"]
        assert len(draws) <= 1
        if not draws:
            continue
        asked += 1
        if played.direct is not None:
            directs += 1
            assert not played.text and tally.corrected_tokens + tally.accepted_tokens == 0
        else:
            handed += 1
            assert played.calls[-1].request.path == "scripted/continue" and played.finish is not None
            assert tally.accepted_tokens + tally.corrected_tokens > 0
    assert directs and handed and directs + handed == asked >= 10


def test_a_character_that_stays_half_is_not_shown() -> None:
    """At the limit, or when the server fails in its middle, only whole characters reach the caller."""
    for limit in (1, 2, 3):
        for seed in range(60):
            played, _ = asked_with(seed, request=question(limit))
            assert played.direct is not None or played.finish is not None
            assert not played.text.endswith("\ufffd")
    for seed in range(60):
        played, _ = asked_with(seed, fault=refusing(["scripted/draw"], HttpReply(500, b"{}"), first=2))
        assert played.finish is not None or played.direct is not None


class Mute(SampledTarget):
    """Draws without a log-probability; joins nothing; advances nothing."""

    joins = True
    advances = True

    def join(self, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
        if self.joins:
            return (yield from super().join(request, context, ids))
        return Unusable("cannot_score", "no text")

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, *more: Any
    ) -> Op[Context | Unusable]:
        if self.advances or score.tokens:
            return (yield from super().advance(request, context, draft, score, *more))
        return Unusable("cannot_score", "no context")


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_draw_that_cannot_be_used_ends_the_speculation(temperature: float) -> None:
    """No text for the token, no place for it, or no probability where one is needed: the target goes on by itself."""
    for seed in range(80):
        target = Mute(TinyModel(1), chance=Seeded(seed))
        target.joins = target.advances = False
        played, _ = asked_with(seed, target=target, request=question(temperature=temperature))
        assert played.direct is not None or played.finish is not None
    silent = json.dumps({"id": 4, "logprob": None, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
    noted: set[str] = set()
    for seed in range(40):
        fault = refusing(["scripted/draw"], HttpReply(200, silent))
        played, _ = asked_with(seed, request=question(temperature=0.9), fault=fault)
        noted |= {note.data["detail"] for note in played.notes if note.kind == "unusable"}
    assert "the server does not tell how likely a token was" in noted


def test_only_token_ids_are_followed() -> None:
    """A text route would begin again at an edge that depends on what was drawn: direct, before any score."""

    class ByText(TextTarget):
        law = SampledTarget.law
        draw = SampledTarget.draw
        join = SampledTarget.join
        alternatives, nucleus_first = 3, False

    request = replace(asked(), sampling=Sampling(1.0, 1.0))
    target = ByText(ToyModel(5))
    job = Job(request, target, [Proposing([" the"])], Tally(), Policy(draft_tokens=3))
    played = play(run(job), target.answer)
    assert played.direct is not None and played.direct.reason == "sampling" and "token ids" in played.direct.detail
    assert "score" not in played.purposes()


class Thinker(SampledTarget):
    """Its replies may begin with a thought."""

    def _listing(self, ids: Sequence[int], token: int | None) -> TargetLogprob:
        told = super()._listing(ids, token)
        return replace(told, top=(*told.top[:-1], Alternative("<think>", told.top[-1].logprob, 5)))


def test_b29_a_target_that_may_think_first_is_found_out_before_anything_is_drawn() -> None:
    """Direct with reason ``reasoning``, whatever the seed."""
    for seed in range(10):
        played, tally = asked_with(seed, target=Thinker(TinyModel(1), chance=Seeded(seed)))
        assert played.direct is not None and played.direct.reason == "reasoning"
        assert not played.text and tally.rounds == 0


class Blind(SampledTarget):
    """Gives no number for the token that stands at a position from ``from_`` on."""

    from_ = 0

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        score = yield from super().score(request, context, draft)
        assert isinstance(score, Score)
        tokens = [
            replace(token, logprob=None) if index >= self.from_ else token for index, token in enumerate(score.tokens)
        ]
        return replace(score, tokens=tuple(tokens))


@pytest.mark.parametrize("from_", [0, 1])
def test_b20_a_position_without_a_number_stops_the_drawing(from_: int) -> None:
    """Nothing is drawn there; what was drawn before it stays, and the target goes on from it."""
    for seed in range(20):
        target = Blind(TinyModel(1), chance=Seeded(seed))
        target.from_ = from_
        played, tally = asked_with(seed, 3, target=target, drafter=Writer(cut=""))
        if from_ == 0:
            assert played.direct is not None and played.direct.reason == "cannot_score" and tally.rounds == 0
        else:
            assert played.direct is None or played.direct.reason == "rejected"


class Closed(SampledTarget):
    """What may follow the draft cannot be named."""

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        score = yield from super().score(request, context, draft)
        assert isinstance(score, Score) and score.after is not None
        return replace(score, after=replace(score.after, top=(Alternative("", -0.1, 5),)))


def test_a_bonus_token_that_cannot_be_drawn_is_left_to_the_hand_off() -> None:
    """All of the draft holds, and the target goes on from there."""
    whole = 0
    for seed in range(20):
        target = Closed(TinyModel(1), chance=Seeded(seed))
        played, tally = asked_with(seed, 1, target=target, drafter=Writer(cut=""))
        if tally.accepted_tokens and not tally.corrected_tokens:
            whole += 1
            assert played.calls[-1].request.path == "scripted/continue"
            assert tally.rounds == 1
    assert whole


class Picky(SampledTarget):
    """What it draws of the rest is always its least likely token, which is mostly rejected at a low temperature."""

    def answer(self, start: Start) -> Answer:
        body = start.request.body or {}
        if start.request.path != "scripted/draw" or not body["banned"]:
            return super().answer(start)
        told = {"id": 6, "logprob": -60.0, "usage": {"input_tokens": len(body["ids"]), "output_tokens": 1}}
        return HttpReply(200, json.dumps(told).encode())


def test_a_rest_that_rejects_again_and_again_is_left_to_the_target() -> None:
    """Never more paid draws after a round than were held for; nothing was chosen then, so the target goes on."""
    longest = handed = 0
    for seed in range(200):
        target = Picky(TinyModel(1), chance=Seeded(seed), alternatives=2)
        played, tally = asked_with(seed, 2, target=target, request=question(temperature=0.4))
        paths = [call.request.path for call in played.calls]
        rows = "".join("d" if path == "scripted/draw" else "s" if "score" in path else "." for path in paths)
        runs = [len(run) for run in re.findall("d+", rows)]
        assert all(run <= LONGEST for run in runs)
        longest = max([longest, *runs])
        if any("left to the target" in note.data.get("detail", "") for note in played.notes if note.kind == "unusable"):
            handed += 1
            assert played.direct is not None or paths[-1] == "scripted/continue"
            assert len([usage for usage in tally.usages]) == len([one for one in played.calls if one.request.billed])
    assert longest == LONGEST - 3 and handed > 5


def test_no_draw_is_paid_for_behind_a_stop_string() -> None:
    """The accepted tokens hold it, so the reply is over whatever comes next."""
    stopped = 0
    for seed in range(60):
        asking = question()
        asking = replace(asking, stops=("b",), body={**asking.body, "stop": ["b"]})
        target = SampledTarget(TinyModel(1), chance=Seeded(seed), alternatives=2)
        played, tally = asked_with(seed, 3, target=target, request=asking)
        if played.finish is None or tally.rounds != 1 or played.finish.finish_reason != "stop":
            continue
        if "scripted/continue" not in [call.request.path for call in played.calls] and tally.accepted_tokens > 1:
            draws = [call.request.body or {} for call in played.calls if call.request.path == "scripted/draw"]
            stopped += not draws
            assert all(
                "b" not in target.model.decode(body["ids"][len(target.model.encode(PROMPT)) :]) for body in draws
            )
    assert stopped


class Musing(SampledTarget):
    """A thought may come first, but is less likely than 1 in 100."""

    def _listing(self, ids: Sequence[int], token: int | None) -> TargetLogprob:
        told = super()._listing(ids, token)
        others = [one for one in told.top if one.token_id != 1]
        return replace(told, top=(*others, Alternative("<think>", -6.0, 1)))


class First:
    """Chance that takes the last of what is listed at first."""

    def __init__(self) -> None:
        self.source = SeededDraws(0)

    def pick(self, weights: Sequence[float], position: int, step: int) -> int:
        if position == 0 and step == 0:
            return max(index for index, weight in enumerate(weights[:-1]) if weight > 0)
        return self.source.pick(weights, position, step)

    def seed(self, position: int, step: int) -> int | None:
        return None


def test_b29_a_thought_that_was_drawn_is_not_thrown_away() -> None:
    """It was rarer than what is looked for beforehand; dropping it now would make it rarer than it is, and say that the
    endpoint thinks.
    """
    target = Musing(TinyModel(1), chance=Seeded(1))
    tally = Tally()
    job = Job(question(), target, [Writer()], tally, Policy(draft_tokens=2), draws=First())
    played = play(run(job), target.answer)
    assert played.direct is None and tally.rounds >= 1
    assert not any(note.data.get("reason") == "reasoning" for note in played.notes if note.kind == "unusable")


def notes_of(kind: str, *, lenient: float | None, temperature: float = 0.0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for seed in range(12):
        asking = question(temperature=temperature) if temperature else replace(question(), sampling=Sampling(0.0))
        fault = refusing(["scripted/continue"], HttpReply(500, b"{}"))
        played, _ = asked_with(seed, 4, request=asking, lenient=lenient, drafter=Writer(cut=""), fault=fault)
        found += [dict(note.data) for note in played.notes if note.kind == kind]
    return found


def test_what_lenience_accepts_is_learned_under_a_name_of_its_own() -> None:
    """The exact rule's rates are not flattered by it, nor those of another margin, nor the argmax's by draws."""
    names: dict[tuple[float | None, float], set[str]] = {}
    for lenient in (None, 1.0, 50.0):
        for temperature in (0.0, 1.0):
            deltas = [data["delta"] for data in notes_of("estimates", lenient=lenient, temperature=temperature)]
            names[lenient, temperature] = {drafter for delta in deltas for drafter, _ in delta}
    assert all(len(found) == 1 for found in names.values())
    assert len(set().union(*names.values())) == 6
    assert names[None, 0.0] == {"writer"} and names[None, 1.0] == {"writer" + SAMPLED}


def test_traces_say_what_the_target_itself_says() -> None:
    """A token that holds by lenience only is a miss there and the last entry; draws stand under a name of their own."""
    for temperature, name in ((0.0, "writer"), (1.0, "writer" + SAMPLED)):
        exact = notes_of("trace", lenient=None, temperature=temperature)
        loose = notes_of("trace", lenient=50.0, temperature=temperature)
        assert exact and loose and {data["drafter"] for data in (*exact, *loose)} == {name}
        assert any(False in data["agreed"] for data in loose)
        for data in (*exact, *loose):
            assert False not in data["agreed"][:-1] and len(data["agreed"]) == len(data["logprobs"])
    first = {data["agreed"] for data in notes_of("trace", lenient=None) if data["position"] == 0}
    assert {data["agreed"] for data in notes_of("trace", lenient=50.0) if data["position"] == 0} == first


def test_lenience_above_temperature_0_counts_what_the_draw_would_have_changed() -> None:
    """What was drawn is not what is written wherever the draft's token is near enough."""
    exact = [asked_with(seed)[1] for seed in range(20)]
    loose = [asked_with(seed, lenient=50.0)[1] for seed in range(20)]
    assert all(tally.lenient_tokens == 0 for tally in exact)
    assert sum(tally.lenient_tokens for tally in loose) > 10
    assert sum(tally.accepted_tokens for tally in loose) > sum(tally.accepted_tokens for tally in exact)


@pytest.mark.parametrize("name", ["seed", "random_seed"])
def test_a_hand_off_that_is_taken_up_again_has_a_seed_of_its_own(name: str) -> None:
    """With the caller's seed once more the server would repeat the noise of the first call's beginning."""
    seeds: list[list[Any]] = []

    class Cut(SampledTarget):
        def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Any:
            seeds[-1].append(request.body.get(name))
            return super().continue_(request, context, max_tokens)

        def answer(self, start: Start) -> Answer:
            told = super().answer(start)
            again = start.request.path == "scripted/continue" and len(seeds[-1]) == 1
            return [line for line in told if b"end" not in line][:2] if again else told  # type: ignore[union-attr]

    for number in range(20):
        seeds.append([])
        asking = question(12)
        asking = replace(asking, body={**asking.body, name: 41})
        played, _ = asked_with(number, 1, target=Cut(TinyModel(1), chance=Seeded(number)), request=asking)
        assert played.finish is not None
    assert any(len(found) == 2 for found in seeds)
    for found in seeds:
        assert found[:1] in ([], [41]) and 41 not in found[1:] and len(set(found)) == len(found)


class Holding:
    """Grants every step and remembers what it might lose."""

    def __init__(self) -> None:
        self.worst: list[Decimal] = []

    def admit(self, worst: Decimal) -> bool:
        self.worst.append(worst)
        return True


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_planner_allowance_and_learning_run_above_temperature_0(temperature: float) -> None:
    """What is paid in the rounds never exceeds what was held, draws included; what is learned is learned of draws."""
    prices = Prices(input=Decimal("0.1"), output=Decimal(10), cached_input=Decimal("0.01"))
    scored = drawn = learned = 0
    for seed in range(60):
        target = Picky if temperature < 1 else SampledTarget
        held, tally = Holding(), Tally()
        job = Job(
            question(temperature=temperature),
            made := target(TinyModel(1), chance=Seeded(seed), alternatives=2),
            [Writer()],
            tally,
            Policy(),
            prices,
            ContextPrices(0.1, 0.1, 0.1),
            draws=SeededDraws(seed),
            permit=held,
        )
        played = play(run(job), made.answer, permit=held)
        rounds = [call for call in played.calls if call.request.path in ("scripted/score", "scripted/draw")]
        scored += sum(call.request.path == "scripted/score" for call in rounds)
        drawn += sum(call.request.path == "scripted/draw" for call in rounds)
        deltas = [note.data["delta"] for note in played.notes if note.kind == "estimates"]
        assert all(name.endswith(SAMPLED) for delta in deltas for name, _ in delta)
        learned += len(deltas)
        if held.worst and played.direct is not None:
            spent = tally.spent(prices)
            assert spent is not None and spent <= max(held.worst)
    assert scored > 20 and drawn > 10 and learned > 20
