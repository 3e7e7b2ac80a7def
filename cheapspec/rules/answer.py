"""``Answer``: the target gives only the final answer, without seeing the draft; equal, the draft's text is accepted.

Rules
-----
* The target is asked for a few tokens. What was compared is the answer: the draft's reasoning was not checked.
* A draft without a clear answer is rejected before anything is asked.
* A short answer that was cut, holds two answers, or none: no verdict.
* Few labels agree by chance: the verdict says how often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cheapspec.core.request import Request
from cheapspec.rules import prompts
from cheapspec.rules.chat import ask, body, read
from cheapspec.rules.extract import Extractor, extractor
from cheapspec.rules.prompts import Prompt
from cheapspec.rules.verdict import Draft, Endpoint, Verdict, unusable_draft

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """``extract``: see :func:`cheapspec.rules.extract.extractor`. ``prompt``: the question, with a place ``{form}``.

    :raises ValueError: no such extractor, or a prompt with other places.
    """

    extract: object = "last_number"
    prompt: Prompt = prompts.ANSWER

    def __post_init__(self) -> None:
        object.__setattr__(self, "extract", extractor(self.extract))
        self.prompt.require({"form"}, "Answer")

    @property
    def extractor(self) -> Extractor:
        return extractor(self.extract)

    @property
    def name(self) -> str:
        return f"answer({self.extractor.name})"

    @property
    def version(self) -> str:
        return self.prompt.version

    def before(self, draft: Draft) -> Verdict | None:
        """What can be said without asking; ``None``: ask."""
        odd = unusable_draft(draft)
        if odd is None and self.extractor.draft(draft.text) is None:
            return Verdict("reject", "no answer found in the draft")
        return odd

    def messages(self, request: Request) -> list[dict[str, Any]]:
        """:raises ValueError: the request is no chat."""
        return ask(request, self.prompt.fill({"form": self.extractor.form}))

    def body(self, request: Request, endpoint: Endpoint) -> dict[str, Any]:
        """The whole body of the call. :raises ValueError: the request is no chat."""
        return body(request, self.messages(request), endpoint, self.extractor.tokens)

    def read(self, reply: object, draft: Draft) -> Verdict:
        """``reply``: the JSON of the target's chat completion."""
        before, said, ours = self.before(draft), read(reply), self.extractor
        if before is not None:
            return before
        if said.problem is not None:
            return Verdict("none", said.problem)
        if said.cut:
            return Verdict("none", "the short answer was cut by its output limit")
        theirs = ours.short(said.text)
        if theirs is None:
            return Verdict("none", "no clear answer in the short answer")
        if ours.same(ours.draft(draft.text), theirs):
            return Verdict("accept", "the target's own short answer is the draft's", chance=ours.chance, check=theirs)
        return Verdict("reject", "the target's own short answer is another", chance=ours.chance, check=theirs)
