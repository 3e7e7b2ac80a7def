"""``cheapspec prices``: the price that applies, why, and honest ignorance; fresh list prices on request."""

from __future__ import annotations

import gzip
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from genai_prices import update_prices

from cheapspec.cli import main
from cheapspec.core.money import Prices
from cheapspec.errors import CheapspecError
from cheapspec.prices import PriceBook, data
from cheapspec.prices.data import data_file, update

PUBLISHED = Path(__file__).parent / "data" / "prices" / "genai_prices.json"
Run = Callable[..., tuple[int, str, str]]
OPENAI = "https://api.openai.com/v1"
ROW = Prices(Decimal("0.4"), Decimal(3))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in an empty folder; returns status, output and errors."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cheapspec", "prices", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return int(left.value.code or 0), told.out, told.err

    return command


# --- which row, and why ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "row", "why"),
    [
        ("gpt-4o", "gpt-4o", "your table has a row 'gpt-4o'"),
        ("GPT-4o", "gpt-4o", "your table has a row 'gpt-4o' (case of 'GPT-4o' left out)"),
        (
            "openai/gpt-4o",
            "gpt-4o",
            "your table has a row 'gpt-4o' (router prefixes of 'openai/gpt-4o' left out)",
        ),
        (
            "gpt-4o-2024-08-06",
            "gpt-4o",
            "your table has a row 'gpt-4o' (the date at the end of 'gpt-4o-2024-08-06' left out)",
        ),
        (
            "openrouter/openai/gpt-4o-2024-08-06",
            "gpt-4o",
            "your table has a row 'gpt-4o' (router prefixes and the date at the end of "
            "'openrouter/openai/gpt-4o-2024-08-06' left out)",
        ),
    ],
)
def test_b04_a_quote_says_how_the_row_was_found(asked: str, row: str, why: str) -> None:
    """Each step that led from the name to the user's row is told."""
    quote = PriceBook({"gpt-4o": ROW}).quote(asked, OPENAI)
    assert (quote.prices, quote.source, quote.row, quote.provider, quote.why) == (ROW, "user", row, None, why)


def test_b04_a_quote_never_guesses() -> None:
    """A row for every model says so; another model's longer name, an own server, a provider's gap are unknown."""
    assert PriceBook({"*": ROW}).quote("anything").why == "your table has a row for every model ('*')"
    book = PriceBook({"gpt-4o": ROW})
    for asked, url, why in (
        ("gpt-4o-mini", "http://10.0.0.7:8000/v1", "no provider with list prices is known at http://10.0.0.7:8000/v1"),
        ("acme/brand-new", "", "no listed model has this name"),
        ("acme/brand-new", OPENAI, "OpenAI lists no model of this name"),
    ):
        quote = book.quote(asked, url)
        assert (quote.prices, quote.source) == (None, "unknown")
        assert quote.why == f"your table has no row for it, and {why}"


def test_a_quote_and_a_look_up_agree() -> None:
    """What the command shows is what a request is priced by."""
    book = PriceBook({"gpt-4o": ROW})
    for model, url in (("gpt-4o", OPENAI), ("gpt-5.1", OPENAI), ("gemini-2.5-pro", ""), ("nobody/knows", OPENAI)):
        quote = book.quote(model, url)
        assert book.lookup(model, url) == (quote.prices, quote.source)
        assert quote.names[0] == model


# --- the command -------------------------------------------------------------------------------------


def test_it_shows_list_prices_with_steps_and_tiers(run: Run) -> None:
    """Provider, row and every price of it; the data's version, and that it is offline."""
    status, out, err = run("gemini-2.5-pro")
    assert (status, err) == (0, "")
    for said in ("genai-prices", "Google lists 'gemini-2.5-pro'", "above 200,000 input tokens", "$15.00", "offline"):
        assert said in out
    assert "service tier priority" in run("gpt-4o", "--base-url", OPENAI)[1]


def test_the_json_has_all_of_it(run: Run) -> None:
    """Prices are strings in dollars per million tokens; the reason is there too."""
    status, out, _ = run("openrouter/openai/gpt-4o-2024-08-06", "--base-url", OPENAI, "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["source"], told["provider"], told["row"], told["base_url"]) == (
        "genai-prices", "openai", "gpt-4o", OPENAI,
    )  # fmt: skip
    assert Decimal(told["prices"]["input"]) == Decimal("2.5")
    assert told["names"][-1] == "gpt-4o"
    assert told["data"]["fetched_at"] is None


