"""Tests of other people's clients: each file in an environment of its own, which ``make compat`` makes.

``CHEAPSPEC_TEST_COMPAT=NAME`` collects ``test_compat_NAME.py`` and no other: the clients' requirements conflict, and
the project's own environment has none of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_pair import Pair
from tool_relay import tool_relay

from cheapspec.embedded import EmbeddedServer
from cheapspec.testing.ollama import SMOLLM2, StandInOllama

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it fetches a price list

_chosen = f"test_compat_{os.environ.get('CHEAPSPEC_TEST_COMPAT', '')}.py"
collect_ignore = [path.name for path in Path(__file__).parent.glob("test_compat_*.py") if path.name != _chosen]


@pytest.fixture(scope="session")
def draft_host(q4_1_server: EmbeddedServer) -> Iterator[str]:
    """The stand-in Ollama's URL."""
    with StandInOllama(q4_1_server.url, models=[SMOLLM2]) as host:
        yield host.url


@pytest.fixture
def pair(f16_server: EmbeddedServer, draft_host: str) -> Iterator[Pair]:
    """Target, draft and an empty ledger."""
    with tool_relay(f16_server.url) as relay:
        yield Pair(f16_server, draft_host, relay)
