"""``cheapspec replay`` as a user runs it: on recorded traces, on a ledger, and where something is wrong."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from cheapspec.cli import main
from cheapspec.cli.replay import parse_list, parse_share
from cheapspec.core.books import Trace
from cheapspec.core.effects import Usage
from cheapspec.core.info import Info, Seconds
from cheapspec.core.money import Prices
from cheapspec.core.ports import Call, CallRow, RequestRow
from cheapspec.core.traces import DraftRow, RequestTrace, dump_trace
from cheapspec.errors import SettingsError
from cheapspec.ledger.database import DatabaseLedger

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in an empty folder and home; returns status, output and errors."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CHEAPSPEC_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cheapspec", "replay", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


def recorded(name: str, workload: str, bits: str, target: str | None = "big") -> RequestTrace:
    agreed = tuple(bit == "1" for bit in bits)
    row = DraftRow("small", tuple(-0.005 if bit else -1.5 for bit in agreed), agreed)
    return RequestTrace(name, workload, 60, len(bits), "length", 0, len(bits), target, (row,))


GOOD = [recorded(f"good-{n}", "code", "1" * 80) for n in range(3)]
BAD = [recorded(f"bad-{n}", "open", "0" * 60) for n in range(3)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three requests that a draft gets right, three that it does not."""
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(map(dump_trace, [*GOOD, *BAD])) + "\n\n", "utf-8")
    return path


LIST = ("--prices", "1,0.05,5")


