"""No cassette, and no recording, holds a key or an empty body; and whatever would put one there is caught."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from cassette_kit import KEY, MASK, cassette_files, cassette_machine, faults_of, read_cassette
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from vcr.serializers import yamlserializer

from cheapspec.testing.server import serve

RECORDINGS = Path(__file__).parents[1] / "recordings"
MESSAGES: Any = [{"role": "user", "content": "Hi"}]
FOREIGN = "sk-proj-Qq1Ww2Ee3Rr4Tt5Yy6"


@pytest.mark.parametrize("path", cassette_files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_b48bc_no_cassette_holds_a_secret_or_an_empty_body(path: Path) -> None:
    """Headers, addresses and bodies, unpacked too, of every committed cassette."""
    assert faults_of(path.read_text("utf-8")) == []


def test_b48_there_are_cassettes_to_search() -> None:
    """A search of nothing finds nothing."""
    assert {path.parent.name for path in cassette_files()} >= {"ollama", "vllm", "llamacpp"}
    assert len(cassette_files()) >= 187 + 12
    assert all(read_cassette(path)["metadata"]["version"] for path in cassette_files())


@pytest.mark.parametrize("path", sorted(RECORDINGS.rglob("*.json")), ids=lambda path: path.stem)
def test_b48c_no_other_recording_holds_a_secret(path: Path) -> None:
    """The older recordings are files of one exchange each; as cassettes they would pass the same search."""
    told = json.loads(path.read_text("utf-8"))
    body = told["response"] if isinstance(told["response"], str) else json.dumps(told["response"])
    exchange = {
        "request": {"uri": told["endpoint"], "headers": {}, "body": json.dumps(told["request"])},
        "response": {"status": {"code": told["status"]}, "headers": {}, "body": {"string": body}},
    }
    assert faults_of(yamlserializer.serialize({"interactions": [exchange]})) == []


@pytest.fixture
def quoting_server() -> Iterator[str]:
    """Refuses every request and quotes all it was sent, as some servers do, gzipped where that is accepted."""

    async def refuse(request: Request) -> Response:
        sent = request.headers["authorization"]
        error = {"message": f"Incorrect API key provided: {sent}; {request.url}; not {FOREIGN}", "code": "bad_key"}
        headers = {"set-cookie": f"session={KEY}", "openai-organization": "org-mine", "x-request-id": KEY}
        if request.query_params.get("pack") is None:
            return JSONResponse({"error": error}, 401, headers)
        packed = gzip.compress(json.dumps({"error": error}).encode())
        return Response(packed, 401, {**headers, "content-encoding": "gzip", "content-type": "application/json"})

    with serve(Starlette(routes=[Route("/{path:path}", refuse, methods=["POST", "GET"])])) as server:
        yield server.url


def ask(url: str, *contents: str, **query: object) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, default_query=query) as client:
        for content in contents:
            with pytest.raises(openai.AuthenticationError):
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])


@pytest.mark.parametrize("query", [{}, {"key": KEY}, {"api_key": KEY, "pack": "1"}])
def test_b48c_a_key_in_an_address_or_an_error_does_not_reach_the_file(
    query: dict[str, str], quoting_server: str, tmp_path: Path
) -> None:
    """Neither the recording's key, nor another that the server quotes, packed or not; what matters is still there."""
    path = tmp_path / "made.yaml"
    with cassette_machine(mode="all").use_cassette(str(path)):
        ask(quoting_server, "Hi", **query)
    text = path.read_text("utf-8")
    assert faults_of(text) == []
    assert KEY not in text
    assert FOREIGN not in text
    assert "authorization" not in text.lower()
    [exchange] = read_cassette(path)["interactions"]
    assert exchange["response"]["status"]["code"] == 401
    with cassette_machine().use_cassette(str(path)), pytest.raises(openai.AuthenticationError) as raised:
        client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="sk-another-key", max_retries=0)
        client.with_options(default_query=query).chat.completions.create(model="m", messages=MESSAGES)
    assert MASK in str(raised.value)


