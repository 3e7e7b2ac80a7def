"""What is not ours leaves as plain openai sends it, byte for byte, and comes back as the object that came."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import openai
import pytest
from doorway import ASKED, MESSAGES, Doorway, call, entered

import cheapspec
from cheapspec.drive import runtime

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "embeddings": ("embeddings.create", {"model": "toy", "input": ["é", "b"]}, "other_route"),
    "models": ("models.list", {}, "other_route"),
    "responses": ("responses.create", {"model": "toy", "input": "Where?"}, "responses_api"),
    "files": ("files.create", {"file": ("a.txt", b"some bytes"), "purpose": "assistants"}, "other_route"),
    "tools": ("chat.completions.create", {**ASKED, "tools": [TOOL]}, "tools"),
    "n": ("chat.completions.create", {**ASKED, "n": 2}, "n"),
    "logprobs": ("chat.completions.create", {**ASKED, "logprobs": True, "top_logprobs": 2}, "logprobs"),
    "images": ("chat.completions.create", {**ASKED, "messages": [{"role": "user", "content": PICTURE}]}, "images"),
    "unknown": ("chat.completions.create", {**ASKED, "extra_body": {"brand_new": 1}}, "unsupported_field"),
    "temperature": ("chat.completions.create", {"model": "toy", "messages": MESSAGES}, "temperature_unset"),
    "streamed": (
        "chat.completions.create",
        {**ASKED, "stream": True, "tools": [TOOL], "stream_options": {"include_usage": True}},
        "tools",
    ),
}


def method(client: Any, path: str) -> Any:
    for name in path.split("."):
        client = getattr(client, name)
    return client


@pytest.mark.parametrize("name", WAYS)
def test_bytes_and_objects_are_untouched(name: str, way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method, path, query, headers and body equal those of plain openai; the response is the one that came."""
    path, body, reason = WAYS[name]
    came: list[httpx2.Response] = []
    given: list[httpx2.Response] = []
    # the boundary of a multipart body is drawn at random
    monkeypatch.setattr("httpx2._multipart.os.urandom", bytes)

    def seen(response: httpx2.Response) -> None:
        came.append(response)

    async def seen_async(response: httpx2.Response) -> None:
        came.append(response)

    async def scenario() -> None:
        hook = seen_async if way.door == "async" else seen
        ours = way.client(http_client=way.http(event_hooks={"response": [hook]}))
        base: Any = type(ours).__mro__[1]
        process = base._process_response

        def watched(self: Any, **more: Any) -> Any:
            given.append(more["response"])
            return process(self, **more)

        monkeypatch.setattr(base, "_process_response", watched)
        for client in (ours, way.plain()):
            async with entered(client):
                try:
                    reply = await call(method(client, path), **body)
                    if name == "streamed":
                        await call(reply.close)
                except openai.NotFoundError:
                    assert name == "files", "the stand-in serves no files"

    way.run(scenario)
    first, second = way.target.requests
    assert (first.method, first.path, first.query) == (second.method, second.path, second.query)
    assert first.content == second.content
    assert dict(first.headers) == dict(second.headers)
    if name != "files":
        assert given[0] is came[0]
    assert came[0].headers["x-cheapspec-decision"] == ("direct" if name == "temperature" else "bypass")
    assert came[0].headers["x-cheapspec-reason"] == reason


