"""The probe's questions to one dialect, with their controls. Rules in :mod:`cheapspec.backends.probe`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from cheapspec.backends.echo import shifted
from cheapspec.backends.facts import Facts
from cheapspec.backends.generated import can_judge
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.llamacpp_python import LlamaCppPythonTarget
from cheapspec.backends.openai_wire import ids_of, refusal
from cheapspec.backends.text_target import TextTarget
from cheapspec.backends.together import TogetherTarget
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.acceptance import Alternative, TargetLogprob, verify_greedy
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import Context, Score, Target, Unusable
from cheapspec.core.received import content_text, first_choice, read_usage
from cheapspec.core.request import Request
from cheapspec.core.text import safe_cut
from cheapspec.core.untyped import as_mapping

__all__ = ["Probe"]

T = TypeVar("T")

_QUESTION = "Write the numbers from one to six as words, separated by commas."
_BEGUN = "The numbers from one to twelve, written as words: one, two, three, four,"
"""For models that only go on with a text."""
_REPLY_TOKENS = 16
_CONTINUED_TOKENS = 4
_OLLAMA = "fp_ollama"  # in every reply of /v1 (0.24.0 and 0.33.0-rc2, recorded 2026-11-29)
_TIE_NATS = 0.5
"""Two kernels of one model may differ by some tenths of a nat in bf16 (gaps of 0.125 are common)."""


def _as_probe(op: Op[T], keep: Callable[[HttpReply | None], object] | None = None) -> Op[T]:
    """The same calls, booked as the probe's. ``keep`` is told each reply."""
    try:
        call = next(op)
        while True:
            reply = yield replace(call, purpose="probe")
            if keep is not None:
                keep(reply)
            call = op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result


def _read_again(op: Op[T], reply: HttpReply | None) -> T | None:
    """What an operation of one call makes of a reply that is there already."""
    try:
        next(op)
        op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    return None


