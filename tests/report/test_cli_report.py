"""``cheapspec report`` on a ledger in a database, as a user runs it."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from reportkit import NOON, ask

from cheapspec.cli import main
from cheapspec.cli.report import parse_since
from cheapspec.errors import SettingsError
from cheapspec.ledger.database import DatabaseLedger

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in an empty folder and home; returns status, output and errors."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CHEAPSPEC_LEDGER")
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cheapspec", "report", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger with three requests of two days and two sessions, one of them a loss."""
    url = f"sqlite:///{tmp_path / 'books.db'}"
    ledger = DatabaseLedger(url)
    ask(ledger, "a", "speculate", ("score", "0.3"), session="nightly", model="=HYPERLINK(1)", rule="exact",
        rounds=1, drafted_tokens=8, accepted_tokens=8, baseline_usd="0.2", total=1.0)  # fmt: skip
    ask(ledger, "b", "direct", ("direct", "0.1"), at=NOON + 86_400, reason="not_worth_it", baseline_usd="0.1",
        baseline="exact")  # fmt: skip
    ask(ledger, "c", "bypass", ("direct", None), at=NOON + 86_400, reason="tools", session="other")
    ledger.close()
    return url


@pytest.mark.parametrize("since", ["999999w", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_that_no_calendar_has_is_misuse(run: Run, url: str, since: str) -> None:
    """Exit status 2 and one sentence."""
    status, out, err = run("--ledger", url, "--since", since)
    assert (status, out) == (2, "")
    assert since in err
    assert "write 24h, 7d or a date" in err
    assert "Traceback" not in err


def test_it_reads_the_database(run: Run, url: str) -> None:
    """The terminal report: what was bypassed, and the loss with its sign."""
    status, out, err = run("--ledger", url)
    assert (status, err) == (0, "")
    assert "1 of 3 requests (33 %) passed through untouched: tools 1" in out
    assert "−$0.100000  −33 %  more was paid" in out
    assert "1 request could not be priced" in out


def test_the_json_is_the_same_report(run: Run, url: str) -> None:
    """Sums, sessions and reasons, as scripts read them; standard output holds nothing else."""
    status, out, _ = run("--ledger", url, "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["paid_usd"], told["baseline_usd"], told["saved_usd"]) == ("0.400000", "0.300000", "-0.100000")
    assert told["requests"]["by_reason"] == {"not_worth_it": 1, "tools": 1}
    assert {row["session"] for row in told["sessions"]} == {"nightly", "other", None}
    assert (told["from"], told["to"]) == (NOON, NOON + 86_400)


def test_the_csv_has_a_line_a_request(run: Run, url: str) -> None:
    """Unknown money is empty, a loss is a number, and a name that looks like a formula is not one."""
    status, out, _ = run("--ledger", url, "--csv")
    first, second, third = csv.DictReader(out.splitlines())
    assert status == 0
    assert (first["saved_usd"], first["model"], first["decision"], first["seconds_total"]) == (
        "-0.100000", "'=HYPERLINK(1)", "speculated", "1.0",
    )  # fmt: skip
    assert (second["at"], second["baseline"], second["reason"]) == (
        "2026-11-30T12:00:00+00:00", "exact", "not_worth_it",
    )  # fmt: skip
    assert (third["paid_usd"], third["saved_usd"], third["session"]) == ("", "", "other")


def test_the_page_is_written(run: Run, url: str, tmp_path: Path) -> None:
    """``--html FILE`` writes the page and says so; ``-`` is standard output; a folder that is not there is named."""
    status, out, _ = run("--ledger", url, "--html", str(tmp_path / "r.html"))
    assert (status, out) == (0, f"Wrote {tmp_path / 'r.html'}.\n")
    assert run("--ledger", url, "--html", "-")[1] == (tmp_path / "r.html").read_text("utf-8")
    status, _, err = run("--ledger", url, "--html", str(tmp_path / "nowhere" / "r.html"))
    assert (status, err) == (1, f"cheapspec: {tmp_path / 'nowhere' / 'r.html'} cannot be written (No such file or "
                                "directory).\n")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        (("--session", "nightly"), 1),
        (("--since", "2026-11-30"), 2),
        (("--since", "2026-11-30T12:00:00Z"), 2),
        (("--since", "2026-11-30T13:00:00+02:00"), 2),
        (("--since", "2026-11-30T14:00:01+02:00"), 0),
        (("--session", "nightly", "--since", "2026-11-30"), 0),
    ],
)
def test_sessions_and_times_are_chosen(run: Run, url: str, options: tuple[str, ...], requests: int) -> None:
    """A session by name, a time from a date on (UTC unless it says otherwise)."""
    status, out, _ = run("--ledger", url, "--json", *options)
    assert (status, json.loads(out)["requests"]["total"]) == (0, requests)


def test_nothing_found_is_a_sentence(run: Run, url: str) -> None:
    """An empty answer is not a table of zeros."""
    assert run("--ledger", url, "--session", "nobody") == (0, "The ledger has no requests of session 'nobody'.\n", "")


def test_before_the_first_request_there_is_no_ledger(run: Run, tmp_path: Path) -> None:
    """The default ledger is not there yet: said, not made; JSON is a report of nothing."""
    status, out, _ = run()
    path = tmp_path / "home" / ".cheapspec" / "ledger.db"
    assert (status, out) == (
        0, f"There is no ledger yet: {path} is made by the first request (the default ledger).\n",
    )  # fmt: skip
    assert json.loads(run("--json")[1])["requests"]["total"] == 0
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--ledger", "sqlite:////nowhere/books.db"), 1, "there is no ledger at /nowhere/books.db."),
        (("--ledger", "mysql://u:secret@h/d"), 1, "is no ledger: write sqlite:///PATH"),
        (("--ledger", "off"), 1, "switched off (--ledger)"),
        (("--since", "yesterday"), 2, "--since 'yesterday': write 24h, 7d or a date"),
        (("--json", "--csv"), 2, "choose one of --json, --csv and --html"),
    ],
)
def test_what_is_wrong_is_a_sentence(run: Run, arguments: tuple[str, ...], status: int, said: str) -> None:
    """Status 1 for a ledger that cannot be read, 2 for misuse; no traceback, no password."""
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert err.startswith("cheapspec: ")
    assert said in err
    assert "secret" not in err


