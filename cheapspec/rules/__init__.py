"""Rules for endpoints that cannot score: what is asked about a whole draft, and what a reply to that means.

Rules
-----
* Each rule is a frozen value with a ``name`` (what a certificate is bound to). Rules that need no call have
  ``verdict(…)``. Rules that need one have ``before(draft)`` (what can be said without asking), ``body(…)`` (the whole
  JSON of the call) and ``read(reply, …)``; both give a :class:`~cheapspec.rules.verdict.Verdict`.
* All of it is pure (no I/O, clock or randomness; a salt is passed in), but for the time limit of a ``Validator``.
* What none of it promises is that an accepted reply is the target's: every rule here is lossy. What it costs is in
  :mod:`cheapspec.rules.breakeven`, what it may lose in :mod:`cheapspec.rules.certificates`.
"""

from __future__ import annotations

from cheapspec.rules.agree import Agree
from cheapspec.rules.answer import Answer
from cheapspec.rules.judge import Judge
from cheapspec.rules.ok_or_answer import OkOrAnswer
from cheapspec.rules.patch import Patch
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Endpoint, Verdict

__all__ = ["Agree", "Answer", "Draft", "Endpoint", "Judge", "OkOrAnswer", "Patch", "Validator", "Verdict"]
