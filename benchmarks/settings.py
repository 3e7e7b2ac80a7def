"""The settings in which the planner is replayed, and what it is to reach in each; price lists and who has them.

Rules
-----
* Prices are multiples of the input price: r for output, c for cached input. q0, qs, qh: what the direct call, a
  scoring call and the hand-off pay for a token of context.
* A model is named for a list when its list price has these ratios (within a per cent of r, a tenth of c); hosts that
  are documented to score come first. What is said of hosts is from their documentation of 2026-11; none was called.
* A target is a limit on paid/baseline (of a kind, of all kinds, of code and JSON together) or the least capture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from cheapspec.core.money import Prices
from cheapspec.core.tariff import Tariff
from cheapspec.core.traces import RequestTrace
from cheapspec.prices.data import current_snapshot

__all__ = ["HOSTS", "LISTS", "SETTINGS", "Case", "Target", "model_of", "prices_of"]

LISTS: tuple[tuple[str, str], ...] = (("4", ".02"), ("5", ".05"), ("5", ".1"), ("7.5", ".1"))
"""(r, c)."""

HOSTS: dict[str, tuple[str, str]] = {
    "fireworks": ("documented (echo with logprobs)", "unknown"),
    "together": ("in its schema (echo with logprobs)", "unknown"),
    "mistral": ("in its SDK from 3.7 (prompt_logprobs)", "unknown"),
}
"""By provider: whether it scores given text, and whether it reads its prompt cache while it does. Others: not known
to score."""

CODE_JSON = ("code", "json")
NEVER = 1.02
"""What no kind of request may cost more than, over its baseline."""


@dataclass(frozen=True, slots=True)
class Target:
    """``what``: ``capture``, ``all``, ``code and JSON`` or ``each kind``; ``lists``: for which price lists. ``below``:
    at the limit is not enough.
    """

    what: str
    limit: float
    lists: tuple[tuple[str, str], ...] = LISTS
    below: bool = False

    @property
    def wanted(self) -> str:
        """In words."""
        sign = "at least" if self.what == "capture" else "below" if self.below else "at most"
        return f"{self.what} {sign} {self.limit:g}"

    def met(self, value: float | None) -> bool:
        """Whether ``value`` is good enough; ``None``: there was nothing to capture."""
        if value is None or self.what == "capture":
            return value is None or value >= self.limit
        return value < self.limit or (value == self.limit and not self.below)


@dataclass(frozen=True, slots=True)
class Case:
    """``chosen``: which requests. ``qs``: ``None`` for c; ``q0``: ``c``, or each request's ``own``. ``r``, ``c``: not
    the list's. ``foreign``: only the draft model of another family.
    """

    name: str
    chosen: Callable[[RequestTrace], bool]
    targets: tuple[Target, ...]
    qs: float | None = None
    q0: str = "own"
    r: str | None = None
    c: str | None = None
    more_prompt: int = 0
    foreign: bool = False
    lists: tuple[tuple[str, str], ...] = field(default=LISTS)

    def traces(self, recorded: Sequence[RequestTrace]) -> list[RequestTrace]:
        """The requests, with a longer prompt where the case has one."""
        some = [trace for trace in recorded if self.chosen(trace)]
        return [replace(trace, prompt_tokens=trace.prompt_tokens + self.more_prompt) for trace in some]

    def prices(self, list_: tuple[str, str]) -> Prices:
        """The list's, or the case's own."""
        return prices_of(self.r or list_[0], self.c or list_[1])

    def tariff(self, prices: Prices) -> Tariff:
        """What the calls cost."""
        made = Tariff.of(prices, qs=self.qs)
        return replace(made, q0=made.cached) if self.q0 == "c" else made


def prices_of(r: str, c: str) -> Prices:
    """A dollar a million input tokens."""
    return Prices(Decimal(1), Decimal(r), Decimal(c))


def model_of(r: str, c: str) -> tuple[str, str] | None:
    """Provider and model with such list prices, ``None`` if nobody has them."""
    found: list[tuple[int, str, str]] = []
    order = list(HOSTS)
    for provider in current_snapshot().providers:
        for model in provider.models:
            listed = model.prices if not isinstance(model.prices, list) else model.prices[-1].prices
            told = (listed.input_mtok, listed.output_mtok, listed.cache_read_mtok)
            if not all(isinstance(price, Decimal) and price for price in told):
                continue
            per_input, output, cached = (float(price) for price in told if isinstance(price, Decimal))
            if abs(output / per_input / float(r) - 1) > 0.01 or abs(cached / per_input / float(c) - 1) > 0.1:
                continue
            rank = order.index(provider.id) if provider.id in order else len(order)
            found.append((rank, provider.id, model.id))
    return min(found)[1:] if found else None


def _single(trace: RequestTrace) -> bool:
    return trace.workload != "chat"


def _chat(trace: RequestTrace) -> bool:
    return trace.workload == "chat"


def _foreign(trace: RequestTrace) -> bool:
    return trace.workload in ("translation", "open")


_THREE = (("4", ".02"), ("5", ".05"), ("7.5", ".1"))
_EACH = Target("each kind", NEVER)

SETTINGS: tuple[Case, ...] = (
    Case(
        "single turn, scoring reads the cache (qs = c)",
        _single,
        (Target("code and JSON", 0.65, _THREE), _EACH, Target("capture", 0.55, _THREE)),
    ),
    Case("chats, cached history (q0 = c)", _chat, (Target("all", 0.75, (("5", ".05"),)),), q0="c"),
    Case("chats, each turn's own cached share", _chat, (Target("all", 0.75, (("5", ".05"),)),)),
    Case(
        "single turn, scoring computes anew (qs = 1)",
        _single,
        (_EACH, Target("code and JSON", 1.0, (("7.5", ".1"),), below=True)),
        qs=1.0,
    ),
    Case("flat price (r = 1)", _single, (_EACH,), r="1"),
    Case("nothing is cheaper for being cached (c = 1)", _single, (_EACH,), c="1"),
    Case("4,000 more prompt tokens", _single, (_EACH,), more_prompt=4000),
    Case("a draft of another family", _foreign, (_EACH,), foreign=True),
)
