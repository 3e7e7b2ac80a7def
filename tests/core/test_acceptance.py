"""Acceptance rules: nothing unverified is accepted, and what is drawn is distributed as the target's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from cheapspec.core.acceptance import (
    Alternative,
    DraftToken,
    StochasticResult,
    TargetLogprob,
    VerificationResult,
    shows_distribution,
    usable,
    verify_draft_tokens,
    verify_greedy,
    verify_stochastic,
)


def at(
    text: str, logprob: float | None, *top: tuple[str, float], rank: int | None = None, **more: Any
) -> TargetLogprob:
    return TargetLogprob(text, logprob, rank=rank, top=tuple(Alternative(*other) for other in top), **more)


@pytest.mark.parametrize("number", [0.0, -0.0, -1e-9, 5e-4, -700.0, -8999.0])
def test_a_logarithm_of_a_probability_is_usable(number: float) -> None:
    """Numbers from certain down to very unlikely count, and rounding above 0 does no harm."""
    assert usable(number)


@pytest.mark.parametrize("number", [None, math.nan, math.inf, -math.inf, -9999.0, -9000.0, 0.1])
def test_b20_what_is_no_logarithm_of_a_probability_is_unusable(number: float | None) -> None:
    """NaN, infinities, null and the -9999 placeholder are never usable."""
    assert not usable(number)


@pytest.mark.parametrize("number", [None, math.nan, -math.inf, -9999.0])
def test_b20_the_walk_stops_at_an_unusable_position(number: float | None) -> None:
    """A position without a number ends the walk: it is unverified, not accepted and not corrected."""
    walk = [at("a", -0.1, ("a", -0.1)), at("b", number, ("c", -0.1), rank=1), at("d", -0.1, ("d", -0.1))]
    assert verify_greedy(walk) == VerificationResult(accepted=1, correction=None, ties=0, unverified=1)


def test_b20_unusable_alternatives_do_not_count() -> None:
    """A NaN or a placeholder among the alternatives neither wins nor becomes the correction."""
    top = (("x", math.nan), ("y", -9999.0), ("c", -0.5))
    assert verify_greedy([at("b", -2.0, *top)]) == VerificationResult(0, Alternative("c", -0.5))
    only_bad = at("b", -2.0, ("x", math.nan), ("y", math.inf))
    assert verify_greedy([only_bad]) == VerificationResult(0, unverified=1)


def test_all_tokens_hold() -> None:
    """When every token is the argmax all are accepted, and there is no correction."""
    walk = [at("a", -0.1, ("a", -0.1), ("b", -2.4)), at("b", -0.2, ("b", -0.2), ("a", -1.7))]
    assert verify_greedy(walk) == VerificationResult(accepted=2)


def test_the_maximum_counts_not_the_first_listed() -> None:
    """The order of a listing means nothing, and the best other token is the correction."""
    walk = [at("a", -1.5, ("a", -1.5), ("z", -3.0), ("b", -0.4), ("c", -2.0))]
    assert verify_greedy(walk) == VerificationResult(0, Alternative("b", -0.4))


def test_the_given_token_may_be_missing_from_the_listing_or_stand_in_it_twice() -> None:
    """k or k + 1 entries: the given token's own number decides, and it is never its own correction."""
    assert verify_greedy([at("a", -0.3, ("b", -1.5))]).accepted == 1
    twice = at("a", -1.0, ("a", -1.0), ("a", -1.0), ("b", -0.6))
    assert verify_greedy([twice]).correction == Alternative("b", -0.6)


def test_tokens_of_equal_text_are_told_apart_by_id() -> None:
    """Two parts of characters are both shown as U+FFFD; their ids differ, so one can correct the other."""
    other = Alternative("\ufffd", -0.2, token_id=8)
    position = TargetLogprob("\ufffd", -2.0, token_id=7, top=(Alternative("\ufffd", -2.0, token_id=7), other))
    assert verify_greedy([position]) == VerificationResult(0, other)


