"""Findings and certificates as data: when one promises anything, and who wrote a reply."""

from __future__ import annotations

from dataclasses import replace

from cheapspec.core.meter import StreamMeter
from cheapspec.core.shadows import CertificateRow, fingerprint_of

MADE = CertificateRow(
    "ct-1", 10.0, "w", "judge(target)", "letter-1", "d", "t", None, "text", 0.9, 299, 0, 200, 0.01, 0.95, 9.0, 100.0
)


def test_a_certificate_promises_until_it_expires_or_is_revoked() -> None:
    """And nothing where no threshold held."""
    assert MADE.valid(99.0)
    assert not MADE.valid(100.0)
    assert not replace(MADE, revoked_at=50.0).valid(60.0)
    assert not replace(MADE, threshold=None).valid(60.0)


def test_a_fingerprint_is_model_and_system_fingerprint_as_far_as_they_are_told() -> None:
    """Nothing told is nothing known."""
    assert [fingerprint_of(*told) for told in (("m", "fp"), ("m", None), (None, "fp"), ("", None))] == [
        "m/fp",
        "m",
        "fp",
        None,
    ]


def test_a_meter_tells_the_first_choices_visible_text_and_who_wrote_it() -> None:
    """Not thoughts, not arguments, not another choice; of a body that is no stream likewise."""
    meter = StreamMeter("chat", keep_text=True)
    meter.feed(b'data: {"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"reasoning":"hm"}}]}\n\n')
    meter.feed(b'data: {"choices":[{"index":0,"delta":{"content":"It is "}},{"index":1,"delta":{"content":"no"}}]}\n\n')
    meter.feed(b'data: {"choices":[{"index":0,"delta":{"content":"42"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    told = meter.metered()
    assert (told.said, told.fingerprint, told.whole) == ("It is 42", "m/fp", True)
    whole = StreamMeter("chat", keep_text=True)
    whole.feed(b'{"id":"x","model":"m","choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}')
    told = whole.metered()
    assert (told.said, told.fingerprint) == ("42", "m")
    silent = StreamMeter("chat")
    silent.feed(b'data: {"choices":[{"delta":{"content":"42"},"finish_reason":"stop"}]}\n\n')
    assert silent.metered().said == ""
