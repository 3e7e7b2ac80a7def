"""What is known of a distribution, and what is drawn from it: piece by piece (the whole is in test_sampling_exact)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from cheapspec.core.acceptance import Alternative, TargetLogprob
from cheapspec.core.sampling import Law, Sampler, SeededDraws, Spread, spread


def listing(
    *shares: float, own: int | None = None, own_share: float | None = None, rank: int | None = None
) -> TargetLogprob:
    top = tuple(Alternative(f"t{index}", math.log(share), index) for index, share in enumerate(shares))
    logprob = None if own is None else math.log(shares[own] if own_share is None else own_share)
    return TargetLogprob(f"t{own}", logprob, own, rank, top)


def named(token: Alternative) -> bool:
    return True


def weights(found: Spread | None) -> list[float]:
    assert found is not None
    return list(found.weights)


def test_at_temperature_1_the_rest_is_one_bucket() -> None:
    """Listed tokens with their own probabilities, everything else with what is left."""
    found = spread(listing(0.5, 0.3), Law(1.0), named)
    assert weights(found) == pytest.approx([0.5, 0.3])
    assert found is not None and found.outside == pytest.approx(0.2) and found.banned == (0, 1)


def test_the_drafts_own_token_beyond_the_listing_is_a_known_part_of_the_rest() -> None:
    """It does not move the shares of the listed tokens, so the same number draws the same of them."""
    law = Law(1.0, alternatives=2)
    with_it = spread(listing(0.5, 0.3, own=9, own_share=0.05), law, named)
    without = spread(listing(0.5, 0.3), law, named)
    assert weights(with_it) == weights(without)
    assert with_it is not None and without is not None and with_it.outside == without.outside
    assert with_it.extra is not None and with_it.extra.token_id == 9 and with_it.banned == (0, 1, 9)
    by_rank = spread(listing(0.5, 0.3, 0.01, own=2, rank=40), Law(1.0, alternatives=20), named)
    assert by_rank is not None and by_rank.extra is not None and by_rank.extra.token_id == 2
    by_count = spread(listing(0.5, 0.3, 0.01, own=2), law, named)
    assert by_count is not None and by_count.extra is not None and len(by_count.tokens) == 2
    inside = spread(listing(0.5, 0.3, own=1, rank=2), law, named)
    assert inside is not None and inside.extra is None


def test_a_token_without_a_name_belongs_to_the_rest() -> None:
    """Its probability goes there, and so does the bound that the rest's tokens keep."""
    found = spread(listing(0.5, 0.3, 0.1), Law(0.5), lambda token: token.token_id != 1)
    assert found is not None and [token.token_id for token in found.tokens] == [0, 2]
    assert found.mass == pytest.approx(0.4) and found.bound == pytest.approx(0.3)
    assert found.outside == pytest.approx(0.4 * 0.3 / 0.5)
    unnamed = spread(listing(0.5, own=9, own_share=0.1), Law(1.0, alternatives=1), lambda token: token.token_id == 0)
    assert unnamed is not None and unnamed.extra is None and unnamed.mass == pytest.approx(0.5)


def test_what_is_no_distribution_is_not_drawn_from() -> None:
    """Nothing listed, tokens without ids, more than everything, numbers that are none."""
    nobody = TargetLogprob("a", -1.0, 3)
    assert spread(nobody, Law(1.0), named) is None
    assert spread(TargetLogprob("a", -1.0, 3, None, (Alternative("a", -1.0),)), Law(1.0), named) is None
    assert spread(listing(0.7, 0.6), Law(1.0), named) is None
    placeholder = TargetLogprob("a", None, 3, None, (Alternative("a", -9999.0, 3), Alternative("b", math.nan, 4)))
    assert spread(placeholder, Law(1.0), named) is None
    assert spread(listing(0.5, 0.5), Law(1.0), lambda token: False) is None


@pytest.mark.parametrize("nucleus_first", [False, True])
def test_the_nucleus_is_the_shortest_beginning_that_reaches_top_p(nucleus_first: bool) -> None:
    """The token that crosses the line is in it."""
    law = Law(1.0, 0.75, nucleus_first=nucleus_first)
    assert weights(spread(listing(0.5, 0.3, 0.15), law, named)) == pytest.approx([0.5, 0.3])
    assert weights(spread(listing(0.8, 0.1), law, named)) == pytest.approx([0.8])


