"""Findings about lossy rules and certificates: kept once, counted across processes, revoked for everybody."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledgerkit import rows

from cheapspec.core.shadows import AUDIT, CertificateRow, ShadowBook, ShadowReader, ShadowRow, fingerprint_of
from cheapspec.ledger.database import DatabaseLedger
from cheapspec.ledger.memory_budgets import BudgetedMemoryLedger
from cheapspec.ledger.shadows import ShadowCache

Book = BudgetedMemoryLedger | DatabaseLedger

TARGET, DRAFT = "m@https://api.example/v1", "ollama:toy@http://127.0.0.1:11434"


def finding(request_id: str = "cs-1", **more: Any) -> ShadowRow:
    told: dict[str, Any] = {"rule": "judge(target)", "at": 10.0, "workload": "maths", "prompt_version": "letter-1"}
    told |= {"draft": DRAFT, "target": TARGET, "outcome": "accept", "score": 0.97, "comparison": "last_number()"}
    told |= {"equal": True, "bad": False, "fingerprint": "m-0806/fp_1", "why": "the judge gives 0.970"}
    return ShadowRow(request_id, **(told | more))


def certificate(name: str = "ct-1", **more: Any) -> CertificateRow:
    told: dict[str, Any] = {"at": 20.0, "workload": "maths", "rule": "judge(target)", "prompt_version": "letter-1"}
    told |= {"draft": DRAFT, "target": TARGET, "fingerprint": "m-0806/fp_1", "comparison": "last_number()"}
    told |= {"threshold": 0.9, "n": 299, "failures": 0, "accepted": 200, "loss": 0.01, "confidence": 0.95}
    return CertificateRow(name, **(told | {"seen_until": 19.0, "expires_at": 1e10} | more))


def eventually(told: Callable[[], object]) -> object:
    """The first true answer within some seconds."""
    for _ in range(500):
        if found := told():
            return found
        time.sleep(0.01)
    return told()


def test_every_ledger_keeps_findings(book: Book) -> None:
    """They come back as they were, the oldest first, by workload and time."""
    assert isinstance(book, ShadowBook)
    assert isinstance(book, ShadowReader)
    odd = finding("cs-2", at=5.0, workload="other", score=None, equal=None, bad=None, fingerprint=None, chance=0.5)
    for one in (finding(), odd):
        book.add_shadow(one)
    assert list(book.shadow_rows()) == [odd, finding()]
    assert list(book.shadow_rows(workload="maths")) == [finding()]
    assert list(book.shadow_rows(since=6.0)) == [finding()]
    assert list(book.shadow_rows(until=6.0)) == [odd]


def test_the_first_finding_of_a_request_and_rule_counts(book: Book) -> None:
    """A row that is written twice, as after a commit whose answer was lost, changes nothing."""
    for one in (finding(), finding(score=0.1), finding(kind=AUDIT), finding(rule="answer(x)")):
        book.add_shadow(one)
    assert sorted((one.rule, one.kind, one.score) for one in book.shadow_rows()) == [
        ("answer(x)", "shadow", 0.97),
        ("judge(target)", "audit", 0.97),
        ("judge(target)", "shadow", 0.97),
    ]
    assert book.shadowed("maths", TARGET, DRAFT) == 1, "requests are counted, not rules, and audits are none"


def test_requests_are_counted_by_workload_target_and_draft(book: Book) -> None:
    """Another draft model begins anew."""
    for number in range(3):
        book.add_shadow(finding(f"cs-{number}"))
    book.add_shadow(finding("cs-9", draft="other"))
    assert book.shadowed("maths", TARGET, DRAFT) == 3
    assert book.shadowed("maths", TARGET, "other") == 1
    assert book.shadowed("maths", "other", DRAFT) == book.shadowed("x", TARGET, DRAFT) == 0


def test_text_is_kept_only_where_the_ledger_was_told_to(url: str) -> None:
    """The draft's text, as prompts and replies."""
    for number, store_text in enumerate((False, True)):
        ledger = DatabaseLedger(url, store_text=store_text)
        ledger.add_shadow(finding(f"cs-{number}", draft_text="It is 42."))
        told = {one.request_id: one.draft_text for one in ledger.shadow_rows()}
        assert told[f"cs-{number}"] == ("It is 42." if store_text else None)
        ledger.close()
    memory = BudgetedMemoryLedger()
    memory.add_shadow(finding(draft_text="It is 42."))
    assert [one.draft_text for one in memory.shadow_rows()] == [None]


def test_certificates_stand_until_they_are_revoked(book: Book) -> None:
    """The newest first; a revocation is said once and stays."""
    for made in (certificate(), certificate("ct-2", at=30.0), certificate("ct-3", workload="x")):
        book.put_certificate(made)
    assert [one.certificate_id for one in book.certificates("maths", TARGET)] == ["ct-2", "ct-1"]
    book.revoke(certificate("ct-2", at=30.0), 40.0, "the fingerprint changed")
    book.revoke(certificate("ct-2", at=30.0), 41.0, "again")
    assert book.certificates("maths", TARGET) == (certificate(),)
    told = {one.certificate_id: one for one in book.certificate_rows()}
    assert list(told) == ["ct-1", "ct-3", "ct-2"], "the oldest first"
    assert (told["ct-2"].revoked_at, told["ct-2"].revoked_why) == (40.0, "the fingerprint changed")
    assert told["ct-1"] == certificate()


