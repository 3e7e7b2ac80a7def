"""The stand-in servers: they answer as the real ones do, and misbehave exactly as planned."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from cheapspec.testing import faults
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.server import refusing_url, serve
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel
from cheapspec.testing.wire import Action

RECORDINGS = Path(__file__).parent.parent / "recordings" / "vllm"
QUESTION = [{"role": "user", "content": "Where?"}]
REPLY = "In Paris, é is the answer."


@pytest.fixture
def model() -> ToyModel:
    return ToyModel(7, replies={"Where?": REPLY})


@pytest.fixture
def target(model: ToyModel) -> Iterator[FakeTarget]:
    with FakeTarget(model=model) as server:
        yield server


@pytest.fixture
def draft(model: ToyModel) -> Iterator[FakeDraft]:
    with FakeDraft(model=model) as server:
        yield server


@pytest.fixture
def http(target: FakeTarget) -> Iterator[httpx2.Client]:
    with httpx2.Client(verify=False, base_url=target.url) as client:
        yield client


def post(url: str, **more: Any) -> httpx2.Response:
    with httpx2.Client(verify=False) as client:  # reading the certificates of the world takes longer than the call
        return client.post(url, **more)


def get(url: str) -> httpx2.Response:
    with httpx2.Client(verify=False) as client:
        return client.get(url)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "toy", "messages": QUESTION, "temperature": 0, **more}


def frames(reply: httpx2.Response) -> list[Any]:
    """The data frames of a server-sent event body."""
    told = [line.removeprefix("data:").strip() for line in reply.text.split("\n") if line.startswith("data:")]
    return [text if text in ("", "[DONE]") else json.loads(text) for text in told]


# --- the target answers as vLLM does ---------------------------------------------------------------


def same_shape(real: Any, fake: Any, where: str) -> None:
    """Every key of the fake is one of the real reply's, and what is a list, an object or a text there is one here."""
    if isinstance(real, dict) and isinstance(fake, dict):
        keyed_by_token = where.endswith(("prompt_logprobs[]", "top_logprobs[]"))
        for key, value in fake.items():
            assert keyed_by_token or key in real, f"{where}.{key} is not in the recording"
            if key in real:
                same_shape(real[key], value, f"{where}.{key}")
        if keyed_by_token and real and fake:
            same_shape(next(iter(real.values())), next(iter(fake.values())), where + "{}")
    elif isinstance(real, list) and isinstance(fake, list):
        if real and fake:
            same_shape(real[-1], fake[-1], where + "[]")
    elif real is not None and fake is not None:
        assert isinstance(real, int | float) == isinstance(fake, int | float), where
        assert isinstance(real, str) == isinstance(fake, str), where


NEEDED = ("id", "object", "created", "model", "choices", "usage", "system_fingerprint")


@pytest.mark.parametrize(
    "name",
    [
        "chat_plain",
        "chat_prefill_noflag",
        "chat_cfm_prompt_logprobs",
        "v1c_prompt_logprobs1",
        "v1c_prompt_logprobs0",
        "v1c_prompt_logprobs_ids_rtids",
        "v1c_echo_lp_mt1",
        "v1c_mt0_noecho",
        "v1c_stream_promptlp",
        "tokenize",
        "tokenize_chat",
        "detokenize",
        "version",
        "models",
    ],
)
def test_target_answers_in_the_shape_of_the_recordings(name: str, http: httpx2.Client) -> None:
    """To a request recorded from vLLM 0.32 the stand-in gives the same status and the same fields."""
    [path] = RECORDINGS.glob(f"vllm_{name}.json")
    recording = json.loads(path.read_text("utf-8"))
    request = recording["request"]
    ids = (request or {}).get("prompt")
    if isinstance(ids, list):
        request["prompt"] = [token % 300 for token in ids]
    if request and "tokens" in request:
        request["tokens"] = [token % 300 for token in request["tokens"]]
    method = "GET" if request is None else "POST"
    reply = http.request(method, recording["endpoint"], json=request)
    assert reply.status_code == recording["status"]
    told = reply.json()
    same_shape(recording["response"], told, "")
    if "choices" in told:
        assert set(NEEDED) <= set(told)