def test_a_doubtful_nucleus_is_not_drawn_from() -> None:
    """Not reached, reached by rounding only, cut through a tie, or with a token in it that has no name."""
    law = Law(1.0, 0.8)
    assert spread(listing(0.5, 0.2), law, named) is None
    assert spread(listing(0.5, 0.3, 0.1), law, named) is None
    assert spread(listing(0.5, 0.1, 0.1, 0.1, 0.1), Law(1.0, 0.65), named) is None
    assert spread(listing(0.5, 0.4), law, named) is None, "an unlisted token may tie with the last one"
    assert weights(spread(listing(0.6, 0.4), law, named)) == pytest.approx([0.6, 0.4])
    assert spread(listing(0.5, 0.4, 0.05), law, lambda token: token.token_id != 1) is None
    assert spread(listing(0.8000005, 0.1), law, named) is None
    assert spread(listing(0.7999995, 0.1), Law(1.0, 0.8), named) is None


def test_below_temperature_1_what_is_not_listed_weighs_between_nothing_and_its_most() -> None:
    """Only a nucleus that is the same in both cases counts."""
    assert weights(spread(listing(0.6, 0.2, 0.1), Law(0.5, 0.8), named)) == pytest.approx([0.6])
    assert spread(listing(0.3, 0.2, 0.1), Law(0.9, 0.55), named) is None


@dataclass
class Told:
    """Draws that were written down."""

    answers: list[int]
    asked: list[tuple[list[float], int, int]] = field(default_factory=list)

    def pick(self, weights: Sequence[float], position: int, step: int) -> int:
        self.asked.append((list(weights), position, step))
        return self.answers.pop(0)

    def seed(self, position: int, step: int) -> int | None:
        return 1000 * position + step


def test_the_rest_is_drawn_with_an_envelope() -> None:
    """A listed token at once; the draft's own token of the rest in two steps; another of the rest is fetched, and kept
    with (p/b)^(1/T − 1); what is not kept is drawn anew, each step with a number of its own.
    """
    found = spread(listing(0.5, 0.3, own=9, own_share=0.05), Law(0.5, alternatives=2), named)
    assert found is not None and found.power == 1.0
    draws = Told([2, 0, 1, 2, 1])
    sampler = Sampler(found, draws, 7)
    assert sampler.choose() is None
    assert [step for _, _, step in draws.asked] == [0, 1, 2, 3, 4] and {at for _, at, _ in draws.asked} == {7}
    assert draws.asked[1][0] == pytest.approx([0.05, 0.15])
    assert draws.asked[2][0] == pytest.approx([0.05 / 0.3, 1 - 0.05 / 0.3])
    assert sampler.seed() == 7005
    draws.answers = [0]
    assert sampler.keeps(math.log(0.15)) and draws.asked[-1][0] == pytest.approx([0.5, 0.5])
    draws.answers = [2, 0, 0]
    assert Sampler(found, draws, 0).choose() == found.extra
    draws.answers = [1]
    assert Sampler(found, draws, 0).choose() == found.tokens[1]
    draws.answers = []
    assert Sampler(Spread((), (), 1.0, 1.0, 0.5), draws, 0).keeps(-3.0), "at temperature 1 everything is kept"


def test_chance_is_a_function_of_seed_position_and_step() -> None:
    """Equal arguments, equal answers; each argument matters; the shares are kept over many positions."""
    draws = SeededDraws(11)
    picked = [draws.pick([0.5, 0.0, 0.3, 0.2], position, 0) for position in range(4000)]
    assert picked == [SeededDraws(11).pick([0.5, 0.0, 0.3, 0.2], position, 0) for position in range(4000)]
    for index, share in ((0, 0.5), (1, 0.0), (2, 0.3), (3, 0.2)):
        assert abs(picked.count(index) / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000) + 1e-12
    coin = [0.5] * 1024
    tossed = {
        (seed, at, step): SeededDraws(seed).pick(coin, at, step) for seed in (1, 2) for at in (1, 2) for step in (0, 1)
    }
    assert len(set(tossed.values())) > 5
    assert SeededDraws(1).pick([1.0, 0.0], 0, 0) == 0


def test_rounding_never_draws_what_has_no_weight() -> None:
    """The last number below 1 falls on the last token that has a weight."""

    class Last(SeededDraws):
        def _bits(self, what: str, position: int, step: int) -> int:
            return 2**64 - 1

    assert Last(0).pick([0.1, 0.2, 0.0], 0, 0) == 1
    assert Last(0).pick([0.11, 0.9, 0.51, 0.21, 0.61, 0.82, 0.0], 0, 0) == 5, "the differences leave exactly 0"


def test_only_a_callers_seed_reaches_the_server() -> None:
    """And as a seed of each draw's own: equal seeds would draw equal noise everywhere."""
    assert SeededDraws(5).seed(1, 0) is None
    seeds = {SeededDraws(5, given=True).seed(position, step) for position in range(20) for step in range(5)}
    assert len(seeds) == 100 and all(seed is not None and 0 <= seed < 2**31 for seed in seeds)
