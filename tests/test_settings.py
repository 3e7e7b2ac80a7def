"""Settings: what may be said, where, and how a mistake is answered."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cheapspec.core.money import Prices
from cheapspec.core.rules import Lenient, TextMatch
from cheapspec.errors import CapabilityError, SettingsError
from cheapspec.ledger import MemoryLedger
from cheapspec.settings import DraftSpec, Speculation, disabled, parse_draft, parse_drafts, parse_prices


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder and an empty home; returns the former."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CHEAPSPEC_LEDGER")
    return work


def refused(**keywords: Any) -> str:
    """The message with which these keywords are refused."""
    with pytest.raises(SettingsError) as caught:
        Speculation(**keywords)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # no traceback of pydantic's
    assert "pydantic" not in str(caught.value)
    return str(caught.value)


def test_the_defaults_are_the_documented_ones() -> None:
    """Without any source, every setting has its published default."""
    assert Speculation().model_dump() == {
        "draft": None,
        "draft_url": None,
        "target_backend": "auto",
        "accept": "exact",
        "objective": "cost",
        "allowance": 0.02,
        "seed_usd": Decimal("0.05"),
        "tie_nats": 0.0,
        "max_added_latency": None,
        "assume_temperature": None,
        "prices": None,
        "local_price": None,
        "ask_usage": True,
        "ledger": None,
        "store_text": False,
        "budgets": (),
        "max_draft_tokens": None,
        "draft_tokens": None,
        "draft_timeout": None,
        "draft_concurrency": 2,
        "keep_alive": None,
        "workload": None,
        "shadow": 0,
        "audit": 0.0,
        "comparison": None,
        "enabled": True,
        "simulate_scoring": False,
    }


def test_the_lenient_rule_by_name_or_with_its_nats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name, an object, a list of one, or the environment; one request may ask for it too."""
    assert Speculation(accept="lenient").accept == Lenient(1.0)
    assert Speculation(accept=Lenient(nats=0.5)).accept == Lenient(0.5)
    assert Speculation(accept=[Lenient(0.25)]).accept == Lenient(0.25)
    assert Speculation().override({"accept": "lenient"}, "extra_body").accept == Lenient(1.0)
    monkeypatch.setenv("CHEAPSPEC_ACCEPT", "lenient")
    assert Speculation().accept == Lenient(1.0)


def test_text_match_is_refused_with_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """For dollars it never pays, which is said with the caller's own prices; for proof it may be had."""
    with pytest.raises(CapabilityError, match=r"never pays with objective='cost'") as refused:
        Speculation(accept="text_match")
    stated = re.search(r"(\d\.\d\d) times as much for 300 reply tokens", str(refused.value))
    assert stated is not None and float(stated[1]) > 1
    with pytest.raises(CapabilityError, match=r"at your prices, output 2 times and cached input 1 times") as dear:
        Speculation(accept=TextMatch(), prices={"input": 1, "output": 2})
    paid = re.search(r"(\d\.\d\d) times as much", str(dear.value))
    assert paid is not None and float(paid[1]) > float(stated[1])
    assert Speculation(accept="text_match", objective="latency").accept == TextMatch()
    assert Speculation(accept=TextMatch(0.3), draft_tokens=8).accept == TextMatch(0.3)
    with pytest.raises(SettingsError, match="'text_match' stands alone"):
        Speculation(accept=["text_match", "agree"], objective="latency")
    with pytest.raises(SettingsError, match="'text_match' scores tokens: write it first"):
        Speculation(accept=["agree", TextMatch()], objective="latency")
    monkeypatch.setenv("CHEAPSPEC_DISABLED", "1")
    assert not Speculation(accept="text_match").enabled


