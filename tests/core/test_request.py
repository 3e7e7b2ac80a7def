"""Admission: every field is understood or named; nothing is guessed."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params

from cheapspec.core.fields import CHECKED, HARMLESS, thinking_switched_off
from cheapspec.core.request import Bypass, Request, Sampling, admit, sampling

# fmt: off
REASONS = frozenset([
    "tools", "n", "logprobs", "images", "audio", "stored", "responses_api", "reasoning", "response_format",
    "penalties", "logit_bias", "temperature_unset", "top_p_unset", "no_draft", "draft_busy", "draft_deadline",
    "draft_context", "cannot_score", "price_unknown", "not_worth_it", "allowance", "budget", "disabled",
    "retry", "cooldown", "sampling", "latency", "shadow", "uncalibrated", "rejected", "no_verdict",
    "not_probed", "unsupported_field", "other_route",
])
# fmt: on

USER = {"role": "user", "content": "Hi"}


def chat(**more: Any) -> Request | Bypass:
    body = {"model": "m", "messages": [USER], "temperature": 0, **more}
    return admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode())


def text(**more: Any) -> Request | Bypass:
    body = {"model": "m", "prompt": "Hi", "max_tokens": 8, "temperature": 0, **more}
    return admit("POST", "/v1/completions", {}, json.dumps(body).encode())


def good(outcome: Request | Bypass) -> Request:
    assert isinstance(outcome, Request), outcome
    return outcome


# --- the table of fields -----------------------------------------------------------------------

# A harmless value of every field of openai's chat and text completions, and one that is not ours with its reason
# (``None``: every value is honoured). A field of a newer SDK fails the test until it is classified here.
EXAMPLES: dict[str, tuple[Any, tuple[Any, str] | None]] = {
    "audio": (None, ({"voice": "alloy", "format": "mp3"}, "audio")),
    "best_of": (1, (2, "n")),
    "echo": (False, (True, "unsupported_field")),
    "frequency_penalty": (0, (0.5, "penalties")),
    "function_call": ("auto", ({"name": "f"}, "tools")),
    "functions": ([], ([{"name": "f"}], "tools")),
    "logit_bias": ({}, ({"7": -100}, "logit_bias")),
    "logprobs": (False, (True, "logprobs")),
    "max_completion_tokens": (8, (-1, "unsupported_field")),
    "max_tokens": (8, (-1, "unsupported_field")),
    "messages": ([USER], ([], "unsupported_field")),
    "metadata": ({"a": "b"}, None),
    "modalities": (["text"], (["text", "audio"], "audio")),
    "model": ("m", ("", "unsupported_field")),
    "moderation": (None, ({"model": "x"}, "unsupported_field")),
    "n": (1, (2, "n")),
    "parallel_tool_calls": (False, None),
    "prediction": ({"type": "content", "content": "x"}, ({"type": "other"}, "unsupported_field")),
    "presence_penalty": (0.0, (-0.5, "penalties")),
    "prompt": ("Hi", ([1, 2], "unsupported_field")),
    "prompt_cache_key": ("k", None),
    "prompt_cache_options": ({"ttl": "1h"}, None),
    "prompt_cache_retention": ("24h", None),
    "reasoning_effort": ("none", ("low", "reasoning")),
    "response_format": ({"type": "text"}, ({"type": "json_object"}, "response_format")),
    "safety_identifier": ("u", None),
    "seed": (7, None),
    "service_tier": ("flex", None),
    "stop": (["\n"], ([1], "unsupported_field")),
    "store": (False, (True, "stored")),
    "stream": (True, ("yes", "unsupported_field")),
    "stream_options": ({"include_usage": True, "include_obfuscation": False}, ("x", "unsupported_field")),
    "suffix": ("", ("end", "unsupported_field")),
    "temperature": (0, None),
    "tool_choice": ("none", ("required", "tools")),
    "tools": ([], ([{"type": "function", "function": {"name": "f"}}], "tools")),
    "top_logprobs": (0, (3, "logprobs")),
    "top_p": (0.5, None),
    "user": ("u", None),
    "verbosity": (None, ("low", "unsupported_field")),
    "web_search_options": (None, ({}, "unsupported_field")),
}
CHAT_FIELDS = sorted(get_type_hints(chat_params.CompletionCreateParamsStreaming))
TEXT_FIELDS = sorted({*get_type_hints(text_params.CompletionCreateParamsBase), "stream"})


def test_every_field_of_openais_sdk_is_classified() -> None:
    """A new field in a newer SDK is a decision to take, not an accident."""
    assert sorted({*CHAT_FIELDS, *TEXT_FIELDS}) == sorted(EXAMPLES)
    assert (HARMLESS | set(CHECKED)).issuperset(EXAMPLES)
    assert not HARMLESS & set(CHECKED)


@pytest.mark.parametrize("name", CHAT_FIELDS)
def test_every_chat_field(name: str) -> None:
    """A harmless value is honoured and kept in the body; another is a bypass with a reason of the list."""
    harmless, foreign = EXAMPLES[name]
    assert good(chat(**{name: harmless})).body[name] == harmless
    if foreign:
        outcome = chat(**{name: foreign[0]})
        assert isinstance(outcome, Bypass)
        assert outcome.reason == foreign[1] and outcome.reason in REASONS
        assert name in outcome.detail or name == "max_completion_tokens"


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_every_text_completion_field(name: str) -> None:
    """The legacy route is judged by the same tables."""
    harmless, foreign = EXAMPLES[name]
    assert good(text(**{name: harmless})).body[name] == harmless
    if foreign:
        outcome = text(**{name: foreign[0]})
        assert isinstance(outcome, Bypass) and outcome.reason == foreign[1]


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"model", "messages"}))
def test_null_means_absent(name: str) -> None:
    """A field that is null is a field that is not there."""
    good(chat(**{name: None}))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("brand_new", 1, "unsupported_field"),
        ("typical_p", 0.5, "unsupported_field"),
        ("prompt", "Hi", "unsupported_field"),
        ("repetition_penalty", 1.1, "penalties"),
        ("repeat_penalty", 1.1, "penalties"),
        ("prompt_logprobs", 1, "logprobs"),
        ("guided_json", {"a": 1}, "response_format"),
        ("structured_outputs", {"json": {}}, "response_format"),
        ("reasoning", {"effort": "high"}, "reasoning"),
        ("thinking", {"type": "enabled"}, "reasoning"),
        ("think", "low", "reasoning"),
        ("include_reasoning", True, "reasoning"),
        ("chat_template_kwargs", {"enable_thinking": True}, "reasoning"),
        ("chat_template_kwargs", {"enable_thinking": "none"}, "reasoning"),
        ("chat_template_kwargs", {"custom": 1, "thinking": True}, "reasoning"),
        ("chat_template_kwargs", {"thinking_budget": 512}, "reasoning"),
        ("chat_template_kwargs", {"reasoning_effort": "low"}, "reasoning"),
        ("stop_token_ids", [7], "unsupported_field"),
        ("continue_final_message", True, "unsupported_field"),
        ("add_generation_prompt", False, "unsupported_field"),
        ("stream_options", {"continuous_usage_stats": True}, "unsupported_field"),
        ("n", True, "n"),
    ],
)
def test_fields_of_other_servers_that_change_the_reply(name: str, value: Any, reason: str) -> None:
    """The bypass names the field."""
    assert chat(**{name: value}) == Bypass(reason, name)
    assert reason in REASONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 40),
        ("min_p", 0.1),
        ("cache_salt", "x"),
        ("priority", 1),
        ("chat_template_kwargs", {"enable_thinking": False}),
        ("chat_template_kwargs", {"thinking_budget": 0, "reasoning_effort": "none", "custom": True}),
        ("repetition_penalty", 1.0),
        ("reasoning", {"effort": "none"}),
        ("reasoning", {"enabled": False}),
        ("thinking", {"type": "disabled"}),
        ("think", False),
        ("tool_choice", "auto"),
    ],
)
def test_fields_of_other_servers_that_change_nothing(name: str, value: Any) -> None:
    """Filters that keep the argmax, routing, caching, and thinking switched off."""
    good(chat(**{name: value}))


@pytest.mark.parametrize(
    ("fields", "off"),
    [
        ({}, False),
        ({"reasoning_effort": "none"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, True),
        ({"chat_template_kwargs": {"thinking": False}}, True),
        ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}, False),
        ({"chat_template_kwargs": {"custom": False}}, False),
        ({"enable_thinking": False}, False),
    ],
)
def test_only_what_reaches_the_template_switches_thinking_off(fields: dict[str, Any], off: bool) -> None:
    """Saying nothing is no switch, and neither is a field that the server ignores; a template variable goes first."""
    assert thinking_switched_off(fields) == off


def test_legacy_log_probabilities_of_zero_alternatives_are_asked_for() -> None:
    """On the legacy route logprobs is a number, and 0 asks for the chosen tokens' own."""
    assert text(logprobs=0) == Bypass("logprobs", "logprobs")


