"""``Patch`` (experimental): one call; the target repairs the draft with a small edit instead of writing it again.

Rules
-----
* JSON: an RFC 7396 merge patch; ``{}`` accepts the draft. Code: search-and-replace blocks; ``OK`` accepts it. The
  target saw the draft: lossy either way.
* A patch is applied or it is nothing: a patch that is no patch, a searched text that is not found exactly once, a
  result that is empty, that fails ``check`` or that changes nothing is no verdict.
* A merge patch replaces arrays whole and cannot set a member to null: what it removes is gone (RFC 7396, section 1).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from cheapspec.core.request import Request
from cheapspec.core.untyped import is_mapping
from cheapspec.rules import prompts
from cheapspec.rules.chat import ask, body, read
from cheapspec.rules.ok_or_answer import says_ok
from cheapspec.rules.prompts import Prompt
from cheapspec.rules.validator import Validator
from cheapspec.rules.verdict import Draft, Endpoint, Verdict, nonce_for, unusable_draft

__all__ = ["Patch", "edit", "merge"]

_BLOCK: Final = re.compile(
    r"<{7} SEARCH\r?\n(?P<old>.*?)\r?\n={7}\r?\n(?:(?P<new>.*?)\r?\n)?>{7} REPLACE(?:\r?\n|\Z)", re.DOTALL
)
_FENCE: Final = re.compile(r"```[\w-]*\r?\n(?P<inside>.*)\r?\n```", re.DOTALL)


def merge(value: object, patch: object) -> object:
    """The MergePatch function of RFC 7396, section 2; neither argument is changed."""
    if not is_mapping(patch):
        return patch
    merged: dict[str, Any] = dict(value) if is_mapping(value) else {}
    for name, part in patch.items():
        if part is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), part)
    return merged


def edit(text: str, patch: str) -> str | None:
    """The text with the patch's search-and-replace blocks applied in order; ``None``: it does not fit, or holds
    anything but blocks.
    """
    blocks = list(_BLOCK.finditer(patch))
    if not blocks or _BLOCK.sub("", patch).strip():
        return None
    for block in blocks:
        if text.count(block["old"]) != 1:
            return None
        text = text.replace(block["old"], block["new"] or "")
    return text


@dataclass(frozen=True, slots=True)
class Patch:
    """``form``: what drafts are; ``check``: what a patched text must pass, ``None``: the request's own
    ``response_format`` for JSON, if it has one, and nothing for code. ``prompt``: the question, with the places
    ``{nonce}`` and ``{draft}``; ``None``: the usual one of the form.

    :raises ValueError: another form, no validator, a prompt with other places.
    """

    form: Literal["json", "code"] = "json"
    check: Validator | None = None
    prompt: Prompt | None = None

    def __post_init__(self) -> None:
        if self.form not in ("json", "code"):
            raise ValueError(f"Patch(form={self.form!r}): write 'json' or 'code'")
        check: object = self.check
        if check is not None and not _is_validator(check):
            raise ValueError("Patch(check=…): write a Validator")
        self._prompt.require({"nonce", "draft"}, "Patch")

    @property
    def _prompt(self) -> Prompt:
        return self.prompt or (prompts.PATCH_JSON if self.form == "json" else prompts.PATCH_CODE)

    @property
    def name(self) -> str:
        return f"patch({self.form}, {'no check' if self.check is None else self.check.name})"

    @property
    def version(self) -> str:
        return self._prompt.version

    def before(self, draft: Draft) -> Verdict | None:
        """What can be said without asking; ``None``: ask."""
        odd = unusable_draft(draft)
        if odd is None and self.form == "json" and not is_mapping(_json(draft.text)):
            return Verdict("reject", "the draft is no JSON object")
        return odd

    def messages(self, request: Request, draft: str, salt: str) -> list[dict[str, Any]]:
        """``salt``: see :func:`cheapspec.rules.verdict.nonce_for`. :raises ValueError: the request is no chat."""
        return ask(request, self._prompt.fill({"nonce": nonce_for(draft, salt), "draft": draft}))

    def body(self, request: Request, draft: Draft, salt: str, endpoint: Endpoint) -> dict[str, Any]:
        """The whole body of the call, limited as the caller limits the reply. :raises ValueError: no chat."""
        return body(request, self.messages(request, draft.text, salt), endpoint, None)

    def read(self, reply: object, draft: Draft, request: Request | None = None) -> Verdict:
        """``reply``: the JSON of the target's chat completion. ``request``: whose ``response_format`` counts where no
        check is given. Runs the check, so it may block for its seconds.
        """
        before, said = self.before(draft), read(reply)
        if before is not None:
            return before
        if said.problem is not None or said.cut:
            return Verdict("none", said.problem or "the patch was cut by its output limit")
        fenced = _FENCE.fullmatch(said.text.strip())
        patch = said.text.strip() if fenced is None else fenced["inside"]
        if says_ok(patch) if self.form == "code" else _json(patch) == {}:
            return Verdict("accept", "the target saw the draft and changed nothing")
        patched = self._patched(draft.text, patch)
        if patched is None:
            return Verdict("none", "the patch does not fit the draft")
        if patched == draft.text or not patched.strip():
            return Verdict("none", "the patch changes nothing" if patched.strip() else "the patched text is empty")
        check = self.check or (Validator.of(request) if request is not None and self.form == "json" else None)
        passed = None if check is None else check.verdict(Draft(patched))
        if passed is not None and not passed.accepted:
            return Verdict("none", f"the patched text: {passed.why}")
        return Verdict("reject", "the target saw the draft and patched it", text=patched)

    def _patched(self, text: str, patch: str) -> str | None:
        if self.form == "code":
            return edit(text, patch)
        value, change = _json(text), _json(patch)
        if not is_mapping(change):
            return None
        merged = merge(value, change)
        return text if merged == value else json.dumps(merged, ensure_ascii=False, indent=2 if "\n" in text else None)


def _json(text: str) -> object | None:
    try:
        value: object = json.loads(text, parse_constant=_refuse)
        return value
    except (ValueError, RecursionError):
        return None


def _is_validator(value: object) -> bool:
    return isinstance(value, Validator)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
