"""B46: one correct path each."""

from __future__ import annotations

import openai
import pytest
from casepair import Pair, servers

from cheapspec import AzureOpenAI

REPLY = "One, two, three in Paris."
BASES = ["/v1", "/v1/", "/api/v1", "/api/v1/", "", "/", "/api/paas/v4", "/openai/v1", "/proxy/prefix/v1"]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("capabilities", ["vllm", "no_tokenize"])
def test_b46_every_call_lies_beside_the_callers_own(base: str, capabilities: str, door: str) -> None:
    """Whatever the base URL looks like, scoring and hand-off go to the folder the caller's own route is in."""
    folder = base.rstrip("/")
    with servers(door, base=folder, capabilities=capabilities) as pair:
        pair.says(REPLY, "One, two")
        pair.hand_off_after(1)
        pair.options["base_url"] = pair.target.url + base
        outcome = pair.ask()
        assert outcome.text == REPLY
        assert outcome.told.decision == "speculate"
        assert {exchange.path for exchange in pair.paid} <= {f"{folder}/completions", f"{folder}/chat/completions"}
        for exchange in pair.target.requests:
            assert "//" not in exchange.path
            assert "/v1/v1" not in exchange.path
            assert "/v4/v1" not in exchange.path


def test_b46_a_query_stays_on_every_call(pair: Pair) -> None:
    """A query that the client adds to its requests is on all of ours."""
    pair.says(REPLY, "One, two")
    pair.hand_off_after(1)
    pair.options["default_query"] = {"api-version": "7"}
    assert pair.ask().told.decision == "speculate"
    assert {exchange.query for exchange in pair.target.requests} == {"api-version=7"}


def test_b46_azure_paths() -> None:
    """Azure's deployments: scoring and hand-off stay inside the deployment, with its api-version."""
    with servers("sync") as pair:
        pair.says(REPLY, "One, two")
        pair.hand_off_after(1)
        settings = pair.speculation()
        with AzureOpenAI(
            azure_endpoint=pair.target.url, api_key="k", api_version="2024-10-21", speculation=settings
        ) as client:
            reply = client.chat.completions.create(**pair.body())
        assert reply.choices[0].message.content == REPLY
        deployment = "/openai/deployments/toy"
        assert {exchange.path for exchange in pair.paid} <= {
            f"{deployment}/completions",
            f"{deployment}/chat/completions",
        }
        assert {"score", "continue"} <= set(pair.purposes())
        assert all("api-version=2024-10-21" in exchange.query for exchange in pair.paid)


@pytest.mark.parametrize("tail", ["", "/"])
def test_b46_draft_urls(tail: str, pair: Pair) -> None:
    """A draft URL with or without a slash, and without a scheme, gives one path each."""
    pair.says(REPLY)
    for url in (pair.draft.url + tail, pair.draft.url.removeprefix("http://") + tail):
        pair.settings["draft_url"] = url
        assert pair.ask().told.decision == "speculate"
    assert {exchange.path for exchange in pair.draft.requests} <= {
        "/api/ps",
        "/api/show",
        "/api/tags",
        "/api/chat",
        "/api/generate",
        "/api/version",
    }


def test_b46_a_wrong_base_names_the_url(pair: Pair) -> None:
    """A 404 at a wrong base is openai's own error, and says which URL was tried."""
    pair.says(REPLY)
    pair.options["base_url"] = f"{pair.target.url}/v2"
    outcome = pair.ask(temperature=...)
    assert type(outcome.error) is openai.NotFoundError
    assert str(outcome.error.request.url) == f"{pair.target.url}/v2/chat/completions"
