"""A drafter along recorded replies, and final answers compared by type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from logkit import body

from cheapspec.backends.ollama import OllamaDrafter
from cheapspec.core.acceptance import DraftToken
from cheapspec.core.drafting import Draft
from cheapspec.core.effects import Usage
from cheapspec.core.lookup import PromptLookup
from cheapspec.core.ports import Drafter, NoDraft
from cheapspec.core.request import Request
from cheapspec.drive.drafts import DraftHosts
from cheapspec.estimating.along import Along, DraftFailed, spoken_of, token_sizes
from cheapspec.estimating.answers import answer_kind, compare
from cheapspec.estimating.cases import Cases
from cheapspec.estimating.logs import Logged
from cheapspec.testing.draft import FakeDraft
from cheapspec.testing.faults import Status
from cheapspec.testing.toy import ToyModel

DRAFTED = "In the old house behind the mill, where the road ends at last, near the river."
SAID = "In the old barn behind the mill, where the road ends at last, near the river."
MESSAGES = ({"role": "user", "content": "Where?"},)
REQUEST = Request("chat", body(), "big", False, MESSAGES)


def logged(text: str = SAID, output: int = 19, finish: str = "stop", **more: object) -> Logged:
    return Logged("a", "chat", {**body(), **more}, text, finish, Usage(9, output))


@pytest.fixture
def host() -> Iterator[FakeDraft]:
    model = ToyModel(3)
    model.replies["Where?"] = DRAFTED
    with FakeDraft(model=model) as server:
        yield server


@pytest.fixture
def along(host: FakeDraft) -> Iterator[Along]:
    with DraftHosts(20) as hosts:
        yield Along([PromptLookup(), OllamaDrafter("toy", host.url)], hosts, 512)


class Wordy(DraftHosts):
    """A draft model that writes :data:`DRAFTED` word by word, from as many words on as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def draft(self, drafter: Drafter, request: Request, prefix: str, max_tokens: int) -> Draft | NoDraft:
        self.asked.append((prefix, max_tokens))
        words = re.findall(r" ?[^ ]+", DRAFTED)[len(prefix.split()) :]
        told = tuple(DraftToken(word, -0.1) for word in words[:max_tokens])
        return Draft(told, drafter.name, "stop" if len(words) < max_tokens else "length")


def test_pieces_are_as_many_as_tokens_were_billed() -> None:
    """Words, halved or joined until their number is right; they join to the text, in bytes."""
    for count in range(1, len(SAID) + 1):
        sizes = token_sizes(SAID, count)
        assert len(sizes) == count and sum(sizes) == len(SAID.encode()) and min(sizes) > 0
    assert len(token_sizes("ab", 9)) == 2  # no piece is less than a character
    assert sum(token_sizes("Größe 你好 12345", 7)) == len("Größe 你好 12345".encode())
    assert token_sizes("", 3) == () and token_sizes("word", 0) == (4,)


def test_the_end_of_the_turn_is_a_token_of_size_nothing() -> None:
    """A reply that ended has one more position than text; one cut by its limit has not."""
    assert spoken_of(logged(output=19)).sizes[-1] == 0
    assert len(spoken_of(logged(output=19)).sizes) == 19
    assert min(spoken_of(logged(output=19, finish="length")).sizes) > 0
    assert spoken_of(replace(logged(), sizes=(70, 7))).sizes == (70, 7, 0)


def test_the_draft_model_is_wrong_at_one_word_only() -> None:
    """It drafts, is corrected, and drafts on from there; the end of its turn agrees too."""
    sizes = tuple(len(word) for word in re.findall(r" ?[^ ]+", SAID))
    with Wordy() as hosts:
        rows = Along([OllamaDrafter("toy", "http://127.0.0.1:1")], hosts, 512).rows(
            REQUEST, spoken_of(replace(logged(), sizes=sizes))
        )
    (row,) = rows.drafts
    assert [at for at, agreed in enumerate(row.agreed) if not agreed] == [3]
    assert row.ends == {len(sizes)} and row.logprobs[:4] == (-0.1,) * 4
    assert rows.written is None
    assert hosts.asked == [("", 16), ("In the old barn", 16), (SAID, 32)]


def test_no_draft_is_longer_than_production_asks_for() -> None:
    """The window doubles with each draft that held whole, up to the longest draft."""
    sizes = tuple(len(word) for word in re.findall(r" ?[^ ]+", DRAFTED))
    with Wordy() as hosts:
        said = spoken_of(replace(logged(DRAFTED), sizes=sizes))
        rows = Along([OllamaDrafter("toy", "http://127.0.0.1:1")], hosts, 8).rows(REQUEST, said)
    assert [window for _, window in hosts.asked] == [8, 8, 8]
    assert rows.drafts[0].agreed == (True,) * (len(sizes) + 1)


def test_rows_come_from_a_real_host_too(along: Along, host: FakeDraft) -> None:
    """A draft model that says the same agrees everywhere, through its own API."""
    said = spoken_of(logged(DRAFTED))
    rows = along.rows(REQUEST, said)
    (row,) = rows.drafts
    assert row.agreed == (True,) * len(said.sizes)
    assert all(logprob is None or logprob <= 0 for logprob in row.logprobs)
    assert [one.drafter for one in rows.statics] == ["lookup"] and rows.written is None
    assert host.of("draft")


