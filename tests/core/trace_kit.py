"""Small traces, written so that a test shows at a glance what a drafter gets right."""

from __future__ import annotations

import math
import random
from decimal import Decimal

from cheapspec.core.money import Prices
from cheapspec.core.traces import Branch, DraftRow, RequestTrace, StaticRow

PRICES = Prices(Decimal(1), Decimal(5), Decimal("0.05"))
"""r = 5, c = .05."""


def row(bits: str, *, drafter: str = "d", p: float = 0.95, branches: dict[int, Branch] | None = None) -> DraftRow:
    """``bits``: one a position: ``1`` agrees, ``0`` not, ``.`` unknown, ``E`` ends its turn as the target does,
    ``e`` ends its turn where the target goes on.
    """
    agreed = {"1": True, "E": True, "0": False, "e": False, ".": None}
    logprobs = tuple(None if bit in "Ee." else math.log(p) for bit in bits)
    ends = frozenset(at for at, bit in enumerate(bits) if bit in "Ee")
    return DraftRow(drafter, logprobs, tuple(agreed[bit] for bit in bits), ends, branches or {})


def trace(
    *rows: DraftRow,
    tokens: int,
    prompt: int = 100,
    finish: str = "stop",
    statics: tuple[StaticRow, ...] = (),
    cached: int = 0,
    max_tokens: int | None = None,
    name: str = "t",
    workload: str = "w",
) -> RequestTrace:
    """A request with these rows."""
    return RequestTrace(name, workload, prompt, tokens, finish, cached, max_tokens, None, rows, statics)


def one(bits: str, **more: object) -> RequestTrace:
    """A request with one drafter, as long as its row."""
    return trace(row(bits), tokens=len(bits), **more)  # type: ignore[arg-type]


def chance_trace(random_: random.Random, tokens: int) -> RequestTrace:
    """Any mixture of hits, misses, ends, branches and given text."""
    last = tokens - 1
    bits = "".join(random_.choice("11101e") for _ in range(last)) + random_.choice("E0")
    branches = {
        at: Branch((-0.3,) * random_.randint(0, 3), random_.random() < 0.5)
        for at, bit in enumerate(bits)
        if bit == "0" and random_.random() < 0.3
    }
    proposed = [random_.choice([0, 0, 3, 5]) for _ in range(tokens)]
    right = [min(random_.randint(0, long), max(0, last - at)) for at, long in enumerate(proposed)]
    given = StaticRow("lookup", tuple(proposed), tuple(right))
    finish = random_.choice(["stop", "length"])
    if finish == "length":
        bits = bits.replace("E", "1")
    return trace(
        row(bits, branches=branches), tokens=tokens, prompt=random_.choice([0, 3, 40]), finish=finish, statics=(given,)
    )