def test_a_stream_has_the_shape_of_the_recording(http: httpx2.Client) -> None:
    """Frame by frame a streamed continuation has the recording's fields: first, middle, last, usage."""
    recording = json.loads((RECORDINGS / "live_continue_stream.json").read_text("utf-8"))
    request = {**recording["request"], "prompt": [token % 300 for token in recording["request"]["prompt"]]}
    told = frames(http.post(recording["endpoint"], json={**request, "max_tokens": 4}))
    real = [json.loads(line[6:]) for line in recording["response"].split("\n") if line.startswith("data: {")]
    assert told[-1] == "[DONE]"
    for ours, theirs in zip(
        (told[0], told[1], told[-3], told[-2]), (real[0], real[1], real[-2], real[-1]), strict=True
    ):
        assert list(ours) == list(theirs)
        same_shape(theirs, ours, "")


def test_a_split_character_shows_whole_at_its_last_token(target: FakeTarget, http: httpx2.Client) -> None:
    """Scored tokens that are parts of a character are empty but for the last, as in vLLM 0.32."""
    asked = {"model": "toy", "prompt": "x 界\U0001f642é", "prompt_logprobs": 0, "max_tokens": 1}
    positions = http.post("/v1/completions", json=asked).json()["choices"][0]["prompt_logprobs"]
    shown = [next(iter(position.values()))["decoded_token"] for position in positions[-9:]]
    assert shown == ["", "", "界", "", "", "", "\U0001f642", "", "é"]


def test_scores_are_the_models_own(target: FakeTarget, http: httpx2.Client) -> None:
    """prompt_logprobs holds, position by position, what the model says of the token that stands there."""
    ids = target.model.encode("The capital of France is")
    asked = {"model": "toy", "prompt": ids, "prompt_logprobs": 1, "max_tokens": 1, "temperature": 0}
    told = http.post("/v1/completions", json=asked).json()
    positions = told["choices"][0]["prompt_logprobs"]
    assert positions[0] is None
    assert len(positions) == len(ids)
    for index in range(1, len(ids)):
        values = target.model.logprobs(ids[:index])
        entry = positions[index][str(ids[index])]
        assert entry["logprob"] == pytest.approx(values[ids[index]])
        best = max(range(len(values)), key=values.__getitem__)
        assert positions[index][str(best)]["rank"] == 1
        assert entry["rank"] == 1 + sum(value > values[ids[index]] for value in values)
    assert told["choices"][0]["text"] == target.model.decode([target.model.next(ids)])


def test_scoring_skips_reading_the_cache_but_fills_it(target: FakeTarget, http: httpx2.Client) -> None:
    """A scored prompt shows no cached tokens, however warm; the plain call after it finds its full blocks."""
    ids = [300 + index % 5 for index in range(50)]

    def cached(**more: Any) -> int:
        asked = {"model": "toy", "prompt": ids, "max_tokens": 1, "temperature": 0, **more}
        told = http.post("/v1/completions", json=asked).json()
        count: int = told["usage"]["prompt_tokens_details"]["cached_tokens"]
        return count

    assert cached(prompt_logprobs=1) == 0
    assert cached(prompt_logprobs=1) == 0
    assert cached() == 48
    assert cached(prompt=ids[:48]) == 32, "the last token is computed, so its block is not a hit"