@dataclass(slots=True)
class Probe:
    """One run with one dialect: reply, score, control, continue. ``kind``: ``chat`` or ``completion``."""

    model: str
    target: Target
    backend: str
    evidence: tuple[str, ...]
    kind: str = "chat"
    facts: Facts = field(default_factory=Facts)
    request: Request = field(init=False)

    def __post_init__(self) -> None:
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "max_tokens": _REPLY_TOKENS}
        if self.kind == "chat":
            message = {"role": "user", "content": _QUESTION}
            body["messages"] = [message]
            self.request = Request("chat", body, self.model, False, (message,), max_tokens=_REPLY_TOKENS)
        else:
            body["prompt"] = _BEGUN
            self.request = Request("completion", body, self.model, False, prompt=_BEGUN, max_tokens=_REPLY_TOKENS)

    def end(self, finding: str, reason: str = "cannot_score", **found: Any) -> Facts:
        """The probe is over, for this reason."""
        return replace(self.facts, backend=self.backend, evidence=(*self.evidence, finding), reason=reason, **found)

    def note(self, finding: str) -> None:
        """Add a sentence."""
        self.evidence = (*self.evidence, finding)

    def run(self) -> Op[Facts]:
        """Reply, score, control, continue."""
        reply = yield from self._ask()
        problem = refusal(reply, self.kind)
        if problem is not None or reply is None:
            return self._unusable(problem or Unusable("not_probed", retryable=True))
        body = as_mapping(reply.json())
        if body.get("system_fingerprint") == _OLLAMA:
            self.backend = "ollama"
            return self.end("its replies name themselves Ollama's, which has no log-probabilities of given text")
        choice = first_choice(body)
        message = as_mapping(choice.get("message"))
        own = content_text(message.get("content") if self.kind == "chat" else choice.get("text"))
        if not own.strip():
            thinks = bool(message.get("reasoning") or message.get("reasoning_content"))
            return self.end("a plain question brought no text", "reasoning" if thinks else "cannot_score")
        self.facts = replace(self.facts, can_judge=can_judge(choice, own))
        told = "" if self.facts.can_judge else "no "
        self.note(f"{told}log-probabilities, with alternatives, of the tokens that it writes")
        usage = read_usage(body.get("usage"))
        self.facts = replace(self.facts, reports_cached_tokens=usage is not None and usage.cached_tokens is not None)
        context = yield from self._open(ids_of(body.get("prompt_token_ids")))
        if isinstance(context, Unusable):
            return self._unusable(context)
        replies: list[HttpReply | None] = []
        score = yield from _as_probe(self.target.score(self.request, context, own), replies.append)
        if isinstance(score, Unusable):
            return self._unusable(score)
        written = ids_of(choice.get("token_ids"))
        wrong = self._check(score, written)
        if wrong is not None and isinstance(self.target, LlamaCppPythonTarget):
            score, wrong = self._shift(context, own, score, replies[-1], wrong)
        if wrong is not None:
            return self.end(wrong)
        again = yield from _as_probe(self.target.score(self.request, context, _corrupted(own)))
        if isinstance(again, Unusable):
            return self._unusable(again)
        if verify_greedy(again.tokens).accepted == len(again.tokens):
            return self.end("a corrupted text passes as the target's own")
        self.note("a corrupted copy does not pass")
        if not _alike(score, again):
            return self.end("the same tokens are scored otherwise when the prompt is cached")
        self._cache_of_scoring(context, again)
        return (yield from self._continuation(context, own, score))

    def _ask(self) -> Op[HttpReply | None]:
        """The plain question, with the log-probabilities of the answer, or without where they are refused."""
        told = {"logprobs": True, "top_logprobs": 2}
        if self.kind == "completion" or isinstance(self.target, TogetherTarget):
            told = {"logprobs": 2}
        reply = yield self._call(told)
        if reply is not None and reply.status in (400, 422):
            reply = yield self._call({})
        return reply

    def _call(self, told: Mapping[str, Any]) -> HttpRequest:
        extra = {"return_token_ids": True} if isinstance(self.target, VllmTarget) else {}
        path = "chat/completions" if self.kind == "chat" else "completions"
        return HttpRequest("probe", path, {**self.request.body, **extra, **told}, billed=True)

    def _shift(
        self, context: Context, own: str, score: Score, reply: HttpReply | None, wrong: str
    ) -> tuple[Score, str | None]:
        """The same reply, read one position later: right only if every token is its own argmax then."""
        later = LlamaCppPythonTarget(shift=1)
        read = _read_again(later.score(self.request, context, own), reply)
        if not isinstance(read, Score) or self._check(read, None) is not None:
            return score, wrong
        self.target = later
        self.facts = replace(self.facts, shift=1)
        self.note("its log-probabilities are those of the next position, and are read so")
        return read, None

    def _unusable(self, why: Unusable) -> Facts:
        if why.retryable or why.status == 429:
            return self.end(why.detail or "the server did not answer", "not_probed")
        return self.end(why.detail, why.reason)

    def _open(self, shown: tuple[int, ...] | None) -> Op[Context | Unusable]:
        context = yield from _as_probe(self.target.open(self.request))
        if isinstance(context, Unusable) or context.ids is None or shown is None or context.ids == shown:
            return context
        self.note("/tokenize renders another prompt than the chat route, so the text route is used")
        self.target = VllmTarget(route="text")
        return (yield from _as_probe(self.target.open(self.request)))

    def _check(self, score: Score, written: tuple[int, ...] | None) -> str | None:
        """What is wrong with the score of the target's own greedy reply."""
        if not score.trusted:
            return "the log-probabilities are no distribution (all 0.0, or none)"
        tokens = [
            token
            for index, token in enumerate(score.tokens)
            if written is None or written[: index + 1] == tuple(one.token_id for one in score.tokens[: index + 1])
        ]
        judged = [token for token in tokens if token.logprob is not None]
        if not judged:
            return "no token of the target's own reply could be judged"
        below = sum(not _leads(token) for token in judged)
        if below:
            late = shifted(_hits(score.tokens))
            what = "the log-probabilities are shifted by one position" if late else "its scoring is not its sampling"
            return f"{below} of {len(judged)} tokens of its own greedy reply are not its argmax: {what}"
        self.note(f"{len(judged)} tokens of its own greedy reply are its argmax")
        return None

    def _cache_of_scoring(self, context: Context, score: Score) -> None:
        known, cached = context.prompt_tokens or score.prompt_tokens, score.usage.cached_tokens
        if known and cached is not None:
            self.facts = replace(self.facts, reports_cached_tokens=True, qs=_uncached(cached, known))
            self.note(f"scoring again reads {cached} of {known} known tokens from the cache")

    def _continuation(self, context: Context, own: str, score: Score) -> Op[Facts]:
        half = next((i for i, end in enumerate(score.ends) if end and end * 2 >= len(own)), len(score.ends) - 1)
        if context.ids is None:
            cut = safe_cut(own) or len(own)
            start: Context | Unusable = replace(context, text=own[:cut])
        else:
            start = yield from _as_probe(self.target.advance(self.request, context, own, score, half + 1, None))
        if isinstance(start, Unusable):
            return self._unusable(start)
        call = self.target.continue_(self.request, start, _CONTINUED_TOKENS).request
        body = {key: value for key, value in (call.body or {}).items() if key != "stream_options"}
        reply = yield replace(call, purpose="probe", stream=False, body={**body, "stream": False})
        problem = refusal(reply, "continue")
        if reply is None or (problem is not None and problem.retryable):
            return self._unusable(problem or Unusable("not_probed", retryable=True))
        begun = sum(end is not None and end <= len(start.text) for end in score.ends)
        text, cached = self._continued(reply, start.text, begun)
        rest = own[len(start.text) :]
        follows = text is not None and text != "" and (rest.startswith(text) or text.startswith(rest))
        self.note(f"from the middle of that reply it {'continues' if follows else 'does not continue'}")
        known = (start.prompt_tokens or score.prompt_tokens or 0) + start.tokens
        return self._all(follows, _uncached(cached or 0, known))

    def _continued(self, reply: HttpReply, begun: str, tokens: int) -> tuple[str | None, int | None]:
        """The text of a continuation without the beginning said again, and how much of the prompt was cached.

        A server that closes the turn and answers anew writes the same words, but no more of them than were asked for.
        """
        text, cached = _continued(reply)
        if isinstance(self.target, TextTarget) and text is not None:
            again = text.startswith(begun)
            if again and (tokens <= _CONTINUED_TOKENS or len(text) == len(begun)):
                return None, cached
            self.facts = replace(self.facts, says_again=again)
            if again:
                self.note("a continuation says the beginning again, which is taken off")
            text = text.removeprefix(begun)
        return text, cached

    def _all(self, follows: bool, qh: float | None) -> Facts:
        target = self.target
        memory = getattr(target, "memory", None)
        ends: set[int] = memory.end_ids if isinstance(memory, TokenMemory) else set()
        if isinstance(target, LlamaCppTarget):
            ends = target.end_ids
        return replace(
            self.facts,
            backend=self.backend,
            can_score=target.can_score and follows,
            can_force=target.can_force and follows,
            can_continue=follows,
            qh=qh,
            eos_ids=tuple(sorted(ends)),
            evidence=self.evidence,
            reason="" if follows else "cannot_score",
            route=target.route if isinstance(target, VllmTarget) else None,
            shift=target.shift if isinstance(target, LlamaCppPythonTarget) else None,
        )


