"""The ladder of rules: which draft goes out on whose word, and what sends a request direct."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from ladder_kit import DRAFT, QUESTION, Ran, asked, climbed, drafter, elsewhere, refused, said

from cheapspec.core.effects import (
    Broke,
    Cancelled,
    Check,
    Checked,
    Closed,
    Event,
    HttpReply,
    Note,
    Opened,
    Received,
    Side,
    Source,
    Start,
    WaitAny,
)
from cheapspec.core.job import Policy
from cheapspec.core.tally import Tally
from cheapspec.rules import Agree, Answer, Endpoint, Judge, OkOrAnswer, Patch, Validator
from cheapspec.rules.labels import Label
from cheapspec.rules.ladder import Ladder, run
from cheapspec.rules.prospects import VerdictRule

YES, NO = said("Y", top={"Y": 0.9, "N": 0.1}), said("N", top={"N": 0.8, "Y": 0.2})
JUDGE = Judge(uncalibrated=True)


def accepted(ran: Ran, text: str = DRAFT) -> None:
    """The draft's text went out, all of it on a rule's word."""
    finish = ran.played.finish
    assert finish is not None and ran.played.direct is None
    assert (ran.played.text, finish.finish_reason, finish.error) == (text, "stop", None)
    assert finish.usage.estimated
    assert ran.tally.lossy
    assert ran.tally.unverified_tokens == finish.usage.output_tokens > 0
    assert ran.tally.accepted_tokens == 0


def test_the_same_short_answer_accepts_the_whole_draft() -> None:
    """The target is asked once, without seeing the draft; usage is what it alone would have reported."""
    ran = climbed([Answer("last_number")], [said("7", prompt=52, output=1, prompt_tokens_details={"cached_tokens": 0})])
    accepted(ran)
    assert ran.tally.rule == "answer(last_number(decimal='.', units='where both'))"
    assert DRAFT not in json.dumps(ran.asked[0].request.body)
    assert [call.request.purpose for call in ran.asked] == ["answer"]
    assert ran.played.finish is not None
    assert 5 < ran.played.finish.usage.input_tokens < 30, "the question of the verdict is not the caller's prompt"
    assert [usage.input_tokens for usage in ran.tally.usages] == [52]
    assert ran.tally.identity.model == "m-2026"


def test_another_short_answer_rejects() -> None:
    """The request goes direct, its verdict is in what was paid, and the reason says on whose word."""
    ran = climbed([Answer("last_number")], [said("8")])
    reason, detail = ran.direct
    assert reason == "rejected"
    assert "answer(last_number" in detail
    assert len(ran.tally.usages) == 1
    assert ran.played.text == ""


def test_no_answer_in_the_draft_is_not_asked_about() -> None:
    """A draft without a number is rejected for nothing."""
    ran = climbed([Answer("last_number")], drafters=[drafter("Who knows.")])
    assert ran.direct[0] == "rejected"
    assert ran.asked == []


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (refused(402), "status 402"),
        (refused(408), "status 408"),
        (refused(429), "status 429"),
        (refused(503), "status 503"),
        (said("", finish="length"), "thinking"),
        (said("7 or 8"), "no clear answer"),
        (Broke(0, "timeout", "read timeout"), "read timeout"),
        (Broke(0, "connect", "refused"), "refused"),
        (HttpReply(200, b"<html>"), "empty"),
    ],
)
def test_a_failed_or_odd_call_is_no_verdict(reply: HttpReply | Broke, why: str) -> None:
    """The request goes direct, reason ``no_verdict``, with what was wrong."""
    ran = climbed([Answer("last_number")], [reply])
    assert ran.direct[0] == "no_verdict"
    assert why in ran.direct[1]
    assert ran.outcomes == [("answer", "none")]


def test_what_may_have_been_billed_is_paid_and_what_was_refused_is_not() -> None:
    """A lost call is in the tally by an estimate, a refused one and one that was never sent are not."""
    lost = climbed([Answer("last_number")], [Broke(0, "timeout")])
    assert [usage.estimated for usage in lost.tally.usages] == [True]
    assert lost.tally.usages[0].input_tokens > 0
    assert climbed([Answer("last_number")], [refused(429)]).tally.usages == []
    assert climbed([Answer("last_number")], [Broke(0, "connect")]).tally.usages == []


# --- rules without a call ------------------------------------------------------------------------------


def test_a_validator_that_fails_ends_it_and_nothing_is_asked() -> None:
    """The rules after it are not tried: a draft that fails never reaches the target."""
    ran = climbed([Validator(lambda text: "8" in text), Answer("last_number")])
    assert ran.direct[0] == "rejected"
    assert ran.asked == []
    assert ran.outcomes == [("validator", "reject")]


def test_a_validator_that_passes_lets_the_next_rule_decide_or_is_enough() -> None:
    """Whether it is enough is the caller's to say."""
    ran = climbed([Validator(lambda text: "7" in text), Answer("last_number")], [said("7")])
    accepted(ran)
    assert ran.outcomes == [("validator", "accept"), ("answer", "accept")]
    alone = climbed([Validator(lambda text: "7" in text, sufficient=True), Answer("last_number")])
    accepted(alone)
    assert alone.asked == []
    assert (alone.tally.usages, alone.tally.rule) == ([], alone.ladder.rules[0].name)