def test_equal_leaders_are_a_tie_and_accepted() -> None:
    """A token as likely as the best other one is accepted, counted as a tie; vLLM ranks both 2."""
    assert verify_greedy([at("a", -0.7, ("b", -0.7))]) == VerificationResult(1, ties=1)
    assert verify_greedy([at("a", -0.7, ("b", -0.7), rank=2)]) == VerificationResult(1, ties=1)


def tied(own: int | None, *others: int | None, rank: int | None = None) -> VerificationResult:
    """The verdict on a token among leaders that are all as likely."""
    top = tuple(Alternative(f"t{other}", -0.7, other) for other in others)
    return verify_greedy([TargetLogprob("own", -0.7, own, rank, top)])


def test_of_equal_leaders_the_lowest_id_is_the_greedy_pick() -> None:
    """A leader with a lower id is the argmax: it rejects the given token and corrects it; a higher one is a tie."""
    assert tied(5, 9) == tied(5, 5, 9, rank=2) == VerificationResult(1, ties=1)
    assert tied(9, 5, rank=2) == VerificationResult(0, Alternative("t5", -0.7, 5))
    assert tied(9, 7, 5, 9, 5, rank=3) == VerificationResult(0, Alternative("t5", -0.7, 5))
    assert tied(0, 4) == VerificationResult(1, ties=1) and tied(4, 0).correction == Alternative("t0", -0.7, 0)


def test_leaders_that_are_not_all_known_give_no_correction() -> None:
    """vLLM lists one leader and says by the rank that there are more: the lowest of them may not be listed."""
    assert tied(9, 5, rank=3) == VerificationResult(0, None)
    assert tied(9, 5, None) == VerificationResult(0, None)


def test_equal_leaders_without_ids_are_accepted() -> None:
    """Nobody can say which of them an argmax takes."""
    assert tied(None, 5) == tied(9, None) == VerificationResult(1, ties=1)


def test_a_tolerance_accepts_ties_whatever_their_ids() -> None:
    """Who allows near ties allows exact ones."""
    position = TargetLogprob("a", -0.7, 9, 2, (Alternative("b", -0.7, 5),))
    assert verify_greedy([position], tie_nats=0.01) == VerificationResult(1, ties=1)


def test_tie_nats_widens_what_counts_as_a_tie() -> None:
    """Within the given nats of the best a token is accepted as a tie, beyond it is not."""
    walk = [at("a", -0.75, ("b", -0.65), rank=2)]
    assert verify_greedy(walk, tie_nats=0.11) == VerificationResult(1, ties=1)
    assert verify_greedy(walk, tie_nats=0.09).accepted == 0


def test_equal_corrections_are_settled_by_the_lower_id() -> None:
    """Of two equally good corrections the one with the lower id is taken, as an argmax over the vocabulary does."""
    top = (Alternative("c", -0.6, token_id=9), Alternative("b", -0.6, token_id=4))
    result = verify_greedy([TargetLogprob("a", -3.0, token_id=1, top=top)])
    assert result.correction == top[1]


def test_rank_one_is_the_argmax_without_any_listing() -> None:
    """vLLM's prompt_logprobs 0 gives a rank and no alternatives: rank 1 holds, another rank is rejected blindly."""
    assert verify_greedy([at("a", -1.9, rank=1)]) == VerificationResult(1)
    assert verify_greedy([at("a", -1.9, ("a", -1.9), rank=3)]) == VerificationResult(0, None)


def test_a_position_that_contradicts_itself_is_unverified() -> None:
    """A rank above 1 together with a listing in which the token leads is no evidence."""
    assert verify_greedy([at("a", -0.1, ("b", -3.0), rank=2)]) == VerificationResult(0, unverified=1)


def test_without_listing_and_rank_only_a_majority_is_certain() -> None:
    """More than half of all probability is the argmax whatever the rest is; less says nothing."""
    assert verify_greedy([at("a", -0.5)]) == VerificationResult(1)
    assert verify_greedy([at("a", -0.8)]) == VerificationResult(0, unverified=1)
    lists_others = at("b", -3.0, ("c", -0.1))
    assert verify_greedy([at("a", -0.8, ("a", -0.8)), lists_others]).accepted == 1


