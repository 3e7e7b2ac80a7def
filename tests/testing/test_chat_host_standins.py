"""The stand-ins of chat hosts answer over HTTP as the vendors describe it."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from cheapspec.testing.chat_host import FakeChatHost, Says
from cheapspec.testing.openai_hosts import FakeDeepSeek, FakeLiteLLM, FakeOpenAI
from cheapspec.testing.openrouter import NO_LOGPROBS, BrokenOff, FakeOpenRouter, RouterHost
from cheapspec.testing.reroute import Reroute
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Where?"}]}
LETTER = Says("Y", {"Y": 0.9, "N": 0.08})


def post(server: FakeChatHost, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
    with httpx2.Client(verify=False) as client:
        told = {"model": server.name, **ASKED, **body}
        return client.post(f"{server.base_url}/chat/completions", json=told, headers=headers)


def test_a_stream_of_openrouters_has_comments_and_ends_with_the_counts_unasked() -> None:
    """Two comments before the first chunk, one in the middle, usage and ``[DONE]`` last."""
    with FakeOpenRouter(says=lambda body: "In Paris it is.") as router:
        text = post(router, stream=True).text
    parts = text.split("\n\n")
    assert parts[:2] == [": OPENROUTER PROCESSING"] * 2 and text.count(": OPENROUTER PROCESSING") == 3
    chunks = [json.loads(part.removeprefix("data: ")) for part in parts if part.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]) == "In Paris it is."
    assert chunks[-2]["choices"][0]["native_finish_reason"] == "end_turn"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["cost"] > 0
    assert parts[-2] == "data: [DONE]"


def test_openais_own_client_reads_it() -> None:
    """Comments are no events to it."""
    with FakeOpenRouter(says=lambda body: "In Paris it is.") as router:
        http = openai.DefaultHttpxClient(verify=False)
        client = openai.OpenAI(base_url=router.base_url, api_key="k", http_client=http)
        stream = client.chat.completions.create(model=router.name, messages=ASKED["messages"], stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == "In Paris it is."
        client.close()


def test_unknown_fields_are_dropped_silently_unless_they_are_required() -> None:
    """200 without numbers, another host with them, or 404."""
    logprobs: dict[str, Any] = {"logprobs": True, "top_logprobs": 5}
    with FakeOpenRouter(
        says=lambda body: LETTER, hosts=(RouterHost("DeepInfra", NO_LOGPROBS), RouterHost("Fireworks"))
    ) as router:
        told = post(router, **logprobs).json()
        assert (told["provider"], told["choices"][0]["logprobs"]) == ("DeepInfra", None)
        told = post(router, **logprobs, provider={"require_parameters": True}).json()
        [entry] = told["choices"][0]["logprobs"]["content"]
        assert told["provider"] == "Fireworks" and [one["token"] for one in entry["top_logprobs"]] == ["Y", "N"]
        refused = post(router, **logprobs, provider={"require_parameters": True, "only": ["deepinfra"]})
        assert refused.status_code == 404 and "requested parameters" in refused.json()["error"]["message"]


def test_a_conversation_stays_on_its_host_unless_an_order_is_given() -> None:
    """By session, by header, else by its first messages; each host has a prompt cache of its own."""
    hosts = (RouterHost("A"), RouterHost("B"))
    with FakeOpenRouter(model=ToyModel(3), says=lambda body: "Yes", hosts=hosts) as router:
        post(router, provider={"only": ["b"]}, session_id="s")
        assert post(router, session_id="s").json()["provider"] == "B"
        assert post(router, headers={"x-session-id": "s"}).json()["provider"] == "B"
        assert post(router, session_id="other").json()["provider"] == "A"
        assert post(router, session_id="s", provider={"order": ["a"]}).json()["provider"] == "A"
        assert post(router).json()["provider"] == "A"
        again = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}, *ASKED["messages"]]
        post(router, messages=again, provider={"only": ["b"]})
        assert post(router).json()["provider"] == "B", "the same first message is the same conversation"


@pytest.mark.parametrize(("status", "said"), [(429, "rate-limited"), (502, "upstream"), (503, None)])
def test_a_host_that_is_down_is_passed_over_and_named_where_it_is_the_only_one(status: int, said: str | None) -> None:
    """A fallback answers; without one the error has the host's name and words in its metadata, or there is no host."""
    down = RouterHost("Down", status=status)
    with FakeOpenRouter(says=lambda body: "Yes", hosts=(down, RouterHost("Up"))) as router:
        assert post(router).json()["provider"] == "Up"
        failed = post(router, provider={"only": ["down"]})
    error = failed.json()["error"]
    assert failed.status_code == error["code"] == status
    if said is None:
        assert "no available model provider" in error["message"]
    else:
        assert said in error["metadata"]["raw"] and error["metadata"]["provider_name"] == "Down"