def test_the_users_table_is_read_from_the_settings(run: Run, tmp_path: Path) -> None:
    """cheapspec.toml's row wins over the list, with its fee per call; what it leaves out counts as input."""
    (tmp_path / "cheapspec.toml").write_text(
        '[prices."gpt-4o"]\ninput = 1.5\noutput = 2\nrequest = 0.01\n[prices."gpt-4o".tiers.flex]\ninput=1\noutput=1\n'
    )
    status, out, _ = run("openai/gpt-4o")
    assert status == 0
    for said in ("user", "router prefixes of 'openai/gpt-4o' left out", "$1.50", "as input", "service tier flex",
                 "and $0.01 a call"):  # fmt: skip
        assert said in out
    assert "List prices" not in out


def test_b04_an_unknown_price_is_status_1_and_says_what_to_do(run: Run) -> None:
    """Never 0: the reason, what follows from it, and the table to write."""
    status, out, err = run("acme/brand-new")
    assert (status, err) == (1, "")
    for said in ("unknown", "no listed model has this name", "never counted as free", '[prices."acme/brand-new"]'):
        assert said in out
    assert "$0" not in out
    status, out, _ = run("acme/brand-new", "--json")
    assert (status, json.loads(out)["prices"], json.loads(out)["source"]) == (1, None, "unknown")


def test_a_model_must_be_named(run: Run) -> None:
    """Misuse is a sentence and status 2."""
    status, _, err = run()
    assert status == 2
    assert "name a model" in err


# --- fresh prices ------------------------------------------------------------------------------------

FRESH: list[dict[str, Any]] = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": r"https://api\.openai\.com",
        "models": [{"id": "gpt-9", "match": {"equals": "gpt-9"}, "prices": {"input_mtok": 7, "output_mtok": 70}}],
    }
]


@pytest.fixture
def site() -> Iterator[tuple[str, list[bytes]]]:
    """A web site on this machine; its answers are taken from the list, the last one again and again."""
    answers: list[bytes] = []
    left = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.pop(0) if len(answers) > 1 else answers[0]
            if body == b"hang":
                left.wait(10)
                return
            if body == b"moved" and self.path != "/elsewhere":
                self.send_response(302)
                self.send_header("location", "/elsewhere")
                self.end_headers()
                return
            self.send_response(404 if body == b"404" else 200)
            if body[:2] == b"\x1f\x8b":
                self.send_header("content-encoding", "gzip")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/data.json", answers
        left.set()
        server.shutdown()
        thread.join()


def test_fetched_prices_are_used_from_then_on(site: tuple[str, list[bytes]], run: Run) -> None:
    """What was fetched prices the next process's requests; the command says when it was fetched."""
    url, answers = site
    answers.append(json.dumps(FRESH).encode())
    assert PriceBook().lookup("gpt-9", OPENAI) == (None, "unknown")
    fresh = update(url)
    assert (fresh.providers, fresh.models) == (1, 1)
    data._current.cache_clear()
    assert PriceBook().lookup("gpt-9", OPENAI) == (Prices(Decimal(7), Decimal(70)), "genai-prices")
    status, out, _ = run("gpt-9", "--base-url", OPENAI)
    assert status == 0
    assert "genai-prices, fetched 20" in out


@pytest.fixture
def published(site: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[bytes]]:
    """The site is where genai-prices publishes."""
    monkeypatch.setattr(update_prices, "DEFAULT_UPDATE_URL", site[0])
    return site


