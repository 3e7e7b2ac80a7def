"""Money: prices × usage, service tiers, the honest baseline, JSON dollars."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cheapspec.core.effects import Usage
from cheapspec.core.money import (
    MOST_USD,
    Charge,
    LocalPrice,
    PrefixMemory,
    Prices,
    baseline,
    charge,
    cost,
    format_usd,
    saved_usd,
)

GPT_4O = Prices(input=Decimal("2.50"), cached_input=Decimal("1.25"), output=Decimal("10.00"))


def test_b01_cached_and_reasoning_tokens_are_billed_once() -> None:
    """Cached tokens are inside the prompt's and reasoning tokens inside the reply's: neither is added again."""
    usage = Usage(2006, 300, cached_tokens=1920, reasoning_tokens=120)
    assert cost(usage, GPT_4O) == Decimal("0.005615")


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(2006, 300, cached_tokens=None), "0.008015"),
        (Usage(100, 0, cached_tokens=900), "0.000125"),
        (Usage(100, 0, cached_tokens=-5), "0.00025"),
        (Usage(100, 0, cached_tokens=60, cache_write_tokens=60), "0.000175"),
        (Usage(-3, -4), "0"),
    ],
)
def test_b01_contradicting_counts_are_clamped(usage: Usage, usd: str) -> None:
    """No count that a server invents makes a bill crash, negative or larger than the whole prompt."""
    assert cost(usage, GPT_4O) == Decimal(usd)


@settings(deadline=None)
@given(*[st.integers(-10, 5000)] * 4)
def test_a_bill_lies_between_nothing_and_the_whole_prompt_at_the_dearest_price(
    prompt: int, reply: int, cached: int, written: int
) -> None:
    """Whatever the counts, a bill is at least 0 and at most every token at its dearest."""
    prices = Prices(Decimal(2), Decimal(8), Decimal("0.5"), Decimal("2.5"))
    usd = cost(Usage(prompt, reply, cached, written), prices)
    assert usd is not None
    assert 0 <= usd <= (max(prompt, 0) * Decimal("2.5") + max(reply, 0) * 8) / 1_000_000


def test_cache_writes_and_a_fee_per_call_are_charged() -> None:
    """Written tokens pay their own price instead of the input price; every call pays its fee."""
    prices = Prices(Decimal(2), Decimal(8), Decimal("0.1"), Decimal("2.5"), request=Decimal("0.005"))
    usage = Usage(1_000_000, 0, cached_tokens=250_000, cache_write_tokens=500_000)
    assert cost(usage, prices) == Decimal("0.5") + Decimal("0.025") + Decimal("1.25") + Decimal("0.005")


def test_an_unknown_price_is_unknown_and_not_free() -> None:
    """Without prices nobody knows the cost; a price of zero (a local model) is a real zero."""
    assert cost(Usage(10, 10), None) is None
    assert baseline(10, 10, 0, None) is None
    assert cost(Usage(10, 10), Prices(Decimal(0), Decimal(0))) == 0


@pytest.mark.parametrize(
    ("told", "usd"),
    [("0.00042", "0.00042"), ("0", "0"), ("nonsense", "0.00012"), ("NaN", "0.00012"), ("-1", "0.00012")],
)
def test_the_providers_own_cost_wins_when_it_is_an_amount(told: str, usd: str) -> None:
    """A reply's own cost beats the table; something that is no amount does not."""
    assert cost(Usage(8, 10, cost_usd=told), GPT_4O) == Decimal(usd)


def test_long_calls_pay_the_step_they_reach_for_all_tokens() -> None:
    """Above a step's limit every token of the call pays the step's price; at the limit none does."""
    long = Prices(Decimal(5), Decimal(20))
    longer = Prices(Decimal(6), Decimal(30))
    prices = Prices(Decimal("2.5"), Decimal(15), steps=((200_000, long), (400_000, longer)))
    assert cost(Usage(200_000, 0), prices) == Decimal("0.5")
    assert cost(Usage(200_001, 0), prices) == Decimal("1.000005")
    assert cost(Usage(500_000, 1_000_000), prices) == Decimal(33)


FLEX = Prices(Decimal("1.25"), Decimal(5), Decimal("0.625"))
TIERED = Prices(GPT_4O.input, GPT_4O.output, GPT_4O.cached_input, tiers=(("flex", FLEX),))