def test_a_check_that_raises_is_no_verdict() -> None:
    """A caller's error ends in a direct request, not in an exception."""

    def broken(text: str) -> bool:
        raise LookupError(text)

    assert climbed([Validator(broken), Answer("last_number")]).direct[0] == "no_verdict"
    extracting = climbed([Answer(broken)])
    assert extracting.direct[0] == "no_verdict"
    assert "raised LookupError" in extracting.direct[1]


def test_unlike_drafters_that_agree_need_no_call() -> None:
    """All are asked at once; the first one's text goes out."""
    models = [drafter(), drafter("It is 7.", "ollama:llama3.2:3b"), drafter("8", "ollama:qwen3:4b")]
    ran = climbed([Agree()], drafters=models)
    assert ran.direct[0] == "no_verdict", "qwen disagrees with itself"
    ran = climbed([Agree()], drafters=models[:2])
    accepted(ran)
    starts = [call.call_id for call in ran.played.calls]
    assert len(starts) == 2
    assert ran.tally.local_tokens > ran.tally.unverified_tokens, "both drafts are work of this machine"


def test_unlike_drafters_that_do_not_agree_let_the_next_rule_try() -> None:
    """The target's short answer decides then."""
    models = [drafter(), drafter("It is 8.", "ollama:llama3.2:3b")]
    ran = climbed([Agree(), Answer("last_number")], [said("7")], drafters=models)
    accepted(ran)
    assert ran.outcomes == [("agree", "reject"), ("answer", "accept")]


def test_agreement_of_one_form_is_not_tried() -> None:
    """Two models of one family are one voter: nobody waits for their drafts."""
    ran = climbed([Agree()], drafters=[drafter(), drafter(name="ollama:qwen3:4b")])
    assert ran.direct == ("no_verdict", f"{Agree().name}: it needs 2 unlike draft models, and there are 1")
    assert ran.played.calls == []


def test_a_certificate_may_ask_for_more_agreement() -> None:
    """Two of three agree; the certificate is for all."""
    models = [drafter(), drafter("7", "ollama:llama3.2:3b"), drafter("8", "ollama:gemma3:4b")]
    rule = Agree(majority=True)
    accepted(climbed([rule], drafters=models))
    ran = climbed([rule], drafters=models, cutoffs={rule.name: 0.9})
    assert ran.direct[0] == "rejected"
    assert "certificate" in ran.direct[1]


# --- judges --------------------------------------------------------------------------------------------


def test_a_judge_is_off_until_it_is_certified_or_the_caller_waives_that() -> None:
    """Without either nobody waits for a draft; with a certificate its threshold counts."""
    ran = climbed([Judge()])
    assert ran.direct[0] == "uncalibrated"
    assert ran.played.calls == []
    accepted(climbed([JUDGE], [YES]))
    assert climbed([JUDGE], [NO]).direct[0] == "rejected"
    accepted(climbed([Judge()], [YES], cutoffs={"judge(target)": 0.85}))
    assert climbed([Judge()], [YES], cutoffs={"judge(target)": 0.95}).direct[0] == "rejected"


