"""What we lean on in openai is there, and what happens when it is not."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import openai
import pytest
from doorway import ANSWER, ASKED, Doorway, call, entered

import cheapspec
from cheapspec import client as clients
from cheapspec import options

KINDS = [openai.OpenAI, openai.AsyncOpenAI, openai.AzureOpenAI, openai.AsyncAzureOpenAI]


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_overridden_method_has_its_signature(kind: Any) -> None:
    """``_send_request(self, request, *, stream, **kwargs)`` is where requests pass; its name is openai's private."""
    parameters = inspect.signature(kind._send_request).parameters
    assert list(parameters) == ["self", "request", "stream", "kwargs"]
    assert parameters["stream"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD
    assert inspect.iscoroutinefunction(kind._send_request) == kind.__name__.startswith("Async")
    assert clients.HOOKED


@pytest.mark.parametrize(
    ("keys", "function"),
    [
        (options.Options, openai.OpenAI.__init__),
        (options.AsyncOptions, openai.AsyncOpenAI.__init__),
        (options.AzureOptions, openai.AzureOpenAI.__init__),
        (options.AsyncAzureOptions, openai.AsyncAzureOpenAI.__init__),
        (options.CopyOptions, openai.OpenAI.copy),
        (options.AsyncCopyOptions, openai.AsyncOpenAI.copy),
        (options.AzureCopyOptions, openai.AzureOpenAI.copy),
        (options.AsyncAzureCopyOptions, openai.AsyncAzureOpenAI.copy),
    ],
)
def test_our_options_are_those_of_openai(keys: Any, function: Any) -> None:
    """A keyword that openai adds, renames or drops shows here, not in a user's type checker."""
    real = set(inspect.signature(function).parameters) - {"self"}
    assert set(get_type_hints(keys)) == real


def test_without_the_method_the_transport_does_the_work(way: Doorway, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an openai without ``_send_request`` the clients put our transport under themselves, once."""
    monkeypatch.setattr(clients, "HOOKED", False)

    async def scenario() -> None:
        async with entered(way.client()) as client:
            off = client.copy(speculation=way.speculation(enabled=False))
            for one, decision in (
                (client, "speculate"),
                (client.with_options(timeout=9), "speculate"),
                (off, "bypass"),
            ):
                reply = await call(one.chat.completions.create, **ASKED)
                assert reply.choices[0].message.content == ANSWER
                told = cheapspec.info(reply)
                assert told is not None
                assert told.decision == decision

    way.run(scenario)
    assert len(way.ledger.requests()) == 3


def test_a_missing_or_changed_method_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another signature counts as no method at all."""
    assert clients._hooked()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(openai.AsyncOpenAI, "_send_request", object.__repr__)
    assert not clients._hooked()  # pyright: ignore[reportPrivateUsage]


def test_one_mro_for_all_twins() -> None:
    """Each client is an instance of openai's own class of that name."""
    for kind in KINDS:
        assert issubclass(getattr(cheapspec, kind.__name__), kind)
    assert (cheapspec.Client, cheapspec.AsyncClient) == (cheapspec.OpenAI, cheapspec.AsyncOpenAI)
