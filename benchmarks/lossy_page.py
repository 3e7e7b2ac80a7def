"""The generated part of docs/chat-only-apis.md and its plot: pure text from what :mod:`benchmarks.lossy` found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cheapspec.rules.breakeven import SHAPES, Host, costs
from cheapspec.rules.certificates import needed

if TYPE_CHECKING:
    from benchmarks.lossy import Pair, Row

__all__ = ["BEGIN", "END", "insert", "plot", "render"]

BEGIN = "<!-- written by python -m benchmarks.lossy -->"
END = "<!-- until here -->"

CALLS = ((500, 300, 0), (1000, 300, 0), (1500, 300, 0), (4000, 200, 0), (500, 300, 1000))


def insert(page: str, text: str) -> str:
    """The page with its generated part replaced."""
    head, mark, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not mark or not end:
        sys.exit(f"the page has no place for the tables: {BEGIN} … {END}")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def render(pairs: Sequence[Pair], rows: Sequence[Row], places: Sequence[str]) -> str:
    """All tables."""
    return "\n\n".join([_break_even(), _certificates(), _replay(pairs, rows, places)])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _break_even() -> str:
    host, body = Host(5, 0.1), []
    for prompt, reply, hidden in CALLS:
        cells = [f"{prompt:,}, {reply}{f' and {hidden:,} of hidden thinking' if hidden else ''}"]
        for shape in SHAPES.values():
            got = costs(host, shape, prompt, reply, hidden=hidden)
            rate = "never" if got.break_even is None else f"{got.break_even:.2f}"
            cells.append(f"{got.accepted / got.direct:.2f} / {got.rejected / got.direct:.2f} / **{rate}**")
        body.append(cells)
    text = (
        "### What a verdict costs\n\n"
        "Cost of a request over that of the direct call when its draft is accepted / when it is rejected / **the share "
        "of drafts that must be accepted before the rule pays**. Output at 5 times the price of input, cached input at "
        "a tenth, nothing cached below 1,024 tokens, drafts as long as replies, thinking switched off in the verdict. "
        "By formula (`cheapspec.rules.breakeven`), with the lengths of our own questions."
    )
    heads = ["prompt, reply tokens", *(f"`{name}`" for name in SHAPES)]
    return f"{text}\n\n{_table(heads, body)}"


def _certificates() -> str:
    counts = (0, 1, 2, 5)
    body = [
        [f"{loss:.1%} at {sure:.0%}", *(f"{needed(failures, loss, sure):,}" for failures in counts)]
        for loss, sure in ((0.05, 0.95), (0.02, 0.95), (0.01, 0.95), (0.01, 0.99), (0.005, 0.95))
    ]
    heads = ["loss at most, with confidence", *(f"{failures} bad" for failures in counts)]
    text = (
        "### How many audited requests a certificate needs\n\n"
        "Shadowed requests, all of them counted, of which so many were accepted and bad (one-sided Clopper–Pearson)."
    )
    return f"{text}\n\n{_table(heads, body)}"


def _replay(pairs: Sequence[Pair], rows: Sequence[Row], places: Sequence[str]) -> str:
    weak = sum(pair.weak_correct for pair in pairs) / len(pairs)
    strong = sum(pair.strong_correct for pair in pairs) / len(pairs)
    body = []
    for row in rows:
        at = "" if row.random[0] is None else f"{row.random[0]:.1%}"
        figures = (f"{row.accepted:.1%}", f"{row.loss:.1%}", at, f"{row.wrong:.1%}")
        body.append([row.name, *(f"{paid:.2f}" for paid in row.paid), *figures])
    heads = [
        "rule",
        *(f"paid / direct, {place}" for place in places),
        "accepted",
        "loss",
        "loss of random routing for the same money (at 0)",
        "accepted and wrong",
    ]
    text = (
        f"### Replay on {len(pairs)} GSM8K questions\n\n"
        f"Drafts: Mixtral-8x7B-Instruct ({weak:.1%} right); target: GPT-4-1106-preview ({strong:.1%} right). **The "
        "texts are real, the target's verdicts are not**: they are made up at the stated error rates and read by the "
        "rules' own code. Columns: prompt tokens beyond the question. *Loss*: accepted, wrong, and the target right, "
        "over the target's right answers. *Correlated*: the judge errs first where the target itself is wrong; that "
        "lowers this loss, which is relative to the target, and not the share of wrong replies that go out. "
        "*Coinciding*: a wrong short answer is the draft's, where that is wrong. Routing at random is drafts accepted "
        "unseen until the same money is saved."
    )
    return f"{text}\n\n{_table(heads, body)}\n\n![Paid against lost](chat-only-apis.svg)"


# --- the plot ------------------------------------------------------------------------------------------

_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 40, 520, 300
_MOST_PAID, _MOST_LOST = 1.1, 0.25
_COLOURS = {"bound": "#666", "answer": "#0a7d33", "judge": "#b3400e"}
_SHAPES = {"bound": "the clairvoyant", "answer": "answer, short answers right in 100, 80, 60 %", "judge": "judges"}


def plot(rows: Sequence[Row]) -> str:
    """Paid over direct against one-sided loss, without further prompt tokens; the line is routing at random."""
    shown = [row for row in rows if "correlated" not in row.name and "coinciding" not in row.name]
    everything = next(
        row.random[0] / (1 - row.paid[0]) for row in rows if row.random[0] is not None and row.paid[0] < 1
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {_TOP + _HEIGHT + 100}" '
        'font-family="sans-serif" font-size="12" role="img">',
        "<title>Paid over direct against one-sided loss, GSM8K replay with made-up verdicts</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="13">Real texts, made-up verdicts: what rules pay and lose (GSM8K, '
        "no further prompt tokens)</text>",
    ]
    for step in range(0, 12, 2):
        x = _x(step / 10)
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{_TOP + _HEIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{step / 10:.1f}</text>')
    for step in range(0, 26, 5):
        y = _y(step / 100)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + _WIDTH}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{step} %</text>')
    top = 1 - _MOST_LOST / everything
    parts.append(
        f'<line x1="{_x(1)}" y1="{_y(0)}" x2="{_x(top)}" y2="{_y(_MOST_LOST)}" stroke="#666" stroke-dasharray="5 4"/>'
        f'<text x="{_x(top) + 8}" y="{_y(_MOST_LOST) + 14}" fill="#666">routing at random</text>'
    )
    for row in shown:
        name = row.name.replace("`", "")
        parts.append(
            f'<circle cx="{_x(row.paid[0])}" cy="{_y(row.loss)}" r="5" fill="{_COLOURS[row.kind]}">'
            f"<title>{name}: paid {row.paid[0]:.2f}, loss {row.loss:.1%}</title></circle>"
        )
        if row.kind == "judge":
            rates = name.removeprefix("judge, false accepts ").replace(" false rejects ", " ")
            at = f'x="{_x(row.paid[0])}" y="{_y(row.loss) - 10:.1f}" text-anchor="middle"'
            parts.append(f'<text {at} fill="#b3400e">{rates}</text>')
    middle = _LEFT + _WIDTH / 2
    parts.append(f'<text x="{middle}" y="{_TOP + _HEIGHT + 36}" text-anchor="middle">paid / direct</text>')
    parts.append(f'<text x="16" y="{_TOP + _HEIGHT / 2}" transform="rotate(-90 16 {_TOP + _HEIGHT / 2})" '
                 'text-anchor="middle">one-sided loss</text>')  # fmt: skip
    for index, (kind, words) in enumerate(_SHAPES.items()):
        y = _TOP + _HEIGHT + 56 + 14 * index
        extra = " (labels: false accepts, false rejects)" if kind == "judge" else ""
        parts.append(f'<circle cx="{_LEFT + 6}" cy="{y - 4}" r="5" fill="{_COLOURS[kind]}"/>')
        parts.append(f'<text x="{_LEFT + 18}" y="{y}">{words}{extra}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(paid: float) -> float:
    return round(_LEFT + _WIDTH * paid / _MOST_PAID, 1)


def _y(lost: float) -> float:
    return round(_TOP + _HEIGHT * (1 - lost / _MOST_LOST), 1)