def test_a_judge_that_is_off_is_passed_over_and_said() -> None:
    """What another rule said comes first in the reason; the judge is in the detail."""
    ran = climbed([Answer("last_number"), Judge()], [said("8")])
    assert ran.direct[0] == "rejected"
    assert "no certificate" in ran.direct[1]


def test_a_judge_elsewhere_is_asked_there_and_priced_there() -> None:
    """Another side, another host, other prices; its reply names nothing of the target's."""
    rule = Judge("j", "https://judge.test/v1", "judge-key", uncalibrated=True)
    ran = climbed([rule], [YES], judges={rule.name: elsewhere()})
    accepted(ran)
    [call] = ran.asked
    assert (call.side, call.host) == (Side.JUDGE, "https://judge.test/v1")
    assert call.request.body is not None
    assert call.request.body["model"] == "j"
    assert "judge-key" not in repr(call)
    assert ran.tally.usages == []
    [(usage, prices)] = ran.tally.elsewhere
    assert prices == elsewhere().prices
    assert ran.tally.paid(None) == (usage.input_tokens * Decimal("0.1") + usage.output_tokens * Decimal("0.4")) / 10**6
    assert ran.tally.identity.model is None


def test_a_judge_elsewhere_has_a_limit_of_time() -> None:
    """One that does not answer is given up, booked as what it may have cost, and is no verdict."""
    rule = Judge("j", "https://judge.test/v1", "judge-key", uncalibrated=True)
    ran = climbed([rule], [None], judges={rule.name: elsewhere()})
    assert ran.direct == ("no_verdict", f"{rule.name}: the call took too long")
    assert len(ran.tally.elsewhere) == 1
    resting = climbed([rule], judges={rule.name: None})
    assert resting.direct[0] == "cooldown"


# --- replies that come instead of a verdict ------------------------------------------------------------


def test_ok_accepts_and_anything_else_is_the_reply() -> None:
    """The target's own text goes out, with the tokens that the call was billed for."""
    accepted(climbed([OkOrAnswer()], [said("OK")]))
    ran = climbed([OkOrAnswer()], [said("It is seven, no doubt.", output=9)], request=asked(stream=True))
    accepted(ran, "It is seven, no doubt.")
    assert {piece.source for piece in ran.played.emitted} == {Source.TARGET}
    assert len(ran.played.emitted) > 1
    assert ran.tally.unverified_tokens == 9
    assert ran.outcomes == [("ok_or_answer", "reject")]


def test_a_reply_without_a_limit_is_limited_so_that_it_has_a_worst_case() -> None:
    """The caller's limit is sent where there is one, else a bound by the draft's length."""
    ran = climbed([OkOrAnswer()], [said("OK")])
    body = ran.asked[0].request.body or {}
    assert body["max_tokens"] == 256 + 4 * ran.tally.drafted_tokens
    limited = climbed([OkOrAnswer()], [said("OK")], request=asked(max_tokens=60))
    assert (limited.asked[0].request.body or {})["max_tokens"] == 60


def test_a_patch_goes_out_if_it_fits() -> None:
    """A patched draft is the reply; one that does not fit is no verdict."""
    draft = drafter('{"total": 6}')
    ran = climbed([Patch()], [said('{"total": 7}')], drafters=[draft])
    accepted(ran, '{"total": 7}')
    assert climbed([Patch()], [said("nonsense")], drafters=[draft]).direct[0] == "no_verdict"


# --- the caller's own limits ---------------------------------------------------------------------------


def test_b18_a_stop_string_ends_the_draft_before_it_is_judged() -> None:
    """What follows it is no part of the reply: neither judged nor shown nor counted."""
    ran = climbed([Answer("last_number")], [said("7")], request=asked(stop=["."]), drafters=[drafter("It is 7. Or 8.")])
    accepted(ran, "It is 7")
    whole = climbed([Answer("last_number")], [said("8")], drafters=[drafter("It is 7. Or 8.")])
    assert ran.tally.unverified_tokens < whole.tally.unverified_tokens
    cut = climbed([OkOrAnswer()], [said("No. It is 9.", output=6)], request=asked(stop=["."]))
    accepted(cut, "No")
    empty = climbed([Answer("last_number")], request=asked(stop=["It"]), drafters=[drafter("It is 7.")])
    assert empty.direct == ("no_draft", "ollama:qwen2.5:3b drafted an empty reply")