def test_keyword_beats_environment_beats_file_beats_default(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source is used where no stronger one speaks."""
    (own_folder / "cheapspec.toml").write_text('[speculation]\ndraft = "file"\nallowance = 0.5\ntie_nats = 0.25\n')
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "environment")
    monkeypatch.setenv("CHEAPSPEC_ALLOWANCE", "0.1")
    monkeypatch.setenv("CHEAPSPEC_ACCEPT", "")
    settings = Speculation(draft="keyword")
    assert (settings.draft, settings.allowance, settings.tie_nats) == ("keyword", 0.1, 0.25)
    assert (settings.draft_concurrency, settings.accept) == (2, "exact")
    assert Speculation().draft == "environment"
    assert Speculation(draft=None).draft is None


def test_the_file_is_found_by_variable_then_here_then_at_home(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHEAPSPEC_CONFIG names the file, else ./cheapspec.toml, else the one under ~/.config."""
    home = own_folder.parent / "home" / ".config" / "cheapspec"
    home.mkdir(parents=True)
    (home / "cheapspec.toml").write_text('speculation.draft = "home"')
    assert Speculation().draft == "home"
    (own_folder / "cheapspec.toml").write_text('speculation.draft = "here"')
    assert Speculation().draft == "here"
    (own_folder / "named.toml").write_text('speculation.draft = "named"')
    monkeypatch.setenv("CHEAPSPEC_CONFIG", "named.toml")
    assert Speculation().draft == "named"
    monkeypatch.setenv("CHEAPSPEC_CONFIG", "missing.toml")
    assert "missing.toml cannot be read (No such file or directory)" in refused()


def test_a_machine_without_a_home_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME in the environment (a bare container) is no error."""
    monkeypatch.delenv("HOME")
    assert Speculation().draft is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speculation = 1", "'speculation' (cheapspec.toml) must be a table"),
        ("[speculation", "cheapspec.toml is not TOML"),
        ("[speculation]\ndrft = 1", "unknown setting 'drft' ([speculation], cheapspec.toml). Did you mean 'draft'?"),
        ("[speculaton]\n", "unknown table 'speculaton' (cheapspec.toml). Did you mean 'speculation'?"),
        ("[zzzz]\n", "unknown table 'zzzz' (cheapspec.toml). Known are:"),
        ("draft = 'x'", "'draft' (cheapspec.toml) stands outside a table: move it into [speculation]"),
        ("[budgets]\nname = 'b'", "'budgets' (cheapspec.toml) must be a list of tables: write [[budgets]]"),
        ("[[budgets]]\nname = 'b'", "([[budgets]], cheapspec.toml): the budget 'b' has no usd; write usd = 5"),
        ("[[budgets]]\nusd = 5", "([[budgets]], cheapspec.toml): a budget has no name; write name = '…'"),
        ("[[budgets]]\nname = 'b'\nusd = 5\nperoid = 'day'", "unknown key 'peroid'; did you mean 'period'?"),
        ("[[budgets]]\nname = 'b'\nusd = 5\nzzzz = 1", "unknown key 'zzzz'; known are name, usd, period"),
        (2 * "[[budgets]]\nname = 'b'\nusd = 5\n", "two budgets have the same name"),
        ("[proxy]\nport = 1", "[proxy] (cheapspec.toml) is not available yet in this version"),
        ("[ledger]\nurl = 'here'", "ledger = 'here' ([ledger] url, cheapspec.toml): 'here' is no ledger; write sqlite"),
        ("[ledger]\nstore_text = 3", "store_text = 3 ([ledger] store_text, cheapspec.toml): Input should be a valid"),
        ("[ledger]\nurll = ''", "unknown setting 'urll' ([ledger], cheapspec.toml). Did you mean 'url'?"),
        ("[speculation]\nallowance = -1", "allowance = -1 ([speculation], cheapspec.toml): Input should be greater"),
        ("[prices.m]\noutput = 1", "prices ([prices], cheapspec.toml): model 'm': 'input' is missing"),
        ("[speculation.prices]\ninput = 1", "prices ([speculation] prices, cheapspec.toml): every model: 'output'"),
    ],
)
def test_a_mistake_in_the_file_names_key_place_and_remedy(own_folder: Path, text: str, said: str) -> None:
    """Nothing in the file is passed over in silence: unknown, misplaced, unusable and later parts are refused."""
    (own_folder / "cheapspec.toml").write_text(text)
    assert said in refused()


def test_a_file_that_is_not_text_is_refused(own_folder: Path) -> None:
    """Bytes that are no UTF-8 give a readable error."""
    (own_folder / "cheapspec.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in refused()


def test_the_file_may_turn_the_ledger_off(own_folder: Path) -> None:
    """Or say where it is, what it keeps, and which caps there are."""
    (own_folder / "cheapspec.toml").write_text('[ledger]\nurl = "off"\nstore_text = false\n')
    assert Speculation().ledger == "off"
    (own_folder / "cheapspec.toml").write_text(
        '[ledger]\nurl = "sqlite:///x.db"\nstore_text = true\n[[budgets]]\nname = "team"\nusd = 20.5\nperiod = "day"\n'
    )
    given = Speculation()
    assert (given.ledger, given.store_text) == ("sqlite:///x.db", True)
    assert given.budgets == ({"name": "team", "usd": 20.5, "period": "day"},)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"drft": "x"}, "unknown setting 'drft' (keyword). Did you mean 'draft'?"),
        ({"temperature": 0}, "unknown setting 'temperature' (keyword). Did you mean 'assume_temperature'?"),
        ({"qqqq": 0}, "unknown setting 'qqqq' (keyword). Known are: accept, allowance"),
        (
            {"accept": "validator"},
            "accept = 'validator' (keyword): a validator needs its check",
        ),
        ({"accept": "exct"}, "accept = 'exct' (keyword): did you mean 'exact'?"),
        ({"accept": "zzz"}, "known are exact, lenient"),
        ({"accept": ["exact", "exact"]}, "'exact' scores tokens: write it first"),
        ({"accept": []}, "an empty list of rules accepts nothing"),
        ({"accept": object()}, "object is no rule"),
        ({"objective": "costs"}, "did you mean 'cost'?"),
        ({"target_backend": "vlm"}, "did you mean 'vllm'?"),
        ({"draft_url": "http://my host:1"}, "is not a host: it contains a space"),
        ({"comparison": "x"}, "comparison = 'x' (keyword): no extractor 'x'"),
        ({"shadow": -1}, "shadow = -1 (keyword): Input should be greater than or equal to 0"),
        ({"ledger": "x.db"}, "'x.db' is no ledger; write sqlite:///PATH"),
        ({"ledger": 3}, "a int is no ledger"),
        ({"allowance": "lots"}, "allowance = 'lots' (keyword): Input should be a valid number"),
        ({"allowance": float("nan")}, "allowance = nan"),
        ({"seed_usd": "-1"}, "seed_usd = '-1'"),
        ({"assume_temperature": 3}, "assume_temperature = 3"),
        ({"draft_tokens": 0}, "draft_tokens = 0"),
        ({"draft_tokens": 9, "max_draft_tokens": 4}, "draft_tokens = 9 is more than max_draft_tokens = 4"),
        ({"draft_timeout": 0}, "draft_timeout = 0"),
        ({"draft_concurrency": 0}, "draft_concurrency = 0"),
        ({"keep_alive": "soon"}, "keep_alive = 'soon' (keyword): write a duration such as '10m'"),
        ({"draft_url": "ftp://x"}, "draft_url = 'ftp://x' (keyword): 'ftp://x' is not an Ollama host"),
        ({"prices": {"input": 1}}, "prices (keyword prices): every model: 'output' is missing"),
        ({"draft": "a b"}, "draft = 'a b' (keyword): the model name 'a b' contains a space"),
    ],
)
def test_a_wrong_keyword_is_answered_in_one_sentence(keywords: dict[str, Any], said: str) -> None:
    """The message names the key, the value, the source and the remedy."""
    assert said in refused(**keywords)


def test_every_mistake_is_named_at_once() -> None:
    """Two wrong values give two lines."""
    assert refused(allowance=-1, tie_nats="x").count("\n") == 1


def test_messages_carry_no_password_and_no_endless_value() -> None:
    """A URL's credentials do not reach logs through an error; a long value is cut."""
    assert "hunter2" not in refused(ledger="mysql://me:hunter2@db/x")
    assert "hunter2" not in refused(draft_url="ftp://me:hunter2@host")
    assert "hunter2" not in refused(draft_url="http://me:hunter2@127.0.0.1:1:2")
    assert len(refused(allowance="9" * 5000 + "x")) < 300


def test_an_environment_variable_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value from the environment that cannot be used names its variable."""
    monkeypatch.setenv("CHEAPSPEC_ALLOWANCE", "two")
    assert "allowance = 'two' (environment variable CHEAPSPEC_ALLOWANCE)" in refused()
    monkeypatch.setenv("CHEAPSPEC_ALLOWANCE", "0")
    monkeypatch.setenv("CHEAPSPEC_LEDGER", "on")
    assert "ledger = 'on' (environment variable CHEAPSPEC_LEDGER): 'on' is no ledger" in refused()


def test_b33_an_explicit_draft_url_beats_the_environment(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyword, CHEAPSPEC_DRAFT_URL, file, OLLAMA_HOST: in this order, each made into one usable URL."""
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0")
    assert Speculation(draft="m").draft_url == "http://127.0.0.1:11434"
    (own_folder / "cheapspec.toml").write_text('[speculation]\ndraft_url = "file:1"')
    assert Speculation(draft="m").draft_url == "http://file:1"
    monkeypatch.setenv("CHEAPSPEC_DRAFT_URL", "https://variable")
    assert Speculation(draft="m").draft_url == "https://variable:443"
    assert Speculation(draft="m", draft_url="http://h:1234/").draft_url == "http://h:1234"
    assert Speculation(draft="m", draft_url=" ").draft_url is None


def test_b33_ollama_s_variable_matters_only_to_ollama_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken OLLAMA_HOST stops nobody who does not draft with Ollama, and is named to one who does."""
    monkeypatch.setenv("OLLAMA_HOST", "ftp://x")
    assert Speculation().draft_url is None
    assert Speculation(draft="lookup").draft_url is None
    assert "(environment variable OLLAMA_HOST)" in refused(draft="m")
    assert "contains a space" in refused(draft="a b")


@pytest.mark.parametrize(
    ("text", "spec", "shown"),
    [
        ("qwen2.5:3b", DraftSpec("ollama", "qwen2.5:3b"), "ollama:qwen2.5:3b"),
        (" llama3.2 ", DraftSpec("ollama", "llama3.2"), "ollama:llama3.2"),
        ("hf.co/org/m:Q4_K_M", DraftSpec("ollama", "hf.co/org/m:Q4_K_M"), "ollama:hf.co/org/m:Q4_K_M"),
        ("host:5000/org/m:tag", DraftSpec("ollama", "host:5000/org/m:tag"), "ollama:host:5000/org/m:tag"),
        ("ollama:lookup", DraftSpec("ollama", "lookup"), "ollama:lookup"),
        ("ollama", DraftSpec("ollama", "ollama"), "ollama:ollama"),
        ("llamacpp:http://h:8080/", DraftSpec("llamacpp", url="http://h:8080"), "llamacpp:http://h:8080"),
        (
            "openai:org/m@v2@https://h:1/v1",
            DraftSpec("openai", "org/m@v2", "https://h:1/v1"),
            "openai:org/m@v2@https://h:1/v1",
        ),
        ("embedded", DraftSpec("embedded"), "embedded"),
        ("lookup", DraftSpec("lookup"), "lookup"),
    ],
)
def test_b33_a_draft_is_named_as_its_host_names_it(text: str, spec: DraftSpec, shown: str) -> None:
    """Every documented form is read, the name is kept whole, and the shown form reads back as the same."""
    assert parse_draft(text) == spec
    assert str(spec) == shown
    assert parse_draft(shown) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no name"),
        ("ollama:", "has no name"),
        ("http://h:11434", "the Ollama server itself goes into draft_url"),
        ("llama.cpp:http://h", "is no Ollama model's name"),
        ("llamacpp", "needs a URL"),
        ("llamacpp:ftp://h", "needs a URL"),
        ("llamacpp:http://h:0", "needs a URL"),
        ("llamacpp:http://h:99999", "ort"),
        ("llamacpp:http://[::1", "IPv6"),
        ("openai:http://h/v1", "has no model name before '@'"),
        ("openai:m@h:80", "needs a URL"),
        ("openai:m@http://my host:1/v1", "a URL contains no spaces"),
        ("llamacpp:http://h:80 80", "a URL contains no spaces"),
        ("embedded:q4", "takes no name"),
        ("lookup:", "takes no name"),
        ("two words", "contains a space"),
    ],
)
def test_a_draft_that_is_none_of_the_forms_is_refused(text: str, said: str) -> None:
    """The message says what is missing."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_draft(text)
    assert said in str(caught.value)


def test_several_drafts_are_separated_by_commas() -> None:
    """Commas separate; one inside the name of an openai: draft belongs to the name."""
    assert parse_drafts("qwen2.5:3b, lookup,openai:a,b@http://h/v1,embedded") == (
        DraftSpec("ollama", "qwen2.5:3b"),
        DraftSpec("lookup"),
        DraftSpec("openai", "a,b", "http://h/v1"),
        DraftSpec("embedded"),
    )
    assert parse_drafts(None) == ()
    assert Speculation(draft="m,lookup").drafts == (DraftSpec("ollama", "m"), DraftSpec("lookup"))
    for broken in ("m,,n", "m,", "openai:m,lookup", ""):
        with pytest.raises(ValueError, match=r"."):
            parse_drafts(broken)


@pytest.mark.parametrize(
    "row", [{"input": 0.1, "output": 3}, {"input": "0.1", "output": "3"}, {"input": Decimal("0.1"), "output": 3.0}]
)
def test_numbers_of_a_price_list_mean_what_they_print(row: dict[str, Any]) -> None:
    """A float of .1 is one tenth exactly; strings and Decimals are the same."""
    settings = Speculation(prices=row)
    assert settings.prices == {"*": Prices(Decimal("0.1"), Decimal(3))}


def test_a_price_list_may_go_by_model_and_tier() -> None:
    """A map by model, with every key a row may have, service tiers included."""
    row = {"input": 2, "output": 8, "cached_input": 0.5, "cache_write": "2.5", "request": 0.001}
    listed = parse_prices(
        {"gpt-4o": row | {"tiers": {"Flex": {"input": 1, "output": 4}}}, "input": {"input": 1, "output": 1}}
    )
    assert listed["gpt-4o"] == Prices(
        Decimal(2),
        Decimal(8),
        Decimal("0.5"),
        Decimal("2.5"),
        Decimal("0.001"),
        tiers=(("flex", Prices(Decimal(1), Decimal(4))),),
    )
    assert listed["input"] == Prices(Decimal(1), Decimal(1))
    assert parse_prices({}) == {}
    single = parse_prices({"input": 2, "output": 8, "tiers": {"flex": {"input": 1, "output": 4}}})
    assert single["*"].tiers == (("flex", Prices(Decimal(1), Decimal(4))),)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (3, "a price list is a table"),
        ({"m": {"input": 1, "output": 1}, "n": 3}, "model 'n': 3 is no row of prices"),
        ({"m": {"inptu": 1}}, "model 'm': unknown key 'inptu'; did you mean 'input'?"),
        ({"m": {"zzz": 1}}, "known keys are input, output"),
        ({"input": 1}, "every model: 'output' is missing"),
        ({"input": True, "output": 1}, "'input': True is no number"),
        ({"input": "cheap", "output": 1}, "'input': 'cheap' is no number"),
        ({"input": [1], "output": 1}, "is no number"),
        ({"input": -1, "output": 1}, "'input': -1 is no price"),
        ({"input": "inf", "output": 1}, "is no price"),
        ({"m": {"input": 1, "output": 1, "tiers": 3}}, "'tiers': 3 is no table"),
        ({"m": {"input": 1, "output": 1, "tiers": {"flex": 3}}}, "tier 'flex': 3 is no row"),
    ],
)
def test_an_unusable_price_list_names_model_and_key(raw: Any, said: str) -> None:
    """A price that cannot be meant is refused with its place in the list."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_prices(raw)
    assert said in str(caught.value)


def test_price_lists_stack_keyword_file_table(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keyword's rows beat those of CHEAPSPEC_PRICES, these beat cheapspec.toml; other rows remain."""

    def listed(**rows: int) -> dict[str, dict[str, int]]:
        return {name: {"input": price, "output": price} for name, price in rows.items()}

    (own_folder / "cheapspec.toml").write_text(
        "".join(f'[prices."{name}"]\ninput = 1\noutput = 1\n' for name in ("a", "b", "c"))
    )
    (own_folder / "prices.json").write_text(json.dumps({"prices": listed(b=2, c=2)}))
    monkeypatch.setenv("CHEAPSPEC_PRICES", "prices.json")
    merged = Speculation(prices=listed(c=3)).prices
    assert merged is not None
    assert {name: int(row.input) for name, row in merged.items()} == {"a": 1, "b": 2, "c": 3}
    everything = Speculation(prices={"input": 5, "output": 5}).prices
    assert everything is not None and list(everything) == ["*"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", "{", "p.json): is not JSON"),
        ("p.toml", "=", "p.toml): is not TOML"),
        ("p.json", '{"m": {"output": 1}}', "model 'm': 'input' is missing"),
        ("p.json", '{"*": {"input": 1}}', "model '*': 'output' is missing"),
        ("p.json", '{"m": {"input": 1, "output": 2, "tiers": {"flex": {"input": 1}}}}', "'output' is missing"),
        ("p.json", "[1]", "a price list is a table"),
        ("none.json", None, "none.json): cannot be read (No such file or directory)"),
    ],
)
def test_an_unusable_price_file_is_named(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, said: str
) -> None:
    """A price file that cannot be used is an error with its path, not an empty list."""
    if text is not None:
        (own_folder / name).write_text(text)
    monkeypatch.setenv("CHEAPSPEC_PRICES", name)
    assert said in refused()


