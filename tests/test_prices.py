"""Price look-up: the user's table, list prices, and honest ignorance."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from cheapspec.core.effects import Usage
from cheapspec.core.money import Charge, Prices, charge, cost
from cheapspec.core.ports import PriceSource
from cheapspec.prices import PriceBook, spellings
from cheapspec.settings.pricelist import parse_prices

OPENAI = "https://api.openai.com/v1/"
OWN_BOX = "http://10.0.0.7:8000/v1"
ROW = Prices(Decimal("0.4"), Decimal(3), Decimal("0.04"))
NOWHERE: tuple[None, str] = (None, "unknown")


@pytest.mark.parametrize(
    "asked", ["gpt-4o", "GPT-4o", "openai/gpt-4o", "openrouter/openai/gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-20240806"]
)
def test_b04_one_row_prices_a_model_under_all_its_names(asked: str) -> None:
    """Case, router prefixes and the date in a reply's model name do not hide the user's row."""
    book: PriceSource = PriceBook({"gpt-4o": ROW})
    assert book.lookup(asked, OWN_BOX) == (ROW, "user")


@pytest.mark.parametrize(
    "asked", ["acme/brand-new", "gpt-4o-mini", "gpt-4", "gpt-4o:free", "acme/gpt-4o", "openai/", "", "/", "gpt-4o-2024"]
)
def test_b04_a_name_that_no_row_has_is_unknown(asked: str) -> None:
    """A longer, shorter, otherwise served or empty name is another model: unknown, neither 0 nor a guess."""
    book = PriceBook({"gpt-4o": ROW})
    assert book.lookup(asked, OWN_BOX) == NOWHERE
    assert cost(Usage(10, 10), book.lookup(asked, OWN_BOX)[0]) is None


def test_the_fullest_name_wins() -> None:
    """A row for the name as sent beats the row that is left without prefix and date, and those beat ``*``."""
    dear, any_model = Prices(Decimal(9), Decimal(9)), Prices(Decimal(1), Decimal(1))
    book = PriceBook({"gpt-4o": ROW, "openai/gpt-4o": dear, "*": any_model})
    assert book.lookup("openai/gpt-4o", OPENAI)[0] == dear
    assert book.lookup("openai/gpt-4o-2024-08-06", OPENAI)[0] == dear
    assert book.lookup("gpt-4o", OPENAI)[0] == ROW
    assert book.lookup("something else", OPENAI) == (any_model, "user")


def test_spellings_go_from_full_to_bare() -> None:
    """Prefixes go one by one, the date last; an organisation's name that is no router stays."""
    assert list(spellings("openrouter/openai/gpt-4o-2024-08-06")) == [
        "openrouter/openai/gpt-4o-2024-08-06",
        "openai/gpt-4o-2024-08-06",
        "gpt-4o-2024-08-06",
        "openrouter/openai/gpt-4o",
        "openai/gpt-4o",
        "gpt-4o",
    ]
    assert list(spellings("Qwen/Qwen2.5-7B")) == ["Qwen/Qwen2.5-7B"]


def test_list_prices_are_found_at_the_provider_s_own_url() -> None:
    """A hosted model at its provider has a list price, found by the dated name too; B01's bill follows from it."""
    book = PriceBook()
    for name in ("gpt-4o", "gpt-4o-2024-08-06"):
        prices, source = book.lookup(name, OPENAI)
        assert source == "genai-prices"
        assert cost(Usage(2006, 300, cached_tokens=1920), prices) == Decimal("0.005615")


def test_the_user_s_row_beats_the_list_price() -> None:
    """What the user says a model costs is what it costs."""
    assert PriceBook({"gpt-4o": ROW}).lookup("gpt-4o", OPENAI) == (ROW, "user")


def test_a_model_that_writes_nothing_has_a_price_of_input_alone() -> None:
    """Embeddings, in the list and in the user's table; tokens that such a model writes all the same are unknown."""
    for prices, per_million in (
        (PriceBook().lookup("text-embedding-3-small", OPENAI)[0], Decimal("0.02")),
        (PriceBook(parse_prices({"embed": {"input": 0.05}})).lookup("embed", OWN_BOX)[0], Decimal("0.05")),
    ):
        assert prices is not None
        assert prices.input_only and prices.of_text is None
        assert charge(Usage(1_000_000, 0), prices).usd == per_million
        assert charge(Usage(1_000_000, 1), prices).usd is None
    assert ROW.of_text is ROW