def test_savings_and_losses_are_shown_by_workload(run: Run, file: Path) -> None:
    """Good drafts save, bad ones lose, and the loss has its sign; everything fits on 80 columns."""
    status, out, err = run("--traces", str(file), "--policy", "fixed:8", *LIST)
    assert (status, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert float(rows["code"][-1]) < 1 < float(rows["open"][-1])
    assert rows["open"][-2].startswith("−$") and rows["code"][-2].startswith("$")
    assert "output 5 times input, cached 0.05" in out
    assert max(len(line.rstrip()) for line in out.partition("fixed:8")[2].splitlines()) <= 80


def test_policies_stand_beside_one_another_in_json(run: Run, file: Path) -> None:
    """Each with all requests and by workload; money as strings, the clairvoyant where asked for."""
    status, out, _ = run(
        "--traces", str(file), *LIST, "--policy", "planner", "--policy", "direct", "--oracle", "--json"
    )
    told = json.loads(out)
    assert status == 0 and list(told["policies"]) == ["planner", "direct"]
    planner, direct = told["policies"]["planner"]["all"], told["policies"]["direct"]["all"]
    assert direct["paid_over_baseline"] == 1.0 and direct["capture"] == 0.0
    assert 0 < planner["capture"] <= 1 and Decimal(planner["clairvoyant_usd"]) <= Decimal(planner["paid_usd"])
    assert told["policies"]["planner"]["workloads"]["code"]["paid_over_baseline"] < 1
    assert told["requests"] == 6 and told["targets"]["big"]["context_prices"] == {"q0": None, "qs": 0.05, "qh": 0.05}


def test_the_endpoint_decides(run: Run, file: Path) -> None:
    """The same traffic, the same rule: what scoring pays for its context, and what direct does."""

    def paid(*more: str) -> float:
        told = json.loads(run("--traces", str(file), *LIST, "--policy", "fixed:8", "--json", *more)[1])
        return float(told["policies"]["fixed:8"]["all"]["paid_over_baseline"])

    assert paid("--qs", "1") > paid() > 0
    assert paid("--q0", "c") != paid() and paid("--qh", "1") == paid()  # this loop never hands off


def test_the_clairvoyant_is_shown(run: Run, file: Path) -> None:
    """Beside what the policy reached."""
    _, out, _ = run("--traces", str(file), *LIST, "--oracle")
    assert "clairvoyant" in out and "capture" in out


def test_the_allowance_can_be_replayed(run: Run, file: Path) -> None:
    """With it the loop may lose no more than was allowed, and the answer says how often it was stopped."""
    told = json.loads(
        run("--traces", str(file), *LIST, "--policy", "fixed:8", "--qs", "1", "--allowance", "0", "--seed-usd", "0",
            "--json")[1]
    )["policies"]["fixed:8"]["all"]  # fmt: skip
    assert told["stopped_by_allowance"] == 6 and told["paid_over_baseline"] == 1.0
    _, out, _ = run("--traces", str(file), *LIST, "--policy", "fixed:8", "--allowance", "0", "--seed-usd", "0")
    assert "the allowance stopped 6 of 6 requests" in out


def test_all_targets_share_one_allowance(run: Run, tmp_path: Path) -> None:
    """As a client's requests do: what may be lost at first may be lost once, not once a target."""
    seed = 0.0004

    def lost(*targets: str) -> float:
        path = tmp_path / "bad.jsonl"
        bad = [recorded(f"{at}", "open", "0" * 20, target) for target in targets for at in range(20)]
        path.write_text("\n".join(map(dump_trace, bad)) + "\n", "utf-8")
        rule = ("--policy", "fixed:8", "--qs", "1", "--allowance", "0", "--seed-usd", str(seed))
        told = json.loads(run("--traces", str(path), *LIST, *rule, "--json")[1])["policies"]["fixed:8"]["all"]
        return float(told["paid_usd"]) - float(told["baseline_usd"])

    assert seed / 2 < lost("big") <= seed
    assert lost("big", "other") <= seed


def test_seconds_can_be_the_objective(run: Run, file: Path) -> None:
    """Then the answer has seconds beside dollars."""
    told = json.loads(run("--traces", str(file), *LIST, "--objective", "latency", "--json")[1])
    assert told["policies"]["planner"]["all"]["seconds_direct"] > 0
    _, out, _ = run("--traces", str(file), *LIST, "--objective", "latency", "--qs", "1", "--q0", "1")
    assert "seconds" in out and "alone" in out


def test_only_some_drafters(run: Run, file: Path) -> None:
    """A drafter that no trace has proposes nothing, so everything goes direct."""
    told = json.loads(run("--traces", str(file), *LIST, "--drafter", "other", "--json")[1])
    assert told["policies"]["planner"]["all"]["direct"] == 6


def test_compressed_and_several_files(run: Run, file: Path, tmp_path: Path) -> None:
    """What a recorder writes is read as it is; two targets have their prices each."""
    packed = tmp_path / "more.jsonl.gz"
    with gzip.open(packed, "wt") as out:
        out.write(dump_trace(recorded("x", "code", "1" * 20, "gpt-4o-mini")) + "\n")
    (tmp_path / "work" / "cheapspec.toml").write_text('[prices."big"]\ninput = 1\ncached_input = 0.1\noutput = 7.5\n')
    told = json.loads(run("--traces", str(file), "--traces", str(packed), "--json")[1])
    assert told["requests"] == 7
    assert told["targets"]["big"]["prices"] == {"input": "1", "cached_input": "0.1", "output": "7.5"}
    assert told["targets"]["gpt-4o-mini"]["context_prices"]["qs"] < 1


# --- the ledger ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger with a speculated request, one that went direct for the moment's sake, and three that never could."""
    url = f"sqlite:///{tmp_path_factory.mktemp('replay') / 'books.db'}"
    ledger = DatabaseLedger(url)
    alone = {"prompt_tokens": 60, "reply_tokens": 80, "cached_prompt_tokens": 10, "target": "big@https://h/v1"}
    infos = [
        Info("speculate", "a", drafted_tokens=80, seconds=Seconds(draft=0.8), **alone),  # type: ignore[arg-type]
        Info("direct", "b", reason="not_worth_it", **alone),  # type: ignore[arg-type]
        Info("bypass", "c", reason="tools"),
        Info("direct", "d", reason="temperature_unset", **alone),  # type: ignore[arg-type]
        Info("speculate", "e"),
    ]
    for number, info in enumerate(infos):
        name = info.request_id
        session = "nightly" if name in "ab" else None
        ledger.open_request(RequestRow(name, time.time() + number, "big", "chat", False, session, "tag"))
        ticket = ledger.open_call(CallRow(f"{name}.1", name, "target", "score", True, time.time()))
        assert ticket is not None and ticket.wait(20)
        ledger.close_call(Call(f"{name}.1", "ok", Usage(140, 1, 60), "0.001", 0.5, 200))
        if name == "a":
            ledger.add_trace(Trace(name, 1, "small", 0, (-0.01,) * 60, (True,) * 59 + (False,)))
        ledger.close_request(name, info.to_dict())
    ledger.open_request(RequestRow("f", time.time() + 9, "big", "chat", False))
    ledger.close()
    return url


def test_a_ledger_is_replayed(run: Run, books: str) -> None:
    """What could have been speculated on; the rest is counted with its reason, and so is what was estimated."""
    status, out, _ = run("--ledger", books, *LIST, "--policy", "fixed:8", "--json")
    told = json.loads(out)
    assert status == 0 and told["requests"] == 2
    assert told["left_out"] == {
        "bypass (tools)": 1,
        "direct (temperature_unset)": 1,
        "of unknown length": 1,
        "unfinished": 1,
    }
    loop = told["policies"]["fixed:8"]["all"]
    assert loop["rounds"] > 0 and 0 < loop["estimated_share"] < 1
    _, out, _ = run("--ledger", books, *LIST, "--session", "nightly", "--objective", "latency", "--policy", "fixed:8")
    assert "are estimated" in out and "tag" in out
    assert "Left out" in run("--ledger", books, *LIST, "--since", "1h")[1]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--ledger", "{books}"], 1, "nobody knows the price of big@https://h/v1"),
        (["--ledger", "{books}", "--session", "no", *LIST], 1, "no requests of session 'no' that could be replayed"),
        (["--ledger", "{books}", "--since", "2990-01-01", *LIST], 1, "since then that could be replayed: none at all"),
        (["--ledger", "sqlite:////nowhere/x.db"], 1, "there is no ledger at /nowhere/x.db"),
        ([], 1, "There is no ledger yet"),
        (["--traces", "missing.jsonl"], 1, "missing.jsonl cannot be read (No such file or directory)"),
        (["--traces", "{empty}"], 1, "there is no trace in it"),
        (["--traces", "{wrong}"], 1, "line 2: 'reply_tokens' must be a count of tokens"),
        (["--traces", "{nameless}"], 1, "the traces do not name"),
        (["--traces", "{file}", "--ledger", "x"], 2, "one of --ledger and --traces"),
        (["--traces", "{file}", "--since", "1h"], 2, "are for a ledger"),
        (["--traces", "{file}", "--policy", "best"], 2, "is no policy: choose planner"),
        (["--traces", "{file}", "--objective", "joy"], 2, "write cost or latency"),
        (["--traces", "{file}", "--prices", "1,2"], 2, "INPUT,CACHED,OUTPUT"),
        (["--traces", "{file}", "--prices", "no-such-model"], 1, "nobody knows the price of no-such-model"),
        (["--traces", "{file}", "--qs", "cheap", *LIST], 2, "--qs 'cheap'"),
    ],
)
def test_errors_name_what_is_wrong(
    run: Run, books: str, file: Path, tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    """A sentence on standard error, never a traceback; 2 for misuse, 1 for what was found wrong."""
    good = dump_trace(GOOD[0])
    files = {
        "empty": "\n",
        "wrong": good + "\n" + good.replace('"reply_tokens":80', '"reply_tokens":null') + "\n",
        "nameless": dump_trace(recorded("n", "w", "11", None)) + "\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    places = {name: str(tmp_path / name) for name in files} | {"books": books, "file": str(file)}
    told, out, err = run(*(argument.format(**places) for argument in arguments))
    assert (told, out) == (status, "") and err.startswith("cheapspec: ") and "Traceback" not in err
    assert said in err


def test_a_broken_archive_is_named(run: Run, tmp_path: Path) -> None:
    """Not a gzip file, or one that was cut."""
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(dump_trace(GOOD[0]).encode())[:-12])
    status, _, err = run("--traces", str(path), *LIST)
    assert status == 1 and "x.jsonl.gz cannot be read" in err


def test_a_ledger_in_memory_cannot_be_replayed_from_outside(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the process that keeps it."""
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "memory")
    status, _, err = run()
    assert status == 1 and "memory" in err


def test_price_lists_and_shares_as_they_are_written() -> None:
    """Three numbers in dollars per million tokens; a share is c or a multiple."""
    assert parse_list(" 1, 0.05 ,5") == Prices(Decimal(1), Decimal(5), Decimal("0.05"))
    for wrong in ("", "1,2,x", "0,0,1", "1,-1,2", "1,inf,2"):
        with pytest.raises(SettingsError):
            parse_list(wrong)
    assert parse_share("qs", "c") is None and parse_share("qs", "0.5") == 0.5 and parse_share("q0", None) is None
    with pytest.raises(SettingsError, match="--qh"):
        parse_share("qh", "11")