def test_a_file_that_is_no_ledger_is_named_once(run: Run, tmp_path: Path) -> None:
    """A text file is not read as an empty ledger, and not written to."""
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look at" * 100)
    status, out, err = run("--ledger", f"sqlite:///{tmp_path / 'notes.txt'}")
    assert (status, out) == (1, "")
    assert "cannot be read: file is not a database" in err
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


def test_the_ledger_of_the_settings_is_read(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's ledger, else the file's; ``off`` says where it was switched off."""
    Path("cheapspec.toml").write_text(f'[ledger]\nurl = "{url}"\n')
    assert json.loads(run("--json")[1])["requests"]["total"] == 3
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "off")
    status, _, err = run()
    assert (status, err) == (
        1, "cheapspec: the ledger is switched off (environment variable CHEAPSPEC_LEDGER), so there is nothing to "
        "report.\n",
    )  # fmt: skip
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "memory")
    status, _, err = run()
    assert (status, "kept in memory (environment variable CHEAPSPEC_LEDGER)" in err) == (1, True)


def test_times_before_now() -> None:
    """Minutes, hours, days and weeks count back from now; anything else is a date, or refused."""
    now = time.time()
    assert [now - parse_since(text, now) for text in ("5m", "24h", "7D", " 2w ")] == [300, 86_400, 604_800, 1_209_600]
    assert parse_since("2026-11-29", now) == NOON - 43_200
    for text in ("", "h", "-1h", "1.5h", "99999999d", "2026-13-01"):
        with pytest.raises(SettingsError):
            parse_since(text, now)
