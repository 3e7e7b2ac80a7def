"""What a rule says about a draft, what it is told about one, and what an endpoint lets it ask.

Rules
-----
* ``accept``: the draft's text goes out. ``reject``: the rule found against it, the next rule of the ladder may try.
  ``none``: there is no verdict (an odd reply, a broken check, no answer to compare); it is never an acceptance.
* An empty draft and one that was cut have no verdict from any rule, and nothing is asked about them.
* A call that was made is paid, whatever its verdict.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from cheapspec.core.endpoint import Endpoint

__all__ = ["Draft", "Endpoint", "Outcome", "Verdict", "nonce_for", "unusable_draft"]

Outcome = Literal["accept", "reject", "none"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole draft. ``complete``: its model ended its turn (not cut by a limit or a lost connection).

    ``form``: what makes drafters unlike: the model's family and how it works (``"qwen2.5"``,
    ``"qwen2.5/program"``); drafts of one form count once for :class:`~cheapspec.rules.agree.Agree`.
    """

    text: str
    complete: bool = True
    drafter: str = ""
    form: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score``: the rule's probability that the draft is good, where it has one. ``why``: one sentence for
    ``explain`` and the books. ``text``: what goes out instead of the draft (the target wrote or patched it); with it
    the request needs no direct call. ``lasting``: the endpoint will not do better next time. ``chance``: how often
    this rule's comparison comes out equal by chance, where that is known. ``check``: the short answer compared with.
    """

    outcome: Outcome
    why: str
    score: float | None = None
    text: str | None = None
    lasting: bool = False
    chance: float | None = None
    check: object | None = None

    @property
    def accepted(self) -> bool:
        return self.outcome == "accept"


def unusable_draft(draft: Draft) -> Verdict | None:
    """Why no rule has anything to say about a draft; ``None``: it may be judged."""
    if not draft.text.strip():
        return Verdict("none", "the draft is empty")
    if not draft.complete:
        return Verdict("none", "the draft was cut before its end")
    return None


def nonce_for(draft: str, salt: str) -> str:
    """Eight hexadecimal digits that the draft does not hold. ``salt``: anything that the drafter did not know (a
    random number, this request's id). The same inputs give the same nonce.
    """
    lowered, count = draft.lower(), 0
    while True:
        nonce = hashlib.sha256(f"{salt}\0{count}\0{draft}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
        if nonce not in lowered:
            return nonce
        count += 1
