"""Each dialect through the whole loop: drafts of another model, the API's own shape, and the target's own words out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from doorway import Doorway, call, entered, items

import cheapspec
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Status
from cheapspec.testing.hosted import FakeFireworks, FakeLlamaCppPython, FakeMistral, FakeTogether
from cheapspec.testing.sglang import FakeSglang
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

ANSWER = "One, two, three in Paris. The capital of Spain is Madrid, and so on, 12 small answers to a city."
WIDE = ANSWER.replace("Madrid, and", "Madrid, naïve 🙂 and")
QUESTIONS = ["Where?", "And then?"]
SERVERS: dict[str, type[FakeTarget]] = {
    "fireworks": FakeFireworks,
    "together": FakeTogether,
    "mistral": FakeMistral,
    "sglang": FakeSglang,
}


def goes_on(text: str, other: str) -> Any:
    """A draft model that says ``other``, and after a correction goes on with it at the same place."""

    def reply(written: str) -> str:
        return other if other.startswith(written) else written + other[len(written) :]

    return reply


@dataclass
class Case:
    """A stand-in with a draft host, and clients of one kind."""

    name: str
    way: Doorway

    def client(self, **more: Any) -> Any:
        given: dict[str, Any] = {"target_backend": self.name, "draft_tokens": 24, **more}
        return self.way.client(self.way.speculation(**given))


@contextlib.contextmanager
def made(name: str, door: str, **more: Any) -> Generator[Case]:
    kind: Any = SERVERS[name]
    with kind(model=ToyModel(3), **more) as target, FakeDraft(model=ToyModel(3)) as draft:
        yield Case(name, Doorway(target, draft, door))


@pytest.fixture(params=list(SERVERS))
def name(request: pytest.FixtureRequest) -> str:
    """Which API."""
    return str(request.param)


@pytest.fixture
def case(name: str) -> Iterator[Case]:
    """With the synchronous client; what differs between the two is tested once for each API."""
    with made(name, "sync") as one:
        yield one


@pytest.fixture
def any_case(name: str, door: str) -> Iterator[Case]:
    with made(name, door) as one:
        yield one


def pin(case: Case, target: str, draft: str) -> None:
    for question in QUESTIONS:
        case.way.target.model.replies[question] = target
        case.way.draft.model.replies[question] = goes_on(target, draft)


async def ask(client: Any, *, stream: bool, **more: Any) -> tuple[str, str | None, Any]:
    """Text, finish reason, facts."""
    body: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": QUESTIONS[0]}], "temperature": 0}
    reply = await call(client.chat.completions.create, **{**body, "stream": stream, **more})
    if not stream:
        return reply.choices[0].message.content, reply.choices[0].finish_reason, cheapspec.info(reply)
    text, finish = "", None
    async for chunk in items(reply):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, cheapspec.info(reply)


DRAFTS = {
    "right": ANSWER,
    "two words wrong": ANSWER.replace("three", "seven").replace("small", "large"),
    "first word wrong": "No " + ANSWER[4:],
    "ends early": ANSWER[:30],
    "goes on": ANSWER + " And more of it.",
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_reply_is_the_targets_own(any_case: Case, stream: bool) -> None:
    """Whatever was drafted, the caller gets what the target alone would have said, by scores of this API's shape."""
    case = any_case

    async def scenario() -> None:
        async with entered(case.client()) as client:
            for kind, draft in DRAFTS.items():
                pin(case, ANSWER, draft)
                case.way.target.clear()
                text, finish, told = await ask(client, stream=stream)
                assert (text, finish, told.decision) == (ANSWER, "stop", "speculate"), kind
                assert told.accepted_tokens > 0, kind
                usages = [exchange.usage or {} for exchange in case.way.target.of("score", "continue", "direct")]
                assert told.input_tokens == sum(usage["prompt_tokens"] for usage in usages), kind
                assert told.output_tokens == sum(usage["completion_tokens"] for usage in usages), kind
                assert case.way.purposes()[0] == "score"

    case.way.run(scenario)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_characters_of_several_tokens(case: Case, stream: bool) -> None:
    """They come out whole. Together tells no bytes, so what it shows of them is no evidence, and it goes direct."""
    pin(case, WIDE, WIDE.replace("three", "seven"))

    async def scenario() -> None:
        async with entered(case.client(draft_tokens=60)) as client:
            text, finish, told = await ask(client, stream=stream)
        assert (text, finish) == (WIDE, "stop")
        assert told.decision == ("direct" if case.name == "together" else "speculate")

    case.way.run(scenario)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_hand_off_goes_on_from_the_verified_text(case: Case, stream: bool) -> None:
    """Where the draft host gives up, the target writes the rest; nothing is said twice, nothing is lost."""
    pin(case, ANSWER, ANSWER)
    case.way.draft.plan("draft", Status(503, body={"error": "server busy, please try again."}), after=1)

    async def scenario() -> None:
        async with entered(case.client(draft_tokens=6)) as client:
            text, finish, told = await ask(client, stream=stream)
        assert (text, finish) == (ANSWER, "stop")
        assert told.handoff_tokens > 0
        assert told.accepted_tokens > 0

    case.way.run(scenario)
    assert case.way.purposes()[-1] == "continue"