@pytest.mark.parametrize(
    ("requested", "replied", "expected"),
    [
        ("flex", "flex", Charge(Decimal("6.25"), Decimal("6.25"), "flex")),
        ("flex", "default", Charge(Decimal("12.5"), Decimal("12.5"), "default", ("tier_differs",))),
        ("default", "flex", Charge(Decimal("6.25"), Decimal("12.5"), "flex", ("tier_differs",))),
        ("flex", None, Charge(Decimal("6.25"), Decimal("6.25"), "flex")),
        ("flex", "priority", Charge(None, None, "priority", ("tier_unpriced", "tier_differs"))),
        ("priority", "priority", Charge(None, None, "priority", ("tier_unpriced",))),
        ("priority", "default", Charge(Decimal("12.5"), None, "default", ("tier_differs",))),
        (None, "flex", Charge(Decimal("6.25"), Decimal("6.25"), "flex")),
        ("auto", "flex", Charge(Decimal("6.25"), Decimal("6.25"), "flex")),
        (None, "Default", Charge(Decimal("12.5"), Decimal("12.5"), "Default")),
        (None, None, Charge(Decimal("12.5"), Decimal("12.5"))),
    ],
)
def test_b05_the_tier_that_served_sets_the_price(requested: str | None, replied: str | None, expected: Charge) -> None:
    """The reply's tier prices the call, else the one asked for; a budget counts the dearer; no guess where unpriced."""
    assert charge(Usage(1_000_000, 1_000_000, service_tier=replied), TIERED, requested) == expected


def test_a_charge_without_prices_still_names_the_tier() -> None:
    """An unknown price and a provider's own figure keep the tier on record."""
    assert charge(Usage(1, 1, service_tier="flex"), None) == Charge(None, None, "flex")
    assert charge(Usage(1, 1, cost_usd="2"), None, "flex") == Charge(Decimal(2), Decimal(2), "flex")


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, None),
        (Decimal("0.005615"), "0.005615"),
        (Decimal(0), "0.000000"),
        (Decimal("-0.0000000001"), "0.000000"),
        (Decimal("-0.0123"), "-0.012300"),
        (Decimal("1E-8"), "0.00000001"),
        (Decimal("12345.6"), "12345.600000"),
        (Decimal("1E+3"), "1000.000000"),
        (MOST_USD, "9223372036.854775807"),
        (Decimal("1E+30"), None),
        (Decimal("NaN"), None),
    ],
)
def test_dollars_are_plain_strings(usd: Decimal | None, text: str | None) -> None:
    """JSON money has no exponent, at least six decimals, at most nine, and no negative zero."""
    assert format_usd(usd) == text


def test_an_amount_beyond_all_measure_is_unknown() -> None:
    """What 64 bits of nano-dollars do not hold, or decimal arithmetic does not reach, is no amount."""
    beyond = Prices(Decimal("1e999999"), Decimal("1e999999"))
    assert cost(Usage(10**6, 10**6), beyond) is None
    assert cost(Usage(10**6, 10**6), Prices(Decimal("1e25"), Decimal(1))) is None
    assert charge(Usage(1, 1, cost_usd="1e30"), GPT_4O) == Charge(None, None)
    tiered = Prices(Decimal(1), Decimal(1), tiers=(("flex", beyond),))
    told = charge(Usage(10**6, 0, service_tier="default"), tiered, "flex")
    assert told == Charge(Decimal(1), None, "default", ("tier_differs",))


def test_sound_and_pictures_have_prices_that_no_table_has() -> None:
    """They are unknown, not billed as text, unless the provider says what the call cost."""
    assert charge(Usage(1000, 1000, media_tokens=900), GPT_4O) == Charge(None, None)
    assert cost(Usage(1000, 1000, cost_usd="0.5", media_tokens=900), GPT_4O) == Decimal("0.5")


def test_what_a_model_writes_that_should_write_nothing_has_no_price() -> None:
    """Embeddings are billed by what they read; a reply under such a price is unknown, not free."""
    prices = Prices(Decimal("0.02"), Decimal(0), input_only=True)
    assert cost(Usage(1_000_000, 0), prices) == Decimal("0.02")
    assert cost(Usage(1_000_000, 1), prices) is None
    row = Prices(Decimal(1), Decimal(2))
    assert (prices.of_text, row.of_text) == (None, row)


