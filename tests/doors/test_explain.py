"""``client.explain``: what would become of a request, before anything is spent."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from doorway import ANSWER, ASKED, QUESTION, Doorway, call, entered

import cheapspec
from cheapspec import client as door_module
from cheapspec.core.lookup import Prediction
from cheapspec.testing.faults import Hang

PLANNED: dict[str, Any] = {"draft_tokens": None}


def explained(way: Doorway, settings: dict[str, Any] | None = None, **create: Any) -> cheapspec.Plan:
    """The plan of one request."""
    plans: list[cheapspec.Plan] = []

    async def scenario() -> None:
        async with entered(way.client(way.speculation(**{**PLANNED, **(settings or {})}))) as client:
            plans.append(await call(client.explain, **{**ASKED, **create}))

    way.run(scenario)
    assert way.purposes() == [], "explaining must not cost anything"
    return plans[0]


def test_every_way_is_told_and_nothing_is_sent(way: Doorway) -> None:
    """Direct and one way a drafter, with dollars, and no call to anybody: the draft is an assumed one."""
    plan = explained(way, max_tokens=100)
    direct, scored = plan.alternatives
    assert (direct.action, scored.action) == ("direct", "score")
    assert (scored.rule, scored.drafter) == ("exact", "ollama:toy:latest")
    for one in plan.alternatives:
        assert one.allowed and one.expected_usd is not None and one.worst_usd is not None
        assert one.worst_usd >= one.expected_usd > 0
    assert plan.chosen in {direct.name, scored.name}
    assert "assumed" in scored.why and "assumed" not in direct.why
    assert plan.prices is not None and plan.prices.output == 10
    assert (plan.reason, way.draft.requests, way.target.requests) == ("", [], [])
    assert json.loads(json.dumps(plan.to_dict()))["alternatives"][1]["expected_usd"] == f"{scored.expected_usd:.9f}"
    assert str(plan).startswith(plan.chosen)


def test_the_plan_is_what_then_happens(way: Doorway) -> None:
    """A sure draft of a long reply, asked for, is chosen, and the request then is speculated on, and the other way
    round."""
    text = " ".join(["One, two, three in Paris."] * 12)
    for server in (way.target, way.draft):
        server.model.replies["Long?"] = text
    for question, answer in (("Long?", text), (QUESTION, ANSWER)):
        for prices in ({"input": 1, "cached_input": 0.1, "output": 10}, {"input": 1, "output": 1}):
            decided: list[Any] = []
            create: dict[str, Any] = {**ASKED, "messages": [{"role": "user", "content": question}]}
            speculation = way.speculation(**PLANNED, prices=prices)

            async def scenario(
                speculation: Any = speculation, create: dict[str, Any] = create, decided: list[Any] = decided
            ) -> None:
                async with entered(way.client(speculation)) as client:
                    decided.append(await call(client.explain, draft=True, **create))
                    decided.append(await call(client.chat.completions.create, **create))

            way.run(scenario)
            plan, reply = decided
            assert reply.choices[0].message.content == answer
            found = cheapspec.info(reply)
            assert found is not None
            assert (plan.chosen == "direct") == (found.decision == "direct"), (plan, found)


def test_a_draft_is_asked_for_only_where_that_is_wanted(way: Doorway) -> None:
    """With ``draft=True`` the host writes the draft that the plan is made with."""
    plan = explained(way, draft=True)
    (scored,) = plan.alternatives[1:]
    assert "assumed" not in scored.why
    assert way.draft.requests
    assert plan.alternatives[0].why.endswith(f"about {len(way.draft.model.encode(ANSWER))} tokens")


def test_a_slow_host_is_waited_for_as_long_as_a_request_would(way: Doorway) -> None:
    """``draft_timeout`` bounds the wait; without a word in time there is no draft."""
    way.draft.plan("draft", Hang(30.0))
    plan = explained(way, {"draft_timeout": 0.3}, draft=True)
    (scored,) = plan.alternatives[1:]
    assert plan.chosen == "direct" and not scored.allowed and "no text in time" in scored.why


def test_a_host_without_a_draft_is_said(way: Doorway) -> None:
    """A draft host that is down leaves direct, and its way with the reason."""
    plan = explained(way, {"draft_url": "http://127.0.0.1:1"}, draft=True)
    assert plan.chosen == "direct"
    (scored,) = plan.alternatives[1:]
    assert not scored.allowed and scored.expected_usd is None and "did not answer" in scored.why


@pytest.mark.parametrize(
    ("create", "settings", "reason"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, {}, "tools"),
        ({"n": 2}, {}, "n"),
        ({"temperature": cheapspec.NOT_GIVEN}, {}, "temperature_unset"),
        ({}, {"draft": None}, "no_draft"),
        ({}, {"prices": {}}, "price_unknown"),
        ({}, {"enabled": False}, "disabled"),
        ({}, {"target_backend": "generic"}, "cannot_score"),
        ({}, {"target_backend": "auto"}, "not_probed"),
        ({}, {"max_added_latency": 0}, "latency"),
        ({"extra_headers": {"x-cheapspec-disable": "1"}}, {}, "disabled"),
    ],
)
def test_what_goes_direct_says_why(way: Doorway, create: dict[str, Any], settings: dict[str, Any], reason: str) -> None:
    """One of the named reasons, before anything is planned; no other way is allowed."""
    plan = explained(way, settings, **create)
    assert (plan.chosen, plan.reason) == ("direct", reason)
    assert plan.alternatives[0].allowed
    assert not any(one.allowed for one in plan.alternatives[1:])
    assert all(reason in one.why for one in plan.alternatives[1:])
    assert reason in str(plan).splitlines()[0]
    assert plan.to_dict()["reason"] == reason


def test_an_endpoint_that_was_not_probed_is_priced_as_if_it_scored(way: Doorway) -> None:
    """Direct for now, but the user sees what scoring would be worth."""
    plan = explained(way, {"target_backend": "auto"}, max_tokens=300)
    assert plan.alternatives[1].expected_usd is not None and plan.context_prices.qs == 1


def test_a_prediction_is_a_way_of_its_own(way: Doorway) -> None:
    """The caller's prediction is a draft that needs nobody; its claim to the end is believed as in the engine."""
    text = "One, two, three in Paris. " * 20
    plan = explained(way, prediction={"type": "content", "content": text}, reply_tokens=100)
    names = [one.drafter for one in plan.alternatives]
    assert names == [None, "prediction", "ollama:toy:latest"]
    assert "assumed" not in plan.alternatives[1].why
    assert plan.alternatives[0].why.endswith("about 100 tokens")
    assert Prediction.name in {one.drafter for one in plan.alternatives if one.allowed}