# --- routes and bodies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", "chat"),
        ("chat/completions", "chat"),
        ("/proxy/v1/chat/completions/?x=1", "chat"),
        ("/openai/deployments/d/chat/completions?api-version=2024-10-21", "chat"),
        ("/v1/completions", "completion"),
    ],
)
def test_b46_routes_that_are_ours(path: str, kind: str) -> None:
    """Whatever stands before the route."""
    body = {"model": "m", "max_tokens": 4, **({"messages": [USER]} if kind == "chat" else {"prompt": "Hi"})}
    assert good(admit("post", path, {}, json.dumps(body).encode())).kind == kind


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("POST", "/v1/responses", "responses_api"),
        ("GET", "/v1/responses/resp_1", "responses_api"),
        ("POST", "/v1/embeddings", "other_route"),
        ("GET", "/v1/chat/completions", "other_route"),
        ("POST", "/v1/chat/completions/c1", "other_route"),
        ("POST", "/v1/fim/completions", "other_route"),
    ],
)
def test_routes_that_are_not_ours(method: str, path: str, reason: str) -> None:
    """Stored completions, other endpoints and the responses API pass through."""
    outcome = admit(method, path, {}, b"{}")
    assert isinstance(outcome, Bypass) and outcome.reason == reason and reason in REASONS


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 200_000])
def test_a_body_that_is_no_object_is_the_servers_to_refuse(body: bytes) -> None:
    """It passes through; nothing is raised."""
    outcome = admit("POST", "/chat/completions", {}, body)
    assert outcome == Bypass("unsupported_field", "the body is not a JSON object")


