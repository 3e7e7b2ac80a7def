"""Rules about whole drafts through the public clients: what the caller sees, what is sent, what is booked."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
import time
from collections.abc import Mapping
from typing import Any

import openai
import pytest
from doorway import Doorway, call, doorway, entered, items

import cheapspec
from cheapspec import Agree, Answer, Judge, OkOrAnswer, Speculation, Validator
from cheapspec.rules import prompts
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Hang, Say, Status
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

QUESTION = "How many?"
DRAFT = "Think of it: " + "and so on, " * 20 + "it is 7."
OWN = "The number is seven, that is 7."
ASKED: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": QUESTION}]}
ANSWER = Answer("last_number")
SHORT = QUESTION + prompts.ANSWER.fill({"form": ANSWER.extractor.form})


@pytest.fixture(autouse=True)
def replies(way: Doorway) -> None:
    """A draft model and a target that both come to 7, and a target that says so when asked for the answer alone."""
    way.draft.model.replies[QUESTION] = DRAFT
    way.target.model.replies |= {QUESTION: OWN, SHORT: "7"}


def judged(way: Doorway, *rules: Any, **more: Any) -> Speculation:
    """Settings of a caller whose target only chats: nothing is probed, everything is weighed."""
    return way.speculation(accept=list(rules), target_backend="auto", draft_tokens=None, max_draft_tokens=400, **more)


async def ask(client: Any, *, stream: bool = False, **more: Any) -> tuple[str, cheapspec.Info]:
    """The reply's text and its facts."""
    reply = await call(client.chat.completions.create, **{**ASKED, **more}, stream=stream)
    if stream:
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in items(reply) if chunk.choices])
    else:
        text = reply.choices[0].message.content
    info = cheapspec.info(reply)
    assert info is not None
    return text, info


def once(way: Doorway, *rules: Any, stream: bool = False, asked: Mapping[str, Any] | None = None, client: Any = None,
         **more: Any) -> tuple[str, cheapspec.Info]:  # fmt: skip
    """One request under these rules."""
    found: list[tuple[str, cheapspec.Info]] = []

    async def scenario() -> None:
        async with entered(way.client(judged(way, *rules, **more), **(client or {}))) as made:
            found.append(await ask(made, stream=stream, **(asked or {})))

    way.run(scenario)
    return found[0]


def booked(way: Doorway) -> list[tuple[str, str]]:
    """Purpose and status of each paid call of the last request."""
    return [(one.row.purpose, one.status) for one in way.ledger.requests()[-1].calls if one.row.billed]


