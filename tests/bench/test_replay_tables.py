"""The tables of what the planner reaches: every setting, judged as stated, and the same each time they are written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks import replay_page
from benchmarks.replay import load, main, measure, verdicts
from benchmarks.settings import HOSTS, LISTS, SETTINGS, Case, Target, model_of, prices_of
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow, dump_trace


def recorded(name: str, kind: str, bits: str, *, other: bool = False) -> RequestTrace:
    agreed = tuple(bit == "1" for bit in bits)
    row = DraftRow("small", tuple(-0.005 if bit else -1.5 for bit in agreed), agreed)
    foreign = DraftRow("foreign", row.logprobs, tuple(False for _ in bits))
    given = StaticRow("lookup", (0,) * len(bits), (0,) * len(bits))
    rows = (row, foreign) if other else (row,)
    return RequestTrace(name, kind, 50, len(bits), "length", 0, len(bits), "big", rows, (given,))


TRACES = [
    recorded("code-1", "code", "1" * 60),
    recorded("json-1", "json", "1" * 40),
    recorded("open-1", "open", "10" * 20, other=True),
    recorded("chat-1.1", "chat", "1" * 30),
]


def test_every_setting_is_replayed_at_every_list_that_it_has() -> None:
    """One cell a different price list; a case with prices of its own is not repeated for lists that it replaces."""
    cells = list(measure(TRACES))
    of = {case.name: [cell for cell in cells if cell.case is case] for case in SETTINGS}
    assert [cell.list_ for cell in of[SETTINGS[0].name]] == list(LISTS)
    flat = next(case for case in SETTINGS if case.r == "1")
    assert len(of[flat.name]) == len({c for _, c in LISTS})
    for cell in cells:
        clairvoyant = cell.planned.clairvoyant
        assert clairvoyant is not None and clairvoyant <= cell.planned.paid * (1 + 1e-12)
        assert {request.workload for request in cell.planned.requests} <= {"code", "json", "open", "chat"}
    assert {request.workload for request in of["a draft of another family"][0].planned.requests} == {"open"}
    assert {request.workload for request in of["chats, cached history (q0 = c)"][0].planned.requests} == {"chat"}


def test_a_case_sets_prices_context_and_length() -> None:
    """What a setting says is what its tariff has."""
    case = Case("x", lambda trace: True, (), qs=1.0, q0="c", r="3", more_prompt=1000)
    prices = case.prices(("5", ".1"))
    assert prices == prices_of("3", ".1")
    tariff = case.tariff(prices)
    assert (tariff.qs, tariff.q0, tariff.qh) == (1.0, 0.1, 0.1)
    assert case.traces(TRACES)[0].prompt_tokens == 1050


def test_targets_are_judged_as_they_are_stated() -> None:
    """The worst kind counts for "each kind"; capture is to be at least, ratios at most or below."""
    case = Case("x", lambda trace: trace.workload != "chat", (Target("each kind", 0.5), Target("code and JSON", 1.0),
                Target("capture", 0.0), Target("all", 2.0)))  # fmt: skip
    told = verdicts(list(measure(TRACES, [case])))[:4]
    worst, together, capture, everything = told
    assert worst.kind == "open" and not worst.met
    assert together.planned is not None and together.planned < 1 and together.met
    assert capture.met and everything.met
    assert Target("capture", 0.5).met(0.5) and not Target("capture", 0.5).met(0.49) and Target("capture", 0.5).met(None)
    assert Target("all", 1.0).met(1.0) and not Target("all", 1.0, below=True).met(1.0)
    assert Target("all", 1.0, below=True).wanted == "all below 1"


def test_the_tables_are_written_between_the_marks_and_are_the_same_again(tmp_path: Path) -> None:
    """What stands around them stays; a page without marks is refused."""
    file, page = tmp_path / "t.jsonl.gz", tmp_path / "page.md"
    file.write_bytes(gzip.compress("".join(dump_trace(trace) + "\n" for trace in TRACES).encode()))
    assert load(file) == TRACES
    page.write_text(f"before\n\n{replay_page.BEGIN}\nold\n{replay_page.END}\n\nafter\n")
    arguments = ["--traces", str(file), "--out", str(page)]
    status = main(arguments)
    first = page.read_text()
    assert status in (0, 1) and "old" not in first
    assert first.startswith("before\n") and first.endswith("\nafter\n")
    assert "4 requests, 170 reply tokens; kinds: code, json, open, chat." in first
    assert "eight tokens a round" in first and "### Single turn" in first and "clairvoyant" in first
    assert main(arguments) == status and page.read_text() == first
    page.write_text("nothing")
    with pytest.raises(SystemExit, match="no place"):
        main(arguments)


def test_hosts_that_score_are_named_first() -> None:
    """A model that a host serves which is documented to score, if anybody has one at these prices."""
    found = model_of("4", ".02")
    assert found is not None and found[0] in HOSTS
    assert model_of("1234", ".5") is None