@pytest.mark.parametrize(("value", "off"), [("1", True), ("yes", True), ("0", False), ("false", False), ("", False)])
def test_a_header_switches_everything_off(value: str, off: bool) -> None:
    """x-cheapspec-disable, in any case."""
    body = json.dumps({"model": "m", "messages": [USER]}).encode()
    outcome = admit("POST", "/v1/chat/completions", {"X-Cheapspec-Disable": value}, body)
    assert (outcome == Bypass("disabled", "x-cheapspec-disable")) is off


def test_what_a_request_says() -> None:
    """Every honoured field is readable, and the body is the caller's own."""
    request = good(
        chat(
            stream=True,
            stop=["\nUser:"],
            max_tokens=7,
            max_completion_tokens=9,
            prediction={"type": "content", "content": [{"type": "text", "text": "x"}]},
            stream_options={"include_usage": True},
        )
    )
    assert (request.kind, request.model, request.stream, request.include_usage) == ("chat", "m", True, True)
    assert (request.stops, request.max_tokens, request.prediction) == (("\nUser:",), 9, "x")
    assert request.messages == (USER,) and request.prompt is None
    assert request.body["stop"] == ["\nUser:"] and request.body["max_tokens"] == 7
    assert good(text(stop="x", max_tokens=1)).stops == ("x",)
    assert good(chat()).max_tokens is None and good(chat(stop=[])).stops == ()


