"""Draft calls on their own thread: events, limits, giving up, lingering."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import pytest

from cheapspec.core.effects import Answered, Broke, Closed, Event, HttpRequest, Opened, Received
from cheapspec.drive.local import LocalHosts
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import CutAfter, Status
from cheapspec.testing.server import refusing_url
from cheapspec.testing.toy import ToyModel

PS = HttpRequest("draft", "/api/ps", method="GET")
WRITE = HttpRequest(
    "draft",
    "/api/chat",
    {"model": "toy", "messages": [{"role": "user", "content": "Where?"}], "options": {"temperature": 0}},
    stream=True,
)


@pytest.fixture
def hosts() -> Iterator[LocalHosts]:
    made = LocalHosts()
    yield made
    made.close()


@pytest.fixture
def draft() -> Iterator[FakeDraft]:
    with FakeDraft(model=ToyModel(3)) as server:
        server.model.replies["Where?"] = "In Paris, one two three."
        yield server


class Inbox:
    """Where events come in, to be taken with patience."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def take(self) -> Event:
        return self.events.get(timeout=10)

    def until_end(self) -> list[Event]:
        taken = [self.take()]
        while not isinstance(taken[-1], Answered | Closed | Broke):
            taken.append(self.take())
        return taken

    def silent(self, seconds: float) -> bool:
        try:
            self.events.get(timeout=seconds)
        except queue.Empty:
            return True
        return False


def test_events_of_both_kinds_of_call(hosts: LocalHosts, draft: FakeDraft) -> None:
    """An unstreamed call gives one answer; a streamed one opens, receives and closes, stamped in order."""
    inbox = Inbox()
    hosts.submit(7, draft.url, PS, inbox.events.put, 2)
    [answered] = inbox.until_end()
    assert isinstance(answered, Answered)
    assert (answered.call_id, answered.reply.status) == (7, 200)
    hosts.submit(8, draft.url, WRITE, inbox.events.put, 2)
    events = inbox.until_end()
    assert isinstance(events[0], Opened)
    assert isinstance(events[-1], Closed)
    assert b"Paris" in b"".join(event.data for event in events if isinstance(event, Received))
    times = [event.at for event in events]
    assert times == sorted(times)
    assert {event.call_id for event in events} == {8}  # type: ignore[union-attr]


def test_failures_are_events(hosts: LocalHosts, draft: FakeDraft) -> None:
    """An error status is an answer, a refused connection and a cut stream break: nothing raises."""
    inbox = Inbox()
    draft.plan("draft", Status(503), times=1)
    hosts.submit(1, draft.url, WRITE, inbox.events.put, 2)
    [answered] = inbox.until_end()
    assert isinstance(answered, Answered)
    assert answered.reply.status == 503
    draft.plan("draft", CutAfter(2), times=1)
    hosts.submit(2, draft.url, WRITE, inbox.events.put, 2)
    assert isinstance(inbox.until_end()[-1], Broke)
    with refusing_url() as url:
        hosts.submit(3, url, WRITE, inbox.events.put, 2)
        [broke] = inbox.until_end()
    assert isinstance(broke, Broke)
    assert broke.kind == "connect"
    hosts.submit(4, "ftp://127.0.0.1:9", WRITE, inbox.events.put, 2)
    [broke] = inbox.until_end()
    assert isinstance(broke, Broke)


def test_a_host_at_its_limit_is_busy(hosts: LocalHosts, draft: FakeDraft) -> None:
    """A third stream waits a tenth of a second, then is told so; unstreamed calls are not limited."""
    draft.latency = 20.0
    inbox = Inbox()
    open_calls = [hosts.submit(number, draft.url, WRITE, inbox.events.put, 2) for number in (1, 2)]
    assert draft.wait_for(lambda: len(draft.of("draft")) == 2)
    late = Inbox()
    hosts.submit(3, draft.url, WRITE, late.events.put, 2)
    [busy] = late.until_end()
    assert isinstance(busy, Broke)
    assert busy.kind == "busy"
    hosts.submit(4, draft.url, PS, late.events.put, 2)
    assert isinstance(late.take(), Answered)
    open_calls[0].cancel()
    assert draft.wait_for(lambda: any(exchange.hung_up for exchange in draft.of("draft")))
    hosts.submit(5, draft.url, WRITE, late.events.put, 2)
    assert draft.wait_for(lambda: len(draft.of("draft")) == 3)