@pytest.mark.parametrize("stream", [False, True])
def test_an_accepted_draft_is_the_reply(stream: bool, way: Doorway, caplog: pytest.LogCaptureFixture) -> None:
    """The whole text of the draft, lossy and said so, for the price of a few tokens; nothing was probed."""
    caplog.set_level(logging.INFO, "cheapspec")
    text, info = once(way, ANSWER, stream=stream)
    assert text == DRAFT
    assert (info.decision, info.rule, info.lossy, info.on_trust) == ("speculate", ANSWER.name, True, True)
    assert info.unverified_tokens == info.reply_tokens == info.drafted_tokens > 50
    assert (info.accepted_tokens, info.acceptance_rate, info.target_calls) == (0, None, 1)
    assert info.saved_usd is not None and info.saved_usd > 0
    assert info.baseline == "estimated"
    assert [one["outcome"] for one in info.verdicts] == ["accept"]
    assert booked(way) == [("answer", "ok")]
    assert way.purposes() == ["direct"], "the stand-in calls every chat so: there was one"
    assert "lossy: on the word of this rule" in caplog.text
    [row] = way.ledger.requests()
    assert row.info is not None and row.info["lossy"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_rejected_draft_is_never_seen(stream: bool, way: Doorway) -> None:
    """The target's own reply, untouched, with the verdict in what was paid."""
    way.target.model.replies[SHORT] = "8"
    text, info = once(way, ANSWER, stream=stream)
    assert text == OWN
    assert (info.decision, info.reason, info.rule, info.lossy) == ("direct", "rejected", None, False)
    assert info.paid_usd is not None and info.baseline_usd is not None
    assert info.paid_usd > info.baseline_usd
    assert [one["outcome"] for one in info.verdicts] == ["reject"]
    assert booked(way) == [("answer", "ok"), ("direct", "ok")]


def test_the_response_says_on_whose_word_it_went_out(way: Doorway) -> None:
    """A raw response has it in a header; a rule's name with odd letters is no broken header."""

    async def scenario() -> None:
        odd = Validator({"type": "string", "title": "ü\n€"}, sufficient=True)
        way.draft.model.replies[QUESTION] = '"yes"'
        async with entered(way.client(judged(way, odd))) as client:
            raw = await call(client.chat.completions.with_raw_response.create, **ASKED)
            assert raw.headers["x-cheapspec-decision"] == "speculate"
            assert raw.headers["x-cheapspec-rule"].startswith("validator(schema ")
            assert raw.headers["x-cheapspec-rule"].isascii()

    way.run(scenario)


def test_a_validator_that_fails_keeps_the_draft_from_the_target(way: Doorway) -> None:
    """One call, the caller's own; and one that is enough needs none at all."""
    text, info = once(way, Validator(lambda text: False), ANSWER)
    assert (text, info.reason) == (OWN, "rejected")
    assert booked(way) == [("direct", "ok")]
    text, info = once(way, Validator(lambda text: "7" in text, sufficient=True))
    assert (text, str(info.paid_usd), info.target_calls) == (DRAFT, "0.000000", 0)
    assert booked(way) == []


def test_the_callers_own_errors_send_the_request_direct(way: Doorway) -> None:
    """A check or an extractor that raises is no verdict, and never an exception of the request."""

    def broken(text: str) -> bool:
        raise ZeroDivisionError(text)

    for rule in (Validator(broken, sufficient=True), Answer(broken)):
        text, info = once(way, rule)
        assert (text, info.reason) == (OWN, "no_verdict")
        assert "ZeroDivisionError" in info.verdicts[0]["why"]


def test_a_check_that_blocks_does_not_block_the_loop(way: Doorway) -> None:
    """Other tasks go on while the caller's function waits for one of them."""
    if way.door == "sync":
        pytest.skip("there is no loop")
    released = threading.Event()

    async def scenario() -> None:
        rule = Validator(lambda text: released.wait(20), sufficient=True, seconds=30)
        async with entered(way.client(judged(way, rule))) as client:
            waiting = asyncio.create_task(ask(client))
            await asyncio.to_thread(way.draft.wait_for, lambda: len(way.draft.of("draft")) == 1, 5.0)
            released.set()  # only a loop that runs comes here
            text, info = await waiting
            assert (text, info.decision) == (DRAFT, "speculate")

    way.run(scenario)


def test_a_check_that_never_ends_is_given_up(way: Doorway) -> None:
    """Its own limit of time holds at both doors."""
    gate = threading.Event()
    try:
        _, info = once(way, Validator(lambda text: gate.wait(60), sufficient=True, seconds=0.05))
    finally:
        gate.set()
    assert info.reason == "no_verdict"
    assert "longer than" in info.verdicts[0]["why"]


def test_unlike_local_models_that_agree_need_no_call(way: Doorway) -> None:
    """Two draft hosts of two families; a third of one of them adds no voice."""
    with FakeDraft(model=ToyModel(3), name="llama3.2:3b") as other:
        other.model.replies[QUESTION] = "7"
        draft = f"ollama:toy:latest,openai:llama3.2@{other.url}/v1"
        text, info = once(way, Agree(), draft=draft)
        assert info.reason == "no_verdict", "the second host is no OpenAI server, so it wrote no draft"
        assert text == OWN
    _, info = once(way, Agree())
    assert info.reason == "no_verdict"
    assert booked(way) == [("direct", "ok")]


def test_a_judge_waits_for_its_certificate(way: Doorway) -> None:
    """Without one the request goes direct, and no draft is written."""
    _, info = once(way, Judge())
    assert info.reason == "uncalibrated"
    assert way.draft.of("draft") == []


def test_the_target_judges_where_the_caller_waived_calibration(way: Doorway) -> None:
    """One letter, with its probability; the verdict's call is the caller's conversation with the question behind it."""
    way.target.plan("direct", Say("Y"), times=1)
    _, info = once(way, Judge(uncalibrated=True))
    assert [one["rule"] for one in info.verdicts] == ["judge(target)"]
    sent = way.target.of("direct")[0].body
    assert sent["messages"][0]["content"].startswith(QUESTION)
    assert sent["logprobs"] is True
    assert ("judge", "ok") in booked(way)


def test_b44_no_key_crosses_to_a_judge_elsewhere_or_back(way: Doorway, caplog: pytest.LogCaptureFixture) -> None:
    """The judge is sent its own key and nothing else of the caller's; the target never sees the judge's."""
    caplog.set_level(logging.DEBUG, "cheapspec")
    with FakeTarget(model=ToyModel(3), name="judge", api_key="judge-key") as judge:
        judge.plan("direct", Say("Y"))
        rule = Judge("judge", judge.base_url, "judge-key", uncalibrated=True)
        prices = {"toy": {"input": 1, "output": 10}, "judge": {"input": 0.1, "output": 0.4}}
        headers = {"Cookie": "s=cookie-secret", "x-api-key": "header-secret"}
        hooks: list[str] = []

        def hook(request: Any) -> None:
            hooks.append(str(request.url))

        async def hook_async(request: Any) -> None:
            hook(request)

        http = way.http(event_hooks={"request": [hook_async if way.door == "async" else hook]})
        asked = {"extra_headers": headers, "extra_query": {"token": "query-secret"}}
        _, info = once(way, rule, asked=asked, prices=prices, client={"http_client": http})
        [seen] = judge.requests
        assert seen.headers["authorization"] == "Bearer judge-key"
        everything = f"{seen.headers} {seen.query} {seen.content!r}"
        for secret in ("target-key", "cookie-secret", "header-secret", "query-secret"):
            assert secret not in everything
        assert seen.path == "/v1/chat/completions"
        assert not [url for url in hooks if judge.url in url], "hooks of the caller's client see the target only"
    for exchange in way.target.requests:
        assert "judge-key" not in f"{exchange.headers} {exchange.query} {exchange.content!r}"
    books = repr(way.ledger.requests())
    assert "judge-key" not in books + caplog.text + repr(info) + repr(judged(way, rule))
    [row] = [one for one in way.ledger.requests()[-1].calls if one.row.purpose == "judge"]
    assert (row.row.side, row.status) == ("judge", "ok")
    assert row.usage is not None and row.cost_usd is not None
    assert row.cost_usd * 10**7 == row.usage.input_tokens * 1 + row.usage.output_tokens * 4


def test_a_judge_that_is_away_is_no_verdict(way: Doorway) -> None:
    """The request goes direct; the caller's attempts are untouched by it. A 429 of the judge's rests the judge."""
    with FakeTarget(model=ToyModel(3), name="judge") as judge:
        judge.plan("direct", Status(429, {"retry-after": "60"}))
        rule = Judge("judge", judge.base_url, "judge-key", uncalibrated=True)
        prices = {"toy": {"input": 1, "output": 10}, "judge": {"input": 0.1, "output": 0.4}}
        text, info = once(way, rule, prices=prices)
        assert (text, info.reason) == (OWN, "no_verdict")
        assert booked(way) == [("judge", "failed"), ("direct", "ok")]
        text, info = once(way, rule, prices=prices)
        assert (text, info.reason) == (OWN, "cooldown")
        assert len(judge.requests) == 1


@pytest.mark.parametrize(
    ("fault", "retries", "reason"),
    [
        (Status(402, message="Insufficient credits"), 0, "no_verdict"),
        (Status(500), 2, "no_verdict"),
        (Status(429, {"retry-after": "0"}), 2, "no_verdict"),
    ],
)
def test_a_failed_verdict_goes_direct_with_what_is_left_of_the_attempts(
    fault: Any, retries: int, reason: str, way: Doorway
) -> None:
    """It is booked as failed and is not repeated; the caller gets the target's reply."""
    way.target.plan("direct", fault, times=1)
    text, info = once(way, ANSWER, client={"max_retries": retries})
    assert (text, info.reason) == (OWN, reason)
    assert booked(way) == [("answer", "failed"), ("direct", "ok")]


def test_a_429_on_a_verdict_rests_the_calls_not_the_free_rules(way: Doorway) -> None:
    """For a while requests go direct, unless a rule without a call accepts."""
    way.target.plan("direct", Status(429, {"retry-after": "0"}), times=1)
    once(way, ANSWER, client={"max_retries": 2})
    assert once(way, ANSWER)[1].reason == "cooldown"
    assert once(way, Validator(lambda text: True, sufficient=True), ANSWER)[1].decision == "speculate"


def test_ok_or_answer_saves_the_direct_call(way: Doorway) -> None:
    """The target's own words go out at once."""
    way.target.plan("direct", Say("It is seven, for sure."), times=1)
    text, info = once(way, OkOrAnswer(), asked={"max_tokens": 390})
    assert text == "It is seven, for sure."
    assert (info.rule, info.lossy, info.verdicts[0]["outcome"]) == ("ok_or_answer", True, "reject")
    assert booked(way) == [("ok_or_answer", "ok")]


def test_json_is_checked_by_the_requests_own_schema(way: Doorway) -> None:
    """A format that scoring cannot serve: here the draft's JSON is validated first; without rules it is passed on."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    way.target.model.replies[QUESTION] = '{"n": 7}'
    way.draft.model.replies[QUESTION] = '{"n": "seven"}'
    _, info = once(way, ANSWER, asked={"response_format": wanted})
    assert (info.decision, info.reason, info.verdicts[0]["outcome"]) == ("direct", "rejected", "reject")
    way.draft.model.replies[QUESTION] = '{"n": 7, "why": "' + "because " * 40 + '"}'
    text, info = once(way, ANSWER, asked={"response_format": wanted})
    assert info.decision == "speculate", info
    assert json.loads(text)["n"] == 7

    async def scenario() -> None:
        async with entered(way.client(way.speculation())) as client:
            _, info = await ask(client, response_format=wanted)
            assert (info.decision, info.reason) == ("bypass", "response_format")

    way.run(scenario)


def test_reasoning_and_an_unset_temperature_do_not_bar_verdicts(way: Doorway) -> None:
    """They bar scoring only; tools, choices and log-probabilities bar everything."""
    assert once(way, ANSWER, asked={"reasoning_effort": "high"})[1].decision == "speculate"
    assert once(way, ANSWER, asked={"temperature": 0.7})[1].decision == "speculate"
    assert once(way, ANSWER, asked={"n": 2})[1].reason == "n"
    assert once(way, ANSWER, asked={"logprobs": True})[1].reason == "logprobs"


def test_a_target_that_scores_does_that_first(way: Doorway) -> None:
    """In a list with ``exact`` the verdict rules are for requests that cannot be scored."""

    async def scenario() -> None:
        given = way.speculation(accept=["exact", ANSWER])
        async with entered(way.client(given)) as client:
            text, info = await ask(client, temperature=0)
            assert (text, info.rule, info.lossy) == (OWN, "exact", False)
            text, info = await ask(client)
            assert (text, info.rule, info.lossy) == (DRAFT, ANSWER.name, True)

    way.run(scenario)


def test_what_cannot_pay_is_not_asked_and_the_reason_has_the_figures(way: Doorway) -> None:
    """A price list on which a verdict costs more than the reply: not even a draft is written."""
    _, info = once(way, ANSWER, prices={"input": 100, "output": 1}, asked={"max_tokens": 30})
    assert info.reason == "not_worth_it"
    assert way.draft.of("draft") == []


def test_rejections_are_learned_from(way: Doorway) -> None:
    """After a while nobody asks any more."""
    way.target.model.replies[SHORT] = "8"
    reasons: list[str | None] = []

    async def scenario() -> None:
        async with entered(way.client(judged(way, ANSWER, seed_usd="1"))) as client:
            for _ in range(12):
                reasons.append((await ask(client))[1].reason)

    way.run(scenario)
    assert reasons[0] == "rejected"
    assert reasons[-1] == "not_worth_it"


def test_the_allowance_holds_for_verdicts(way: Doorway) -> None:
    """With nothing to lose nothing is asked; a rule without a call is tried all the same."""
    _, info = once(way, ANSWER, seed_usd="0", allowance=0)
    assert info.reason == "allowance"
    assert booked(way) == [("direct", "ok")]
    free = Validator(lambda text: True, sufficient=True)
    assert once(way, free, seed_usd="0", allowance=0)[1].decision == "speculate"


def test_a_budget_has_room_for_the_verdict_or_the_request_goes_direct(way: Doorway) -> None:
    """Its worst case is reserved on top of the request's own; what is spent is counted."""
    from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger

    ledger = BudgetedMemoryLedger()

    async def scenario() -> None:
        async with entered(way.client(judged(way, ANSWER, ledger=ledger))) as client:
            with client.session("rich", budget=cheapspec.Budget(usd=1)):
                assert (await ask(client, max_tokens=400))[1].decision == "speculate"
            with client.session("poor", budget=cheapspec.Budget(usd="0.0041")):
                text, info = await ask(client, max_tokens=400)
                assert (text, info.reason) == (OWN, "budget")
            with client.session("broke", budget=cheapspec.Budget(usd="0.001")), pytest.raises(openai.RateLimitError):
                await ask(client, max_tokens=400)

    way.run(scenario)


def test_a_caller_who_leaves_in_mid_verdict_leaves_a_booked_call(way: Doorway) -> None:
    """The row says that it may have been billed, and nothing stays open."""
    if way.door == "sync":
        pytest.skip("a blocked thread cannot be cancelled")
    way.target.plan("direct", Hang(30.0), times=1)

    async def scenario() -> None:
        async with entered(way.client(judged(way, ANSWER))) as client:
            task = asyncio.create_task(ask(client))
            await asyncio.to_thread(way.target.wait_for, lambda: len(way.target.of("direct")) == 1, 5.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(200):
                if all(one.status != "open" for one in way.ledger.requests()[-1].calls):
                    break
                await asyncio.sleep(0.01)

    way.run(scenario)
    assert booked(way) == [("answer", "possibly_billed")]
    [row] = [one for one in way.ledger.requests()[-1].calls if one.row.purpose == "answer"]
    assert row.usage is not None and row.usage.estimated


def test_stop_strings_and_limits_hold_for_the_draft(way: Doorway) -> None:
    """The reply ends where the target's would have, and usage says so."""
    text, info = once(way, ANSWER, asked={"stop": ["it is"]})
    assert "it is" not in text
    assert info.decision == "direct", "what is left has no number"
    text, info = once(way, Validator(lambda text: True, sufficient=True), asked={"stop": ["and so"]})
    assert text == "Think of it: "
    _, info = once(way, ANSWER, asked={"max_tokens": 5})
    assert info.reason == "not_worth_it"


def test_nothing_leaves_before_the_verdict(way: Doorway) -> None:
    """A stream's first chunk comes after the verdict's answer."""
    way.target.latency = 0.3
    seen: list[tuple[int, float]] = []

    async def scenario() -> None:
        async with entered(way.client(judged(way, ANSWER))) as client:
            stream = await call(client.chat.completions.create, **ASKED, stream=True)
            async for chunk in items(stream):
                if chunk.choices and chunk.choices[0].delta.content:
                    seen.append((len(way.target.of("direct")), time.monotonic()))

    way.run(scenario)
    assert seen[0][0] == 1
    assert len(seen) > 20, "an ordinary stream comes in many chunks"


def test_explain_lists_every_rule_before_anything_is_sent(way: Doorway) -> None:
    """With what it costs accepted, rejected, and from when on it pays; the verdict's own reasons where it cannot."""
    plans: list[Any] = []

    async def scenario() -> None:
        given = judged(way, Validator(lambda text: True), ANSWER, Judge(), OkOrAnswer())
        async with entered(way.client(given)) as client:
            plans.append(await call(client.explain, **ASKED, max_tokens=300))
            plans.append(await call(client.explain, **ASKED, max_tokens=300, tools=[{"type": "function"}]))
            plans.append(await call(client.explain, **ASKED, max_tokens=300, draft=True))
        async with entered(way.client(judged(way, ANSWER, draft=None))) as client:
            plans.append(await call(client.explain, **ASKED, max_tokens=300))

    way.run(scenario)
    plan, tools, drafted, bare = plans
    assert plan.chosen == f"verdict {ANSWER.name}"
    assert [one.action for one in plan.alternatives] == ["direct", *["verdict"] * 4]
    assert "pays from" in plan.alternatives[2].why
    assert plan.alternatives[3].why.startswith("judge(target): uncalibrated")
    assert plan.to_dict()["alternatives"][2]["expected_usd"] is not None
    assert tools.reason == "tools"
    assert drafted.alternatives[2].draft_tokens > 50
    assert (bare.chosen, bare.reason) == ("direct", "no_draft")
    assert not any(one.allowed for one in bare.alternatives[1:])
    assert way.target.requests == []


def test_settings_name_rules_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, by object, in a list, separated by commas, from the environment; copied, overridden and pickled."""
    for name in ("agree", "answer", "judge", "ok_or_answer", "patch"):
        assert len(Speculation(accept=name).accept) == 1
    made = Speculation(accept="agree, answer")
    assert made.accept == (Agree(), Answer())
    assert Speculation(accept=["agree", Answer("last_number")]) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.override({"workload": "w"}, "extra_body").accept == made.accept
    assert made.override({"accept": "judge"}, "extra_body").accept == (Judge(),)
    monkeypatch.setenv("CHEAPSPEC_ACCEPT", "exact,answer")
    assert Speculation().accept == ("exact", Answer())


def test_a_request_may_name_its_own_rules(way: Doorway) -> None:
    """``extra_body`` and the header win over the client's."""

    async def scenario() -> None:
        async with entered(way.client(judged(way, Judge()))) as client:
            _, info = await ask(client, extra_body={"cheapspec": {"accept": "answer"}})
            assert info.rule == ANSWER.name
            _, info = await ask(client, extra_headers={"x-cheapspec-accept": "answer"})
            assert info.rule == ANSWER.name
            copy = client.copy(speculation=judged(way, ANSWER))
            assert (await ask(copy))[1].rule == ANSWER.name

    way.run(scenario)


def test_the_ledger_is_told_what_was_said(way: Doorway) -> None:
    """The facts of a request hold its verdicts, with the version of what was asked."""
    once(way, ANSWER)
    [row] = way.ledger.requests()
    assert row.info is not None
    assert row.info["verdicts"][0]["version"] == prompts.ANSWER.version


@pytest.mark.parametrize("kind", [cheapspec.OpenAI, cheapspec.AsyncOpenAI])
def test_a_rule_that_a_host_cannot_serve_is_refused_at_construction(
    kind: Any, way: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name of the host, saying what serves there; not where nothing was asked for, or all is switched off."""
    at = {"base_url": "https://openrouter.ai/api/v1", "api_key": "k"}
    for accept in ("exact", cheapspec.Lenient(0.5)):
        with pytest.raises(cheapspec.CapabilityError, match=r"openrouter\.ai returns no log-probabilities.*Answer"):
            kind(**at, speculation=Speculation(accept=accept, ledger="off"))
        with monkeypatch.context() as patched:
            patched.setenv("CHEAPSPEC_DISABLED", "1")
            kind(**at, speculation=Speculation(accept=accept, ledger="off"))
    kind(**at, speculation=Speculation(ledger="off"))
    kind(**at, speculation=Speculation(accept=["exact", ANSWER], ledger="off"))
    kind(**{**at, "base_url": "https://scores.example/v1"}, speculation=Speculation(accept="exact", ledger="off"))


def test_a_doorway_is_what_it_says() -> None:
    """The kit's servers answer each other's questions, so that a test above that sees no call proves something."""
    with doorway("sync") as made:
        made.target.model.replies[SHORT] = "7"
        reply = made.plain().chat.completions.create(model="toy", messages=[{"role": "user", "content": SHORT}])
        assert reply.choices[0].message.content == "7"