def test_limit_bounds_the_walk() -> None:
    """No more positions are looked at than the limit says."""
    walk = [at("a", -0.1, rank=1)] * 3
    assert [verify_greedy(walk, limit=limit).accepted for limit in (None, 2, 0, -1)] == [3, 2, 0, 0]


def test_draft_tokens_of_another_tokenizer_are_verified_by_text() -> None:
    """The two tokenizations must spell the same text; counts are the target's tokens."""
    target = [at("Hel", -0.1, rank=1), at("lo", -0.1, rank=1), at("!", -2.0, (".", -0.2))]
    draft = [DraftToken("Hello"), DraftToken("!", -0.3)]
    assert verify_draft_tokens(draft, target) == VerificationResult(2, Alternative(".", -0.2))
    assert verify_draft_tokens(draft, target, limit=1) == VerificationResult(1)
    assert verify_draft_tokens(draft[:1], target) == VerificationResult(0, unverified=1)


@pytest.mark.parametrize("numbers", [[], [None, math.nan], [0.0, -0.0, 0.0], [0.0, -9999.0, None]])
def test_b22_zeros_and_placeholders_show_no_distribution(numbers: list[float | None]) -> None:
    """A server that returns 0.0 throughout, or nothing usable, gives no evidence."""
    assert not shows_distribution(numbers)


def test_b22_one_honest_number_shows_a_distribution() -> None:
    """A single number that is not exactly 0.0 is enough."""
    assert shows_distribution([0.0, None, -1e-7])


# --- speculative sampling: exact enumeration over a tiny model ---------------------------------

Law = dict[str, Fraction]


