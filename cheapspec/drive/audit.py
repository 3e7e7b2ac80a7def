"""The audit arm: a random share of replies accepted on a rule's word is asked of the target as well.

Rules
-----
* The caller has the whole reply by then and waits for nothing. A reply that the caller left is not audited.
* It is the caller's own request, unstreamed; one without a limit gets that of
  :func:`cheapspec.rules.asking.reply_limit`, so that what it costs has a bound. It earns
  nothing: the allowance must bear it, and a budget room for it besides.
* The target's reply is compared as in shadow. One that failed, or was cut by a limit that is not the caller's, shows
  nothing. What was found may revoke a certificate.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from typing import Any, Final

from cheapspec.core.effects import HttpReply, HttpRequest
from cheapspec.core.received import read_identity
from cheapspec.core.reply import Problem, read_completion
from cheapspec.core.shadows import AUDIT, ShadowRow, fingerprint_of
from cheapspec.core.untyped import as_mapping
from cheapspec.drive.admission import Admitted
from cheapspec.drive.books import Books
from cheapspec.drive.certified import compared, draft_name
from cheapspec.drive.io import Background, Run, Steps
from cheapspec.drive.learning import target_of, workload_of
from cheapspec.drive.probing import ask_beside
from cheapspec.drive.runtime import Runtime
from cheapspec.rules.asking import reply_limit
from cheapspec.rules.ladder import Ladder

__all__ = ["audit"]

log = logging.getLogger("cheapspec")

_ROUTES: Final = {"chat": "chat/completions", "completion": "completions"}
_chance = random.SystemRandom()


def audit(runtime: Runtime, admitted: Admitted, books: Books, text: str) -> Background | None:
    """What is carried out beside the caller, who was given this text; ``None``: this reply is not audited."""
    share, ladder = admitted.passed.settings.audit, admitted.job
    if not isinstance(ladder, Ladder) or not ladder.tally.lossy or runtime.certificates.book is None:
        return None
    if ladder.prices is None:  # what an audit may cost must have a bound
        return None
    if _chance.random() >= share:
        return None
    return Background(_steps(runtime, admitted, ladder, books, text), "cheapspec-audit")


def _steps(runtime: Runtime, admitted: Admitted, ladder: Ladder, books: Books, text: str) -> Steps[None]:
    passed, ours = admitted.passed, ladder.request.max_tokens is None
    body = _body(runtime, admitted, ladder)
    asked = HttpRequest("audit", _ROUTES[passed.kind], body, billed=True)
    reply = yield from ask_beside(runtime, passed, asked, books, purpose="audit")
    if reply is None or reply.status >= 300:
        return
    read = read_completion(reply, passed.kind)
    if isinstance(read, Problem) or not read.text or (ours and read.finish_reason == "length"):
        return
    row = yield Run(lambda: _row(admitted, ladder, text, read.text, reply))
    if isinstance(row, ShadowRow) and runtime.certificates.book is not None:
        runtime.certificates.book.add_shadow(row)
        runtime.certificates.audited(row.workload, row.target, row.rule)
        if row.fingerprint is not None:
            runtime.certificates.told(row.target, row.workload, row.fingerprint)


def _body(runtime: Runtime, admitted: Admitted, ladder: Ladder) -> Mapping[str, Any]:
    dropped = ("stream", "stream_options", "cheapspec")
    body = {name: value for name, value in ladder.request.body.items() if name not in dropped}
    if ladder.request.max_tokens is None:
        field = "max_tokens" if admitted.passed.kind == "completion" else ladder.bench.endpoint.limit_field
        body[field] = reply_limit(ladder.tally.reply_tokens or 0, ladder.bench)
    return body


def _row(admitted: Admitted, ladder: Ladder, text: str, said: str, reply: HttpReply) -> ShadowRow:
    passed, tally = admitted.passed, ladder.tally
    rule = next(rule for rule in ladder.rules if rule.name == tally.rule)
    verdict = next(one for one in reversed(tally.verdicts) if one["rule"] == tally.rule)
    found = compared(rule, ladder.rules, passed.settings.comparison, passed.parsed)
    try:
        equal = None if found is None else found.equal(text, said)
    except Exception as error:
        log.debug("a comparison raised %s", type(error).__name__)
        equal = False
    writer = read_identity(as_mapping(reply.json()))
    return ShadowRow(
        passed.request_id,
        rule.name,
        time.time(),
        workload_of(passed.settings, passed.parsed),
        str(verdict["version"]),
        draft_name(ladder.drafters),
        target_of(passed),
        "accept",
        AUDIT,
        fingerprint_of(writer.model, writer.system_fingerprint),
        verdict["score"],
        "" if found is None else found.name,
        equal,
        None if equal is None else not equal,
        verdict["chance"],
        str(verdict["why"]),
        text,
    )