def test_a_text_completion_is_explained_too(way: Doorway) -> None:
    """With ``prompt`` it is the other route."""
    create = {"messages": None, "prompt": "Once upon a time", "max_tokens": 50}
    plans: list[cheapspec.Plan] = []

    async def scenario() -> None:
        async with entered(way.client(way.speculation(**PLANNED))) as client:
            del create["messages"]
            plans.append(await call(client.explain, model="toy", temperature=0, **create))

    way.run(scenario)
    assert plans[0].alternatives[1].drafter == "ollama:toy:latest"
    assert way.target.requests == []


def test_fixed_draft_tokens_are_told_as_fixed(way: Doorway) -> None:
    """No planner, no allowance: the way that the client will go."""
    plan = explained(way, {"draft_tokens": 8, "seed_usd": 0})
    assert plan.chosen == "score ollama:toy:latest"
    assert plan.alternatives[1].draft_tokens == 8 and "no planning" in plan.alternatives[1].why


def test_an_allowance_that_is_used_up_is_said(way: Doorway) -> None:
    """With nothing to lose the way is listed, priced and not allowed."""
    plan = explained(way, {"seed_usd": 0}, max_tokens=100)
    assert plan.chosen == "direct" and plan.reason == ""
    assert "allowance" in plan.alternatives[1].why and not plan.alternatives[1].allowed


def test_unusable_settings_of_a_request_are_refused(way: Doorway) -> None:
    """As they would be by the request itself, and before it."""
    with pytest.raises(cheapspec.SettingsError, match="drafft"):
        explained(way, extra_body={"cheapspec": {"drafft": 1}})


def test_what_create_would_refuse_explain_refuses(way: Doorway) -> None:
    """A required argument is required."""
    with pytest.raises(TypeError, match="messages"):

        async def scenario() -> None:
            async with entered(way.client()) as client:
                await call(client.explain, model="toy")

        way.run(scenario)


def test_the_transport_door_holds_the_request_back_too(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where openai has no hook, the request is caught in the transport."""
    monkeypatch.setattr(door_module, "HOOKED", False)
    for ours in (door_module.OpenAI, door_module.AsyncOpenAI):
        monkeypatch.delattr(ours, "_send_request")  # openai's own is left
    plan = explained(way, max_tokens=100)
    assert [one.action for one in plan.alternatives] == ["direct", "score"]


def test_a_request_after_an_explanation_is_sent(way: Doorway) -> None:
    """Holding back ends with the explanation."""
    plans: list[Any] = []

    async def scenario() -> None:
        async with entered(way.client()) as client:
            plans.append(await call(client.explain, **ASKED))
            reply = await call(client.chat.completions.create, **ASKED)
            assert reply.choices[0].message.content == ANSWER

    way.run(scenario)
    assert way.purposes()
    direct = plans[0].alternatives[0]
    assert direct.expected_usd is not None and direct.expected_usd > Decimal(0)


def test_b22_above_temperature_0_a_plan_believes_what_draws_are_believed(way: Doorway) -> None:
    """A draw agrees with a draft less often than the argmax does, so the same way is dearer there."""
    said = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}
    greedy = explained(way, max_tokens=100, temperature=0, top_p=1, extra_body=said)
    drawn = explained(way, max_tokens=100, temperature=1, top_p=1, extra_body=said)
    costs = [plan.alternatives[1].expected_usd for plan in (greedy, drawn)]
    assert costs[0] is not None and costs[1] is not None and costs[0] < costs[1]
