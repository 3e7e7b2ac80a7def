"""``OkOrAnswer`` (experimental): one call; the target says OK to the draft, or writes its own reply.

Rules
-----
* The target saw the draft, so its own reply may lean on it: lossy either way.
* Only a reply that is nothing but OK accepts. Any other whole reply goes out itself, and no direct call follows; an odd
  or cut one is no verdict.
* A request whose right reply is "OK" cannot be told apart: where the draft is that, nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cheapspec.core.request import Request
from cheapspec.rules import prompts
from cheapspec.rules.chat import ask, body, read
from cheapspec.rules.prompts import Prompt
from cheapspec.rules.verdict import Draft, Endpoint, Verdict, nonce_for, unusable_draft

__all__ = ["OkOrAnswer", "says_ok"]


def says_ok(text: str) -> bool:
    """Whether a text is OK and nothing else, whatever marks stand around it."""
    return text.strip(" \t\r\n*_`\"'.!").casefold() == "ok"


@dataclass(frozen=True, slots=True)
class OkOrAnswer:
    """``prompt``: the question, with the places ``{nonce}`` and ``{draft}``.

    :raises ValueError: the prompt has other places.
    """

    prompt: Prompt = prompts.OK_OR_ANSWER

    def __post_init__(self) -> None:
        self.prompt.require({"nonce", "draft"}, "OkOrAnswer")

    @property
    def name(self) -> str:
        return "ok_or_answer"

    @property
    def version(self) -> str:
        return self.prompt.version

    def before(self, draft: Draft) -> Verdict | None:
        """What can be said without asking; ``None``: ask."""
        if says_ok(draft.text):
            return Verdict("none", "a draft that is OK itself cannot be told from a verdict")
        return unusable_draft(draft)

    def messages(self, request: Request, draft: str, salt: str) -> list[dict[str, Any]]:
        """``salt``: see :func:`cheapspec.rules.verdict.nonce_for`. :raises ValueError: the request is no chat."""
        return ask(request, self.prompt.fill({"nonce": nonce_for(draft, salt), "draft": draft}))

    def body(self, request: Request, draft: Draft, salt: str, endpoint: Endpoint) -> dict[str, Any]:
        """The whole body of the call, limited as the caller limits the reply. :raises ValueError: no chat."""
        return body(request, self.messages(request, draft.text, salt), endpoint, None)

    def read(self, reply: object, draft: Draft) -> Verdict:
        """``reply``: the JSON of the target's chat completion."""
        before, said = self.before(draft), read(reply)
        if before is not None:
            return before
        if said.problem is not None:
            return Verdict("none", said.problem)
        if says_ok(said.text):
            return Verdict("accept", "the target saw the draft and said OK")
        if said.cut:
            return Verdict("none", "the target's own reply was cut by its output limit")
        return Verdict("reject", "the target saw the draft and wrote its own reply", text=said.text)