@pytest.mark.parametrize("value", ["8", 1.5, True, -1, 0])
def test_a_limit_that_is_none_is_the_servers_to_refuse(value: Any) -> None:
    """Only whole numbers from 1 on are limits."""
    assert chat(max_tokens=value) == Bypass("unsupported_field", "max_tokens")


def test_a_text_completion_needs_a_limit() -> None:
    """The default differs by server, and no continuation could keep to it."""
    assert text(max_tokens=None) == Bypass("unsupported_field", "max_tokens is not given")


def test_our_own_key_is_taken_out() -> None:
    """What stands under cheapspec is ours and never part of the body; junk there is nothing."""
    request = good(chat(cheapspec={"accept": "exact"}))
    assert request.options == {"accept": "exact"} and "cheapspec" not in request.body
    assert good(chat(cheapspec=3)).options == {}


@pytest.mark.parametrize("stop", [3, [1], {"a": 1}])
def test_stop_must_be_text(stop: Any) -> None:
    """A stop that is no string or list of strings is not understood."""
    assert chat(stop=stop) == Bypass("unsupported_field", "stop")


# --- messages ----------------------------------------------------------------------------------


def test_messages_are_read_as_plain_text() -> None:
    """Text parts are joined, names and roles kept, nulls and empty leftovers of earlier replies ignored."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    earlier = {
        "role": "assistant",
        "content": None,
        "tool_calls": None,
        "refusal": None,
        "audio": None,
        "annotations": [],
    }
    request = good(chat(messages=[{"role": "developer", "content": parts, "name": "n"}, earlier, USER]))
    assert request.messages == (
        {"role": "developer", "content": "a\nb", "name": "n"},
        {"role": "assistant", "content": ""},
        USER,
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "images"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "audio"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, "unsupported_field"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "unsupported_field"),
        ({"role": "user", "content": ["x"]}, "unsupported_field"),
        ({"role": "user", "content": 3}, "unsupported_field"),
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "tools"),
        ({"role": "function", "content": "x", "name": "f"}, "tools"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "tools"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "tools"),
        ({"role": "assistant", "audio": {"id": "1"}}, "audio"),
        ({"role": "assistant", "refusal": "no"}, "unsupported_field"),
        ({"role": "assistant", "content": "x", "prefix": True}, "unsupported_field"),
        ({"role": "narrator", "content": "x"}, "unsupported_field"),
        ("Hi", "unsupported_field"),
    ],
)
def test_messages_that_are_not_ours(message: Any, reason: str) -> None:
    """Tools, media and what is not understood, anywhere in the conversation."""
    outcome = chat(messages=[message, USER])
    assert isinstance(outcome, Bypass) and outcome.reason == reason and outcome.detail


def test_the_callers_own_prefill_is_not_ours() -> None:
    """A conversation that ends with the assistant's own beginning is named as such."""
    outcome = chat(messages=[USER, {"role": "assistant", "content": "The"}])
    assert isinstance(outcome, Bypass)
    assert outcome.reason == "unsupported_field" and outcome.detail.startswith("messages: the last one")


def test_b43_special_token_text_is_plain_text() -> None:
    """A user's words may hold anything."""
    words = "Explain <|endoftext|> and <|im_start|>"
    assert good(chat(messages=[{"role": "user", "content": words}])).messages[0]["content"] == words


# --- sampling ----------------------------------------------------------------------------------


def test_temperature_zero_is_greedy_whatever_top_p_says() -> None:
    """Integer or float; other filters mean nothing there."""
    for zero in (0, 0.0):
        chosen = sampling(good(chat(temperature=zero, top_p=0.1)))
        assert chosen == Sampling(0.0, 0.1) and chosen.greedy