def test_final_message_goes_on_only_with_the_flags(http: httpx2.Client) -> None:
    """Without both flags the assistant's turn is closed and a new one begins; with only one it is a 400."""
    messages = [*QUESTION, {"role": "assistant", "content": "In Par"}]
    flags = {"continue_final_message": True, "add_generation_prompt": False}

    def ask(**more: Any) -> httpx2.Response:
        return http.post("/v1/chat/completions", json=chat(messages=messages, **more))

    assert ask(**flags).json()["choices"][0]["message"]["content"] == REPLY.removeprefix("In Par")
    assert ask().json()["choices"][0]["message"]["content"] == REPLY
    assert ask(continue_final_message=True).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_and_limits(stream: bool, target: FakeTarget) -> None:
    """A stop string ends the reply unseen, over token edges too; a limit ends it with ``length``."""
    target.plan("direct", faults.Say("ok\nUser: hi"))
    with openai.OpenAI(base_url=target.base_url, api_key="k") as client:

        def ask(**more: Any) -> tuple[str, str | None]:
            asked: Any = chat(stream=stream, **more)
            reply: Any = client.chat.completions.create(**asked)
            if not stream:
                return reply.choices[0].message.content, reply.choices[0].finish_reason
            chunks = list(reply)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks), chunks[-1].choices[
                0
            ].finish_reason

        assert ask(stop=["\nUser:"]) == ("ok", "stop")
        assert ask(stop="nowhere") == ("ok\nUser: hi", "stop")
        assert ask(max_tokens=2)[1] == "length"


def test_usage_chunk_only_when_asked(http: httpx2.Client) -> None:
    """A stream reports usage in a last chunk without choices if, and only if, it was asked to."""
    silent = frames(http.post("/v1/chat/completions", json=chat(stream=True)))
    told = frames(http.post("/v1/chat/completions", json=chat(stream=True, stream_options={"include_usage": True})))
    assert not any("usage" in frame for frame in silent[:-1])
    assert told[-2]["choices"] == []
    assert told[-2]["usage"]["total_tokens"] > 0
    assert silent[-1] == told[-1] == "[DONE]"
    assert "".join(frame["choices"][0]["delta"].get("content", "") for frame in silent[:-1]) == REPLY


def test_sampling_follows_the_models_probabilities(target: FakeTarget, http: httpx2.Client) -> None:
    """At temperature 1 tokens come as often as the model says; at top_p near 0 only the likeliest comes."""
    ids = target.model.encode("one two")
    expected = target.model.logprobs(ids)
    best = target.model.next(ids)
    drawn: list[int] = []
    for seed in range(120):
        asked = {"model": "toy", "prompt": ids, "max_tokens": 1, "temperature": 1, "seed": seed}
        drawn += http.post("/v1/completions", json={**asked, "return_token_ids": True}).json()["choices"][0][
            "token_ids"
        ]
    share = drawn.count(best) / len(drawn)
    assert abs(share - 2.718281828 ** expected[best]) < 0.15
    assert len(set(drawn)) > 1
    asked = {"model": "toy", "prompt": ids, "max_tokens": 1, "temperature": 1, "top_p": 0.001, "return_token_ids": True}
    assert http.post("/v1/completions", json=asked).json()["choices"][0]["token_ids"] == [best]


def test_capabilities_differ_by_endpoint(model: ToyModel) -> None:
    """Behind a gateway there is no /tokenize; a plain endpoint ignores what it does not know, Azure paths work."""
    with FakeTarget(model=model, capabilities="no_tokenize") as server:
        assert post(f"{server.url}/tokenize", json={"prompt": "x"}).status_code == 404
        told = post(f"{server.base_url}/chat/completions", json=chat(prompt_logprobs=1, max_tokens=1)).json()
        assert told["prompt_logprobs"]
    with FakeTarget(model=model, capabilities="plain", base="/api/paas/v4", api_key="secret") as server:
        assert post(f"{server.base_url}/chat/completions", json=chat()).status_code == 401
        key = {"authorization": "Bearer secret"}
        told = post(f"{server.base_url}/chat/completions", json=chat(prompt_logprobs=1), headers=key).json()
        assert "prompt_logprobs" not in told
        path = "/openai/deployments/toy/chat/completions?api-version=2024-10-21"
        azure = post(server.url + path, json=chat(), headers={"api-key": "secret"})
        assert azure.json()["choices"][0]["message"]["content"] == REPLY


