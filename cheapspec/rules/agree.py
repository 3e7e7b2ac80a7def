"""``Agree``: two or more *unlike* local drafters give the same answer. No call.

Rules
-----
* Voters are counted by form (family and way of working), not by sample: samples of one form make the same mistakes.
  A form that disagrees with itself has no vote.
* The draft is accepted when at least ``voters`` forms, its own among them, give its answer, and no form another; with
  ``majority=True`` more forms must give its answer than any other.
* How many must agree is a threshold to be certified on the caller's traffic; agreement is no proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cheapspec.rules.extract import Extractor, extractor
from cheapspec.rules.verdict import Draft, Verdict, unusable_draft

__all__ = ["Agree"]


@dataclass(frozen=True, slots=True)
class Agree:
    """``extract``: see :func:`cheapspec.rules.extract.extractor`. ``voters``: the least number of unlike drafters.

    :raises ValueError: no such extractor, or fewer than two voters.
    """

    extract: object = "last_number"
    voters: int = 2
    majority: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "extract", extractor(self.extract))
        if not _is_count(self.voters) or self.voters < 2:
            raise ValueError(f"Agree(voters={self.voters!r}): write 2 or more; one drafter agrees with itself always")

    @property
    def extractor(self) -> Extractor:
        return extractor(self.extract)

    @property
    def name(self) -> str:
        return f"agree({self.extractor.name}, voters={self.voters}, majority={self.majority})"

    def verdict(self, draft: Draft, others: Sequence[Draft]) -> Verdict:
        """On ``draft``, which is the text that would go out. ``others``: drafts of the same request. The score is the
        share of forms, of those that gave an answer, that gave the draft's.
        """
        odd = unusable_draft(draft)
        if odd is not None:
            return odd
        read = self.extractor
        answers: dict[str, list[object]] = {}
        for one in (draft, *others):
            answer = read.draft(one.text) if unusable_draft(one) is None else None
            if answer is not None:
                answers.setdefault(one.form, []).append(answer)
        answer = read.draft(draft.text)
        if answer is None:
            return Verdict("none", "no answer found in the draft")
        votes = {
            form: given[0] for form, given in answers.items() if all(read.same(given[0], other) for other in given)
        }
        if draft.form not in votes:
            return Verdict("none", "drafts of one drafter disagree")
        if len(votes) < self.voters:
            return Verdict("none", f"{len(votes)} unlike drafters gave an answer; {self.voters} are needed")
        agreeing = sum(read.same(answer, vote) for vote in votes.values())
        rivals = max((sum(read.same(vote, other) for other in votes.values()) for vote in votes.values()
                      if not read.same(answer, vote)), default=0)  # fmt: skip
        good = agreeing >= self.voters and (agreeing > rivals if self.majority else rivals == 0)
        chance = None if read.chance is None else read.chance ** (agreeing - 1)
        return Verdict(
            "accept" if good else "reject",
            f"{agreeing} of {len(votes)} unlike drafters give the same answer",
            agreeing / len(votes),
            chance=chance,
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