PLAIN: dict[str, Any] = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "repeat_penalty": 1}


def test_b22_a_temperature_above_0_is_followed_where_all_of_it_is_known() -> None:
    """The request says everything, or the caller or a probe vouches for what it does not say."""
    want = Sampling(0.2, 0.1)
    assert sampling(good(chat(temperature=0.2, top_p=0.1, **PLAIN))) == want and not want.greedy
    assert sampling(good(chat(temperature=0.2, top_p=0.1, **{**PLAIN, "top_k": -1, "min_p": 0.0}))) == want
    assert sampling(good(chat(temperature=0.2, top_p=0.1)), plain_defaults=True) == want
    assert sampling(good(chat(temperature=0.2)), assume_temperature=1.0) == Sampling(0.2, 1.0)


def test_unknown_defaults_above_temperature_0_are_not_guessed() -> None:
    """top_p has a reason of its own; the others wait for the probe, or go direct when it found no answer."""
    assert sampling(good(chat(temperature=0.2, **PLAIN))) == Bypass("top_p_unset")
    assert sampling(good(chat(temperature=0.2)), plain_defaults=True) == Bypass("top_p_unset")
    unknown = sampling(good(chat(temperature=0.2, top_p=1)))
    assert (
        isinstance(unknown, Bypass) and unknown.reason == "not_probed" and "top_k and min_p and rep" in unknown.detail
    )
    changed = sampling(good(chat(temperature=0.2, top_p=1, min_p=0)), plain_defaults=False)
    assert isinstance(changed, Bypass) and changed.reason == "sampling" and "default of top_k" in changed.detail


HIDDEN: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1},
    "min_p": {"min_p": 0},
    "repetition_penalty": {"repetition_penalty": 1},
    "repeat_penalty": {"repeat_penalty": 1},
    "presence_penalty": {"presence_penalty": 0},
    "frequency_penalty": {"frequency_penalty": 0},
    "dry_multiplier": {"dry_multiplier": 0},
    "typical_p": {},
    "xtc_probability": {},
    "mirostat": {},
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("assumed", [None, 1.0])
def test_a_default_that_is_known_must_be_ruled_out_by_name(name: str, assumed: float | None) -> None:
    """Whatever the caller vouches for, and whatever else the request says; what no request can say goes direct."""
    others = {key: value for key, value in PLAIN.items() if key != name}
    asked: dict[str, Any] = {"temperature": 0.5, **({} if name == "top_p" and assumed else {"top_p": 1}), **others}
    if name == "top_p":
        asked.pop("top_p", None)
    refused = sampling(good(chat(**asked)), assumed, False, (name,))
    assert isinstance(refused, Bypass) and refused.reason in ("sampling", "top_p_unset")
    ruled_out = sampling(good(chat(**{"top_p": 1, **asked, **HIDDEN[name]})), assumed, False, (name,))
    assert isinstance(ruled_out, Sampling) is bool(HIDDEN[name])


def test_hidden_defaults_that_move_the_argmax_count_at_temperature_0_too() -> None:
    """A penalty does, and what can drop the likeliest token; top_k, top_p and min_p keep it."""
    for name, ruling_out in HIDDEN.items():
        told = sampling(good(chat(temperature=0)), hidden_defaults=(name,))
        if name in ("top_k", "top_p", "min_p", "mirostat"):
            assert told == Sampling(0.0)
            continue
        assert told == Bypass("sampling", f"the endpoint has a default of its own for {name}")
        if ruling_out:
            assert sampling(good(chat(temperature=0, **ruling_out)), hidden_defaults=(name,)) == Sampling(0.0)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"temperature": 1.2}, "temperature 1.2 is above 1"),
        ({"top_k": 40}, "top_k 40"),
        ({"min_p": 0.05}, "min_p 0.05"),
        ({"top_a": 0.2}, "top_a 0.2"),
    ],
)
def test_what_cannot_be_followed_above_temperature_0(fields: dict[str, Any], detail: str) -> None:
    """A flatter distribution than at 1, and filters that no log-probability shows, are direct."""
    asked = chat(**{"temperature": 0.5, "top_p": 1, **PLAIN, **fields})
    assert sampling(good(asked), plain_defaults=True) == Bypass("sampling", detail)


