"""The probe believes replies, with controls, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from exchange import chat, recorded, reply

from cheapspec.backends.echo import read_echo
from cheapspec.backends.generic import GenericTarget
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.probe import Facts, probe, target_for
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.effects import HttpReply, HttpRequest
from cheapspec.core.ports import Context, Unusable
from cheapspec.errors import CapabilityError

WORDS = ["one", ",", " two", ",", " three", ",", " four"]
PROMPT = [1, 2, 3]
TEXT = "The capital of France is Paris, and the capital of Spain is"
NOT_FOUND = reply({"detail": "Not Found"}, 404)


class Host:
    """A vLLM over a vocabulary of words that wants to write ``WORDS``, as far as the probe asks.

    ``change`` may spoil a scoring reply; ``tokenizes``: /tokenize is served; ``flags``: the chat flags work.
    """

    def __init__(self, *, tokenizes: bool = True, flags: bool = True, change: Any = None, bos: bool = False) -> None:
        self.tokenizes, self.flags, self.change, self.bos = tokenizes, flags, change, bos
        self.vocabulary = ["", "<s>", "<|user|>", "<|assistant|>", "<|end|>", *dict.fromkeys(WORDS), " zebra", "zebra"]
        self.calls: list[HttpRequest] = []

    def ids(self, text: str) -> list[int]:
        out: list[int] = []
        while text:
            best = max((word for word in self.vocabulary[5:] if text.startswith(word)), key=len)
            out.append(self.vocabulary.index(best))
            text = text[len(best) :]
        return out

    def __call__(self, call: HttpRequest) -> HttpReply:
        self.calls.append(call)
        body = dict(call.body or {})
        if call.path in ("/version", "/tokenize") and not self.tokenizes:
            return NOT_FOUND
        match call.path:
            case "/version":
                return reply({"version": "0.32.0"})
            case "/tokenize" if "messages" in body:
                return reply({"tokens": [1, *PROMPT] if self.bos else PROMPT, "max_model_len": 512})
            case "/tokenize":
                ids = self.ids(body["prompt"])
                return reply({"tokens": ids, "token_strs": [self.vocabulary[one].replace(" ", "Ġ") for one in ids]})
            case "completions" if isinstance(body["prompt"], list):
                return self.answer(body, body["prompt"], "text")
            case "chat/completions":
                last = body["messages"][-1]
                said = self.ids(last["content"]) if last["role"] == "assistant" else []
                closed = [] if self.flags or not said else [4, 3]
                return self.answer(body, [*PROMPT, *said, *closed], "message")
            case _:
                return NOT_FOUND

    def answer(self, body: dict[str, Any], ids: list[int], shape: str) -> HttpReply:
        wanted = self.ids("".join(WORDS))
        said = ids[ids.index(3) + 1 :] if 4 not in ids else []
        rest = (wanted[len(said) :] if wanted[: len(said)] == said else [6])[: body.get("max_tokens", 16)]
        text = "".join(self.vocabulary[one] for one in rest)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "token_ids": rest}
        choice |= {"text": text} if shape == "text" else {"message": {"role": "assistant", "content": text}}
        told: dict[str, Any] = {"model": "m", "choices": [choice], "prompt_token_ids": ids}
        told["usage"] = {"prompt_tokens": len(ids), "completion_tokens": len(rest)}
        if body.get("prompt_logprobs"):
            rows = [None, *(self.row(ids, index, wanted) for index in range(1, len(ids)))]
            if self.change is not None:
                rows = self.change(rows, ids)
            (choice if shape == "text" else told)["prompt_logprobs"] = rows
        return reply(json.dumps(told))

    def row(self, ids: list[int], index: int, wanted: list[int]) -> dict[str, Any]:
        said = ids[ids.index(3) + 1 : index]
        best = wanted[len(said)] if wanted[: len(said)] == said and len(said) < len(wanted) else 6
        row = {str(ids[index]): {"logprob": -9.0, "rank": 40, "decoded_token": self.vocabulary[ids[index]]}}
        row[str(best)] = {"logprob": -0.1, "rank": 1, "decoded_token": self.vocabulary[best]}
        return row


def probed(answer: Callable[[HttpRequest], HttpReply | None]) -> tuple[Facts, list[HttpRequest]]:
    op, calls = probe("m"), []
    try:
        call = next(op)
        while True:
            calls.append(call)
            call = op.send(answer(call))
    except StopIteration as done:
        facts: Facts = done.value
        return facts, calls


def test_a_vllm_is_recognised_by_its_replies() -> None:
    """Its own greedy reply is its argmax, a corrupted copy is not, and it goes on from the middle."""
    facts, calls = probed(Host())
    assert (facts.backend, facts.can_score, facts.can_force, facts.can_continue) == ("vllm", True, False, True)
    assert (facts.route, facts.reason) == ("ids", "")
    assert (facts.reports_cached_tokens, facts.qs, facts.qh) == (False, None, None)
    assert {call.purpose for call in calls} == {"probe"} and not any(call.stream for call in calls)
    assert [call.path for call in calls if call.billed] == ["chat/completions", *["completions"] * 5]
    target = target_for("vllm", facts)
    assert isinstance(target, VllmTarget) and target.route == "ids"


def test_a_gateway_before_a_vllm_is_used_by_text() -> None:
    """Without /version and /tokenize the text route must prove itself the same way."""
    facts, _ = probed(Host(tokenizes=False))
    assert (facts.backend, facts.can_score, facts.can_continue, facts.route) == ("vllm", True, True, "text")


def test_a_tokenize_that_renders_another_prompt_is_not_used() -> None:
    """Ids that are not the chat route's own would score another conversation."""
    facts, _ = probed(Host(bos=True))
    assert facts.can_score and facts.route == "text"
    assert any("another prompt" in finding for finding in facts.evidence)