def test_responses_warn_once(way: Doorway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """``client.responses`` says once in a process that nothing is saved there."""
    monkeypatch.setattr(runtime, "_warned", set[str]())

    async def scenario() -> None:
        for _ in range(2):
            async with entered(way.client()) as client:
                await call(client.responses.create, model="toy", input="Where?")

    with caplog.at_level(logging.WARNING, "cheapspec"):
        way.run(scenario)
    assert len([record for record in caplog.records if "client.responses" in record.getMessage()]) == 1


@pytest.mark.parametrize("route", ["speculated", "bypassed", "disabled", "multipart"])
def test_our_keys_reach_no_upstream(route: str, way: Doorway) -> None:
    """Neither ``x-cheapspec-*`` headers nor the body's ``cheapspec`` are seen by a server, whatever is decided."""
    headers = {
        "x-cheapspec-session": "s1",
        "X-Other": "kept",
        **({"x-cheapspec-disable": "1"} if route == "disabled" else {}),
    }
    options = {"extra_body": {"cheapspec": {"workload": "w"}}, "extra_headers": headers}

    async def scenario() -> None:
        async with entered(way.client()) as client:
            if route == "multipart":
                with pytest.raises(openai.NotFoundError):
                    upload = client.files.create
                    await call(upload, file=("a", b"b"), purpose="assistants", extra_headers=headers)
                return
            tools = {"tools": [TOOL]} if route == "bypassed" else {}
            told = cheapspec.info(await call(client.chat.completions.create, **ASKED, **tools, **options))
            assert told is not None
            assert told.decision == ("speculate" if route == "speculated" else "bypass")
            assert told.session == "s1"

    way.run(scenario)
    assert way.target.requests
    for exchange in [*way.target.requests, *way.draft.requests]:
        assert b"cheapspec" not in exchange.content
        assert not [name for name in exchange.headers if name.startswith("x-cheapspec")]
    assert {exchange.headers["x-other"] for exchange in way.target.requests} == {"kept"}
    if route == "multipart":
        assert b"some" not in way.target.requests[0].content
        assert b'name="purpose"' in way.target.requests[0].content


def test_the_bodys_options_win_for_that_request(way: Doorway) -> None:
    """``extra_body={"cheapspec": …}`` overrides settings and headers for one request and no other."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            create = client.chat.completions.create
            headers = {"x-cheapspec-disable": "1"}
            cases: list[tuple[dict[str, Any], str, str | None]] = [
                ({"extra_body": {"cheapspec": {"enabled": False}}}, "bypass", "disabled"),
                ({"extra_body": {"cheapspec": {"enabled": True}}, "extra_headers": headers}, "speculate", None),
                ({"extra_headers": headers}, "bypass", "disabled"),
                ({"extra_body": {"cheapspec": {"max_added_latency": 0}}}, "direct", "latency"),
                ({}, "speculate", None),
            ]
            for more, decision, reason in cases:
                told = cheapspec.info(await call(create, **ASKED, **more))
                assert told is not None
                assert (told.decision, told.reason) == (decision, reason)

    way.run(scenario)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draft_tokenz": 3}, "draft_tokens"),
        ({"draft_tokens": "many"}, "draft_tokens"),
        ({"ledger": "off"}, "client.copy"),
        ({"budget_usd": 1}, "budget"),
        ({"accept": "judge me"}, "accept"),
    ],
)
def test_nonsense_is_a_bad_request(options: dict[str, Any], said: str, way: Doorway) -> None:
    """Options that cannot be obeyed raise ``openai.BadRequestError`` at once: nothing is sent or paid."""

    async def scenario() -> None:
        async with entered(way.client(max_retries=2)) as client:
            with pytest.raises(openai.BadRequestError, match=said) as raised:
                await call(client.chat.completions.create, **ASKED, extra_body={"cheapspec": options})
            assert raised.value.code == "invalid_cheapspec_option"

    way.run(scenario)
    assert way.target.requests == []


def test_the_kill_switch_is_read_on_every_request(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """``CHEAPSPEC_DISABLED`` works on a client that is already running, over everything else."""

    async def scenario() -> None:
        async with entered(way.client()) as client:
            for switch, decision in (("", "speculate"), ("1", "bypass"), ("0", "speculate")):
                monkeypatch.setenv("CHEAPSPEC_DISABLED", switch)
                more = {"extra_body": {"cheapspec": {"enabled": True}}}
                told = cheapspec.info(await call(client.chat.completions.create, **ASKED, **more))
                assert told is not None
                assert told.decision == decision

    way.run(scenario)
