"""Any OpenAI-compatible chat endpoint that does not score text: known by name, nothing else.

Hosted chat models (OpenAI, Groq, Anthropic's compatible route, most of OpenRouter) return no
log-probabilities of text that is sent to them, so the ``exact`` rule has no evidence there and every
request goes direct. The operations say so instead of paying for an experiment.
"""

from __future__ import annotations

from cheapspec.core.acceptance import Alternative
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import Context, NextToken, Score, Streaming, TargetPiece, Unusable
from cheapspec.core.request import Request
from cheapspec.core.sse import ChatStreamReader

__all__ = ["GenericTarget"]

_REFUSAL = Unusable("cannot_score", "this endpoint does not score given text", lasting=True)


class GenericTarget:
    """An endpoint that only answers (:class:`cheapspec.core.ports.Target`)."""

    name = "generic"
    can_score = False
    can_force = False
    kinds = frozenset({"chat", "completion"})
    scores_from_cache = False

    def open(self, request: Request) -> Op[Context | Unusable]:
        yield from ()
        return _REFUSAL

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        yield from ()
        return _REFUSAL

    def follow(self, alternative: Alternative) -> NextToken | None:
        return None

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        yield from ()
        return _REFUSAL

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        """The caller's own request as a stream: from the start, since nothing is known to continue."""
        body = {**request.body, "stream": True}
        path = "chat/completions" if request.kind == "chat" else "completions"
        call = HttpRequest("continue", path, body, stream=True, billed=True)
        return Streaming(call, ChatStreamReader(request.kind), _on_error)


def _on_error(reply: HttpReply) -> Unusable:
    return Unusable("cannot_score", f"continue: HTTP {reply.status}", status=reply.status)