def test_a_price_file_may_be_toml(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at the top of a TOML file, floats as printed."""
    (own_folder / "p.toml").write_text('["m:free"]\ninput = 0\noutput = 0.30\n')
    monkeypatch.setenv("CHEAPSPEC_PRICES", "p.toml")
    assert Speculation().prices == {"m:free": Prices(Decimal(0), Decimal("0.30"))}


def test_a_ledger_may_be_shared_as_an_object() -> None:
    """Any object with the ledger's methods is taken as it is; so is the word off."""
    ledger = MemoryLedger()
    assert Speculation(ledger=ledger).ledger is ledger
    assert Speculation(ledger="off").ledger == "off"


@pytest.mark.parametrize("value", ["10m", "1h30m", "-1", "300", -1, 0, 2.5])
def test_keep_alive_takes_what_ollama_takes(value: str | float) -> None:
    """Durations and seconds go through as they are."""
    assert Speculation(keep_alive=value).keep_alive == value


def test_settings_never_change() -> None:
    """The model is frozen, compares by value and survives pickling."""
    settings = Speculation(draft="m", prices={"input": 1, "output": 2})
    with pytest.raises(ValidationError):
        settings.draft = "n"
    assert settings == Speculation(draft="m", prices={"input": 1, "output": 2})
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert Speculation.model_validate(settings) is settings


def test_one_request_may_override(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An override replaces what it names, is checked like a keyword, and reads no other source again."""
    settings = Speculation(draft="m", allowance=0.1)
    monkeypatch.setenv("CHEAPSPEC_DRAFT", "later")
    (own_folder / "cheapspec.toml").write_text("[nonsense]")
    changed = settings.override({"allowance": 0.3, "accept": ["exact"]}, "extra_body")
    assert (changed.draft, changed.allowance, settings.allowance) == ("m", 0.3, 0.1)
    assert settings.override({}, "extra_body") == settings
    bad: list[tuple[Mapping[str, Any], str]] = [
        ({"drft": 1}, "unknown setting 'drft' (extra_body). Did you mean 'draft'?"),
        ({"tie_nats": "x"}, "tie_nats = 'x' (extra_body): Input should be a valid number"),
    ]
    for values, said in bad:
        with pytest.raises(SettingsError) as caught:
            settings.override(values, "extra_body")
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "off"),
    [
        (None, False),
        ("", False),
        ("0", False),
        (" False ", False),
        ("no", False),
        ("1", True),
        ("true", True),
        ("x", True),
    ],
)
def test_the_kill_switch_is_read_each_time(value: str | None, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHEAPSPEC_DISABLED is read when asked; any word but a clear no turns off."""
    if value is not None:
        monkeypatch.setenv("CHEAPSPEC_DISABLED", value)
    assert disabled() is off
    assert disabled({"CHEAPSPEC_DISABLED": value or ""}) is off


def test_the_kill_switch_works_when_the_settings_are_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHEAPSPEC_DISABLED=1 makes unusable settings a warning, so that a client can be built and passes through."""
    monkeypatch.setenv("CHEAPSPEC_ALLOWANCE", "lots")
    with pytest.raises(SettingsError):
        Speculation()
    monkeypatch.setenv("CHEAPSPEC_DISABLED", "1")
    assert Speculation().enabled is False


def test_a_variable_that_nobody_reads_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip in a variable's name is a warning that names the nearest known one."""
    monkeypatch.setenv("CHEAPSPEC_DARFT", "m")
    with caplog.at_level("WARNING", "cheapspec"):
        Speculation()
    assert "CHEAPSPEC_DARFT is not read; did you mean CHEAPSPEC_DRAFT?" in caplog.text