def test_credits_run_out() -> None:
    """What replies cost is taken off; then 402."""
    with FakeOpenRouter(says=lambda body: "Yes", credits=0.000001) as router:
        assert post(router).status_code == 200
        assert post(router).status_code == 402


def test_an_error_comes_under_status_200_once_the_model_has_begun() -> None:
    """Alone, or in the choice with its finish reason."""
    with FakeOpenRouter(says=lambda body: "Yes") as router:
        router.plan("direct", BrokenOff(502), times=1)
        told = post(router)
        assert (told.status_code, told.json()["error"]["code"]) == (200, 502)
        router.plan("direct", BrokenOff(502, in_choice=True), times=1)
        choice = post(router).json()["choices"][0]
        assert choice["finish_reason"] == "error" and choice["error"]["code"] == 502


def test_thinking_is_output_that_comes_first() -> None:
    """A limit that it uses up leaves an empty text."""
    with FakeDeepSeek(says=lambda body: "Seven it is", thinking_tokens=5) as host:
        told = post(host, max_tokens=4).json()
        assert (told["choices"][0]["message"]["content"], told["choices"][0]["finish_reason"]) == ("", "length")
        assert told["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
        told = post(host, max_tokens=7).json()
        assert told["choices"][0]["message"]["content"] == "Seven it"
        told = post(host, max_tokens=3, thinking={"type": "disabled"}).json()
        assert told["choices"][0]["message"]["content"] == "Seven it is"
        assert told["choices"][0]["finish_reason"] == "stop" and told["usage"]["completion_tokens"] == 3


def test_cache_writes_are_counted_from_the_hosts_shortest_prompt_on() -> None:
    """Below it nothing is read and nothing is written."""
    with FakeOpenAI(model=ToyModel(3), says=lambda body: "Yes", bills_writes=True, cached_from=64) as host:
        details = post(host).json()["usage"]["prompt_tokens_details"]
        assert (details["cached_tokens"], details["cache_write_tokens"]) == (0, 0)
        long = [{"role": "user", "content": "Where is it? " * 40}]
        first = post(host, messages=long).json()["usage"]
        second = post(host, messages=long).json()["usage"]
        assert first["prompt_tokens_details"]["cache_write_tokens"] == first["prompt_tokens"]
        details = second["prompt_tokens_details"]
        assert details["cached_tokens"] > 64
        assert details["cached_tokens"] + details["cache_write_tokens"] == second["prompt_tokens"]


def test_litellm_turns_a_text_completion_into_a_chat_and_says_nothing() -> None:
    """A false success: ``echo`` and ``logprobs`` are accepted, and nothing comes of them."""
    with FakeLiteLLM(says=lambda body: "Paris") as host, httpx2.Client(verify=False) as client:
        body = {"model": "m", "prompt": "Where?", "echo": True, "logprobs": 2}
        told = client.post(f"{host.base_url}/completions", json=body)
    [choice] = told.json()["choices"]
    assert (choice["text"], choice["logprobs"]) == ("Paris", None)
    assert "x-litellm-response-cost" in told.headers


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_behind_it_really_answers(stream: bool) -> None:
    """Words, log-probabilities and counts are the engine's; what only the router knows does not reach it."""
    engine = FakeTarget(model=ToyModel(3, replies={"Where?": "In Paris"}), capabilities="plain")
    with engine, FakeOpenRouter(upstream=engine.base_url, engine_model="toy") as router:
        told = post(
            router, stream=stream, max_completion_tokens=9, logprobs=True, top_logprobs=2, provider={"sort": "price"}
        )
        [asked] = engine.requests
    assert asked.body["model"] == "toy" and asked.body["max_tokens"] == 9
    assert not asked.body.keys() & {"provider", "stream", "max_completion_tokens"}
    if stream:
        assert '"content":"In' in told.text
        return
    choice = told.json()["choices"][0]
    assert choice["message"]["content"] == "In Paris"
    assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])


def test_a_rerouted_client_reaches_no_other_host() -> None:
    """Only the one name is played."""
    with (
        FakeChatHost(says=lambda body: "Yes") as host,
        httpx2.Client(transport=Reroute("api.example", host.url)) as http,
    ):
        told = http.post("https://api.example/v1/chat/completions", json={"model": "m", **ASKED})
        assert told.json()["choices"][0]["message"]["content"] == "Yes"
        assert host.requests[0].headers["host"] == "api.example"
        with pytest.raises(httpx2.ConnectError, match="not played"):
            http.get("https://api.other/v1/models")