def test_a_draft_longer_than_the_limit_is_none() -> None:
    """The target would have been cut there, and a cut draft is not judged."""
    ran = climbed([Answer("last_number")], request=asked(max_tokens=3))
    assert ran.direct[0] == "no_draft"
    assert "cut by its length" in ran.direct[1]
    accepted(climbed([Answer("last_number")], [said("7")], request=asked(max_completion_tokens=60)))


def test_a_draft_with_control_tokens_is_none() -> None:
    """It would be sent to the target inside a message."""
    ran = climbed([Answer("last_number")], drafters=[drafter("It is 7 <|fim_prefix|> 7.")])
    assert ran.direct[0] == "no_draft"
    assert "control token" in ran.direct[1]


def test_a_draft_that_is_late_is_none() -> None:
    """Its text so far is not a whole reply."""
    ran = climbed([Answer("last_number")], policy=Policy(draft_seconds=0.003))
    assert ran.direct[0] == "draft_deadline"


def test_the_second_model_is_asked_where_the_first_writes_no_whole_draft() -> None:
    """In order, not at once: nothing compares them."""
    models = [drafter("no " * 300), drafter(name="ollama:llama3.2:3b")]
    ran = climbed([Answer("last_number")], [said("7")], drafters=models, policy=Policy(max_draft_tokens=40))
    accepted(ran)
    assert ran.tally.drafter == "ollama:llama3.2:3b"
    alone = climbed([Answer("last_number")], [said("7")], drafters=models[1:] + models[:1])
    accepted(alone)
    assert sum(call.side is Side.DRAFT for call in alone.played.calls) == 1


def test_a_given_draft_is_taken_as_it_is() -> None:
    """A drafter without a host needs no call; where drafts are compared it is one of them."""
    there = drafter()
    there.at_once = True
    ran = climbed([Answer("last_number")], drafters=[there])
    assert ran.direct[0] == "no_draft", "copied text claims nothing about its end"
    models = [there, drafter(name="ollama:llama3.2:3b"), drafter(name="ollama:gemma3:1b")]
    accepted(climbed([Agree()], drafters=models))


def test_json_stands_in_a_fence_of_its_own() -> None:
    """Small models fence their JSON; what the caller gets is the JSON."""
    request = asked(response_format={"type": "json_object"})
    own = Validator.of(request)
    assert own is not None
    fenced = drafter('```json\n{"total": 7}\n```')
    ran = climbed([own, Answer("last_number")], [said("7")], request=request, drafters=[fenced])
    accepted(ran, '{"total": 7}')
    plain = climbed([own, Answer("last_number")], request=request, drafters=[drafter("It is 7")])
    assert plain.direct[0] == "rejected"
    prose = climbed([own, OkOrAnswer()], [said("It is seven.")], request=request, drafters=[drafter('{"total": 8}')])
    assert prose.direct[0] == "no_verdict", "the target's own reply must be what the caller asked for, too"
    accepted(climbed([own, OkOrAnswer()], [said('{"total": 7}')], request=request, drafters=[drafter('{"a": 8}')]),
             '{"total": 7}')  # fmt: skip


def test_a_stream_is_the_same_text_in_pieces_after_the_verdict() -> None:
    """Nothing leaves before the verdict, then it comes token by token."""
    seen: list[int] = []

    def answer(start: Start) -> HttpReply:
        seen.append(start.call_id)
        return said("7")

    ran = climbed([Answer("last_number")], [answer], request=asked(stream=True))
    accepted(ran)
    assert len(ran.played.emitted) > 3
    assert {piece.source for piece in ran.played.emitted} == {Source.DRAFT}
    rejected = climbed([Answer("last_number")], [said("9")], request=asked(stream=True))
    assert rejected.played.emitted == []


def test_a_text_completion_has_nobody_to_ask() -> None:
    """Rules without a call serve it, the others do not."""
    request = asked()
    completion = type(request)("completion", {"model": "m", "prompt": QUESTION, "max_tokens": 90}, "m", False,
                               prompt=QUESTION, max_tokens=90)  # fmt: skip
    ran = climbed([Answer("last_number")], request=completion)
    assert ran.direct == ("no_verdict", f"{Answer().name}: only a chat can be asked about a draft")
    writer = drafter(None)
    ran = climbed([Validator(lambda text: True, sufficient=True)], request=completion, drafters=[writer])
    assert ran.played.direct is None or ran.direct[0] == "no_draft"