def test_what_a_certificate_promises_ends(book: Book) -> None:
    """By time, by being revoked, and it never began where there is no threshold."""
    made = certificate(expires_at=100.0)
    assert made.valid(99.0)
    assert not made.valid(100.0)
    assert not replace(made, threshold=None).valid(50.0)
    assert not replace(made, revoked_at=1.0).valid(50.0)


def test_audits_are_counted_since_the_certificate(book: Book) -> None:
    """Those of its own rule, workload and target that were compared."""
    made = certificate(at=20.0)
    book.put_certificate(made)
    seen = [
        finding("a1", kind=AUDIT, at=21.0),
        finding("a2", kind=AUDIT, at=22.0, bad=True, equal=False),
        finding("a3", kind=AUDIT, at=23.0, bad=None, equal=None),
        finding("a4", kind=AUDIT, at=19.0, bad=True),
        finding("a5", kind=AUDIT, at=24.0, rule="answer(x)", bad=True),
        finding("s1", at=25.0, bad=True),
    ]
    for one in seen:
        book.add_shadow(one)
    assert book.audits(made) == (2, 1)


def test_another_process_counts_on_what_is_there(ledger: DatabaseLedger) -> None:
    """A ledger that is opened later reads counts, certificates and audits; its own rows are not counted twice."""
    for number in range(5):
        ledger.add_shadow(finding(f"cs-{number}"))
    ledger.put_certificate(certificate())
    ledger.add_shadow(finding("a1", kind=AUDIT, at=21.0, bad=True))
    assert ledger.flush()
    later = DatabaseLedger(str(ledger._store.url.render_as_string(hide_password=False)))
    assert eventually(lambda: later.shadowed("maths", TARGET, DRAFT)) == 5
    assert later.certificates("maths", TARGET) == (certificate(),)
    assert later.audits(certificate()) == (1, 1)
    later.add_shadow(finding("cs-9"))
    later.add_shadow(finding("cs-9", rule="answer(x)"))
    for _ in range(2):
        assert later.shadowed("maths", TARGET, DRAFT) == 6
        later._shadows.refresh_now()
    later.revoke(certificate(), 50.0, "disagrees")
    assert later.flush()
    ledger._shadows.refresh_now()
    assert ledger.certificates("maths", TARGET) == ()
    assert ledger.shadowed("maths", TARGET, DRAFT) == 6
    later.close()


def test_what_is_written_while_the_store_is_read_is_counted_once(ledger: DatabaseLedger) -> None:
    """Whether the row was in the store already when it was read, or not yet."""
    cache = ShadowCache(ledger.read)
    for written in (True, False):
        row = finding(f"cs-{written}")
        plain = cache._read

        def read(row: ShadowRow = row, written: bool = written, plain: Any = plain) -> Any:
            if written:
                ledger.add_shadow(row)
            cache.found(row)
            return plain()

        cache._read = read
        cache.refresh_now()
        cache._read = plain
        ledger.add_shadow(row)
    assert cache.shadowed("maths", TARGET, DRAFT) == 2


def test_a_store_that_is_away_leaves_what_is_known(tmp_path: Path) -> None:
    """Nothing raises, and what this process wrote stands."""
    folder = tmp_path / "ledger.db"
    folder.mkdir()
    ledger = DatabaseLedger(f"sqlite:///{folder}")
    ledger.put_certificate(certificate())
    ledger.add_shadow(finding())
    ledger._shadows.refresh_now()
    assert ledger.certificates("maths", TARGET) == (certificate(),)
    assert ledger.shadowed("maths", TARGET, DRAFT) == 1
    ledger.close()


def test_processes_write_to_one_ledger(url: str) -> None:
    """Every finding of each arrives, and a certificate under one id is kept once."""
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from test_shadow_rows import DatabaseLedger, certificate, finding
        ledger = DatabaseLedger(sys.argv[2])
        for number in range(40):
            ledger.add_shadow(finding(f"cs-{sys.argv[3]}-{number}"))
        ledger.add_shadow(finding("cs-shared"))
        ledger.put_certificate(certificate())
        ledger.revoke(certificate(), float(sys.argv[3]) + 100, "process " + sys.argv[3])
        assert ledger.flush()
        ledger.close()
        """
    )
    folder, processes = str(Path(__file__).parent), 2
    made = [subprocess.Popen([sys.executable, "-c", script, folder, url, str(n)]) for n in range(processes)]
    assert [one.wait(60) for one in made] == [0] * processes
    ledger = DatabaseLedger(url)
    assert len(rows(ledger, "shadows")) == 40 * processes + 1
    (kept,) = ledger.certificate_rows()
    assert kept.revoked_at is not None
    assert kept.revoked_why == f"process {kept.revoked_at - 100:.0f}", "whoever revoked it first"
    ledger.close()


def test_the_fingerprint_is_what_a_reply_says_of_its_writer() -> None:
    """Model and system fingerprint, as far as they are told."""
    assert fingerprint_of("gpt-4o-2024-08-06", "fp_1") == "gpt-4o-2024-08-06/fp_1"
    assert fingerprint_of("m", None) == "m"
    assert fingerprint_of("", "fp_1") == "fp_1"
    assert fingerprint_of(None, "") is None
