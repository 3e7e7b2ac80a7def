"""``Validator``: the caller's own check of a draft. No call, no cost.

Rules
-----
* The check is a function of the text, a JSON schema, or a regular expression that the whole text (without white space
  around it) must match. A draft that fails never reaches the target.
* One that passes lets the next rule decide; ``sufficient=True`` says that the check alone is enough. A schema says
  that a reply is well formed, seldom that it is right.
* A check that raises, or takes longer than ``seconds``, gives no verdict. A function runs in a thread of its own, which
  cannot be killed: while :data:`MOST_STUCK` of them are still running, further checks give no verdict at once. Python
  holds its lock during one match of a regular expression, so the limit cannot interrupt that; the text is limited to
  :data:`LONGEST` characters instead.
* A schema is checked by the ``jsonschema`` library in the draft that it names (else 2020-12), never fetches what it
  refers to elsewhere, and must itself be valid.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import jsonschema.exceptions
import jsonschema.validators
import referencing

from cheapspec.core.request import Request
from cheapspec.core.untyped import as_mapping, is_mapping, is_number
from cheapspec.rules.verdict import Draft, Verdict, unusable_draft

__all__ = ["LONGEST", "MOST_STUCK", "Check", "Validator"]

LONGEST: Final = 200_000
"""Characters of the longest draft that is checked."""
MOST_STUCK: Final = 4
"""Checks of one process that may still be running beyond their time."""

Check = Callable[[str], object] | Mapping[str, Any] | str | re.Pattern[str]

_running = threading.BoundedSemaphore(MOST_STUCK)


@dataclass(frozen=True, slots=True)
class Validator:
    """``check``: a function that takes the text and returns something true when it is good, a JSON schema, or a regular
    expression. ``sufficient``: a draft that passes is accepted on this alone. ``seconds``: the longest that the check
    may take.

    :raises ValueError: the check is none of these, or the schema or expression is not valid.
    """

    check: Check
    sufficient: bool = False
    seconds: float = 1.0

    def __post_init__(self) -> None:
        _runner(self.check)
        if not is_number(self.seconds) or not 0 < self.seconds <= 3600:
            raise ValueError(f"Validator(seconds={self.seconds!r}): write more than 0 and at most 3600")

    @staticmethod
    def of(request: Request) -> Validator | None:
        """The validator of a request's own ``response_format``: its schema, or that the reply is a JSON object.
        ``None``: it has none, or its schema is not valid (the endpoint will say so).
        """
        wanted = as_mapping(request.body.get("response_format"))
        if wanted.get("type") == "json_object":
            return Validator({"type": "object"})
        schema = as_mapping(wanted.get("json_schema")).get("schema")
        if wanted.get("type") != "json_schema" or not is_mapping(schema):
            return None
        try:
            return Validator(schema)
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """What a certificate is bound to."""
        check: object = self.check
        if is_mapping(check):
            return f"validator(schema {json.dumps(check, sort_keys=True)})"
        if isinstance(self.check, str | re.Pattern):
            return f"validator(pattern {re.compile(self.check).pattern!r})"
        return f"validator({getattr(self.check, '__module__', '')}.{getattr(self.check, '__qualname__', 'function')})"

    def verdict(self, draft: Draft) -> Verdict:
        """``accept``: it passed. Blocks for at most ``seconds``; call it from a thread where an event loop waits."""
        odd = unusable_draft(draft)
        if odd is not None:
            return odd
        if len(draft.text) > LONGEST:
            return Verdict("none", f"the draft is longer than {LONGEST} characters")
        if not callable(self.check):
            return self._said(draft.text)
        return self._limited(draft.text)

    def _said(self, text: str) -> Verdict:
        try:
            problem = _runner(self.check)(text)
        except Exception as error:
            return Verdict("none", f"the check raised {type(error).__name__}")
        if problem is not None:
            return Verdict("reject", problem)
        return Verdict("accept", "the draft passed its check")

    def _limited(self, text: str) -> Verdict:
        if not _running.acquire(blocking=False):
            return Verdict("none", f"{MOST_STUCK} earlier checks are still running")
        found: list[Verdict] = []

        def work() -> None:
            try:
                found.append(self._said(text))
            finally:
                _running.release()

        worker = threading.Thread(target=work, name="cheapspec-validator", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            _running.release()
            return Verdict("none", "no thread for the check")
        worker.join(self.seconds)
        return found[0] if found else Verdict("none", f"the check took longer than {self.seconds:g} seconds")


def _runner(check: Check) -> Callable[[str], str | None]:
    """A function that says what is wrong with a text, ``None``: nothing."""
    given: object = check
    if isinstance(given, Mapping):
        try:
            text = json.dumps(given, sort_keys=True)
        except (TypeError, ValueError) as problem:
            raise ValueError(f"Validator(…): the schema is not JSON: {problem}") from None
        return _of_schema(text)
    if isinstance(given, str | re.Pattern):
        try:
            pattern = re.compile(given)
        except re.error as problem:
            raise ValueError(f"Validator({given!r}): no regular expression: {problem}") from None
        return lambda text: None if pattern.fullmatch(text.strip()) else "the draft does not match the pattern"
    if callable(check):
        function = check
        return lambda text: None if function(text) else "the draft failed the caller's check"
    raise ValueError(f"Validator({given!r}): write a function, a JSON schema, or a regular expression")


@lru_cache(64)
def _of_schema(schema: str) -> Callable[[str], str | None]:
    plain: Any = json.loads(schema)
    kind = jsonschema.validators.validator_for(plain, default=jsonschema.validators.Draft202012Validator)
    try:
        kind.check_schema(plain)
    except jsonschema.exceptions.SchemaError as problem:
        raise ValueError(f"Validator(…): no valid JSON schema: {problem.message}") from None
    checker = kind(plain, registry=referencing.Registry[Any](), format_checker=kind.FORMAT_CHECKER)

    def run(text: str) -> str | None:
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return "the draft is not JSON"
        problem = next(iter(checker.iter_errors(value)), None)
        return None if problem is None else f"the draft breaks its schema at {problem.json_path}"

    return run


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
