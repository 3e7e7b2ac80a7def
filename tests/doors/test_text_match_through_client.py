"""Text match through both doors: the target writes by itself, and what it says is what the caller gets."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, items

from cheapspec import TextMatch, info
from cheapspec.errors import CapabilityError

DRAFTS = (ANSWER, "One, two, four in Paris.", "Nothing of the kind", "One, two, three in Paris. And more.")


def settings(way: Doorway, **more: Any) -> Any:
    """With objective latency, in windows of the default size."""
    given = {"accept": "text_match", "objective": "latency", "draft_tokens": None, "target_backend": "vllm"}
    return way.speculation(**{**given, **more})


@pytest.mark.parametrize("backend", ["vllm", "generic"])
@pytest.mark.parametrize("drafted", DRAFTS)
@pytest.mark.parametrize("window", [None, 3])
def test_the_reply_is_the_targets_own(way: Doorway, backend: str, drafted: str, window: int | None) -> None:
    """Whatever the draft says, in windows by token ids and in one whole reply: text, reason and counts are direct's."""
    way.draft.model.replies["Where?"] = drafted

    async def scenario() -> None:
        alone = await call(way.plain().chat.completions.create, **ASKED)
        client = way.client(settings(way, target_backend=backend, draft_tokens=window))
        reply = await call(client.chat.completions.create, **ASKED)
        assert reply.choices[0].message.content == alone.choices[0].message.content == ANSWER
        assert reply.choices[0].finish_reason == alone.choices[0].finish_reason
        assert reply.usage.completion_tokens == alone.usage.completion_tokens
        assert reply.usage.prompt_tokens == alone.usage.prompt_tokens
        told = info(reply)
        assert told is not None and (told.decision, told.rule) == ("speculate", "text_match")
        assert not told.lossy and told.lenient_tokens == 0
        if backend == "generic":
            assert told.target_calls == 1 and told.accepted_tokens + told.corrected_tokens <= told.output_tokens
        assert (told.accepted_tokens > 0) == drafted.startswith("One")
        if window is None:  # in short windows the token after each is the target's too
            assert (told.corrected_tokens == 0) == drafted.startswith(ANSWER)

    way.run(scenario)


@pytest.mark.parametrize("backend", ["vllm", "generic"])
def test_a_stream_gives_the_same(way: Doorway, backend: str) -> None:
    """Nothing that is not verified leaves, and the pieces join to the target's reply; a limit cuts it as it would."""
    way.draft.model.replies["Where?"] = "One, two, four in Paris."

    async def scenario() -> None:
        for limit in (None, 4, 7):
            asked = {**ASKED, **({} if limit is None else {"max_tokens": limit})}
            alone = await call(way.plain().chat.completions.create, **asked)
            stream = await call(
                way.client(settings(way, target_backend=backend)).chat.completions.create, **asked, stream=True
            )
            chunks = [chunk async for chunk in items(stream)]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
            assert text == alone.choices[0].message.content
            assert reasons[-1] == alone.choices[0].finish_reason

    way.run(scenario)


def test_every_compared_token_is_billed_as_output(way: Doorway) -> None:
    """What a window writes is booked as a continuation; it costs no less than direct, and the books say so."""

    async def scenario() -> None:
        reply = await call(way.client(settings(way, draft_tokens=3)).chat.completions.create, **ASKED)
        told = info(reply)
        assert told is not None and told.rounds > 1
        assert {one.row.purpose for one in way.ledger.calls(told.request_id) if one.row.billed} == {"continue"}
        assert told.paid_usd is not None and told.baseline_usd is not None and told.paid_usd > told.baseline_usd
        assert told.output_tokens >= reply.usage.completion_tokens

    way.run(scenario)


def test_a_likely_token_of_the_draft_holds_and_counts_as_lossy(way: Doorway) -> None:
    """With a stated probability what differs may stand, is counted, and never passes for the target's own."""
    way.draft.model.replies["Where?"] = "One, two, four in Paris."

    async def scenario() -> None:
        strict = settings(way, accept=TextMatch(0.9))
        own = await call(way.client(strict).chat.completions.create, **ASKED)
        assert own.choices[0].message.content == ANSWER and not info(own).lossy
        assert info(own).rule == "text_match_probable"
        loose = settings(way, accept=TextMatch(1e-12))
        reply = await call(way.client(loose).chat.completions.create, **ASKED, max_tokens=12)
        told = info(reply)
        assert told is not None and told.lenient_tokens >= 1 and told.lossy
        assert reply.choices[0].message.content != ANSWER
        totals = way.client(loose).report().lossy
        assert totals.accepted == 2  # under a rule that may differ, whether it did or not

    way.run(scenario)


def test_its_cost_is_shown_before_it_runs(way: Doorway) -> None:
    """The plan has what it is expected to cost beside direct, which is less; nothing was sent for it."""
    if way.door == "async":
        pytest.skip("explain is the sync client's in this test; both share one path")
    plan = way.client(settings(way)).explain(**ASKED)
    direct, match = plan.alternatives[0], plan.alternatives[1]
    assert match.rule == "text_match" and match.expected_usd is not None and direct.expected_usd is not None
    assert match.expected_usd >= direct.expected_usd
    assert not way.purposes()


def test_a_request_that_samples_goes_direct(way: Doorway) -> None:
    """What is drawn twice need not agree, and proves nothing."""

    async def scenario() -> None:
        reply = await call(
            way.client(settings(way)).chat.completions.create, **{**ASKED, "temperature": 0.7, "top_p": 1}
        )
        told = info(reply)
        assert told is not None and (told.decision, told.reason) == ("direct", "sampling")

    way.run(scenario)


def test_one_request_may_not_ask_for_it_where_dollars_count(way: Doorway) -> None:
    """A client that saves dollars refuses it for a single request as well, before anything is sent."""

    async def scenario() -> None:
        client = way.client(way.speculation(draft_tokens=None))
        with pytest.raises(openai.BadRequestError, match="never pays"):
            await call(client.chat.completions.create, **ASKED, extra_body={"cheapspec": {"accept": "text_match"}})
        assert not way.purposes()
        with pytest.raises(CapabilityError, match="never pays"):
            way.speculation(draft_tokens=None, accept="text_match")

    way.run(scenario)
