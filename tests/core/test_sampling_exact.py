"""Temperature above 0, proven: the computed probability of every reply is the target's own, through the whole loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sampling_kit import PROMPT, Chance, Outcome, SampledTarget, TinyModel, Writer, every_path, reference, sampled

from cheapspec.core.engine import Job, Policy, run
from cheapspec.core.lookup import PromptLookup
from cheapspec.core.ports import Drafter
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law
from cheapspec.core.tally import Tally
from cheapspec.testing.play import Played, play


def question(
    temperature: float, top_p: float = 1.0, *, limit: int = 3, stream: bool = True, stops: tuple[str, ...] = ()
) -> Request:
    body = {"model": "tiny", "prompt": PROMPT, "temperature": temperature, "top_p": top_p}
    sampling = Sampling(temperature, top_p)
    return Request("completion", body, "tiny", stream, prompt=PROMPT, stops=stops, max_tokens=limit, sampling=sampling)


def once(request: Request, target: SampledTarget, drafter: Drafter, tokens: int) -> Played:
    """One run, along the path of the target's chance."""
    given = Job(request, target, [drafter], Tally(), Policy(draft_tokens=tokens), draws=target.chance)
    return play(run(given), target.answer)


def computed(
    model: TinyModel, request: Request, drafter: Drafter, tokens: int, *, least: float = 0.0, **how: Any
) -> tuple[dict[Outcome, float], float, list[Played]]:
    """The probability of every reply through the loop, what was cut off, and all runs."""
    played: list[Played] = []
    alone: dict[Outcome, float] = {}

    def outcomes(chance: Chance) -> Mapping[Outcome, float]:
        target = SampledTarget(model, chance=chance, **how)
        ran = once(request, target, drafter, tokens)
        played.append(ran)
        if ran.direct is not None:
            assert not ran.emitted, "nothing reached the caller before the request goes direct"
            rejected = "was rejected" in ran.direct.detail  # tried in vain: that says nothing of the token to come
            assert rejected or not chance.taken, "nothing is drawn before the request goes direct"
            assert request.sampling is not None
            law = target.law(request.sampling)
            assert law is not None
            alone.update(reference(model, request, law))
            return alone
        assert ran.finish is not None and ran.finish.error is None and ran.finish.finish_reason is not None
        return {(ran.text, ran.finish.finish_reason, ran.finish.usage.output_tokens): 1.0}

    found, lost = every_path(outcomes, least)
    return found, lost, played


def assert_exact(found: Mapping[Outcome, float], lost: float, want: Mapping[Outcome, float]) -> None:
    assert abs(sum(found.values()) + lost - 1.0) < 1e-9
    for outcome in {**found, **want}:
        assert abs(found.get(outcome, 0.0) - want.get(outcome, 0.0)) <= lost + 1e-9, outcome


DRAFTERS: dict[str, Drafter] = {
    "other vocabulary": Writer(),
    "one token each": Writer(cut=""),
    "lookup": PromptLookup(),
}


@pytest.mark.parametrize("drafter", DRAFTERS.values(), ids=DRAFTERS)
@pytest.mark.parametrize(("seed", "tokens"), [(1, 1), (5, 2), (5, 4)])
def test_every_reply_has_the_targets_own_probability(seed: int, tokens: int, drafter: Drafter) -> None:
    """Temperature 1, the rest of the vocabulary in one bucket: rounds, corrections, bonus tokens, fetched tokens
    (halves of characters and control tokens among them), the end of the turn, the limit, the hand-off.
    """
    model, request = TinyModel(seed), question(1.0)
    found, lost, played = computed(model, request, drafter, tokens)
    assert lost == 0.0
    assert_exact(found, lost, reference(model, request, Law(1.0)))
    assert any(call.request.path == "scripted/draw" for one in played for call in one.calls)


@pytest.mark.parametrize("nucleus_first", [False, True], ids=["temperature first", "nucleus first"])
@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("temperature", [0.4, 0.7, 1.0])
def test_a_nucleus_that_is_covered_is_drawn_from(temperature: float, top_p: float, nucleus_first: bool) -> None:
    """Where the listed tokens cover it; elsewhere the target goes on by itself. Nothing is fetched."""
    for seed, alternatives in ((1, 5), (5, 3)):
        model, request = TinyModel(seed), question(temperature, top_p, limit=4)
        how: dict[str, Any] = {"alternatives": alternatives, "nucleus_first": nucleus_first}
        found, lost, played = computed(model, request, Writer(), 3, **how)
        law = Law(temperature, top_p, alternatives, nucleus_first)
        assert lost == 0.0
        assert_exact(found, lost, reference(model, request, law))
        assert not any(call.request.path == "scripted/draw" for one in played for call in one.calls)


@pytest.mark.parametrize(("temperature", "alternatives"), [(0.5, 4), (0.8, 3)])
def test_below_temperature_1_the_rest_is_drawn_by_rejection(temperature: float, alternatives: int) -> None:
    """The weight of what is not listed is unknown, and the reply is distributed as the target's own all the same."""
    model, request = TinyModel(5), question(temperature, limit=2)
    found, lost, _ = computed(model, request, Writer(), 2, least=3e-5, alternatives=alternatives)
    assert lost < 0.01
    assert_exact(found, lost, reference(model, request, Law(temperature)))


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_and_longer_replies(stream: bool) -> None:
    """A stop string ends the reply where it would have ended, whoever drew its characters."""
    model, request = TinyModel(1), question(1.0, 0.8, limit=4, stream=stream, stops=("b c",))
    found, lost, _ = computed(model, request, Writer(), 2, alternatives=6)
    assert_exact(found, lost, reference(model, request, Law(1.0, 0.8)))
    assert any(text.endswith("a") and reason == "stop" for text, reason, _ in found)


def test_a_target_that_does_not_tell_what_follows_the_draft() -> None:
    """Then there is no bonus token, and the next draft begins there."""
    model, request = TinyModel(1), question(1.0)
    found, lost, _ = computed(model, request, Writer(cut=""), 1, bare=True)
    assert_exact(found, lost, reference(model, request, Law(1.0)))


def test_the_reference_is_what_it_says() -> None:
    """The other side of the proof: temperature sharpens, the nucleus cuts, in either order."""
    assert sampled([0.5, 0.3, 0.2], Law(1.0, 0.7)) == pytest.approx([0.625, 0.375, 0])
    assert sampled([0.5, 0.3, 0.2], Law(0.5, 0.6)) == pytest.approx([1, 0, 0])
    assert sampled([0.5, 0.3, 0.2], Law(0.5, 0.6, nucleus_first=True)) == pytest.approx([25 / 34, 9 / 34, 0])
    alone = reference(TinyModel(1), question(1.0), Law(1.0))
    assert sum(alone.values()) == pytest.approx(1.0) and len(alone) > 50


def test_without_a_law_the_request_goes_direct() -> None:
    """A target that cannot be followed is not asked for a score."""

    class Unlike(SampledTarget):
        def law(self, sampling: Sampling) -> Law | None:
            return None

    played = once(question(1.0), Unlike(TinyModel(1)), Writer(), 2)
    assert played.direct is not None and played.direct.reason == "sampling"
    assert "score" not in played.purposes()
