"""Recording on real engines: what stands in a trace is what the models say there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.replies import Engine, Reply, Store, converse, kept_replies
from benchmarks.rows import model_row, static_rows, text_row
from cheapspec.bench.prompts import Prompt
from cheapspec.embedded import EmbeddedServer

CHAT = Prompt("talk", "chat", ("Count from one to four in words.", "Now backwards."))
EDIT = Prompt("edit", "code", ("Write x = 1 twice.\n\n```python\nx = 1\n```",), prediction="x = 1\n")


@pytest.fixture
def target(f16_server: EmbeddedServer) -> Iterator[Engine]:
    engine = Engine(f16_server.url, "target")
    yield engine
    engine.close()


@pytest.fixture
def draft(drop1_server: EmbeddedServer) -> Iterator[Engine]:
    engine = Engine(drop1_server.url, "draft")
    yield engine
    engine.close()


def said(engine: Engine, folder: Path, prompt: Prompt, tokens: int) -> list[Reply]:
    return converse(engine, Store(folder), prompt, tokens)


def test_a_conversation_is_recorded_turn_by_turn_and_kept(target: Engine, tmp_path: Path) -> None:
    """Each turn's prompt holds the turn before, which counts as shared; what is kept is not asked again."""
    first, second = said(target, tmp_path, CHAT, 14)
    assert (first.id, second.id) == ("talk.1", "talk.2")
    assert first.shared == 0
    assert len(first.prompt) < second.shared < len(second.prompt)
    assert second.messages[1] == {"role": "assistant", "content": first.text}
    for reply in (first, second):
        assert sum(reply.sizes) == len(reply.text.encode())
        assert len(reply.sizes) == len(reply.ids) <= 14
        assert (reply.ids[-1] in target.end_ids) == (reply.finish == "stop")
    assert kept_replies(Store(tmp_path), "target", CHAT, 14) == [first, second]
    assert kept_replies(Store(tmp_path), "target", CHAT, 15) == []
    assert kept_replies(Store(tmp_path), "another", CHAT, 14) == []


def test_the_row_of_a_draft_model_is_its_own_choice_at_every_position(
    target: Engine, draft: Engine, tmp_path: Path
) -> None:
    """One forced pass tells what asking the model at each position by itself would tell."""
    [reply] = said(target, tmp_path, EDIT, 18)
    row = model_row(draft, reply, "d")
    for at, own in enumerate(reply.ids):
        alone = draft.generate([*reply.prompt, *reply.ids[:at]], 1)[0]
        assert row.agreed[at] == (alone.id == own or (alone.end and own in draft.end_ids)), at
        assert (at in row.ends) == alone.end, at
        if not alone.end:
            assert row.logprobs[at] == pytest.approx(alone.logprob, abs=0.02), at


def test_the_target_itself_agrees_with_all_that_it_said(target: Engine, tmp_path: Path) -> None:
    """Drafting with the target's own weights is right everywhere, by ids and by text alike."""
    [reply] = said(target, tmp_path, EDIT, 18)
    assert all(model_row(target, reply, "d").agreed)
    by_text = text_row(target, reply, "d")
    assert sum(bit is True for bit in by_text.agreed) >= len(reply.ids) - 1  # a border inside white space may cost one


def test_given_text_is_counted_in_the_targets_tokens(target: Engine, tmp_path: Path) -> None:
    """Lookup has a row for every reply, prediction for those that carry one; neither claims more than there is."""
    [reply] = said(target, tmp_path, EDIT, 18)
    lookup, prediction = static_rows(target, reply)
    assert (lookup.drafter, prediction.drafter) == ("lookup", "prediction")
    for row in (lookup, prediction):
        assert len(row.proposed) == len(row.right) == len(reply.ids)
        for at, (proposed, right) in enumerate(zip(row.proposed, row.right, strict=True)):
            assert proposed is not None
            assert right is not None
            assert 0 <= right <= proposed
            assert at + right <= len(reply.ids)
    assert len(static_rows(target, said(target, tmp_path, CHAT, 14)[0])) == 1
