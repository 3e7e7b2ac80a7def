"""llama.cpp as target, by forced decoding. Rules in :mod:`cheapspec.backends.llamacpp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cheapspec.backends.llamacpp_wire import Events, exact_grammar, greedy, read_entries, render, spread, usage_of
from cheapspec.backends.openai_wire import carry, ids_of, refusal
from cheapspec.core.acceptance import Alternative, TargetLogprob, shows_distribution
from cheapspec.core.alignment import align
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.ports import Context, Drawn, Identity, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law
from cheapspec.core.text import looks_special, opens_thoughts
from cheapspec.core.untyped import as_mapping

__all__ = ["SAMPLING_FIELDS", "CompletionReader", "LlamaCppTarget"]

SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "logit_bias",
    "ignore_eos",
)
"""Fields that the chat route and ``/completion`` read alike."""

_SHAPING = tuple(name for name in SAMPLING_FIELDS if name not in ("seed", "stop"))

ALTERNATIVES = 64
"""Tokens listed a position above temperature 0. The server sets no limit; with 64 the rest had .01 to 7 % of a
position of prose (SmolLM2-135M), with 20 twice that. Each costs some 100 bytes."""


class LlamaCppTarget:
    """A llama.cpp server as target (:class:`cheapspec.core.ports.Target`), scoring by forced decoding.

    ``simulate_scoring`` (demo and bench only): a forced call's usage is told as if the server had
    *scored* the draft: its tokens as input, one token of output. ``end_ids``: ids known to end a turn.
    """

    name = "llamacpp"
    can_score = False
    can_force = True
    kinds = frozenset({"chat", "completion"})
    scores_from_cache = True

    def __init__(self, simulate_scoring: bool = False, *, end_ids: tuple[int, ...] = ()) -> None:
        self.simulate_scoring = simulate_scoring
        self.end_ids = set(end_ids)
        self._asked_end = bool(end_ids)

    def open(self, request: Request) -> Op[Context | Unusable]:
        """Render and tokenize; once per server also ask which token ends a turn."""
        if not self._asked_end:
            yield from self._learn_end()
        prompt = request.prompt or ""
        if request.kind == "chat":
            reply = yield render(request)
            problem = refusal(reply, "apply-template")
            rendered: object = as_mapping(reply.json()).get("prompt") if reply is not None else None
            if problem is not None or not isinstance(rendered, str):
                return problem or Unusable("cannot_score", "apply-template: the reply has no prompt")
            if opens_thoughts(rendered):
                return Unusable("reasoning", "the chat template makes the target think first")
            prompt = rendered
        body = {"content": prompt, "add_special": True, "parse_special": True}
        reply = yield HttpRequest("tokenize", "/tokenize", body)
        problem = refusal(reply, "tokenize")
        ids = ids_of(as_mapping(reply.json()).get("tokens")) if reply is not None else None
        if problem is not None or not ids:
            return problem or Unusable("cannot_score", "tokenize: the reply has no token ids")
        return Context(prompt_tokens=len(ids), ids=ids)

    def _learn_end(self) -> Op[None]:
        reply = yield HttpRequest("tokenize", "/props", method="GET")
        self._asked_end = reply is not None and reply.status < 500
        name: object = as_mapping(reply.json()).get("eos_token") if reply is not None else None
        if isinstance(name, str) and name:
            body = {"content": name, "add_special": False, "parse_special": True}
            reply = yield HttpRequest("tokenize", "/tokenize", body)
            ids = ids_of(as_mapping(reply.json()).get("tokens")) if reply is not None else None
            if ids is not None and len(ids) == 1:
                self.end_ids.add(ids[0])

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """One billed call that makes the target write the draft."""
        try:
            grammar = exact_grammar(draft)
        except ValueError:
            return Unusable("cannot_score", "the draft is not valid Unicode")
        ids = context.ids or ()
        body = {
            "prompt": list(ids),
            "grammar": grammar,
            "n_predict": len(draft.encode()) + 2,
            "n_probs": ALTERNATIVES if request.samples else 2,
            **greedy(),
        }
        reply = yield HttpRequest("force", "/completion", body, billed=True)
        return self._read(reply, ids, draft)

    def _read(self, reply: HttpReply | None, before: tuple[int, ...], draft: str) -> Score | Unusable:
        problem = refusal(reply, "force")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "force: no reply", retryable=True)
        told = as_mapping(reply.json())
        if told.get("content") != draft:
            written: object = told.get("content")
            ignored = isinstance(written, str) and not draft.startswith(written)
            return Unusable("cannot_score", "the server did not write the draft", lasting=ignored)
        entries = read_entries(told)
        ids = ids_of(told.get("tokens"))
        if not entries or not ids:
            return Unusable("cannot_score", "the reply has no log-probabilities", lasting=True)
        follow: NextToken | None = None
        after: TargetLogprob | None = None
        if told.get("stop_type") == "eos" and not entries[-1].data:
            last = entries.pop()
            if last.token_id is not None:
                self.end_ids.add(last.token_id)
            ids = ids[:-1] if ids[-1] == last.token_id else ids
            best = max(last.top, key=lambda one: one.logprob, default=None)
            follow = None if best is None else self._named(best)
            after = TargetLogprob("", last.logprob, last.token_id, None, last.top)
        placed = spread(entries, ids)
        ends = align([entry.data for entry in entries], draft)
        if placed is None or ends is None:
            return Unusable("cannot_score", "the forced tokens do not join to the draft")
        by_entry = dict(zip(map(id, entries), ends, strict=True))
        tokens = tuple(
            TargetLogprob(entry.data.decode("utf-8", "replace"), entry.logprob, token_id, None, entry.top)
            if own
            else TargetLogprob("�", None, token_id)
            for token_id, entry, own in placed
        )
        return Score(
            tokens,
            tuple(by_entry[id(entry)] if own else None for _, entry, own in placed),
            follow,
            self._usage(told, len(tokens)),
            _identity(told),
            trusted=shows_distribution(entry.logprob for entry in entries),
            after=after,
        )

    def _usage(self, told: Mapping[str, Any], drafted: int) -> Usage:
        usage = usage_of(told)
        if not self.simulate_scoring:
            return usage
        return replace(usage, input_tokens=usage.input_tokens + drafted, output_tokens=1)

    def follow(self, alternative: Alternative) -> NextToken | None:
        """The correction as a token to go on with; ``None``: part of a character, or a control token
        that is not known to end the turn.
        """
        found = self._named(alternative)
        return found if found.ends_turn or found.text else None

    def _named(self, alternative: Alternative) -> NextToken:
        if alternative.token_id in self.end_ids:
            return NextToken(None, alternative.token_id, ends_turn=True)
        text = alternative.text
        plain = bool(text) and "�" not in text and not looks_special(text)
        return NextToken(text if plain else None, alternative.token_id)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        """Ids and text after the accepted tokens and ``follow``; whole characters only. Makes no call."""
        yield from ()
        known = [token.token_id for token in score.tokens[:accepted] if token.token_id is not None]
        if len(known) != accepted:
            return Unusable("cannot_score", "a forced token has no id")
        whole = next((n for n in range(accepted, 0, -1) if score.ends[n - 1] is not None), 0)
        text = context.text + draft[: (score.ends[whole - 1] or 0) if whole else 0]
        kept = known[:whole]
        # Unlike vLLM, alternatives here are single tokens' bytes: after an open character none is text.
        if whole == accepted and follow is not None and follow.text and follow.token_id is not None:
            text, kept = text + follow.text, [*kept, follow.token_id]
        ids = (*(context.ids or ()), *kept)
        return replace(context, text=text, tokens=context.tokens + len(kept), ids=ids)

    def law(self, sampling: Sampling) -> Law:
        """The nucleus is taken first, and what is left of it cooled (the default order of samplers, build 11549)."""
        return Law(sampling.temperature, sampling.top_p or 1.0, ALTERNATIVES, nucleus_first=True)

    def draw(self, request: Request, context: Context, banned: Sequence[int], seed: int | None) -> Op[Drawn | Unusable]:
        body: dict[str, Any] = {**greedy(), "prompt": list(context.ids or ()), "n_predict": 1, "n_probs": 1}
        if banned:
            body |= {"temperature": 1, "logit_bias": [[token, False] for token in banned]}
        else:
            body |= carry(request, _SHAPING)
        if seed is not None:
            body["seed"] = seed
        reply = yield HttpRequest("continue", "/completion", body, billed=True)
        problem = refusal(reply, "continue")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "continue: no reply", retryable=True)
        told = as_mapping(reply.json())
        ids, entries = ids_of(told.get("tokens")) or (), read_entries(told)
        ends = told.get("stop_type") == "eos"
        if ends and entries and not ids:
            ids = tuple(entry.token_id for entry in entries[-1:] if entry.token_id is not None)
        if len(ids) != 1 or told.get("stop_type") not in ("eos", "limit"):
            return Unusable("cannot_score", "continue: one token was asked for, and the reply does not say which")
        if ends:
            self.end_ids.add(ids[0])
        logprob = entries[0].logprob if len(entries) == 1 and entries[0].token_id == ids[0] else None
        return Drawn(ids[0], usage_of(told), logprob, ends)

    def join(self, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
        reply = yield HttpRequest("detokenize", "/detokenize", {"tokens": list(ids)})
        problem = refusal(reply, "detokenize")
        text: object = as_mapping(reply.json()).get("content") if reply is not None else None
        if problem is not None or not isinstance(text, str):
            return problem or Unusable("cannot_score", "detokenize: the reply has no text")
        text = "" if looks_special(text) else text  # as in the text of a reply
        whole = (*(context.ids or ()), *ids)
        return replace(context, text=context.text + text, tokens=context.tokens + len(ids), ids=whole)

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        body: dict[str, Any] = {
            "prompt": list(context.ids or ()),
            "stream": True,
            "cache_prompt": True,
            "return_tokens": True,
            **carry(request, SAMPLING_FIELDS),
        }
        if max_tokens is not None:
            body["n_predict"] = max_tokens
        call = HttpRequest("continue", "/completion", body, stream=True, billed=True)
        return Streaming(call, CompletionReader(whole=not request.stream), _on_error)


def _on_error(reply: HttpReply) -> Unusable:
    return refusal(reply, "continue") or Unusable("cannot_score", "continue: no stream", status=reply.status)


def _identity(told: Mapping[str, Any]) -> Identity:
    model: object = told.get("model")
    return Identity(model=model if isinstance(model, str) else None)


class CompletionReader:
    """Decodes a streamed ``/completion`` into :class:`TargetPiece`.

    The ids in a stream are not all ids: of a character of several tokens only the last is shown. So the
    pieces count tokens and name none.

    ``whole``: the caller gets the reply in one. Where the limit cuts a character, llama.cpp's whole reply ends
    in U+FFFD and its streamed one before it (build 11549), and so does what these pieces join to.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._events = Events()
        self._counted = 0

    def feed(self, data: bytes) -> list[TargetPiece]:
        """Pieces of the events that are complete."""
        return [self._piece(told) for told in self._events.feed(data)]

    def close(self) -> list[TargetPiece]:
        """Pieces of what is left; none is ``complete`` unless the server said so."""
        return [self._piece(told) for told in self._events.close()]

    def _piece(self, told: Mapping[str, Any]) -> TargetPiece:
        if "error" in told:
            return TargetPiece(error=as_mapping(told["error"]))
        content: object = told.get("content")
        text = content if isinstance(content, str) else ""
        usage = usage_of(told)
        tokens, self._counted = usage.output_tokens - self._counted, usage.output_tokens
        if told.get("stop") is not True:
            return TargetPiece(text, tokens=tokens)
        reason = "length" if told.get("stop_type") == "limit" else "stop"
        if self._whole and reason == "length" and tokens > 0 and not text:
            text = "\ufffd"
        return TargetPiece(text, reason, usage, _identity(told), tokens, complete=True)