@pytest.mark.parametrize("how", ["plain", "gzip", "moved"])
def test_what_genai_prices_publishes_is_fetched_by_the_command(
    published: tuple[str, list[bytes]], run: Run, how: str
) -> None:
    """Its own file, over HTTP, compressed or from elsewhere: rows with steps, dates, windows; offline from then on."""
    payload = PUBLISHED.read_bytes()
    published[1].extend([b"moved"] if how == "moved" else [])
    published[1].append(gzip.compress(payload) if how == "gzip" else payload)
    status, out, err = run("--update")
    assert (status, err) == (0, "")
    assert "5 models" in out and "2 providers" in out
    published[1][:] = [b"404"]
    data._current.cache_clear()
    status, out, _ = run("claude-haiku-4-5", "--base-url", "https://api.anthropic.com/v1", "--json")
    told = json.loads(out)
    assert (status, told["source"], told["data"]["models"]) == (0, "genai-prices", 5)
    assert {name: Decimal(told["prices"][name]) for name in ("input", "output", "cached_input", "cache_write")} == {
        "input": Decimal(1),
        "output": Decimal(5),
        "cached_input": Decimal("0.1"),
        "cache_write": Decimal("1.25"),
    }
    book = PriceBook(now=lambda: datetime(2026, 3, 1, tzinfo=UTC))
    early, _ = book.lookup("claude-sonnet-4-6", "https://api.anthropic.com/v1")
    assert early is not None
    assert early.steps[0][0] == 200_000
    late, _ = PriceBook().lookup("claude-sonnet-4-6", "https://api.anthropic.com/v1")
    assert late is not None
    assert late.steps == ()
    assert PriceBook().output_limit("claude-haiku-4-5", "https://api.anthropic.com/v1") == 200_000
    assert PriceBook().lookup("gpt-4o", OPENAI) == (None, "unknown"), "what is not listed any more is unknown"


@pytest.mark.parametrize("body", [b"404", b"<html>sign in</html>", b'{"error": "gone"}', b"\x1f\x8bno gzip", b"hang"])
def test_a_failed_update_keeps_the_prices_that_are_there(
    published: tuple[str, list[bytes]], run: Run, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, garbage, or no answer in time: one sentence, status 1, and requests are priced as before."""
    monkeypatch.setattr(data, "_SECONDS", 0.3)
    published[1].append(PUBLISHED.read_bytes())
    assert run("--update")[0] == 0
    before = data_file().read_bytes()
    published[1][:] = [body]
    status, out, err = run("--update")
    assert (status, out) == (1, "")
    assert err.startswith("cheapspec: ")
    assert "stay in use" in err
    assert "Traceback" not in err
    assert data_file().read_bytes() == before
    data._current.cache_clear()
    assert PriceBook().lookup("claude-v1", "https://api.anthropic.com/v1")[1] == "genai-prices"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"404", "404"),
        (b"<html>sign in</html>", "did not answer with prices"),
        (b"[]", "not a list of providers"),
        (b'{"error": "gone"}', "not a list of providers"),
        (b'[{"id": "openai"}]', "did not answer with prices"),
    ],
)
def test_what_is_not_prices_changes_nothing(site: tuple[str, list[bytes]], body: bytes, said: str) -> None:
    """A refusal, a web page or other JSON is an error that names the address; what was there stays."""
    url, answers = site
    answers.extend([json.dumps(FRESH).encode(), body])
    update(url)
    before = data_file().read_bytes()
    with pytest.raises(CheapspecError) as told:
        update(url)
    assert said in str(told.value)
    assert url in str(told.value)
    assert "stay in use" in str(told.value)
    assert data_file().read_bytes() == before
    assert [path.name for path in data_file().parent.iterdir()] == ["prices.json"]


def test_without_a_network_the_update_fails_clearly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, status 1, nothing written."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # a port where nobody listens
    status, out, err = run("--update")
    assert (status, out) == (1, "")
    assert err.startswith("cheapspec: no prices from https://")
    assert "stay in use" in err
    assert "Traceback" not in err
    assert not data_file().exists()


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ({"genai_prices": "0.0.1"}, False),
        ({"providers": [{"id": 1}]}, True),
        ({"fetched_at": "yesterday"}, True),
    ],
)
def test_stored_prices_that_cannot_be_used_are_passed_over(
    site: tuple[str, list[bytes]], caplog: pytest.LogCaptureFixture, change: dict[str, Any], warned: bool
) -> None:
    """Those of another version of the package silently, broken ones with a warning: its own prices count again."""
    url, answers = site
    answers.append(json.dumps(FRESH).encode())
    update(url)
    kept = json.loads(data_file().read_text())
    data_file().write_text(json.dumps({**kept, **change}))
    data._current.cache_clear()
    with caplog.at_level(logging.WARNING, "cheapspec"):
        assert PriceBook().lookup("gpt-9", OPENAI) == (None, "unknown")
        assert PriceBook().lookup("gpt-4o", OPENAI)[1] == "genai-prices"
    assert ("is passed over" in caplog.text) is warned
