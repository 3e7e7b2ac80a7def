"""``make bench-lossy``: what lossy rules would cost and lose on 880 real questions; writes docs/chat-only-apis.md.

Rules
-----
* The texts are real (tests/data/gsm8k_pairs.jsonl): questions, a weak model's answers as drafts, a strong model's as
  the target's. **What the target says to a verdict's question is not: it is made up at stated error rates**, and read
  by the rules' own code (layout, extractors, letters). No model is called, and the figures are expectations over those
  rates, without chance: the same code and data give the same page.
* Tokens are counted at four characters, numbers at three digits, a token. Output costs 5 times input, cached input a
  tenth. A prompt is the question and so many further tokens; a host caches none below 1,024.
* Loss is one-sided: accepted, wrong, and the strong model right, over the questions that the strong model has right.
* *Correlated* errors fall first on the questions that the strong model itself has wrong (a judge shares its own blind
  spots); a *coinciding* wrong short answer is the weak model's where that is wrong too.

``--out -`` prints the page's part; ``--check`` says whether the page and the plot are up to date (status 1: not).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lossy_page import insert, plot, render
from cheapspec.core.request import Request
from cheapspec.rules import Answer, Draft, Endpoint, Judge, Verdict
from cheapspec.rules.breakeven import Host, Shape, costs

__all__ = ["PLACES", "Pair", "Place", "Row", "load", "main", "rows"]

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data" / "gsm8k_pairs.jsonl"
PAGE = ROOT / "docs" / "chat-only-apis.md"
PLOT = ROOT / "docs" / "chat-only-apis.svg"

OUTPUT, CACHED, BLOCK = 5.0, 0.1, 1024
JUDGES = ((0.0, 0.0), (0.03, 0.2), (0.19, 0.04), (0.55, 0.05))
ACCURACIES = (1.0, 0.8, 0.6)


@dataclass(frozen=True, slots=True)
class Place:
    """Further prompt tokens, and the shortest prompt that the host caches (``None``: it caches none)."""

    name: str
    further: int
    block: int | None


PLACES = (
    Place("0", 0, BLOCK),
    Place("400", 400, BLOCK),
    Place("400, host caches short prompts", 400, 1),
    Place("1,400", 1400, BLOCK),
    Place("1,400, not cached", 1400, None),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One question. ``weak`` is the draft; answers are numbers."""

    question: str
    weak: str
    strong: str
    weak_answer: float
    strong_answer: float
    weak_correct: bool
    strong_correct: bool

    @property
    def lost(self) -> bool:
        """Accepting the draft loses something: it is wrong, and the strong model right."""
        return self.strong_correct and not self.weak_correct


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule does with one question: the chance that it accepts; tokens of its own words, the draft among them,
    and of its reply, averaged; ``asks`` false: it says no without asking.
    """

    accepts: float
    words: float = 0
    said: float = 0
    asks: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One rule. ``paid``: over direct, by place; ``accepted``, ``wrong`` (accepted and wrong): shares of requests;
    ``loss``: one-sided; ``random``: the loss of accepting drafts at random for the same money, by place, ``None``
    where the rule costs more than direct.
    """

    name: str
    paid: tuple[float, ...]
    accepted: float
    wrong: float
    loss: float
    random: tuple[float | None, ...]
    kind: str


def load(path: Path = DATA) -> list[Pair]:
    """The questions; no answer is a number that equals none."""
    made = []
    for line in path.read_text("utf-8").splitlines():
        told = json.loads(line)
        weak, strong = (_number(told[name]) for name in ("weak_answer", "strong_answer"))
        right = told["weak_correct"], told["strong_correct"]
        made.append(Pair(told["question"], told["weak"], told["strong"], weak, strong, *right))
    return made


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def tokens(text: str) -> float:
    """Four characters a token."""
    return len(text) / 4


def request(pair: Pair) -> Request:
    """The question as a caller sends it."""
    body = {"model": "strong", "temperature": 0, "messages": [{"role": "user", "content": pair.question}]}
    return Request("chat", body, "strong", False)


def words(body: dict[str, Any], pair: Pair) -> float:
    """Tokens that a verdict's call has beyond the caller's own prompt."""
    return tokens(body["messages"][-1]["content"]) - tokens(pair.question)


# --- rules, on replies that are made up ---------------------------------------------------------------


def short(number: float) -> str:
    """A short answer as a target writes it."""
    return f"{number:,.10g}" if math.isfinite(number) else "unknown"


def answered(pairs: Sequence[Pair], accuracy: float, *, coincide: bool = False) -> list[Asked]:
    """``Answer("last_number")``: the short answer is the strong model's full one with this probability."""
    rule, made = Answer("last_number"), []
    for pair in pairs:
        draft = Draft(pair.weak)
        if rule.before(draft) is not None:
            made.append(Asked(0.0, asks=False))
            continue
        other = pair.weak_answer if coincide and not pair.weak_correct else pair.strong_answer + 1
        right, wrong = short(pair.strong_answer), short(other)
        verdicts = [rule.read(_reply(text), draft) for text in (right, wrong)]
        said = accuracy * math.ceil(len(right) / 3) + (1 - accuracy) * math.ceil(len(wrong) / 3)
        accepts = accuracy * verdicts[0].accepted + (1 - accuracy) * verdicts[1].accepted
        made.append(Asked(accepts, words(rule.body(request(pair), Endpoint()), pair), said))
    return made