def law(position: int, before: tuple[str, ...], size: int, salt: int) -> Law:
    """An explicit next-token distribution in sixths that depends on what came before; some tokens are impossible."""
    sixths = [0] * size
    for unit in range(6):
        sixths[(unit * unit // salt + position + sum(map(ord, before))) % size] += 1
    return {chr(97 + index): Fraction(weight, 6) for index, weight in enumerate(sixths)}


def grid(q: list[Law], p: list[Law]) -> int:
    """A common denominator of every threshold that a uniform number is compared with."""
    numbers = [share for one in (*q, *p) for share in one.values()]
    for mine, theirs in zip(p, q, strict=False):
        numbers += [mine[token] / theirs[token] for token in theirs if theirs[token]]
        residual = [max(mine[token] - theirs[token], Fraction(0)) for token in mine]
        numbers += [share / sum(residual) for share in residual if any(residual)]
    return math.lcm(*(number.denominator for number in numbers))


def outcomes(draft: tuple[str, ...], q: list[Law], p: list[Law]) -> dict[tuple[str, ...], Fraction]:
    """The exact law of the result for one draft: the uniform numbers run over the midpoints of a grid whose
    lines are all the thresholds, so a share of grid points is a probability. Points that lead to the same
    decision are followed once."""

    def decide(uniforms: tuple[Fraction, ...]) -> tuple[str, ...] | None:
        try:
            result = verify_stochastic(draft, q, p, iter(uniforms))  # type: ignore[arg-type]
        except StopIteration:
            return None
        assert result.token is not None
        return (*draft[: result.accepted], result.token)

    points = grid(q, p)
    zeros = (Fraction(0),) * (len(draft) + 1)
    law_of: dict[tuple[str, ...], Fraction] = {}
    queue: list[tuple[tuple[Fraction, ...], Fraction]] = [((), Fraction(1))]
    while queue:
        fixed, weight = queue.pop()
        result = decide(fixed)
        if result is not None:
            law_of[result] = law_of.get(result, Fraction(0)) + weight
            continue
        classes: dict[Any, tuple[tuple[Fraction, ...], Fraction]] = {}
        for index in range(points):
            longer = (*fixed, Fraction(2 * index + 1, 2 * points))
            decision = (decide(longer), decide((*longer, *zeros)))
            representative, share = classes.get(decision, (longer, Fraction(0)))
            classes[decision] = (representative, share + weight / points)
        queue.extend(classes.values())
    return law_of


@pytest.mark.parametrize(("size", "length"), [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1)])
def test_speculative_sampling_has_exactly_the_targets_distribution(size: int, length: int) -> None:
    """Summed over all drafts, the law of the first tokens is the target's, as fractions, without tolerance."""
    vocabulary = [chr(97 + index) for index in range(size)]
    joint: dict[tuple[str, ...], Fraction] = {}
    for draft in product(vocabulary, repeat=length):
        q = [law(index, draft[:index], size, 2) for index in range(length)]
        p = [law(index, draft[:index], size, 4) for index in range(length + 1)]
        drafted = math.prod((q[index][token] for index, token in enumerate(draft)), start=Fraction(1))
        if not drafted:
            continue
        for result, share in outcomes(draft, q, p).items():
            joint[result] = joint.get(result, Fraction(0)) + drafted * share
    assert sum(joint.values()) == 1
    # The first token of the result, and the second given the first, follow the target exactly.
    for prefix in [(), *((token,) for token in vocabulary)][: 1 if length == 1 else None]:
        longer = {key: joint[key] for key in joint if key[: len(prefix)] == prefix and len(key) > len(prefix)}
        total = sum(longer.values(), Fraction(0))
        for token, wanted in law(len(prefix), prefix, size, 4).items():
            got = sum((share for key, share in longer.items() if key[len(prefix)] == token), Fraction(0))
            if total:
                assert got / total == wanted, (prefix, token)


def test_speculative_sampling_without_a_distribution_after_the_draft() -> None:
    """When all tokens hold and nobody says what follows, there is no bonus token."""
    same: Mapping[str, float] = {"a": 0.5, "b": 0.5}
    assert verify_stochastic(["a"], [same], [same], [0.99]) == StochasticResult(1, None)


def test_speculative_sampling_survives_rounding() -> None:
    """A rejection whose residual is empty but for rounding draws from the target's own distribution; a uniform
    at the very end of the cumulative sum still gives a token."""
    p = {"a": 0.3, "b": 0.7}
    q = {"a": 0.3000001, "b": 0.7}
    assert verify_stochastic(["a"], [q], [p], [0.99999999, 0.5]) == verify_stochastic(
        ["a"], [q], [p], [0.9999999, 0.99]
    )
    assert verify_stochastic(["a"], [{"a": 1.0}], [{"b": 1.0}], [0.5, 1.0]).token == "b"
    assert verify_stochastic(["a"], [{"a": 1.0}], [{}], [0.5, 0.5]).token is None


@pytest.mark.parametrize(
    ("draft", "q", "p"),
    [
        (["a"], [], [{"a": 1.0}]),
        (["a"], [{"a": 1.0}], []),
        (["a"], [{"a": 1.0}], [{"a": 1.0}] * 3),
        (["a"], [{"b": 1.0}], [{"a": 1.0}]),
    ],
)
def test_speculative_sampling_refuses_impossible_input(draft: list[str], q: list[Any], p: list[Any]) -> None:
    """Lengths that do not fit, and a token its own distribution cannot give, are errors of the caller."""
    with pytest.raises(ValueError, match="draft token"):
        verify_stochastic(draft, q, p, [0.5, 0.5])


def test_b24_a_reply_that_lists_only_what_it_was_given_is_no_evidence() -> None:
    """Without rank and without any other token listed anywhere, only p > .5 is sure; the rest is unverified."""
    sure, unsure = math.log(0.9), -7.5
    lone = [TargetLogprob(text, number, index, top=(Alternative(text, number, index),)) for index, (text, number) in
            enumerate([("a", sure), ("b", unsure), ("c", sure)])]  # fmt: skip
    result = verify_greedy(lone)
    assert (result.accepted, result.unverified, result.correction) == (1, 1, None)
    other = TargetLogprob("d", -3.0, 9, top=(Alternative("d", -3.0, 9), Alternative("e", -0.1, 8)))
    assert verify_greedy([*lone, other]).accepted == 3, "a server that does list others lists its first choice"


def test_b20_a_rank_of_one_beside_a_likelier_token_contradicts_itself() -> None:
    """Rank 1 with a likelier alternative in the same listing is unverified, not accepted."""
    position = TargetLogprob("a", -2.0, 1, rank=1, top=(Alternative("a", -2.0, 1), Alternative("b", -0.2, 2)))
    assert verify_greedy([position]).unverified == 1