def shifted(rows: list[Any], ids: list[int]) -> list[Any]:
    """llama-cpp-python's way: each token stands beside the distribution after it."""
    out: list[Any] = [None]
    for index in range(1, len(rows)):
        entry = rows[index + 1] if index + 1 < len(rows) else rows[index]
        best = min(entry.items(), key=lambda item: item[1]["rank"])
        given = {"logprob": -9.0, "rank": 40, "decoded_token": rows[index][str(ids[index])]["decoded_token"]}
        out.append({str(ids[index]): given} | dict([best]))
    return out


def zeros(rows: list[Any], ids: list[int]) -> list[Any]:
    return [row and {key: value | {"logprob": 0.0, "rank": 1} for key, value in row.items()} for row in rows]


def yes_to_all(rows: list[Any], ids: list[int]) -> list[Any]:
    return [
        row and {str(token): row[str(token)] | {"logprob": -0.5 - token / 99, "rank": 1}}
        for row, token in zip(rows, ids, strict=True)
    ]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (shifted, "shifted"),
        (zeros, "no distribution"),
        (yes_to_all, "corrupted"),
        (lambda rows, ids: None, "no log-prob"),
    ],
)
def test_numbers_that_mislead_are_caught(change: Any, finding: str) -> None:
    """Shifted, flat, flattering or absent numbers leave the endpoint unscorable, and it says why."""
    facts, _ = probed(Host(change=change))
    assert (facts.can_score, facts.can_force, facts.reason) == (False, False, "cannot_score")
    assert any(finding in one for one in facts.evidence), facts.evidence


def test_b27_a_host_that_closes_the_turn_cannot_continue() -> None:
    """Flags that are dropped on the way close the turn: no score fits, nothing continues."""
    facts, _ = probed(Host(tokenizes=False, flags=False))
    assert not facts.can_score and not facts.can_continue and facts.backend == "generic"
    assert any("closed" in finding for finding in facts.evidence)


def test_a_silent_or_busy_host_has_shown_nothing() -> None:
    """No reply, 429 and 503 are reasons to ask again, not facts."""
    assert probed(lambda call: None)[0].reason == "not_probed"
    for status in (429, 503):
        host = Host()
        facts, _ = probed(lambda call, s=status, h=host: reply({}, s) if call.billed else h(call))
        assert facts.reason == "not_probed" and not facts.can_score


def test_a_thinking_model_is_named() -> None:
    """A reply with thoughts and no text cannot be verified as text."""
    message = {"role": "assistant", "content": None, "reasoning": "hm"}
    host = Host()
    facts, _ = probed(lambda call: reply({"choices": [{"message": message}]}) if call.billed else host(call))
    assert facts.reason == "reasoning"


def test_a_plain_chat_endpoint_is_generic_and_says_why() -> None:
    """Unknown parameters refused, echo refused: one sentence each, and the generic target."""

    def hosted(call: HttpRequest) -> HttpReply:
        if "prompt_logprobs" in (call.body or {}):
            return reply({"error": {"message": "Unrecognized request argument supplied: prompt_logprobs"}}, 400)
        if call.path == "chat/completions":
            return reply({"choices": [{"message": {"content": "one, two"}, "finish_reason": "stop"}]})
        return NOT_FOUND

    facts, calls = probed(hosted)
    assert (facts.backend, facts.can_score, facts.reason) == ("generic", False, "cannot_score")
    assert "Unrecognized" in facts.evidence[-2] and "echo is refused" in facts.evidence[-1]
    assert sum(call.billed for call in calls) == 3


def test_echo_replies_of_real_servers_are_read() -> None:
    """llama-cpp-python is shifted, llama.cpp ignores, LiteLLM before vLLM passes real numbers on."""
    assert "shifted" in read_echo(recorded("others/lcp_v1c_echo_mt1"), TEXT)
    assert "ignored" in read_echo(recorded("llamacpp/xl_v1c_echo"), "The capital of France is")
    assert "gives log-prob" in read_echo(recorded("others/litellm_smol-text_v1c_echo"), "The capital of France is")
    assert "gives log-prob" in read_echo(recorded("vllm/vllm_v1c_echo_lp_mt1"), TEXT)
    assert "ignored" in read_echo(reply({"choices": [{"text": "x", "logprobs": None}]}), TEXT)
    flat = {"tokens": [TEXT], "token_logprobs": [0.0], "top_logprobs": [None]}
    assert "placeholders" in read_echo(reply({"choices": [{"logprobs": flat}]}), TEXT)
    assert "no reply" in read_echo(None, TEXT)


def test_b24_litellm_refuses_ids_for_good() -> None:
    """Its 500 for an id prompt is no hiccup: the provider has no such prompt format."""
    target = VllmTarget(route="ids")
    refused = target.continue_(chat("x"), Context(1, "", 0, (1,)), 4).on_error(recorded("others/litellm_smol_v1c_ids"))
    assert isinstance(refused, Unusable) and refused.lasting and not refused.retryable


def test_names_give_targets() -> None:
    """Known names give their dialect, facts travel into it, an unknown name is an error."""
    llama = target_for("llamacpp", Facts(eos_ids=(2,)), simulate_scoring=True)
    assert isinstance(llama, LlamaCppTarget) and llama.simulate_scoring and llama.end_ids == {2}
    assert isinstance(target_for("openai"), GenericTarget) and isinstance(target_for("generic"), GenericTarget)
    vllm = target_for("vllm")
    assert isinstance(vllm, VllmTarget) and vllm.route is None
    with pytest.raises(CapabilityError, match=r"did you mean .sglang."):
        target_for("sglangg")