def judged(pairs: Sequence[Pair], false_accept: float, false_reject: float, *, correlated: bool = False) -> list[Asked]:
    """``Judge``: it says Y to a wrong draft and N to a right one in these shares."""
    rule, endpoint, made = Judge(uncalibrated=True), Endpoint(), []
    spread = _correlated if correlated else _independent
    errs = spread(pairs, lambda pair: not pair.weak_correct, false_accept)
    errs = [a or b for a, b in zip(errs, spread(pairs, lambda pair: pair.weak_correct, false_reject), strict=True)]
    yes, no = (_letter(text) for text in "YN")
    for pair, share in zip(pairs, errs, strict=True):
        draft = Draft(pair.weak)
        body = rule.body(request(pair), draft, "salt", endpoint)
        verdicts: list[Verdict] = [rule.read(told, draft, 0.5, endpoint) for told in (yes, no)]
        says_yes = 1 - share if pair.weak_correct else share
        accepts = says_yes * verdicts[0].accepted + (1 - says_yes) * verdicts[1].accepted
        made.append(Asked(accepts, words(body, pair), 1))
    return made


def _independent(pairs: Iterable[Pair], of: Callable[[Pair], bool], share: float) -> list[float]:
    return [share if of(pair) else 0.0 for pair in pairs]


def _correlated(pairs: Sequence[Pair], of: Callable[[Pair], bool], share: float) -> list[float]:
    """The same share of errors, first where the strong model is wrong itself."""
    blind = sum(of(pair) and not pair.strong_correct for pair in pairs)
    rest = sum(of(pair) and pair.strong_correct for pair in pairs)
    errors = share * (blind + rest)
    there = min(1.0, errors / blind) if blind else 0.0
    elsewhere = max(0.0, errors - blind) / rest if rest else 0.0
    return [0.0 if not of(pair) else elsewhere if pair.strong_correct else there for pair in pairs]


def _reply(text: str, tokens: list[Any] | None = None) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [{**choice, "logprobs": {"content": tokens}} if tokens else choice]}


def _letter(text: str) -> dict[str, Any]:
    """A judge's one token that is sure, as an endpoint lists it."""
    other = "N" if text == "Y" else "Y"
    top = [{"token": text, "logprob": -0.02, "bytes": None}, {"token": other, "logprob": -4.2, "bytes": None}]
    return _reply(text, [{**top[0], "top_logprobs": top}])


# --- money and loss --------------------------------------------------------------------------------------


def row(name: str, kind: str, pairs: Sequence[Pair], asked: Sequence[Asked]) -> Row:
    """What a rule pays and loses."""
    right = sum(pair.strong_correct for pair in pairs)
    loss = sum(one.accepts for pair, one in zip(pairs, asked, strict=True) if pair.lost) / right
    wrong = sum(one.accepts for pair, one in zip(pairs, asked, strict=True) if not pair.weak_correct)
    paid = tuple(_paid(pairs, asked, place) for place in PLACES)
    everything = sum(pair.lost for pair in pairs) / right
    random = tuple((1 - share) * everything if share < 1 else None for share in paid)
    accepted = sum(one.accepts for one in asked) / len(pairs)
    return Row(name, paid, accepted, wrong / len(pairs), loss, random, kind)


def _paid(pairs: Sequence[Pair], asked: Sequence[Asked], place: Place) -> float:
    host = Host(OUTPUT, CACHED, place.block)
    paid = direct = 0.0
    for pair, one in zip(pairs, asked, strict=True):
        prompt, reply = round(tokens(pair.question)) + place.further, round(tokens(pair.strong))
        call = costs(host, Shape(round(one.words), 0, shown=False), prompt, reply)
        said = one.said * OUTPUT
        direct += call.direct
        if one.asks:
            paid += one.accepts * (call.accepted + said) + (1 - one.accepts) * (call.rejected + said)
        else:
            paid += (1 - one.accepts) * call.direct
    return paid / direct


def rows(pairs: Sequence[Pair]) -> list[Row]:
    """Every rule of the page, the clairvoyant first."""
    knows = [Asked(float(not pair.lost), asks=False) for pair in pairs]
    made = [row("clairvoyant", "bound", pairs, knows)]
    for accuracy in ACCURACIES:
        name = f"`answer`, short answers as good as full ones in {accuracy:.0%}"
        made.append(row(name, "answer", pairs, answered(pairs, accuracy)))
        if accuracy < 1:
            made.append(
                row(f"{name}, wrong ones coinciding", "answer", pairs, answered(pairs, accuracy, coincide=True))
            )
    for accept, reject in JUDGES:
        name = f"judge, false accepts {accept:.0%}, false rejects {reject:.0%}"
        made.append(row(name, "judge", pairs, judged(pairs, accept, reject)))
        if accept or reject:
            made.append(row(f"{name}, correlated", "judge", pairs, judged(pairs, accept, reject, correlated=True)))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, and write, print or check."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lossy", description="Replay lossy rules on GSM8K pairs."
    )
    parser.add_argument("--out", default=str(PAGE), help="the page whose part to write; - prints it")
    parser.add_argument("--check", action="store_true", help="write nothing; say whether page and plot are up to date")
    asked = parser.parse_args(arguments)
    pairs = load()
    made = rows(pairs)
    text, drawn = render(pairs, made, [place.name for place in PLACES]), plot(made)
    if asked.out == "-":
        print(text)
        return 0
    page = insert(PAGE.read_text("utf-8"), text)
    if asked.check:
        fresh = page == PAGE.read_text("utf-8") and PLOT.exists() and PLOT.read_text("utf-8") == drawn
        print(
            "up to date" if fresh else "docs/chat-only-apis.md or its plot is not: run make bench-lossy",
            file=sys.stderr,
        )
        return 0 if fresh else 1
    Path(asked.out).write_text(page, "utf-8")
    Path(asked.out).with_suffix(".svg").write_text(drawn, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