def test_savings_are_exact_and_unknown_where_a_part_is() -> None:
    """To the last digit, in any context of the caller's."""
    with localcontext(prec=3):
        assert saved_usd(Decimal("0.123456"), Decimal("1000")) == Decimal("999.876544")
    assert saved_usd(None, Decimal(1)) is None
    assert saved_usd(Decimal(1), None) is None


def test_the_baseline_counts_the_targets_own_cache() -> None:
    """The trap: all accepted, yet dearer than direct, because direct's prompt was cached and scoring's was not."""
    unit = Prices(Decimal(1_000_000), Decimal(5_000_000), Decimal(100_000))  # in units of p_in
    paid = cost(Usage(4000 + 200, 1, cached_tokens=0), unit)
    honest = baseline(4000, 200, 4000, unit)
    naive = baseline(4000, 200, 0, unit)
    assert [paid, honest, naive] == [Decimal(4205), Decimal(1400), Decimal(5000)]
    assert paid is not None and honest is not None and honest - paid < 0


KEY = ("https://api.example.com/v1", "key-digest", "model")


def test_a_prompt_shares_the_whole_blocks_that_an_earlier_call_began_with() -> None:
    """The shared part is the longest run of leading whole blocks, as a share of the text."""
    memory = PrefixMemory(block=10)
    assert memory.shared(KEY, "a" * 40, now=0.0) == 0.0
    memory.remember(KEY, "a" * 25 + "b" * 15, now=0.0)
    assert memory.shared(KEY, "a" * 40, now=1.0) == 0.5
    assert memory.shared(KEY, "a" * 25 + "b" * 15, now=1.0) == 1.0
    assert memory.shared(KEY, "x" + "a" * 39, now=1.0) == 0.0
    assert memory.shared(KEY, "a" * 9, now=1.0) == 0.0
    assert memory.shared(KEY, "", now=1.0) == 0.0


def test_the_second_turn_of_a_conversation_finds_the_first() -> None:
    """A longer conversation shares exactly the whole blocks of its earlier turn."""
    memory = PrefixMemory(block=4)
    memory.remember(KEY, "0123456789", now=0.0)
    assert memory.shared(KEY, "0123456789 and what comes next: 43 chars.. ", now=5.0) == pytest.approx(8 / 43)


def test_prefixes_of_other_models_and_keys_do_not_count() -> None:
    """A cache belongs to one URL, API key and model."""
    memory = PrefixMemory(block=4)
    memory.remember(KEY, "same text", now=0.0)
    assert memory.shared((*KEY[:2], "other model"), "same text", now=0.0) == 0.0
    assert memory.shared(("https://elsewhere/v1", *KEY[1:]), "same text", now=0.0) == 0.0


def test_a_prefix_expires_unless_it_is_used_again() -> None:
    """Blocks count for their lifetime after they were last remembered."""
    memory = PrefixMemory(block=4, lifetime=60)
    memory.remember(KEY, "abcdefgh", now=0.0)
    memory.remember(KEY, "abcd", now=50.0)
    assert memory.shared(KEY, "abcdefgh", now=60.0) == 1.0
    assert memory.shared(KEY, "abcdefgh", now=100.0) == 0.5
    assert memory.shared(KEY, "abcdefgh", now=111.0) == 0.0


def test_the_memory_is_bounded_and_forgets_the_least_recent() -> None:
    """More blocks than the limit push out those that were used longest ago."""
    memory = PrefixMemory(block=1, max_blocks=2)
    memory.remember(KEY, "a", now=0.0)
    memory.remember(KEY, "b", now=1.0)
    memory.remember(KEY, "a", now=2.0)
    memory.remember(KEY, "c", now=3.0)
    assert [memory.shared(KEY, text, now=3.0) for text in "abc"] == [1.0, 0.0, 1.0]


def test_lone_surrogates_do_not_crash_the_memory() -> None:
    """Text that is no valid Unicode (a caller's broken JSON escape) is hashed like any other."""
    memory = PrefixMemory(block=1)
    memory.remember(KEY, "\ud800", now=0.0)
    assert memory.shared(KEY, "\ud800", now=0.0) == 1.0


def test_local_drafting_is_priced_by_tokens_or_by_time() -> None:
    """Dollars per million tokens written, or per hour at work; by default nothing."""
    assert LocalPrice(per_million_tokens=Decimal("0.02")).usd(500, 9.9) == Decimal("0.00001")
    assert LocalPrice(per_hour=Decimal("0.5")).usd(500, 7.2) == Decimal("0.001")
    assert LocalPrice().usd(500, 7.2) == 0