def test_other_routes_through_the_official_client(target: FakeTarget) -> None:
    """Embeddings, responses and the model list come back as openai's own types."""
    with openai.OpenAI(base_url=target.base_url, api_key="k") as client:
        assert len(client.embeddings.create(model="toy", input=["a", "b"]).data) == 2
        assert client.responses.create(model="toy", input="Where?").output_text == REPLY
        assert [found.id for found in client.models.list()] == ["toy"]
    assert [request.purpose for request in target.requests] == ["embeddings", "responses", "models"]


# --- hang-ups and records ------------------------------------------------------------------------------


def test_hang_up_before_the_first_byte_is_noticed(target: FakeTarget) -> None:
    """A client that leaves before any byte of the reply is noticed while the server still waits."""
    target.latency = 30.0

    async def leave() -> float:
        async with httpx2.AsyncClient(verify=False, base_url=target.base_url) as client:
            asking = asyncio.ensure_future(client.post("/chat/completions", json=chat()))
            while not target.requests:
                await asyncio.sleep(0.01)
            asking.cancel()
            return time.monotonic()

    left = asyncio.run(leave())
    assert target.wait_for(lambda: target.requests[0].hung_up)
    assert (target.requests[0].hung_up_at or 0.0) - left < 1.0
    assert target.requests[0].tokens == 0


def test_hang_up_in_a_stream_stops_generation(target: FakeTarget) -> None:
    """After a client has left, the server writes no further token."""
    target.token_seconds = 0.02
    target.plan("direct", faults.Say("one " * 500))
    with httpx2.Client(verify=False, base_url=target.base_url) as client:
        with client.stream("POST", "/chat/completions", json=chat(stream=True)) as reply:
            for count, _ in enumerate(reply.iter_lines()):
                if count == 6:
                    break
        assert target.wait_for(lambda: target.requests[0].hung_up)
    written = target.requests[0].tokens
    time.sleep(0.1)
    assert 0 < written < 100
    assert target.requests[0].tokens == written


def test_requests_are_recorded_whole(target: FakeTarget) -> None:
    """Method, path, query, headers, body, purpose and what it cost are there to be looked at."""
    headers = {"x-mine": "1"}
    post(f"{target.base_url}/chat/completions?a=b", json=chat(max_tokens=3), headers=headers)
    [seen] = target.requests
    assert (seen.method, seen.path, seen.query) == ("POST", "/v1/chat/completions", "a=b")
    assert (seen.headers["x-mine"], seen.body["max_tokens"], seen.purpose) == ("1", 3, "direct")
    assert (seen.tokens, seen.status, seen.hung_up) == (3, 200, False)
    assert seen.usage is not None
    assert seen.usage["completion_tokens"] == 3


def port(server: FakeTarget) -> int:
    return int(server.url.rpartition(":")[2])


def test_a_server_that_still_hangs_is_stopped_at_once(model: ToyModel) -> None:
    """Leaving the block ends connections that wait for a reply which would take a minute."""
    before = time.monotonic()
    with FakeTarget(model=model, latency=60.0) as server, socket.create_connection(("127.0.0.1", port(server))) as sock:
        body = json.dumps(chat()).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        assert server.wait_for(lambda: bool(server.requests))
    assert time.monotonic() - before < 20


