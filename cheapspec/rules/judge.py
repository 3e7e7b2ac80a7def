"""``Judge``: a chat model says with one token whether a draft is good.

Rules
-----
* Off until there is a certificate for the workload, which brings its threshold, or ``uncalibrated=True``: a judge that
  nobody measured lets wrong drafts pass (one that lets every second pass loses more than routing at random for the same
  money: docs/chat-only-apis.md).
* The target judges in its own conversation (:mod:`cheapspec.rules.chat`), another model gets stable instructions first,
  then conversation and draft as data.
* With log-probabilities the verdict is one letter, without it is one digit.
* The caller's key for the target never goes to another base URL: such a judge brings its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from cheapspec.core.request import Request
from cheapspec.core.untyped import is_number
from cheapspec.rules import prompts
from cheapspec.rules.chat import ask, body, conversation, read
from cheapspec.rules.letters import read_digit, read_letter
from cheapspec.rules.prompts import Prompt
from cheapspec.rules.verdict import Draft, Endpoint, Verdict, nonce_for, unusable_draft

__all__ = ["UNCALIBRATED", "Judge"]

UNCALIBRATED: Final = 0.5
"""The threshold without any other: the likelier letter decides."""

_CONVERSATION: Final = Prompt("<conversation {nonce}>\n{conversation}\n</conversation {nonce}>", "conversation-1")


@dataclass(frozen=True, slots=True)
class Judge:
    """``model``: ``None`` is the target itself; ``base_url`` and ``api_key``: another endpoint. ``threshold``: the
    score (0 to 1) from which a draft is accepted, ``None``: the certificate's, or .5 where ``uncalibrated``.
    ``prompt`` and ``digit_prompt``: the questions, with the places ``{nonce}`` and ``{draft}``.

    :raises ValueError: a threshold outside (0, 1], a base URL without a key or model of its own, other places.
    """

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    threshold: float | None = None
    uncalibrated: bool = False
    prompt: Prompt = prompts.LETTER
    digit_prompt: Prompt = prompts.DIGIT

    def __post_init__(self) -> None:
        given = self.threshold
        if given is not None and not (is_number(given) and 0 < given <= 1):
            raise ValueError(f"Judge(threshold={given!r}): write a score above 0 and at most 1")
        if self.base_url is not None and (not self.model or not self.api_key):
            raise ValueError("Judge(base_url=…): an endpoint of its own needs model= and api_key= of its own")
        if self.base_url is None and self.api_key is not None:
            raise ValueError("Judge(api_key=…): write base_url= too; the target is asked with its own key")
        self.prompt.require({"nonce", "draft"}, "Judge")
        self.digit_prompt.require({"nonce", "draft"}, "Judge")

    @property
    def name(self) -> str:
        return f"judge({self.model or 'target'}{'' if self.base_url is None else f' at {self.base_url}'})"

    def version(self, endpoint: Endpoint) -> str:
        """Of the prompts that this endpoint is sent."""
        asked = self.prompt.version if endpoint.alternatives else self.digit_prompt.version
        return asked if self.model is None else f"{asked}+{prompts.INSTRUCTIONS.version}"

    def cutoff(self, certified: float | None) -> float | None:
        """The threshold to use, ``None``: this judge is off (reason ``uncalibrated``). ``certified``: of a certificate
        that is valid now. The stricter of it and the caller's counts, unless the caller waived calibration.
        """
        if self.uncalibrated:
            return self.threshold or certified or UNCALIBRATED
        return None if certified is None else max(certified, self.threshold or 0.0)

    def before(self, draft: Draft) -> Verdict | None:
        """What can be said without asking; ``None``: ask."""
        return unusable_draft(draft)

    def messages(self, request: Request, draft: str, salt: str, *, digit: bool = False) -> list[dict[str, Any]]:
        """``salt``: see :func:`cheapspec.rules.verdict.nonce_for`. :raises ValueError: the request is no chat."""
        prompt = self.digit_prompt if digit else self.prompt
        if self.model is None:
            return ask(request, prompt.fill({"nonce": nonce_for(draft, salt), "draft": draft}))
        shown = json.dumps(conversation(request), ensure_ascii=False, indent=0)
        nonce = nonce_for(f"{shown}\0{draft}", salt)
        question = prompt.fill({"nonce": nonce, "draft": draft})
        told = _CONVERSATION.fill({"nonce": nonce, "conversation": shown})
        return [
            {"role": "system", "content": prompts.INSTRUCTIONS.text},
            {"role": "user", "content": told + question},
        ]

    def body(self, request: Request, draft: Draft, salt: str, endpoint: Endpoint) -> dict[str, Any]:
        """The whole body of the call. :raises ValueError: the request is no chat."""
        messages = self.messages(request, draft.text, salt, digit=not endpoint.alternatives)
        return body(request, messages, endpoint, 1, logprobs=True, model=self.model)

    def read(self, reply: object, draft: Draft, threshold: float, endpoint: Endpoint) -> Verdict:
        """``reply``: the JSON of the judge's chat completion; ``threshold``: see :meth:`cutoff`."""
        before = self.before(draft)
        if before is not None:
            return before
        said = read(reply)
        return read_letter(said, threshold) if endpoint.alternatives else read_digit(said, threshold)