def test_its_own_reply_is_written_where_that_is_wanted(along: Along, host: FakeDraft) -> None:
    """Whole, and used as the first draft of the row; not if it never comes to an end."""
    said = spoken_of(logged(SAID, len(host.model.encode(SAID))))
    rows = along.rows(REQUEST, said, whole=True)
    assert rows.written == DRAFTED
    assert along.reply(REQUEST, said) == DRAFTED
    assert along.reply(replace(REQUEST, max_tokens=4), said) is None


def test_the_callers_prediction_is_a_drafter(along: Along) -> None:
    """As in production."""
    rows = along.rows(replace(REQUEST, prediction=SAID), spoken_of(logged()))
    prediction = rows.statics[0]
    assert prediction.drafter == "prediction"
    assert (prediction.right[0] or 0) >= 15


def test_a_host_that_fails_is_said(along: Along, host: FakeDraft) -> None:
    """It is no disagreement of the models."""
    host.plan("draft", Status(500, body={"error": "broken"}), times=1)
    with pytest.raises(DraftFailed, match="broken"):
        along.rows(REQUEST, spoken_of(logged()))


def test_requests_that_go_direct_are_cases_with_a_reason(along: Along, host: FakeDraft) -> None:
    """With the tokens that they were billed, and nobody is asked to draft them."""
    cases = Cases(along)
    tools = cases.case(logged("", 40, tools=[{"type": "function", "function": {"name": "f"}}]))
    assert (tools.reason, tools.trace.reply_tokens, tools.trace.drafts) == ("tools", 40, ())
    assert cases.case(replace(logged(), usage=Usage(9, 90, reasoning_tokens=50))).reason == "reasoning"
    assert cases.case(logged("")).reason == "no_draft"
    unset = logged()
    unset = replace(unset, body={name: value for name, value in unset.body.items() if name != "temperature"})
    assert cases.case(unset).reason == "temperature_unset"
    assert not host.of("draft")
    assumed = Cases(along, assume_temperature=0).case(unset)
    assert (assumed.reason, assumed.rebuilt, len(assumed.trace.drafts)) == ("", True, 1)
    with DraftHosts(20) as hosts:
        assert Cases(Along([], hosts, 512)).case(logged()).reason == "no_draft"


def test_workloads_are_named_by_system_prompt_or_metadata(along: Along) -> None:
    """The same prompt has the same name, and none of its words are in it."""
    cases = Cases(along)
    messages = [{"role": "system", "content": "Be brief."}, *MESSAGES]
    first, second = (cases.case(logged(messages=messages, n=n)).trace.workload for n in (2, 3))
    assert first == second and first.startswith("system ") and "brief" not in first
    assert cases.case(logged(n=2)).trace.workload == "no system prompt"
    tagged = Cases(along, workload="job")
    assert tagged.case(logged(n=2, metadata={"job": "nightly"})).trace.workload == "nightly"
    assert tagged.case(logged(n=2)).trace.workload == "without job"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("So the answer is 42.", "number"),
        ("The total is $1,234.50", "number"),
        ("#### 7\nThat was easy.", "number"),
        ("Two wheels have 64 spokes.", "number"),
        ("It grows by **12 %**.", "number"),
        ('{"a": 1}', "json"),
        ('```json\n{"a": [1]}\n```', "json"),
        ('{"a": 1', None),
        ("Three houses stood there in 1912, or so they say, and burnt.", None),
        ("No numbers here.", None),
        ("", None),
    ],
)
def test_answers_are_compared_only_where_they_mean_something(reply: str, kind: str | None) -> None:
    """JSON, or a number at the end or behind a mark."""
    assert answer_kind(reply) == kind


def test_equality_is_typed() -> None:
    """Other words, other spelling of the number, other order of keys: the same answer."""
    assert compare("number", "I get 1234.5", "The total is $1,234.50").equal
    assert not compare("number", "I get 1234.6", "The total is 1,234.50").equal
    assert not compare("number", "No idea.", "It is 3").valid
    assert compare("json", '{"b": 2, "a": 1.0}', '{"a": 1, "b": 2}').equal
    other = compare("json", '{"a": 2}', '{"a": 1}')
    assert other.valid and not other.equal
    assert not compare("json", "Sorry.", '{"a": 1}').valid
    assert not compare("json", None, '{"a": 1}').valid


def test_a_draft_is_compared_also_where_only_exact_is_barred(along: Along, host: FakeDraft) -> None:
    """Temperature bars the exact rule, not those that look at answers."""
    host.model.replies["Where?"] = "The answer is 1,000."
    number = logged("So it is 1000", 5, temperature=1.7)
    case = Cases(along).case(number)
    assert case.reason == "sampling" and case.compared is not None
    assert case.compared.equal and not case.trace.drafts
    assert Cases(along, answers=False).case(number).compared is None
