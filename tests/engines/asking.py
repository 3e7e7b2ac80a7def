"""One request, asked of the target alone and through cheapspec, and the record of what came out.

* :func:`ask_alone`: plain ``openai.OpenAI``. :func:`ask`: ``cheapspec``, in one of four :data:`MODES`.
* :class:`Evidence` collects every run. At the end of the session it prints one table, and writes it to
  ``docs/engines.md`` when ``CHEAPSPEC_TEST_WRITE_DOCS`` is set: that page is never written by hand.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from prompts import Prompt

from cheapspec import AsyncOpenAI, OpenAI, Speculation, info
from cheapspec.core.info import Info
from cheapspec.ledger.memory import CallRecord, MemoryLedger

__all__ = ["MODES", "Evidence", "Reply", "Run", "ask", "ask_alone", "evidence_of"]

MODES = ("sync", "sync-stream", "async", "async-stream")
PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
TIMEOUT = 300.0


@dataclass(frozen=True)
class Reply:
    """What a caller sees. ``pieces``: texts of the chunks of a stream that brought text."""

    text: str
    finish: str | None
    prompt_tokens: int
    completion_tokens: int
    pieces: tuple[str, ...] = ()

    def same(self, other: Reply) -> bool:
        """Equal in all that is promised: text, how it ended, and both counts of tokens."""
        return self.seen() == other.seen()

    def seen(self) -> tuple[str, str | None, int, int]:
        """Without how it was cut into chunks."""
        return self.text, self.finish, self.prompt_tokens, self.completion_tokens


@dataclass(frozen=True)
class Run:
    """One request through cheapspec, with its facts and its calls; ``alone`` is the target's own reply to it."""

    prompt: Prompt
    combination: str
    reply: Reply
    alone: Reply
    told: Info
    calls: tuple[CallRecord, ...]
    stops: bool = False

    @property
    def equal(self) -> bool:
        """The reply is the target's own."""
        return self.reply.same(self.alone)

    @property
    def excused(self) -> bool:
        """It went direct, because nothing of a draft could be verified: the target's own reply begins with a
        character of several tokens, whose first one is neither text nor, at llama.cpp, numbered.
        """
        begins = self.alone.text.lstrip()[:1]  # a space before it may be part of its first token
        reasons = ("rejected", "cannot_score", "no_draft")
        return self.told.decision == "direct" and self.told.reason in reasons and not begins.isascii()

    @property
    def ended(self) -> bool:
        """The end of the turn was verified: the reply stopped by itself, and the target was not asked to go on."""
        return self.reply.finish == "stop" and not self.stops and "continue" not in self.purposes()

    def purposes(self) -> list[str]:
        """What the billed calls were for, in order."""
        return [call.row.purpose for call in self.calls if call.row.billed]

    def used(self, purpose: str) -> list[Any]:
        """The usage of each call of this purpose."""
        return [call.usage for call in self.calls if call.row.purpose == purpose]


def _route(client: Any, body: Mapping[str, Any]) -> Any:
    return client.chat.completions if "messages" in body else client.completions


def _whole(reply: Any) -> Reply:
    choice = reply.choices[0]
    text = choice.message.content if hasattr(choice, "message") else choice.text
    return Reply(text or "", choice.finish_reason, reply.usage.prompt_tokens, reply.usage.completion_tokens)


@dataclass
class _Stream:
    """Takes chunks as any caller would."""

    pieces: list[str] = field(default_factory=list[str])
    finish: str | None = None
    usage: Any = None

    def add(self, chunk: Any) -> None:
        choices: list[Any] = chunk.choices or []
        for choice in choices:
            text = choice.delta.content if hasattr(choice, "delta") else choice.text
            if text:
                self.pieces.append(text)
            self.finish = choice.finish_reason or self.finish
        self.usage = chunk.usage or self.usage

    def reply(self) -> Reply:
        assert self.usage is not None, "a stream whose usage was asked for reports it"
        text = "".join(self.pieces)
        return Reply(text, self.finish, self.usage.prompt_tokens, self.usage.completion_tokens, tuple(self.pieces))


_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def ask_alone(api_base: str, body: Mapping[str, Any], *, stream: bool = False) -> Reply:
    """The target's own reply. ``api_base``: ``http://host:port/v1``; ``body`` names the model."""
    with openai.OpenAI(base_url=api_base, api_key="none", timeout=TIMEOUT, max_retries=0) as client:
        create = _route(client, body).create
        return _joined(create(**body, **_STREAMED)) if stream else _whole(create(**body))


def _joined(chunks: Iterable[Any]) -> Reply:
    stream = _Stream()
    for chunk in chunks:
        stream.add(chunk)
    return stream.reply()