# --- what an endpoint takes ----------------------------------------------------------------------------


def test_a_field_that_is_refused_is_left_out_and_asked_for_once_more() -> None:
    """The refused call is free; what was learned serves the rest of the run and is noted."""

    def learn(endpoint: Endpoint, reply: HttpReply, sent: Mapping[str, Any]) -> Endpoint:
        assert sent["model"] == "m"
        if reply.status == 400 and endpoint.alternatives:
            return Endpoint(alternatives=0)
        return endpoint

    ran = climbed([JUDGE], [refused(400, "logprobs are not supported"), said("8")], learn=learn)
    accepted(ran)
    first, second = (call.request.body or {} for call in ran.asked)
    assert "logprobs" in first
    assert "logprobs" not in second
    assert len(ran.tally.usages) == 1
    [note] = [note.data for note in ran.played.notes if note.kind == "endpoint"]
    assert (note["endpoint"].alternatives, note["own"]) == (0, True)
    stubborn = climbed([JUDGE], [refused(400), refused(400)], learn=learn)
    assert stubborn.direct[0] == "no_verdict"
    assert climbed([JUDGE], [refused(400)]).direct[0] == "no_verdict"


# --- shadow, leaving -----------------------------------------------------------------------------------


def test_in_shadow_every_rule_is_tried_and_nothing_goes_out() -> None:
    """Whatever one rule says, the next one is tried; drafts and verdicts are noted with their texts."""
    rules: list[VerdictRule] = [Validator(lambda text: False), Answer("last_number"), Judge(), OkOrAnswer()]
    ran = climbed(rules, [said("8"), YES, said("It is 7!")], shadow=True, weighs=True)
    assert (ran.played.emitted, ran.played.finish, ran.played.direct) == ([], None, None)
    told = [note.data for note in ran.played.notes if note.kind == "verdict"]
    outcomes = [(one["outcome"], one["text"]) for one in told]
    assert outcomes == [("reject", None), ("reject", None), ("accept", None), ("reject", "It is 7!")]
    assert all({"rule", "version", "score", "why", "chance", "drafter"} <= set(one) for one in told)
    [draft] = [note.data for note in ran.played.notes if note.kind == "whole_draft"]
    assert (draft["text"], draft["form"]) == (DRAFT, "qwen")
    assert [note for note in ran.played.notes if note.kind == "estimates"] == []
    nothing = climbed([Answer("last_number")], drafters=[], shadow=True)
    assert (nothing.played.direct, nothing.played.finish) == (None, None)


def test_a_caller_who_leaves_in_mid_verdict_pays_what_was_asked() -> None:
    """The call is booked by an estimate, and nothing but notes follows."""
    there = drafter()
    ladder = Ladder(asked(), [Answer("last_number")], [there], Tally(), weighs=False)
    steps, waits = run(ladder), deque[Event]()
    told: Event | None = None
    asking = False
    while True:
        effect, told = steps.send(told), None
        if isinstance(effect, Start) and effect.side is Side.DRAFT:
            lines = there.answer(effect)
            assert isinstance(lines, list)
            call = effect.call_id
            waits.extend([Opened(call, 200, {}), *(Received(call, line) for line in lines), Closed(call)])
        elif isinstance(effect, Start):
            asking = True
        elif isinstance(effect, Check):
            told = Checked(effect.work())
        elif isinstance(effect, WaitAny) and asking:
            break
        elif isinstance(effect, WaitAny):
            told = waits.popleft()
    kinds: list[str] = []
    note = steps.send(Cancelled())
    with contextlib.suppress(StopIteration):
        while True:
            assert isinstance(note, Note)
            kinds.append(note.kind)
            note = steps.send(None)
    assert kinds == ["usage", "abandoned"]
    assert [usage.estimated for usage in ladder.tally.usages] == [True]


def test_few_labels_say_how_often_they_agree_by_chance() -> None:
    """It is noted beside the verdict."""
    ran = climbed([Answer(Label(("seven", "eight")))], [said("seven")], drafters=[drafter("Seven.")])
    accepted(ran, "Seven.")
    assert ran.tally.verdicts[0]["chance"] == 0.5
