"""What openai's own test-suite asks of its client, and ours once did not give (``make compat`` runs all of it)."""

from __future__ import annotations

import gc
import inspect
from typing import Any, get_type_hints

import httpx2
import openai
import pytest
from doorway import ASKED, Doorway, call, entered

import cheapspec
from cheapspec import connections
from cheapspec.connections import Connections


class UnhashableClient(httpx2.Client):
    """A caller's own class may compare by value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnhashableClient)


def test_an_http_client_need_not_be_hashable() -> None:
    """It is known by identity, shared by the client's copies, and forgotten with it."""
    one, other = UnhashableClient(), UnhashableClient()
    client = cheapspec.OpenAI(api_key="k", http_client=one)
    assert Connections.of(one) is Connections.of(client.copy()._client)  # pyright: ignore[reportPrivateUsage]
    assert Connections.of(one) is not Connections.of(other)
    known = connections._known  # pyright: ignore[reportPrivateUsage]
    number = id(other)
    assert number in known
    del other
    gc.collect()
    assert number not in known


@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI"])
def test_copy_shows_the_options_of_openais(name: str) -> None:
    """Signature and type hints name every option of openai's ``copy``, and ``speculation``."""
    for method in ("copy", "with_options"):
        ours, theirs = (getattr(getattr(module, name), method) for module in (cheapspec, openai))
        options = set(inspect.signature(theirs).parameters)
        assert set(inspect.signature(ours).parameters) == {*options, "speculation"}
        hints, expected = get_type_hints(ours), get_type_hints(theirs)
        assert {key: hints[key] for key in expected if key != "return"} == {
            key: hint for key, hint in expected.items() if key != "return"
        }
        assert hints["speculation"] == cheapspec.Speculation | None


def test_the_module_level_client_of_azure_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """``import cheapspec as openai`` with Azure's settings: the client behind it is an ``AzureOpenAI`` of ours."""
    for name, value in {
        "api_type": "azure",
        "api_key": "k",
        "azure_endpoint": "http://azure",
        "api_version": "1",
    }.items():
        monkeypatch.setattr(openai, name, value)
    reset: Any = getattr(openai, "_reset_client")  # noqa: B009 - private to openai
    reset()
    try:
        client = cheapspec.chat.completions._client  # pyright: ignore[reportPrivateUsage]
        assert isinstance(client, cheapspec.AzureOpenAI)
    finally:
        reset()


def test_a_completion_without_choices_is_passed_on(way: Doorway) -> None:
    """A whole completion whose list is empty is the server's own word: no error of ours, and no charge."""
    empty = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "toy", "choices": []}
    kind: Any = httpx2.MockTransport(lambda request: httpx2.Response(200, json=empty))

    async def scenario() -> None:
        async with entered(way.client(http_client=way.http(transport=kind))) as client:
            reply = await call(client.chat.completions.create, **{**ASKED, "temperature": openai.omit})
            assert reply.choices == []
            assert reply.id == "chatcmpl-1"

    way.run(scenario)
    [row] = way.ledger.requests()
    assert [record.cost_usd for record in row.calls if record.row.billed] == [None]
