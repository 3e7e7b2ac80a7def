"""Certificates in use: valid while nothing that they name has changed, and not a moment longer."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

import pytest

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.core.lookup import PromptLookup
from cheapspec.core.shadows import AUDIT, CertificateRow, ShadowRow
from cheapspec.drive.certified import Certificates, draft_name
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.null import NullLedger
from cheapspec.rules.certificates import Scope

TARGET = "m@https://api.example/v1"
SCOPE = Scope("maths", "judge(target)", "letter-1", "ollama:toy@http://h", TARGET, None, "last_number()")


def certificate(**more: Any) -> CertificateRow:
    """One that holds for SCOPE."""
    told: dict[str, Any] = {"certificate_id": "ct-1", "at": time.time() - 10, "workload": "maths"}
    told |= {"rule": "judge(target)", "prompt_version": "letter-1", "draft": "ollama:toy@http://h", "target": TARGET}
    told |= {"fingerprint": "m/fp_1", "comparison": "last_number()", "threshold": 0.9, "n": 299, "failures": 0}
    told |= {"accepted": 200, "loss": 0.01, "confidence": 0.95, "seen_until": 0.0, "expires_at": time.time() + 60}
    return CertificateRow(**(told | more))


def using(*made: CertificateRow) -> tuple[BudgetedMemoryLedger, Certificates]:
    ledger = BudgetedMemoryLedger()
    for one in made:
        ledger.put_certificate(one)
    return ledger, Certificates(ledger)


def test_a_threshold_is_given_while_all_is_as_it_was() -> None:
    """And none where there is no certificate, or no ledger that keeps them."""
    _, certificates = using(certificate())
    assert certificates.certified(SCOPE) == 0.9
    assert certificates.cutoffs({"a": SCOPE, "b": replace(SCOPE, rule="answer(x)")}) == {"a": 0.9}
    assert Certificates(NullLedger()).certified(SCOPE) is None


@pytest.mark.parametrize("name", [part.name for part in fields(Scope) if part.name != "fingerprint"])
def test_anything_that_changed_ends_it(name: str) -> None:
    """Workload, rule, prompt version, draft, target, comparison: each."""
    _, certificates = using(certificate())
    assert certificates.certified(replace(SCOPE, **{name: "other"})) is None


def test_time_ends_it_and_so_does_a_figure_that_does_not_bear_it() -> None:
    """An expired one, a mere look, and figures that somebody changed."""
    for change in (
        {"expires_at": time.time() - 1},
        {"threshold": None},
        {"n": 298},
        {"failures": 1},
        {"accepted": 300},
        {"loss": 0.001},
        {"confidence": 2.0},
    ):
        _, certificates = using(certificate(**change))
        assert certificates.certified(SCOPE) is None, change


def test_a_changed_fingerprint_revokes_it_for_everybody() -> None:
    """In whatever reply it is seen; the same one changes nothing."""
    ledger, certificates = using(certificate())
    certificates.told(TARGET, "maths", "m/fp_1")
    assert certificates.knows(TARGET, "m/fp_1")
    assert certificates.certified(SCOPE) == 0.9
    certificates.told(TARGET, "maths", "m/fp_2")
    assert Certificates(ledger).certified(SCOPE) is None
    (revoked,) = ledger.certificate_rows()
    assert revoked.revoked_why == "the target's fingerprint is 'm/fp_2' now"


def test_a_fingerprint_seen_in_another_workload_counts_when_the_certificate_is_asked_for() -> None:
    """The target is one."""
    ledger, certificates = using(certificate())
    certificates.told(TARGET, "other", "m/fp_2")
    assert certificates.certified(SCOPE) is None
    assert ledger.certificate_rows()[0].revoked_at is not None


def test_the_newest_that_holds_counts() -> None:
    """An older one stands in for a look in vain."""
    newer = certificate(certificate_id="ct-2", at=time.time(), threshold=0.8)
    assert using(certificate(), newer)[1].certified(SCOPE) == 0.8
    assert using(certificate(), replace(newer, threshold=None))[1].certified(SCOPE) == 0.9


def finding(number: int, *, bad: bool) -> ShadowRow:
    told = (f"a-{number}", "judge(target)", time.time(), "maths", "letter-1", SCOPE.draft, TARGET, "accept", AUDIT)
    return ShadowRow(*told, bad=bad, equal=not bad)


def test_audits_revoke_when_they_show_that_more_is_lost() -> None:
    """One bad of a hundred shows nothing; one of one is enough for what was promised at 1 %."""
    ledger, certificates = using(certificate())
    for number in range(99):
        ledger.add_shadow(finding(number, bad=False))
    ledger.add_shadow(finding(100, bad=True))
    certificates.audited("maths", TARGET, "judge(target)")
    assert certificates.certified(SCOPE) == 0.9
    for number in range(101, 108):
        ledger.add_shadow(finding(number, bad=True))
    certificates.audited("maths", TARGET, "answer(x)")
    assert certificates.certified(SCOPE) == 0.9, "of another rule"
    certificates.audited("maths", TARGET, "judge(target)")
    assert certificates.certified(SCOPE) is None


def test_shadows_are_counted_with_those_under_way() -> None:
    """One that ends without a finding makes room; a ledger that cannot count shadows nothing."""
    _, certificates = using()
    scope = ("maths", TARGET, "d")
    assert [certificates.begin_shadow(scope, 2) for _ in range(3)] == [True, True, False]
    certificates.end_shadow(scope)
    assert certificates.begin_shadow(scope, 2)
    certificates.renew_locks()
    assert certificates.begin_shadow(scope, 1), "in a forked child nothing is under way"
    certificates.end_shadow(scope)
    certificates.end_shadow(scope)
    assert not Certificates(NullLedger()).begin_shadow(scope, 9)


def test_a_draft_is_named_without_its_hosts_secrets() -> None:
    """Model and URL of each."""
    drafters = [OllamaDrafter("toy", "http://me:secret@host:11434"), PromptLookup()]
    assert draft_name(drafters) == "ollama:toy@http://host:11434, lookup"