def test_an_unset_temperature_is_not_guessed() -> None:
    """Missing or null: direct, unless the caller said what the endpoint's default is."""
    for request in (good(chat(temperature=None)), Request("chat", {}, "m", False)):
        assert sampling(request) == Bypass("temperature_unset")
        assert sampling(request, assume_temperature=0) == Sampling(0.0)
        assert sampling(request, assume_temperature=1.0) == Sampling(1.0, 1.0)


@pytest.mark.parametrize(("name", "value"), [("temperature", "0"), ("temperature", -1), ("temperature", False)])
def test_sampling_fields_that_are_no_numbers(name: str, value: Any) -> None:
    """The server is left to say so."""
    assert sampling(good(chat(**{name: value}))) == Bypass("unsupported_field", name)


def test_nan_is_no_temperature() -> None:
    """Python's JSON reader takes NaN; it is neither zero nor above it."""
    request = Request("chat", {"temperature": float("nan")}, "m", False)
    assert sampling(request) == Bypass("unsupported_field", "temperature")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_p", 0),
        ("top_p", 1.5),
        ("seed", "abc"),
        ("seed", True),
        ("top_k", -7),
        ("top_k", 2.5),
        ("min_p", 3),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("max_tokens", 0),
    ],
)
def test_a_value_that_servers_refuse_is_for_the_server_to_refuse(field: str, value: object) -> None:
    """A field out of its range goes to the target as it is, so that its own 400 is the answer."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, field: value}
    found = admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode())
    assert isinstance(found, Bypass)
    assert (found.reason, found.detail) == ("unsupported_field", field)


def test_a_seed_is_read_under_either_name() -> None:
    """``seed``, or Mistral's; ``null`` is none, and 0 is one."""
    assert good(chat(seed=0, random_seed=5)).seed == 0
    assert good(chat(seed=None, random_seed=5)).seed == 5
    assert good(chat(random_seed=0)).seed == 0
    assert good(chat()).seed is None and Request("chat", {"seed": True}, "m", False).seed is None


@pytest.mark.parametrize(
    ("fields", "bar", "formatted"),
    [
        ({}, None, False),
        ({"response_format": {"type": "json_object"}}, Bypass("response_format", "response_format"), True),
        ({"response_format": {"type": "json_schema"}}, Bypass("response_format", "response_format"), True),
        ({"reasoning_effort": "low"}, Bypass("reasoning", "reasoning_effort"), False),
        (
            {"reasoning_effort": "low", "response_format": {"type": "json_object"}},
            Bypass("reasoning", "reasoning_effort"),
            True,
        ),
    ],
)
def test_a_rule_about_a_whole_draft_may_have_more_requests(
    fields: dict[str, Any], bar: Bypass | None, formatted: bool
) -> None:
    """Thoughts and a JSON format bar scoring only; who asks for whole drafts gets the request and what bars it."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    found = admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode(), whole=True)
    assert isinstance(found, Request)
    assert (found.barred, found.formatted) == (bar, formatted)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"guided_json": {}, "n": 2}, "n"),
        ({"guided_json": {"a": 1}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_other_fields_bar_whole_drafts_too(fields: dict[str, Any], reason: str) -> None:
    """A grammar that no validator here can check, and everything that is nobody's but the target's."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    found = admit("POST", "/v1/chat/completions", {}, json.dumps(body).encode(), whole=True)
    assert isinstance(found, Bypass)
    assert found.reason == reason