def _alike(score: Score, again: Score) -> bool:
    """The tokens that two scorings have in common at their beginning have the same numbers, but for noise."""
    for one, other in zip(score.tokens, again.tokens, strict=False):
        if (one.token_id, one.text) != (other.token_id, other.text):
            return True
        if one.logprob is not None and other.logprob is not None and abs(one.logprob - other.logprob) > _TIE_NATS:
            return False
    return True


def _leads(token: TargetLogprob) -> bool:
    """The token is the argmax, or so near that another kernel may say so."""
    best = max((one.logprob for one in token.top), default=None)
    return token.rank == 1 or (token.logprob is not None and best is not None and token.logprob >= best - _TIE_NATS)


def _hits(tokens: tuple[TargetLogprob, ...]) -> Iterator[tuple[bool, bool]]:
    for token, follower in pairwise(tokens):
        best = max(token.top, key=lambda one: one.logprob, default=None)
        if best is not None:
            yield _same(best, token), _same(best, follower)


def _same(listed: Alternative, token: TargetLogprob) -> bool:
    if listed.token_id is not None and token.token_id is not None:
        return listed.token_id == token.token_id
    return listed.text == token.text


def _corrupted(text: str) -> str:
    """The text with other words in its second half."""
    words = text.split(" ")
    return " ".join(word if index * 2 < len(words) else "zebra" for index, word in enumerate(words)) + " zebra"


def _uncached(cached: int, known: int) -> float | None:
    """Share of the known tokens that was not cached. Nothing cached says nothing: a cache works in
    blocks (16 tokens, on some hardware 128), and the probe's prompt may be shorter than one.
    """
    return max(0.0, 1.0 - cached / known) if cached > 0 and known > 0 else None


def _continued(reply: HttpReply) -> tuple[str | None, int | None]:
    """Text and cached tokens of an unstreamed continuation, in any of the three reply shapes."""
    body = as_mapping(reply.json())
    choice = first_choice(body)
    text: object = choice.get("text", as_mapping(choice.get("message")).get("content", body.get("content")))
    usage = read_usage(body.get("usage"))
    cached: object = usage.cached_tokens if usage is not None else as_mapping(body.get("timings")).get("cache_n")
    return text if isinstance(text, str) else None, cached if isinstance(cached, int) else None