def ask(
    api_base: str, body: Mapping[str, Any], mode: str, **settings: Any
) -> tuple[Reply, Info, tuple[CallRecord, ...]]:
    """The same through cheapspec, with ``Speculation(**settings)``: the reply, its facts, its calls in the ledger."""
    ledger = MemoryLedger()
    given: dict[str, Any] = {"ledger": ledger, "draft_timeout": TIMEOUT, **settings}
    speculation = Speculation(**given)
    options: dict[str, Any] = {"base_url": api_base, "api_key": "none", "timeout": TIMEOUT, "max_retries": 0}
    asked = dict(body)
    if mode.endswith("stream"):
        asked |= _STREAMED
    if mode.startswith("async"):
        reply, told = asyncio.run(_ask_async(options, asked, speculation))
    else:
        with OpenAI(**options, speculation=speculation) as client:
            answer = _route(client, asked).create(**asked)
            reply = _joined(answer) if "stream" in asked else _whole(answer)
            told = info(answer)
    assert told is not None, "every reply has facts"
    return reply, told, tuple(ledger.calls(told.request_id))


async def _ask_async(options: dict[str, Any], asked: dict[str, Any], speculation: Speculation) -> Any:
    async with AsyncOpenAI(**options, speculation=speculation) as client:
        answer = await _route(client, asked).create(**asked)
        if "stream" not in asked:
            return _whole(answer), info(answer)
        stream = _Stream()
        async for chunk in answer:
            stream.add(chunk)
        return stream.reply(), info(answer)


# --- the record ------------------------------------------------------------------------------------


class Evidence:
    """All runs of a session by group (target and route), and their table."""

    HEAD = ("target", "prompts", "runs", "rounds", "accepted", "corrected", "handed off", "ends", "equal", "ties")

    def __init__(self) -> None:
        self.groups: dict[str, list[Run]] = {}
        self.ties: dict[str, list[float]] = {}

    def add(self, group: str, run: Run) -> Run:
        """Keep a run."""
        self.groups.setdefault(group, []).append(run)
        return run

    def tie(self, group: str, gap: float) -> None:
        """A run that differs was shown to be a tie: ``gap`` in nats between the two tokens."""
        self.ties.setdefault(group, []).append(gap)

    def rows(self) -> list[tuple[str, ...]]:
        """The table: one row a group, counts of tokens and of runs."""
        rows: list[tuple[str, ...]] = []
        for group, runs in sorted(self.groups.items()):
            told = [run.told for run in runs]
            gaps = self.ties.get(group, [])
            counts = (
                len({run.prompt.name for run in runs}),
                len(runs),
                sum(one.rounds for one in told),
                sum(one.accepted_tokens for one in told),
                sum(one.corrected_tokens for one in told),
                sum(one.handoff_tokens for one in told),
                sum(run.ended for run in runs),
                sum(run.equal for run in runs),
            )
            ties = f"{len(gaps)} (gap ≤ {max(gaps):.3f})" if gaps else "0"
            rows.append((group, *map(str, counts), ties))
        return rows

    def page(self) -> str:
        """The page of the documentation."""
        lines = [" | ".join(row) for row in (self.HEAD, ("---",) * len(self.HEAD), *self.rows())]
        return _PAGE.format(table="\n".join(f"| {line} |" for line in lines))

    # --- pytest's hooks --------------------------------------------------------------------------

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        rows = [self.HEAD, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.HEAD))]
        terminalreporter.section("target alone against cheapspec")
        for row in rows:
            first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line("  ".join([first, *rest]).rstrip())

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the page, after a run without a failure only."""
        if os.environ.get("CHEAPSPEC_TEST_WRITE_DOCS") and exitstatus == pytest.ExitCode.OK:
            PAGE.write_text(self.page(), "utf-8")


def evidence_of(config: pytest.Config) -> Evidence:
    """The session's record, made when first asked for."""
    found: Evidence | None = config.pluginmanager.get_plugin("cheapspec-evidence")
    if found is None:
        found = Evidence()
        config.pluginmanager.register(found, "cheapspec-evidence")
    return found


_PAGE = """# Equality with the target alone, on real engines

Written by `CHEAPSPEC_TEST_WRITE_DOCS=1 make engines`; do not edit. Every run asks one prompt twice, once of the
target alone through `openai.OpenAI` and once through `cheapspec.OpenAI` or `AsyncOpenAI`, streamed or not. *Equal*
counts the runs whose text, finish reason, prompt tokens and completion tokens are the target's own. *Ties* are
differences at a position where the target's own log-probabilities of the two tokens are as near as stated, in nats.
*Ends* counts the replies whose end of turn was drafted and verified. Direct replies are not counted.

{table}
"""
