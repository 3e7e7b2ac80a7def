"""vLLM: the reference target. It scores text we send, and continues from any token id.

Facts: vLLM 0.32.0, read in its source and seen in its replies (November 2026).

Rules
-----
1. *Id route* (the default). ``/tokenize`` renders and tokenizes the prompt as the chat route would; from
   then on prompt and reply are token ids, so nothing is ever tokenized twice and the target can go on
   from any token. *Text route* (:mod:`cheapspec.backends.vllm_text`): where ``/tokenize`` is not served, as
   behind most gateways. Which one a host needs is remembered, but not from a 401 or 403: they may be about
   one caller's key, and every caller shares what is remembered.
2. The scoring call carries neutral sampling (:data:`NEUTRAL_SAMPLING`), the hand-off the caller's own.
3. A reply counts only if it answers what was sent: one entry a prompt token, the same ids. Else it is
   :class:`Unusable`. Numbers that are all exactly 0.0, in the prompt too, are no distribution.
4. ``prompt_logprobs`` gives each token's rank *and* the rank-1 token. Positions are found by token id,
   never by text (two ids may read the same) and never by order.
5. A draft token's text comes from its vocabulary piece. A context never ends inside a character: from
   such ids vLLM 0.32 returns the decoded *prompt* as part of the reply when the character completes.
6. Ids that ended a turn are remembered, so that a correction by one of them ends the reply.
7. Chat's ``max_tokens`` defaults to the rest of the window, completions' to 16: the hand-off of a chat
   says the former explicitly, since it runs on ``/v1/completions``.
8. Temperature above 0 is followed on the id route only (:mod:`cheapspec.backends.vllm_sampling`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cheapspec.backends import vllm_ids, vllm_sampling, vllm_text
from cheapspec.backends.openai_wire import refusal, route_missing
from cheapspec.backends.token_memory import TokenMemory
from cheapspec.core.acceptance import Alternative
from cheapspec.core.effects import HttpReply, Op
from cheapspec.core.ports import Context, Drawn, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law

__all__ = ["VllmTarget"]

_ABOUT_THE_KEY = (401, 403)


class VllmTarget:
    """A vLLM server as target (:class:`cheapspec.core.ports.Target`).

    ``end_ids``: token ids known to end a turn (the probe's, or learned from replies).
    ``route``: ``"ids"``, ``"text"``, or ``None`` to find out by asking ``/tokenize`` once.
    """

    name = "vllm"
    can_score = True
    can_force = False
    kinds = frozenset({"chat", "completion"})
    scores_from_cache = False

    def __init__(self, *, end_ids: tuple[int, ...] = (), route: str | None = None) -> None:
        self.memory = TokenMemory(end_ids)
        self.route = route

    def open(self, request: Request) -> Op[Context | Unusable]:
        """Ids of the prompt on the id route; an empty context on the text route."""
        if self.route == "text":
            return vllm_text.start(request)
        reply: HttpReply | None = yield vllm_ids.tokenize_prompt(request)
        if self.route is None and (route_missing(reply) or _answers_anything(reply)):
            if reply is None or reply.status not in _ABOUT_THE_KEY:
                self.route = "text"
            return vllm_text.start(request)
        problem = refusal(reply, "tokenize")
        if problem is not None or reply is None:
            return problem or Unusable("cannot_score", "tokenize: no reply", retryable=True)
        context = vllm_ids.read_prompt(reply)
        if isinstance(context, Context):
            self.route = "ids"
            window: object = context.extra
            if isinstance(window, int) and (context.prompt_tokens or 0) + (request.max_tokens or 1) > window:
                # vLLM refuses such a request; that is for it to say, and before anything is paid.
                return Unusable("unsupported_field", f"prompt and max_tokens do not fit the window of {window} tokens")
        return context

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        if context.ids is None:
            return (yield from vllm_text.score(self.memory, request, context, draft))
        return (yield from vllm_ids.score(self.memory, request, context, draft))

    def follow(self, alternative: Alternative) -> NextToken | None:
        """The correction as a token to go on with, or ``None`` when it cannot be one: part of a
        character, or a control token that is not known to end the turn (the hand-off finds out).
        """
        return self.memory.follow(alternative)

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        if context.ids is None:
            return (yield from vllm_text.advance(context, draft, score, accepted, follow))
        return (yield from vllm_ids.advance(self.memory, request, context, draft, score, accepted, follow))

    def law(self, sampling: Sampling) -> Law | None:
        """The nucleus is taken at the caller's temperature."""
        if self.route == "text":
            return None
        return Law(sampling.temperature, sampling.top_p or 1.0, self.memory.alternatives)

    def draw(self, request: Request, context: Context, banned: Sequence[int], seed: int | None) -> Op[Drawn | Unusable]:
        return vllm_sampling.draw(self.memory, request, context, banned, seed)

    def join(self, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
        return vllm_sampling.join(self.memory, request, context, ids)

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        if context.ids is None:
            return vllm_text.continue_(request, context, max_tokens)
        return vllm_ids.continue_(request, context, max_tokens)


def _answers_anything(reply: HttpReply | None) -> bool:
    """A good status without token ids: a gateway that answers every path with a page of its own."""
    return reply is not None and reply.status < 300 and not isinstance(vllm_ids.read_prompt(reply), Context)