def test_b48b_recording_twice_and_dropping_the_unused_keeps_keys_out(quoting_server: str, tmp_path: Path) -> None:
    """The second session writes what it loaded again: what was filtered then stays filtered, what is unused goes."""
    path = tmp_path / "made.yaml"
    for session in (["first", "second"], ["second", "third"], ["third"]):
        machine = cassette_machine(mode="new_episodes")
        with machine.use_cassette(str(path), drop_unused_requests=True):
            ask(quoting_server, *session, key=KEY)
        text = path.read_text("utf-8")
        assert faults_of(text) == []
        assert KEY not in text
        assert "authorization" not in text.lower()
        assert [name for name in ("first", "second", "third") if f'"{name}"' in text] == session


def cassette(**changes: Any) -> str:
    """A good cassette with changes of its one exchange."""
    request: dict[str, Any] = {"uri": "http://engine.test/v1/x", "headers": {"accept": ["*/*"]}, "body": '{"a": "b"}'}
    response: dict[str, Any] = {"status": {"code": 200}, "headers": {}, "body": {"string": '{"text": "é"}'}}
    for name, value in changes.items():
        side, _, key = name.partition("_")
        (request if side == "request" else response)[key] = value
    return yamlserializer.serialize({"version": 1, "interactions": [{"request": request, "response": response}]})


def test_a_good_cassette_passes() -> None:
    """The search does not cry wolf."""
    assert faults_of(cassette()) == []
    assert faults_of(cassette(response_body={"string": gzip.compress("é".encode())})) == []
    assert faults_of(cassette(response_status={"code": 204}, response_body={"string": ""})) == []
    events = {"string": 'data: {"choices": []}\n\ndata: [DONE]\n\n'}
    assert faults_of(cassette(response_headers={"content-type": ["text/event-stream"]}, response_body=events)) == []


STREAM = {"content-type": ["text/event-stream; charset=utf-8"]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"request_headers": {"Authorization": ["Bearer abc"]}}, "a header"),
        ({"request_headers": {"x-api-key": ["abc"]}}, "a header"),
        ({"response_headers": {"Set-Cookie": ["a=b"]}}, "a header"),
        ({"response_headers": {"openai-organization": ["org"]}}, "a header"),
        ({"request_uri": "http://engine.test/v1/x?key=abc"}, "a query"),
        ({"request_body": f'{{"note": "{FOREIGN}"}}'}, "a secret"),
        ({"response_body": {"string": f'{{"error": "Incorrect API key provided: {FOREIGN}"}}'}}, "a secret"),
        ({"response_body": {"string": gzip.compress(f"not {FOREIGN}".encode())}}, "a secret in a body"),
        ({"response_body": {"string": gzip.compress(KEY.encode())}}, "a secret in a body"),
        ({"response_body": {"string": ""}}, "an empty body"),
        ({"response_body": {"string": None}}, "an empty body"),
        ({"response_body": {"string": gzip.compress(b"")}}, "an empty body"),
        ({"response_body": {"string": gzip.compress(b"text" * 99)[:-9]}}, "a broken body"),
        ({"response_headers": STREAM, "response_body": {"string": "data: [DONE]\n\n"}}, "a stream without"),
        ({"response_headers": STREAM, "response_body": {"string": ": keep-alive\n\n"}}, "a stream without"),
    ],
)
def test_b48_a_bad_cassette_is_caught(changes: dict[str, Any], said: str) -> None:
    """Each way in which a secret or an empty reply could be committed, planted and found."""
    found = faults_of(cassette(**changes))
    assert any(said in fault for fault in found), found


def test_b48_what_is_not_a_cassette_is_caught() -> None:
    """An empty file, a file of something else."""
    assert faults_of("interactions: []\nversion: 1\n") == ["no interaction"]
    assert faults_of("") == ["not a cassette"]
    assert faults_of("a: [") == ["not a cassette"]