@pytest.mark.parametrize("base_url", [OWN_BOX, "http://localhost:4000", "https://llm.example.com/v1"])
def test_an_own_server_gets_no_hosted_price(base_url: str) -> None:
    """A private base URL may charge anything: without the user's row its models are unpriced."""
    assert PriceBook().lookup("gpt-4o", base_url) == NOWHERE


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o", "openrouter/openai/gpt-4o"])
def test_a_name_without_url_is_priced_by_its_provider(name: str) -> None:
    """Asked by name alone, the provider in the name or the model's maker answers."""
    prices, source = PriceBook().lookup(name, "")
    assert source == "genai-prices"
    assert prices is not None and (prices.input, prices.output) == (Decimal("2.5"), Decimal(10))


@pytest.mark.parametrize("base_url", [OPENAI, ""])
def test_an_unlisted_hosted_model_is_unknown(base_url: str) -> None:
    """A model that the list does not have is unknown, also where its name begins like a listed one."""
    assert PriceBook().lookup("gpt-4o-brand-new", base_url) == NOWHERE
    assert PriceBook().lookup("acme/brand-new", base_url) == NOWHERE


def test_a_model_without_a_price_per_token_is_unknown() -> None:
    """A model that is listed, but not by input and output tokens, has no price that we could apply."""
    from genai_prices.data_snapshot import get_snapshot

    openai = next(provider for provider in get_snapshot().providers if provider.id == "openai")
    flat = next(m for m in openai.models if not isinstance(m.prices, list) and m.prices.output_mtok is None)
    assert PriceBook().lookup(flat.id, OPENAI) == NOWHERE


def test_b05_tiers_come_with_the_list_price() -> None:
    """Flex and priority have their own rows; a tier that the list does not price is unknown, not standard."""
    prices, _ = PriceBook(now=lambda: datetime(2026, 11, 29, tzinfo=UTC)).lookup("gpt-5.4-mini", OPENAI)
    assert prices is not None
    usage = Usage(1_000_000, 0, service_tier="flex")
    flex = charge(usage, prices, "flex").usd
    priority = charge(Usage(1_000_000, 0, service_tier="priority"), prices).usd
    assert flex is not None and priority is not None and flex < prices.input < priority
    assert charge(usage, PriceBook({"m": ROW}).lookup("m", OPENAI)[0]) == Charge(None, None, "flex", ("tier_unpriced",))


def test_steps_of_the_list_price_are_kept() -> None:
    """A model with a dearer price for long prompts is priced by the length of the call."""
    prices, _ = PriceBook().lookup("gpt-5.4", OPENAI)
    assert prices is not None and prices.steps
    above, long = prices.steps[0]
    assert cost(Usage(above, 0), prices) == above * prices.input / 1_000_000
    assert cost(Usage(above + 1, 0), prices) == (above + 1) * long.input / 1_000_000
    assert long.input > prices.input


def test_prices_with_a_date_follow_the_clock() -> None:
    """A remembered look-up still changes when a listed change of price comes into force."""
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import StartDateConstraint

    google = next(provider for provider in get_snapshot().providers if provider.id == "openrouter")
    model, start = next(
        (m, change.constraint.start_date)
        for m in google.models
        if isinstance(m.prices, list) and len(m.prices) == 2
        for change in m.prices
        if isinstance(change.constraint, StartDateConstraint)
        and isinstance(m.prices[0].prices.output_mtok, Decimal)
        and m.prices[0].prices.output_mtok != change.prices.output_mtok
    )
    clock = [datetime(start.year, start.month, start.day, tzinfo=UTC) - timedelta(seconds=1)]
    book = PriceBook(now=lambda: clock[0])
    before = book.lookup(model.id, "https://openrouter.ai/api/v1")
    clock[0] += timedelta(seconds=1)
    after = book.lookup(model.id, "https://openrouter.ai/api/v1")
    assert before[1] == after[1] == "genai-prices"
    assert before[0] is not None and after[0] is not None and before[0].output != after[0].output


def test_look_ups_are_remembered_and_bounded() -> None:
    """A repeated look-up gives the very same row; endless new names do not grow the memory without end."""
    book = PriceBook({"m": ROW})
    assert book.lookup("m", OPENAI)[0] is book.lookup("m", OPENAI)[0]
    for i in range(3000):
        book.lookup(f"m-{i}", OWN_BOX)
    assert len(book._remembered) <= 1024
    assert book.lookup("m", OPENAI) == (ROW, "user")


def test_the_price_library_is_imported_only_when_it_is_needed() -> None:
    """Importing the package and looking up the user's own row do not pay for the library's import."""
    script = (
        "import sys; from decimal import Decimal; from cheapspec.core.money import Prices;"
        "from cheapspec.prices import PriceBook; b = PriceBook({'m': Prices(Decimal(1), Decimal(2))});"
        "b.lookup('m', ''); print('genai_prices' in sys.modules);"
        "b.lookup('x', ''); print('genai_prices' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
