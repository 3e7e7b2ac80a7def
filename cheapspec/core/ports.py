"""The shapes that plug into the engine: drafters, targets, prices, ledger.

Everything here is a Protocol or frozen data. A *dialect* (one file an API family, in
:mod:`cheapspec.backends`) is pure: it turns questions into :class:`HttpRequest` values and
:class:`HttpReply` values into answers. Where one question takes several calls, the dialect's method
is an :data:`Op`: a generator of requests that is sent the replies. A dialect object may remember
facts about its host between requests (loaded window, end-of-turn ids); it holds nothing of one
request, so one object serves many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from cheapspec.core.acceptance import Alternative, DraftToken, TargetLogprob
from cheapspec.core.books import Ticket
from cheapspec.core.effects import HttpReply, HttpRequest, Op, Usage
from cheapspec.core.money import Prices
from cheapspec.core.request import Request, Sampling
from cheapspec.core.sampling import Law

__all__ = [
    "Call",
    "CallRow",
    "Context",
    "Decoder",
    "DraftPiece",
    "Drafter",
    "Drawn",
    "Identity",
    "Ledger",
    "NextToken",
    "NoDraft",
    "OutputLimits",
    "Permit",
    "PriceSource",
    "RequestRow",
    "SamplingTarget",
    "Score",
    "Streaming",
    "Target",
    "TargetPiece",
    "Unusable",
]

P = TypeVar("P")


class Decoder(Protocol[P]):
    """Reads a streamed body incrementally; any split of the bytes gives the same pieces."""

    def feed(self, data: bytes) -> list[P]:
        """Take bytes, return the pieces that are complete."""
        ...

    def close(self) -> list[P]:
        """The body ended in order. Returns what is left, incomplete replies marked as such."""
        ...


@dataclass(frozen=True, slots=True)
class Streaming(Generic[P]):
    """A streamed call ready to go, with the decoder of its body.

    ``on_error``: what an error reply (status ≥ 300) means. It may return another ``Streaming`` to try
    instead (at most once a draft), or the reason why there is none.
    """

    request: HttpRequest
    decoder: Decoder[P]
    on_error: Callable[[HttpReply], Streaming[P] | NoDraft | Unusable]


# --- drafting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoDraft:
    """Why there is no draft. ``reason``: ``no_draft``, ``draft_busy``, ``draft_deadline`` or
    ``draft_context``; ``broken`` says whether the host failed (the circuit breaker counts it).
    """

    reason: str
    detail: str = ""
    broken: bool = False


@dataclass(frozen=True, slots=True)
class DraftPiece:
    """A piece of a streamed draft.

    ``tokens`` concatenate to the draft's text (an entry may span several real tokens: then its
    ``logprob`` is ``None``, unknown). ``end``: ``"stop"`` the draft model ended its turn here,
    ``"length"`` its limit was reached, ``"cut"`` the reply ended without saying why (use the text,
    claim nothing about its end), ``None`` more follows. ``problem`` set: the text of this draft must
    not be used.
    """

    tokens: tuple[DraftToken, ...] = ()
    end: str | None = None
    problem: NoDraft | None = None


class Drafter(Protocol):
    """Something local that proposes text.

    ``name`` is shown to the user (``"ollama:qwen2.5:3b"``). ``local`` drafters (prompt lookup, the
    caller's prediction) make no call: :meth:`propose` gives their text at once.
    """

    @property
    def name(self) -> str: ...
    @property
    def base_url(self) -> str:
        """Root of the draft host (``http://127.0.0.1:11434``); empty for a drafter without a host.
        The driver joins :attr:`HttpRequest.path` to it.
        """
        ...

    def propose(self, request: Request, prefix: str, max_tokens: int) -> tuple[DraftToken, ...] | None:
        """A draft without any call, or ``None`` for a drafter that must be asked by :meth:`draft`.

        An empty tuple means: nothing to propose.
        """
        ...

    def draft(self, request: Request, prefix: str, max_tokens: int) -> Op[Streaming[DraftPiece] | NoDraft]:
        """Preliminary calls, then the streamed call that writes at most ``max_tokens`` tokens after
        ``prefix`` (the reply so far; may be empty). The pieces do not repeat the prefix.
        """
        ...


# --- the target --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unusable:
    """A target's reply gives no evidence. Nothing of it may count as accepted.

    ``reason``: a reason of INTERFACE's list (``cannot_score``, ``reasoning``, …). ``lasting``: the
    endpoint will not do better next time, so do not ask (and pay) again. ``status``: the server's own
    when it answered with an error. ``continues``: this draft cannot be judged, but nothing is wrong with what
    was verified before, so the target may go on from there.
    """

    reason: str
    detail: str = ""
    lasting: bool = False
    status: int | None = None
    retryable: bool = False
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """How the target names itself in a reply; one of them goes through a whole speculated reply."""

    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    created: int | None = None
    service_tier: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What the target has been shown and has said so far in one request.

    ``prompt_tokens``: tokens of the prompt as the target counts them (``None``: not known yet).
    ``text``: the verified reply so far; ``tokens``: how many target tokens that is.
    ``ids``: prompt and verified reply as the target's token ids, on a route that works with ids: then
    the target continues from any token exactly. ``None``: a text route, on which a continuation must
    start at a safe edge (:func:`cheapspec.core.text.safe_cut`).
    ``extra``: whatever else the dialect needs; opaque to the engine.
    """

    prompt_tokens: int | None = None
    text: str = ""
    tokens: int = 0
    ids: tuple[int, ...] | None = None
    extra: Any = None


@dataclass(frozen=True, slots=True)
class NextToken:
    """The token that the target *generated* after the scored text (temperature 0), or would have.

    ``ends_turn``: it ended its turn there (finish reason ``stop`` without a stop string). ``text`` is
    ``None`` when it cannot be shown as text by itself (part of a character).
    """

    text: str | None
    token_id: int | None = None
    ends_turn: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """The target's log-probabilities of a draft, in the *target's* tokens.

    ``tokens``: one entry a target token of the draft, in order. ``ends[i]``: offset in the draft's
    text (characters) after token i, ``None`` where the token ends inside a character or the
    alignment is not certain. ``next``: what comes after the whole draft, if the reply says.
    ``trusted``: the reply shows a real distribution (not 0.0 everywhere, not placeholders); false
    means unverified. ``after``: what may stand after the whole draft, where the request samples (a
    position without a token of its own).
    """

    tokens: tuple[TargetLogprob, ...]
    ends: tuple[int | None, ...]
    next: NextToken | None
    usage: Usage
    identity: Identity = field(default_factory=Identity)
    trusted: bool = True
    prompt_tokens: int | None = None
    extra: Any = None
    after: TargetLogprob | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token that the target sampled. ``logprob``: at temperature 1, before any ban; ``None``: not said.
    ``ends_turn``: it ended its turn with it.
    """

    token_id: int
    usage: Usage
    logprob: float | None = None
    ends_turn: bool = False


@dataclass(frozen=True, slots=True)
class TargetPiece:
    """A piece of a target's streamed continuation.

    ``finish_reason`` is set on the piece that ends the reply, ``usage`` where the server reports it
    (both may come apart). ``complete``: the stream showed one of its end signs. ``error``: an error
    object inside the stream.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    identity: Identity | None = None
    tokens: int | None = None
    ids: tuple[int, ...] | None = None
    complete: bool = False
    error: Mapping[str, Any] | None = None


class Target(Protocol):
    """A paid model's API family."""

    @property
    def name(self) -> str: ...
    @property
    def can_score(self) -> bool:
        """It returns log-probabilities of text that we send, at input price."""
        ...

    @property
    def can_force(self) -> bool:
        """It can be made to generate given text and tells its own log-probabilities: the same
        evidence, at output price.
        """
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The requests whose continuations it can score: ``chat``, ``completion``."""
        ...

    @property
    def scores_from_cache(self) -> bool:
        """By its source or documentation, a scoring call reads the prompt cache and computes only what is new. What a
        probe measures at an endpoint comes before it.
        """
        ...

    def open(self, request: Request) -> Op[Context | Unusable]:
        """Unbilled calls that turn the request into a context (rendering, tokenizing)."""
        ...

    def score(self, request: Request, context: Context, draft: str) -> Op[Score | Unusable]:
        """The target's log-probabilities of ``draft`` after ``context``. The billed call carries
        neutral sampling (temperature 0, top_p 1, no penalties), never the caller's.
        """
        ...

    def follow(self, alternative: Alternative) -> NextToken | None:
        """A correction as the next token: its text, or the end of the turn; ``None`` when it can be
        neither (part of a character, a special token whose meaning is not known).
        """
        ...

    def advance(
        self, request: Request, context: Context, draft: str, score: Score, accepted: int, follow: NextToken | None
    ) -> Op[Context | Unusable]:
        """The context after the first ``accepted`` tokens of ``score`` and then ``follow`` (the
        correction or the bonus token). A result whose text would end inside a character leaves out
        the tokens of that character, ``follow`` first.
        """
        ...

    def continue_(self, request: Request, context: Context, max_tokens: int | None) -> Streaming[TargetPiece]:
        """The hand-off: the target goes on from ``context.text``, with the caller's own sampling
        fields; ``max_tokens`` is what is left of the caller's limit.
        """
        ...


@runtime_checkable
class SamplingTarget(Target, Protocol):
    """A target that serves temperature above 0: what the ``exact`` rule needs besides. Only by token ids: a
    continuation by text would begin at an edge that depends on what was drawn.

    Its :meth:`score` lists ``law().alternatives`` tokens a position where ``request.sampling`` is not greedy.
    """

    def law(self, sampling: Sampling) -> Law | None:
        """How this server samples for such a caller, ``None``: in a way that cannot be followed."""
        ...

    def draw(self, request: Request, context: Context, banned: Sequence[int], seed: int | None) -> Op[Drawn | Unusable]:
        """One billed call: one token after ``context``, which may end inside a character. With ``banned`` ids it is
        drawn from the others at temperature 1, without, as the caller samples.
        """
        ...

    def join(self, request: Request, context: Context, ids: Sequence[int]) -> Op[Context | Unusable]:
        """The context and these ids, whose text is asked for (unbilled). Half a character shows as U+FFFD, a control
        token as nothing.
        """
        ...


# --- money and books ---------------------------------------------------------------------------


class Permit(Protocol):
    """Whether a step's worst case may be risked (:mod:`cheapspec.core.allowance`, bound to one request)."""

    def admit(self, worst: Decimal) -> Ticket[bool] | bool:
        """Hold these dollars in the place of what the request holds, if the allowance bears it. Returns at once, never
        raises; a ticket whose value is no ``True`` says no.
        """
        ...


class PriceSource(Protocol):
    """Looks prices up. ``source`` is ``provider``, ``user``, ``genai-prices`` or ``unknown``."""

    def lookup(self, model: str, base_url: str) -> tuple[Prices | None, str]: ...


@runtime_checkable
class OutputLimits(Protocol):
    """A price source that also knows how long replies can be."""

    def output_limit(self, model: str, base_url: str) -> int | None:
        """Tokens of the longest reply, ``None`` unknown."""
        ...


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A logical request as the ledger opens it. ``at`` is UTC seconds since the epoch. ``session``: the innermost
    open session's name, ``session_id`` the row of it.
    """

    request_id: str
    at: float
    model: str
    kind: str
    stream: bool
    session: str | None = None
    workload: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call to a backend, written before it goes out. ``purpose``: INTERFACE's list. ``worst_usd``: the most
    that it can cost (what it counts as if its end is never seen); ``None`` unknown. ``service_tier``: the one that was
    asked for.
    """

    call_id: str
    request_id: str
    side: str
    purpose: str
    billed: bool
    at: float
    worst_usd: str | None = None
    service_tier: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """How a call ended. ``status``: ok, failed, cancelled, possibly_billed. ``budget_usd``: what budgets count,
    where that is more than ``cost_usd`` (:attr:`cheapspec.core.money.Charge.budget_usd`). ``flags``: what is odd about
    its price (:attr:`cheapspec.core.money.Charge.flags`).
    """

    call_id: str
    status: str
    usage: Usage | None = None
    cost_usd: str | None = None
    seconds: float | None = None
    http_status: int | None = None
    budget_usd: str | None = None
    flags: tuple[str, ...] = ()


class Ledger(Protocol):
    """Keeps what was asked, sent and paid. Every method returns quickly and never raises."""

    def open_request(self, row: RequestRow) -> None: ...
    def open_call(self, row: CallRow) -> Ticket[object] | None:
        """A call is about to go out. A billed one may only be sent once the ticket is done (``None``: it is)."""
        ...

    def close_call(self, call: Call) -> None: ...
    def close_request(self, request_id: str, info: Mapping[str, Any]) -> None: ...
