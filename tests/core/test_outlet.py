"""The outlet: nothing of a stop string goes out, everything else does, and each character keeps its author."""

from __future__ import annotations

import pytest

from cheapspec.core.effects import Emit, Source
from cheapspec.core.outlet import Outlet

DRAFT, TARGET = Source.DRAFT, Source.TARGET


def test_without_stop_strings_text_passes_at_once() -> None:
    """Nothing is held, nothing is split."""
    outlet = Outlet(())
    assert outlet.feed("ab", DRAFT) == [Emit("ab", DRAFT)]
    assert outlet.feed("", TARGET) == [] and not outlet.holding and outlet.shown == 2


def test_b18_held_text_is_released_with_its_authors() -> None:
    """A false beginning that two sides wrote comes out as two pieces, and part of a piece may go out first."""
    outlet = Outlet(["\nUser:"])
    assert outlet.feed("ok\nUs", DRAFT) == [Emit("ok", DRAFT)]
    assert outlet.holding and outlet.shown == 2
    assert outlet.feed("e!", TARGET) == [Emit("\nUs", DRAFT), Emit("e!", TARGET)]
    assert not outlet.holding and not outlet.hit


@pytest.mark.parametrize("cut", range(1, 12))
def test_b18_a_stop_string_is_found_at_every_cut(cut: int) -> None:
    """Of ``ok\\nUser: hi`` only ``ok`` goes out, wherever the pieces meet; nothing follows a hit."""
    text, outlet = "ok\nUser: hi", Outlet(["\nUser:"])
    out = [*outlet.feed(text[:cut], DRAFT), *outlet.feed(text[cut:], TARGET), *outlet.feed("more", TARGET)]
    assert "".join(piece.text for piece in out + outlet.flush()) == "ok"
    assert outlet.hit and outlet.shown == 2


def test_the_end_releases_what_was_held() -> None:
    """A beginning of a stop string at the end of the reply is text."""
    outlet = Outlet(["abc"])
    assert outlet.feed("xab", TARGET) == [Emit("x", TARGET)]
    assert outlet.flush() == [Emit("ab", TARGET)] and outlet.shown == 3