def test_clients_with_different_limits_share_one_count(hosts: LocalHosts, draft: FakeDraft) -> None:
    """Two clients with limits 2 and 3 never make a host write five drafts: each counts all that it writes."""
    draft.latency = 20.0
    inbox = Inbox()
    calls = [hosts.submit(number, draft.url, WRITE, inbox.events.put, 2) for number in (1, 2)]
    assert draft.wait_for(lambda: len(draft.of("draft")) == 2)
    hosts.submit(3, draft.url, WRITE, inbox.events.put, 3)
    assert draft.wait_for(lambda: len(draft.of("draft")) == 3)
    for number, limit in ((4, 3), (5, 2)):
        late = Inbox()
        hosts.submit(number, draft.url, WRITE, late.events.put, limit)
        [busy] = late.until_end()
        assert isinstance(busy, Broke)
        assert (busy.call_id, busy.kind) == (number, "busy")
    calls[0].cancel()
    assert draft.wait_for(lambda: any(exchange.hung_up for exchange in draft.of("draft")))
    hosts.submit(6, draft.url, WRITE, inbox.events.put, 3)
    assert draft.wait_for(lambda: len(draft.of("draft")) == 4)


def test_a_call_given_up_is_silent_and_closed(hosts: LocalHosts, draft: FakeDraft) -> None:
    """Nothing is heard of it, and the host sees the hang-up. Giving up twice, or after the end, is harmless."""
    draft.token_seconds = 0.05
    inbox = Inbox()
    call = hosts.submit(1, draft.url, WRITE, inbox.events.put, 2)
    assert isinstance(inbox.take(), Opened)
    call.cancel()
    call.cancel()
    [exchange] = draft.of("draft")
    assert draft.wait_for(lambda: exchange.hung_up)
    while not inbox.silent(0.3):
        pass
    call.cancel(linger=True)
    assert not hosts.loading(draft.url)


def test_a_lingering_call_lets_the_model_load(hosts: LocalHosts) -> None:
    """A call given up during a load goes on unheard; the host counts as loading until then."""
    with FakeDraft(model=ToyModel(3), cold=0.6) as draft:
        inbox = Inbox()
        call = hosts.submit(1, draft.url, WRITE, inbox.events.put, 2)
        assert draft.wait_for(lambda: draft.load_starts == 1)
        call.cancel(linger=True)
        assert hosts.loading(draft.url)
        assert not hosts.loading("http://elsewhere")
        assert draft.wait_for(lambda: not hosts.loading(draft.url), 8.0)
        assert inbox.silent(0.0)
        assert draft.load_starts == 1
        assert not draft.of("draft")[0].hung_up


def test_closing_ends_calls_and_may_come_again(draft: FakeDraft) -> None:
    """``close`` hangs up on what is open and waits for the thread; the next call starts another."""
    hosts = LocalHosts()
    hosts.close()
    draft.latency = 20.0
    inbox = Inbox()
    hosts.submit(1, draft.url, WRITE, inbox.events.put, 2)
    assert draft.wait_for(lambda: len(draft.of("draft")) == 1)
    hosts.close()
    assert draft.wait_for(lambda: draft.of("draft")[0].hung_up)
    again = Inbox()
    hosts.submit(2, draft.url, PS, again.events.put, 2)
    assert isinstance(again.take(), Answered)
    hosts.close()


def test_soon_runs_on_the_thread_or_at_once(hosts: LocalHosts, draft: FakeDraft) -> None:
    """What a finalizer hands over is run: elsewhere while the thread lives, else here."""
    ran: list[int] = []
    hosts.soon(lambda: ran.append(1))
    assert ran == [1]
    inbox = Inbox()
    hosts.submit(1, draft.url, PS, inbox.events.put, 2)
    inbox.take()
    hosts.soon(lambda: ran.append(2))
    deadline = time.monotonic() + 5
    while ran != [1, 2] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ran == [1, 2]
