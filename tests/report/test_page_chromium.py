"""The page in a real browser: Debian's Chromium, headless, without a network."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest
from pagekit import HOSTILE, Document, ledger

from cheapspec.report import report_of
from cheapspec.report.page import page
from cheapspec.report.style import DARK, LIGHT

pytestmark = pytest.mark.services

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--log-level=3",
]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on disk."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(report_of(ledger())), "utf-8")
    return path


def chromium(folder: Path, file: Path, *flags: str) -> str:
    """Opens the page with a profile of its own; returns what the browser printed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "this test needs Chromium: apt-get install chromium"
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_browser_reads_the_document_as_it_is_meant(file: Path, tmp_path: Path) -> None:
    """The rendered tree has the headings, charts and tables in order; a hostile name stayed text."""
    rendered = Document(chromium(tmp_path, file, "--dump-dom"))
    titles = [element.text for element in rendered.all("h2")]
    assert titles == ["Requests", "Money", "Drafts and calls", "Time", "Sessions", "Models"]
    assert len(rendered.all("svg")) == 5
    assert not rendered.all("script")
    assert any(element.text == HOSTILE for element in rendered.all("th"))
    assert next(element.text for element in rendered.all("strong")) == "31 %"


@pytest.mark.parametrize(("scheme", "colours"), [("1", LIGHT), ("0", DARK)], ids=["light", "dark"])
def test_it_looks_as_it_should(file: Path, tmp_path: Path, scheme: str, colours: dict[str, str]) -> None:
    """In light and in dark: its ground, the bars of what was paid, the loss, each kind of request are to be seen."""
    picture = tmp_path / "report.png"
    chromium(
        tmp_path, file, f"--blink-settings=preferredColorScheme={scheme}", "--window-size=640,1500",
        f"--screenshot={picture}",
    )  # fmt: skip
    pixels = counted(picture.read_bytes())
    total = sum(pixels.values())
    assert total == 640 * 1500
    assert pixels[colours["ground"]] > total / 2
    for name, at_least in (
        ("alone", 2_000), ("paid", 1_000), ("bad", 500), ("speculated", 2_000), ("direct", 1_000), ("bypassed", 500),
        ("card", 2_000), ("text", 200),
    ):  # fmt: skip
        assert pixels[colours[name]] > at_least, name


def counted(png: bytes) -> Counter[str]:
    """How often each colour occurs in an eight-bit RGB(A) picture (PNG, W3C Recommendation of 2025, section 9)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind in (2, 6)) == (8, True)
    step, data, place = (3 if kind == 2 else 4), b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    raw, size = zlib.decompress(data), width * step
    found: Counter[str] = Counter()
    above = bytearray(size)
    for y in range(height):
        start = y * (size + 1)
        line = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + size]), above, step)
        found.update(line[x : x + 3].hex() for x in range(0, size, step))
        above = line
    return Counter({f"#{colour}": number for colour, number in found.items()})


def unfiltered(kind: int, line: bytearray, above: bytearray, step: int) -> bytearray:
    """One scanline of a PNG without its filter."""
    if kind == 0:
        return line
    if kind == 2:
        return bytearray((one + other) & 255 for one, other in zip(line, above, strict=True))
    for x in range(len(line)):
        left = line[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        line[x] = (line[x] + (0, left, above[x], (left + above[x]) // 2, paeth(left, above[x], corner))[kind]) & 255
    return line


def paeth(left: int, above: int, corner: int) -> int:
    """The neighbour that is nearest to left + above − corner."""
    guess = left + above - corner
    near = abs(guess - left), abs(guess - above), abs(guess - corner)
    return (left, above, corner)[near.index(min(near))]