def test_a_token_limit_holds(case: Case) -> None:
    """The caller's ``max_tokens`` is of the target's tokens, as in a direct call."""
    pin(case, ANSWER, ANSWER)

    async def scenario() -> None:
        async with entered(case.way.plain()) as direct, entered(case.client(draft_tokens=5)) as client:
            for limit in (1, 7, 20):
                alone, why, _ = await ask(direct, stream=False, max_tokens=limit)
                text, finish, told = await ask(client, stream=False, max_tokens=limit)
                assert (text, finish, told.decision) == (alone, why, "speculate")

    case.way.run(scenario)


def test_a_random_draft_changes_nothing(case: Case) -> None:
    """A draft model that agrees now and then, over free text: equal to the target alone, round by round."""
    case.way.draft.model = case.way.target.model.twin(0.7)

    async def scenario() -> None:
        async with entered(case.way.plain()) as direct, entered(case.client(draft_tokens=6)) as client:
            for question in ("Tell me of Paris.", "Print x", "é or ü?"):
                messages = [{"role": "user", "content": question}]
                alone, why, _ = await ask(direct, stream=False, messages=messages, max_tokens=40)
                text, finish, told = await ask(client, stream=False, messages=messages, max_tokens=40)
                assert (text, finish) == (alone, why)
                assert told.decision in ("speculate", "direct")

    case.way.run(scenario)
    assert "score" in case.way.purposes()


@pytest.mark.parametrize("name", ["fireworks", "together", "mistral"])
def test_a_server_that_closes_the_turn_is_not_believed(name: str) -> None:
    """Where a last assistant message is not gone on from, its scores say nothing, and the request goes direct."""
    with made(name, "sync", goes_on=False) as case:
        pin(case, ANSWER, ANSWER)

        async def scenario() -> None:
            async with entered(case.client()) as client:
                text, _, told = await ask(client, stream=False)
                assert (text, told.decision, told.reason) == (ANSWER, "direct", "cannot_score")
                assert told.accepted_tokens == 0

        case.way.run(scenario)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_llama_cpp_pythons_text_completions(shift: int, stream: bool) -> None:
    """A probe sees where its numbers belong; then text completions are verified, and chats go direct."""
    prompt = "The answer is"
    with FakeLlamaCppPython(model=ToyModel(3), shift=shift) as target, FakeDraft(model=ToyModel(3)) as draft:
        for server in (target, draft):
            server.model.replies[prompt] = " one, two, three in Paris."
            server.model.replies["The numbers from one to twelve, written as words: one, two, three, four,"] = (
                " five, one, two, three, four, five, one"
            )
        way = Doorway(target, draft, "async" if stream else "sync")

        async def scenario() -> None:
            speculation = way.speculation(target_backend="llamacpp-python", draft_tokens=24)
            async with entered(way.client(speculation)) as client:
                body: dict[str, Any] = {"model": "toy", "prompt": prompt, "temperature": 0, "max_tokens": 30}
                first = await call(client.completions.create, **body)
                told = cheapspec.info(first)
                assert told is not None
                assert (told.decision, told.reason) == ("direct", "not_probed")
                for _ in range(300):
                    if way.target.of("continue") or len(way.target.of("score")) >= 3:
                        break
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                reply = await call(client.completions.create, **{**body, "stream": stream})
                if stream:
                    text = ""
                    async for chunk in items(reply):
                        text += "".join(choice.text for choice in chunk.choices)
                else:
                    text = reply.choices[0].text
                told = cheapspec.info(reply)
                assert told is not None
                assert text == " one, two, three in Paris." == first.choices[0].text
                assert (told.decision, told.reason) == ("speculate", None)
                chat = await ask(client, stream=False)
                assert (chat[2].decision, chat[2].reason) == ("direct", "cannot_score")

        way.run(scenario)


def test_an_api_refuses_a_wrong_field_name() -> None:
    """The stand-ins know the vendors' field names, so a misspelt one cannot pass the tests above."""
    with FakeMistral(model=ToyModel(3)) as target:
        client = openai.OpenAI(base_url=target.base_url, api_key="k", max_retries=0)
        with client, pytest.raises(openai.UnprocessableEntityError, match="prompt_logprob"):
            client.chat.completions.create(
                model="toy", messages=[{"role": "user", "content": "x"}], extra_body={"prompt_logprob": True}
            )
