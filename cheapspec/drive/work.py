"""What a request is driven with: a run of the engine, or a climb of the ladder. Both speak the same effects."""

from __future__ import annotations

from typing import TypeAlias

from cheapspec.core import engine
from cheapspec.core.engine import Job, Run
from cheapspec.rules import ladder
from cheapspec.rules.ladder import Ladder

__all__ = ["Work", "begin"]

Work: TypeAlias = Job | Ladder


def begin(work: Work) -> Run:
    """Start it."""
    return ladder.run(work) if isinstance(work, Ladder) else engine.run(work)
