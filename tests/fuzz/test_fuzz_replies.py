"""Replies that are spoiled in any way: no dialect raises, and nothing is accepted without a number that says so."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from fuzzing import JUNK, MODEL, SERVERS, Exchange, body_of, often, play, served, spoil, without_numbers
from hypothesis import given
from hypothesis import strategies as st

from cheapspec.backends.echo import is_echoed, read_echo
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.llamacpp_wire import exact_grammar
from cheapspec.backends.targets import target_for
from cheapspec.core.acceptance import usable, verify_greedy
from cheapspec.core.alignment import align, align_draft
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.judging import Rule, judge
from cheapspec.core.ports import Context, Drawn, SamplingTarget, Score, Target, Unusable
from cheapspec.core.received import read_completion
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law, SeededDraws

QUESTION = "Say one two three"
ANSWER = "The answer is one of two."
DRAFT = "The answer is one big city."
OTHER = "Paris is the capital of France."
COLD, HOT = Sampling(0.0), Sampling(1.0, 1.0)


def asked(kind: str, sampling: Sampling) -> Request:
    fields: dict[str, Any] = {"model": "toy", "temperature": sampling.temperature, "max_tokens": 64}
    if kind == "completion":
        return Request(
            kind, fields | {"prompt": QUESTION}, "toy", False, prompt=QUESTION, max_tokens=64, sampling=sampling
        )
    messages = ({"role": "user", "content": QUESTION},)
    return Request(
        "chat", fields | {"messages": list(messages)}, "toy", False, messages, max_tokens=64, sampling=sampling
    )


def scoring(target: Target, request: Request, draft: str = DRAFT) -> Op[Score | Context | Unusable]:
    """Open, score: what becomes evidence."""
    context = yield from target.open(request)
    if isinstance(context, Unusable):
        return context
    return (yield from target.score(request, context, draft))


class LlamaCpp:
    """llama.cpp's forced reply, made by hand over the toy model (build 11549's shape)."""

    def __call__(self, number: int, call: HttpRequest) -> HttpReply:
        body = dict(call.body or {})
        match call.path:
            case "/props":
                told: dict[str, Any] = {"eos_token": "<|im_end|>"}
            case "/apply-template":
                told = {"prompt": MODEL.render(body["messages"])}
            case "/tokenize":
                told = {"tokens": MODEL.encode(body["content"])}
            case "/detokenize":
                told = {"content": MODEL.decode(body["tokens"])}
            case _:
                told = self.forced(body)
        return HttpReply(200, body_of(told))

    def forced(self, body: dict[str, Any]) -> dict[str, Any]:
        text = next(
            one for one in (DRAFT, OTHER, ANSWER, None) if one is None or exact_grammar(one) == body.get("grammar")
        )
        ids = [*MODEL.encode(text or ""), MODEL.end_id] if text else [MODEL.next(body["prompt"])]
        context, entries = list(body["prompt"]), list[dict[str, Any]]()
        for token in ids:
            values = MODEL.logprobs(context)
            best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[: body["n_probs"]]
            entries.append({**self.entry(token, values), "top_logprobs": [self.entry(one, values) for one in best]})
            context.append(token)
        counts = {"tokens_evaluated": len(body["prompt"]), "tokens_predicted": len(ids)}
        return {
            "content": text or MODEL.decode(ids),
            "tokens": ids,
            "stop": True,
            "stop_type": "eos" if text else "limit",
            "completion_probabilities": entries,
            **counts,
        }

    @staticmethod
    def entry(token: int, values: list[float]) -> dict[str, Any]:
        data = b"" if token == MODEL.end_id else MODEL.vocabulary[token]
        return {"id": token, "token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": values[token]}


@pytest.fixture(scope="module")
def exchanges() -> Iterator[dict[str, dict[str, Exchange]]]:
    """What healthy servers answer to each dialect about the draft, and about another one (``other``)."""
    MODEL.replies[QUESTION] = ANSWER
    found: dict[str, dict[str, Exchange]] = {}
    for name, (serve, backend, facts) in SERVERS.items():
        make = partial(target_for, backend, facts)
        request = asked("completion" if backend == "llamacpp-python" else "chat", COLD)
        with serve() as server:
            found[name] = {
                draft: heard(name, make, request, served(server.base_url, server.url), draft)
                for draft in (DRAFT, OTHER)
            }
            if name == "vllm by ids":
                hot = replace(request, sampling=HOT)
                found["vllm by ids, hot"] = {
                    draft: heard(name, make, hot, served(server.base_url, server.url), draft)
                    for draft in (DRAFT, OTHER)
                }
    for name, sampling in (("llamacpp", COLD), ("llamacpp, hot", HOT)):
        request = asked("chat", sampling)
        found[name] = {draft: heard(name, LlamaCppTarget, request, LlamaCpp(), draft) for draft in (DRAFT, OTHER)}
    yield found
    MODEL.replies.pop(QUESTION)


def heard(name: str, make: Any, request: Request, answer: Any, draft: str) -> Exchange:
    replies: list[tuple[HttpRequest, HttpReply]] = []

    def listen(number: int, call: HttpRequest) -> HttpReply:
        replies.append((call, answer(number, call)))
        return replies[-1][1]

    score = play(scoring(make(), request, draft), listen)
    assert isinstance(score, Score), f"{name}: {score}"
    accepted = verify_greedy(score.tokens).accepted
    assert (accepted > 0) == (draft == DRAFT) and accepted < len(score.tokens), (
        f"{name}: the control: some of it holds, not all"
    )
    return Exchange(name, make, request, tuple(replies))


NAMES = [*SERVERS, "vllm by ids, hot", "llamacpp", "llamacpp, hot"]
EACH = pytest.mark.parametrize("name", NAMES)


def again(
    exchange: Exchange, bodies: list[bytes | None], statuses: list[int] | None = None
) -> Score | Context | Unusable:
    """The operation with these bodies in place of what was heard (``None``: no reply at all)."""

    def answer(number: int, call: HttpRequest) -> HttpReply | None:
        body = bodies[min(number, len(bodies) - 1)]
        return None if body is None else HttpReply((statuses or [200] * 99)[number], body)

    return play(scoring(exchange.make(), exchange.request), answer)


def assert_evidence(score: Score | Context | Unusable, target: Target, request: Request) -> int:
    """What is accepted has a number. Returns how much is."""
    assert isinstance(score, Score | Unusable)
    if isinstance(score, Unusable) or not score.trusted or not score.tokens or len(score.tokens) != len(score.ends):
        return 0
    rule = Rule(law=Law(1.0), draws=SeededDraws(1)) if request.samples else Rule()
    accepted = judge(target, score, len(DRAFT), rule, 0, None).accepted
    assert all(usable(token.logprob) for token in score.tokens[:accepted])
    ends = [end for end in score.ends if end is not None]
    assert ends == sorted(ends) and all(0 <= end <= len(DRAFT) for end in ends)
    usage = score.usage
    assert usage.input_tokens >= 0 and usage.output_tokens >= 0
    return accepted


@EACH
@often(60)
@given(source=st.randoms(use_true_random=False))
def test_spoiled_replies_are_no_crash_and_no_evidence(name: str, source: random.Random, exchanges: Any) -> None:
    """Parts of wrong types, missing, repeated, cut off, turned round, at any of the calls."""
    exchange: Exchange = exchanges[name][DRAFT]
    bodies: list[bytes | None] = []
    for body in exchange.bodies:
        spoiled = spoil(body, source, source.choice((0, 1, 1, 2, 4)))
        data = body_of(spoiled)
        cut = source.random()
        bodies.append(None if cut < 0.02 else data[: source.randrange(len(data) + 1)] if cut < 0.06 else data)
    statuses = [source.choice((200, 200, 200, 200, 200, 200, 400, 404, 429, 500)) for _ in range(60)]
    assert_evidence(again(exchange, bodies, statuses), exchange.make(), exchange.request)


@EACH
@often(30)
@given(junk=st.sampled_from([None, "-0.1", True, -9999.0, math.nan, -math.inf, math.inf, [], {}, 0.0]))
def test_without_numbers_nothing_is_accepted(name: str, junk: Any, exchanges: Any) -> None:
    """Every probability replaced by what is none, or by certainty everywhere: unverified, never accepted."""
    exchange: Exchange = exchanges[name][DRAFT]
    bodies = [body_of(without_numbers(body, junk)) for body in exchange.bodies]
    assert assert_evidence(again(exchange, list(bodies)), exchange.make(), exchange.request) == 0


@EACH
def test_the_answer_to_another_question_is_no_evidence(name: str, exchanges: Any) -> None:
    """A gateway that mixes up two callers: the reply is about another draft than was sent."""
    exchange: Exchange = exchanges[name][DRAFT]
    other: Exchange = exchanges[name][OTHER]
    calls = [call.purpose for call, _ in exchange.replies]
    bodies = [
        there.body if purpose in ("score", "force") else here.body
        for (_, here), (_, there), purpose in zip(exchange.replies, other.replies, calls, strict=False)
    ]
    assert assert_evidence(again(exchange, list(bodies)), exchange.make(), exchange.request) == 0


@often(150)
@given(source=st.randoms(use_true_random=False), hot=st.booleans(), forced=st.booleans())
def test_spoiled_draws_are_no_crash(source: random.Random, hot: bool, forced: bool) -> None:
    """A token that the server was to draw: it is one whole number, or it is unusable."""
    target: Any = LlamaCppTarget(end_ids=(257,)) if forced else target_for("vllm", SERVERS["vllm by ids"][2])
    assert isinstance(target, SamplingTarget)
    entry = {"id": 300, "token": " a", "bytes": [32, 97], "logprob": -3.0, "top_logprobs": []}
    logprobs = {"tokens": ["token_id:300"], "token_logprobs": [-3.0], "top_logprobs": [{"token_id:300": -3.0}]}
    choice = {"text": " a", "token_ids": [300], "finish_reason": "length", "stop_reason": None, "logprobs": logprobs}
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    told = {
        "content": " a",
        "tokens": [300],
        "stop_type": "limit",
        "completion_probabilities": [entry],
        "tokens_evaluated": 5,
    }
    body = spoil(told if forced else {"choices": [choice], "usage": usage}, source, source.randrange(4))
    request = asked("chat", HOT)
    context = Context(prompt_tokens=2, ids=(1, 2))
    drawn = play(target.draw(request, context, (7, 8) if hot else (), 3), lambda *_: HttpReply(200, body_of(body)))
    assert isinstance(drawn, Drawn | Unusable)
    if isinstance(drawn, Drawn):
        assert type(drawn.token_id) is int and (drawn.logprob is None or usable(drawn.logprob))
    joined = play(
        target.join(request, context, (300,)),
        lambda *_: HttpReply(200, body_of(spoil({"prompt": " a", "content": " a", "tokens": [300]}, source, 2))),
    )
    assert isinstance(joined, Context | Unusable)


surfaces = st.one_of(st.binary(max_size=5), st.text(max_size=5), st.just("\ufffd"), st.just(""))


@often(300)
@given(tokens=st.lists(surfaces, max_size=12), text=st.text(max_size=20))
def test_alignment_of_anything(tokens: list[bytes | str], text: str) -> None:
    """Ends rise, lie in the text, and reach its end, or there are none."""
    ends = align(tokens, text)
    if ends is not None:
        certain = [end for end in ends if end is not None]
        assert len(ends) == len(tokens) and certain == sorted(certain) and all(0 <= end <= len(text) for end in certain)


@often(300)
@given(data=st.data(), text=st.text(alphabet="aé🙂 \n界\u0301x", max_size=12))
def test_tokens_cut_out_of_a_text_are_found_again(data: st.DataObject, text: str) -> None:
    """Bytes cut anywhere align exactly; where the cut is inside a character there is no end."""
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=6)) | {0, len(raw)})
    parts = [raw[start:end] for start, end in pairwise(cuts)]
    ends = align(parts, text)
    assert ends is not None
    offsets = {len(text[:index].encode()): index for index in range(len(text) + 1)}
    assert list(ends) == [offsets.get(cut) for cut in cuts[1:]]


entries = st.lists(
    st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=6)), st.one_of(st.none(), st.floats())),
    max_size=8,
)


@often(300)
@given(found=entries, text=st.text(max_size=16))
def test_draft_entries_of_anything_join_to_the_text(found: Any, text: str) -> None:
    """Whatever a draft host says of its tokens, the text is the text, and a number is a log-probability."""
    tokens = align_draft(found, text)
    assert "".join(token.text for token in tokens) == text.rstrip("\ufffd")
    assert all(token.logprob is None or usable(token.logprob) for token in tokens)


@often(200)
@given(
    source=st.randoms(use_true_random=False), kind=st.sampled_from(["chat", "completion"]), junk=st.sampled_from(JUNK)
)
def test_whole_replies_of_anything(source: random.Random, kind: str, junk: Any) -> None:
    """A direct reply and the echo question are read, or said to be none; never raised about."""
    message = {"role": "assistant", "content": "Yes", "refusal": None}
    logprobs = {
        "tokens": ["The", " capital"],
        "token_logprobs": [None, -1.0],
        "top_logprobs": [None, {" capital": -1.0}],
    }
    choice = {"index": 0, "message": message, "text": "The capital", "logprobs": logprobs, "finish_reason": "stop"}
    body = {"id": "x", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    told = HttpReply(source.choice((200, 200, 400)), body_of(spoil(body, source, source.randrange(5))))
    read_completion(told, kind)
    assert isinstance(read_echo(told, "The capital"), str)
    assert is_echoed(told, "The capital") == ("gives log-probabilities" in read_echo(told, "The capital"))
    read_completion(HttpReply(200, body_of(junk)), kind)


@often(200)
@given(text=st.text(max_size=30))
def test_a_grammar_allows_one_text(text: str) -> None:
    """Nothing in a draft is read as grammar; what is no Unicode is refused."""
    try:
        grammar = exact_grammar(text)
    except ValueError:
        assert any("\ud800" <= character <= "\udfff" for character in text)
        return
    inner = grammar.removeprefix('root ::= "').removesuffix('"')
    assert json.loads('"' + _as_json(inner) + '"') == text


def _as_json(inner: str) -> str:
    """The grammar's escapes in JSON's spelling."""
    out, at = "", 0
    while at < len(inner):
        if inner[at] != "\\":
            out, at = out + inner[at], at + 1
            continue
        digits = {"x": 2, "u": 4, "U": 8}[inner[at + 1]]
        out += json.dumps(chr(int(inner[at + 2 : at + 2 + digits], 16)))[1:-1]
        at += 2 + digits
    return out