def test_an_error_of_the_stand_in_itself_fails_the_test(model: ToyModel) -> None:
    """A bug in a stand-in does not pass for a fault of the server it plays."""

    class Broken(FakeTarget):
        async def handle(self, connection: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Broken(model=model) as server:
        assert get(f"{server.base_url}/models").status_code == 500


def test_serve_any_app() -> None:
    """Any ASGI app can be served, several at once, each with its own port."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return

    with serve(app) as one, serve(app) as two:
        assert one.port != two.port
        assert get(one.url).status_code == get(two.url).status_code == 204
        assert one.connections_opened == 1
    with pytest.raises(httpx2.ConnectError):
        get(one.url)


def test_refusing_url_refuses() -> None:
    """Nobody listens there."""
    with refusing_url() as url, pytest.raises(httpx2.ConnectError):
        get(url)


# --- faults ---------------------------------------------------------------------------------------------


def test_faults_apply_by_purpose_and_count(target: FakeTarget, http: httpx2.Client) -> None:
    """A rule takes its purpose only, after and as often as it says; the next rule takes over."""
    target.plan("score", faults.Status(418))
    rule = target.plan("direct", faults.Status(503, headers={"retry-after": "0"}), after=1, times=2)
    target.plan("direct", faults.Status(429))
    codes = [http.post("/v1/chat/completions", json=chat()).status_code for _ in range(4)]
    assert codes == [429, 503, 503, 429]
    assert rule.hits == 2


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        (faults.Html200(), 200, "<!doctype html>"),
        (faults.EmptyBody(), 200, ""),
        (faults.NullChoices({"message": "Provider returned error", "code": 429}), 200, '{"id": null'),
        (faults.NullChoices(choices=[]), 200, '{"id": null, "object": "chat.completion", "choices": []}'),
        (faults.Status(500, message="Out of range float values are not JSON compliant"), 500, '{"error"'),
    ],
)
def test_replies_that_are_none(fault: Action, status: int, body: str, target: FakeTarget, http: httpx2.Client) -> None:
    """What a fault sends instead of a reply arrives as it is."""
    target.plan("any", fault)
    reply = http.post("/v1/chat/completions", json=chat())
    assert reply.status_code == status
    assert reply.text.startswith(body)
    assert bool(body) == bool(reply.text)


def test_connection_cut_after_the_request(target: FakeTarget, http: httpx2.Client) -> None:
    """The server reads the request and cuts the line: the client sees no reply at all."""
    target.plan("any", faults.CloseAfterBody())
    with pytest.raises(httpx2.RemoteProtocolError):
        http.post("/v1/chat/completions", json=chat())
    assert target.requests[0].body["model"] == "toy"


def test_stream_cut_hard_and_clean(target: FakeTarget, http: httpx2.Client) -> None:
    """A cut stream breaks the transfer; a clean end is a whole body without either end sign."""
    target.plan("any", faults.CutAfter(2), times=1)
    target.plan("any", faults.CutAfter(2, clean=True))
    with pytest.raises(httpx2.RemoteProtocolError):
        http.post("/v1/chat/completions", json=chat(stream=True))
    told = frames(http.post("/v1/chat/completions", json=chat(stream=True)))
    assert "[DONE]" not in told
    assert all(frame["choices"][0]["finish_reason"] is None for frame in told)
    assert sum(bool(faults.text_of(frame)) for frame in told) == 2


@pytest.mark.parametrize(
    ("shape", "sent"),
    [
        ("data", 'data: {"error": {"message": "overloaded", "code": 502}}\n\n'),
        ("event", 'event: error\ndata: {"error": {"message": "overloaded", "code": 502}}\n\n'),
        ("string", 'data: {"error": "overloaded"}\n\n'),
    ],
)
def test_error_in_stream(shape: str, sent: str, target: FakeTarget, http: httpx2.Client) -> None:
    """Three content chunks, then the error, then the end, without a finish reason."""
    target.plan("any", faults.ErrorInStream(shape))
    text = http.post("/v1/chat/completions", json=chat(stream=True)).text
    assert text.endswith(sent)
    assert "[DONE]" not in text
    assert '"finish_reason":"stop"' not in text


def test_comments_and_preambles_do_not_change_the_text(target: FakeTarget) -> None:
    """The official client reads through comments, missing spaces and compression to the same text."""
    target.plan("any", faults.Comments(), faults.Gzip())
    with httpx2.Client(verify=False, base_url=target.base_url) as client:
        reply = client.post("/chat/completions", json=chat(stream=True))
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.text.startswith(": OPENROUTER PROCESSING\n\n")
    assert "data: \n\n" in reply.text
    assert "".join(faults.text_of(frame) or "" for frame in frames(reply) if frame) == REPLY


def test_end_signs_one_by_one(target: FakeTarget, http: httpx2.Client) -> None:
    """FinishOnly leaves out [DONE], DoneOnly leaves out the finish reason."""
    target.plan("any", faults.FinishOnly(), times=1)
    target.plan("any", faults.DoneOnly())
    finish = frames(http.post("/v1/chat/completions", json=chat(stream=True)))
    done = frames(http.post("/v1/chat/completions", json=chat(stream=True)))
    assert finish[-1]["choices"][0]["finish_reason"] == "stop"
    assert done[-1] == "[DONE]"
    assert all(frame["choices"][0]["finish_reason"] is None for frame in done[:-1])


def test_exact_chunks(target: FakeTarget, http: httpx2.Client) -> None:
    """A reply can be pinned to its very chunks, end of reply included."""
    target.plan("any", faults.Chunks("ok\nUs", "er: hi"))
    told = frames(http.post("/v1/chat/completions", json=chat(stream=True)))
    assert [text for frame in told if (text := faults.text_of(frame))] == ["ok\nUs", "er: hi"]
    assert told[-2]["choices"][0]["finish_reason"] == "stop"


def score(http: httpx2.Client) -> Any:
    asked = {"model": "toy", "prompt": "The capital of", "prompt_logprobs": 1, "max_tokens": 1, "temperature": 0}
    return http.post("/v1/completions", json=asked)


def test_numbers_that_are_none(target: FakeTarget, http: httpx2.Client) -> None:
    """Scores can be NaN literals, exact zeros, placeholders, or missing in each way that was seen."""
    for fault in (faults.NaNLogprobs(), faults.ZeroLogprobs(), faults.BadLogprobs(-9999.0)):
        target.plan("score", fault, times=1)
    nan, zero, none = score(http), score(http), score(http)
    assert "NaN" in nan.text
    numbers = [
        entry["logprob"] for position in zero.json()["choices"][0]["prompt_logprobs"][1:] for entry in position.values()
    ]
    assert set(numbers) == {0.0}
    assert '"logprob": -9999.0' in none.text
    expected: dict[str, Any] = {"null": None, "placeholder": [None]}
    for shape, want in expected.items():
        target.plan("score", faults.MissingLogprobs(shape), times=1)
        assert score(http).json()["choices"][0]["prompt_logprobs"] == want
    target.plan("score", faults.MissingLogprobs("absent"), times=1)
    assert "prompt_logprobs" not in score(http).json()["choices"][0]


def test_numbers_that_are_off_by_one(target: FakeTarget, http: httpx2.Client) -> None:
    """Each token carries the number of the token after it; the tokens themselves stand where they stood."""
    right = score(http).json()["choices"][0]["prompt_logprobs"]
    target.plan("score", faults.OffByOne())
    wrong = score(http).json()["choices"][0]["prompt_logprobs"]
    for here, there, following in zip(wrong[1:], right[1:], right[2:], strict=False):
        token = next(iter(there))
        assert here[token]["logprob"] == next(iter(following.values()))["logprob"]
        assert here[token]["decoded_token"] == there[token]["decoded_token"]


def test_refusals_that_depend_on_the_request(target: FakeTarget, http: httpx2.Client) -> None:
    """A server may refuse stream_options, or a prefill that ends in white space, and answer everything else."""
    target.plan("direct", faults.RefuseStreamOptions())
    target.plan("continue", faults.RefuseTrailingSpace())
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert http.post("/v1/chat/completions", json=chat(**options)).status_code == 400
    assert http.post("/v1/chat/completions", json=chat(stream=True)).status_code == 200
    for content, status in (("x ", 400), ("x", 200)):
        messages = [*QUESTION, {"role": "assistant", "content": content}]
        assert http.post("/v1/chat/completions", json=chat(messages=messages, max_tokens=1)).status_code == status


# --- the draft host --------------------------------------------------------------------------------------


def generate(draft: FakeDraft, **more: Any) -> httpx2.Response:
    asked = {"model": "toy", "messages": QUESTION, "options": {"temperature": 0}, **more}
    return post(f"{draft.url}/api/chat", json=asked, timeout=more.pop("timeout", 5.0))


def lines(reply: httpx2.Response) -> list[Any]:
    return [json.loads(line) for line in reply.text.splitlines()]


def test_draft_streams_lines_with_logprobs(draft: FakeDraft) -> None:
    """A chat streams one JSON a line; entries join to the text; the end of the turn has none but is counted."""
    told = lines(generate(draft, logprobs=True))
    text = "".join(line["message"]["content"] for line in told)
    assert text == REPLY
    assert "".join(entry["token"] for line in told for entry in line.get("logprobs", [])) == REPLY
    assert told[-1]["done_reason"] == "stop"
    assert told[-1]["eval_count"] == len(draft.model.encode(REPLY)) + 1
    whole = generate(draft, stream=False, logprobs=True).json()
    assert whole["message"]["content"] == REPLY


def test_draft_renders_and_goes_on_raw(draft: FakeDraft) -> None:
    """The rendered prompt plus a prefix, generated raw, continues the prefix exactly."""
    shown = generate(draft, _debug_render_only=True).json()["_debug_info"]["rendered_template"]
    asked = {"model": "toy", "raw": True, "prompt": shown + "In Par", "stream": False, "options": {"temperature": 0}}
    told = post(f"{draft.url}/api/generate", json=asked).json()
    assert told["response"] == REPLY.removeprefix("In Par")
    assert [request.purpose for request in draft.requests] == ["render", "draft"]


def test_draft_names_windows_and_loads(draft: FakeDraft) -> None:
    """An unknown model is a 404, an overlong prompt a 400 on request, an empty prompt a load."""
    assert generate(draft, model="nope").json() == {"error": "model 'nope' not found"}
    small = {"num_ctx": 16, "num_predict": 2}
    long = [{"role": "user", "content": "word " * 50}]
    error = generate(draft, messages=long, truncate=False, options=small)
    assert error.status_code == 400
    assert json.loads(error.json()["error"])["error"]["n_ctx"] == 16
    assert generate(draft, messages=[]).json()["done_reason"] == "load"
    assert get(f"{draft.url}/api/ps").json()["models"][0]["context_length"] == 16


def test_cold_load_starts_over_when_its_client_leaves(model: ToyModel) -> None:
    """Leaving during the load gives it up; staying long enough gets the answer, once loaded it is at once."""
    with FakeDraft(model=model, cold=0.5) as draft:
        assert get(f"{draft.url}/api/ps").json() == {"models": []}
        for _ in range(2):
            with pytest.raises(httpx2.TimeoutException):
                generate(draft, timeout=0.1)
            assert draft.wait_for(lambda: all(request.hung_up for request in draft.of("draft")))
        assert generate(draft).status_code == 200
        assert draft.load_starts == 3
        assert generate(draft).status_code == 200
        assert draft.load_starts == 3


def test_draft_faults(draft: FakeDraft) -> None:
    """Busy, an error line under 200, no last line, thoughts instead of an answer."""
    draft.plan("draft", faults.Status(503, body={"error": "server busy, please try again."}), times=1)
    draft.plan("draft", faults.ErrorInStream("line", after=2, message="unexpected EOF"), times=1)
    draft.plan("draft", faults.DoneOnly(), times=1)
    draft.plan("draft", faults.Say(""), faults.Reasoning("hm", "thinking"), times=1)
    assert generate(draft).status_code == 503
    assert lines(generate(draft))[-1] == {"error": "unexpected EOF"}
    assert all(not line["done"] for line in lines(generate(draft)))
    thought = lines(generate(draft))
    assert "".join(line["message"]["content"] for line in thought) == ""
    assert thought[0]["message"]["thinking"] == "hm"
