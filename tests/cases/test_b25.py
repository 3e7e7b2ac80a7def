"""B25: entries that do not line up with the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from casepair import Pair

from cheapspec.testing.wire import Action, items, mapping

REPLY = "One, two, three in Paris."


class Positions(Action):
    """Changes the list of scored positions, wherever the reply keeps it."""

    def change(self, positions: list[Any]) -> list[Any]:
        raise NotImplementedError

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        for holder in (data, *items(data.get("choices"))):
            if holder.get("prompt_logprobs"):
                holder["prompt_logprobs"] = self.change(items(holder["prompt_logprobs"]))
        return data


class Thoughts(Positions):
    """Entries for tokens that are not in the text stand before the answer's."""

    def change(self, positions: list[Any]) -> list[Any]:
        thought = {"60": {"logprob": -0.1, "rank": 1, "decoded_token": "<think>"}}
        return [*positions[:-6], thought, thought, *positions[-6:]]


class Shifted(Positions):
    """Every entry stands one place too early."""

    def change(self, positions: list[Any]) -> list[Any]:
        return [positions[0], *positions[2:], positions[-1]]


class Renamed(Positions):
    """The tokens are other ones than those that were sent."""

    def change(self, positions: list[Any]) -> list[Any]:
        return [
            position
            and {str(int(key) + 1): {**entry, "decoded_token": "x"} for key, entry in mapping(position).items()}
            for position in positions
        ]


class Legacy(Action):
    """The shape of text completions in a chat reply, and nothing else."""

    def reply(self, data: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        data.pop("prompt_logprobs", None)
        for choice in items(data.get("choices")):
            choice.pop("prompt_logprobs", None)
            choice["logprobs"] = {"tokens": ["One", ",", " two"], "token_logprobs": [-0.1, -0.1, -0.1]}
        return data


@pytest.mark.parametrize("fault", [Thoughts(), Shifted(), Renamed(), Legacy()], ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("draft", [REPLY, "One, two, four in Rome."], ids=["right", "wrong"])
def test_b25ab_misaligned_entries_prove_nothing(draft: str, fault: Action, any_pair: Pair) -> None:
    """Numbers of other tokens than the draft's are no evidence, even where the draft happens to be right."""
    any_pair.says(REPLY, draft)
    any_pair.target.plan("score", fault)
    outcome = any_pair.ask()
    assert outcome.error is None
    assert outcome.text == REPLY
    assert outcome.told.accepted_tokens == 0
    assert outcome.told.decision == "direct"


class Spread(Action):
    """Draft lines of which one carries three entries and another an entry but no text (Ollama, thinking models)."""

    async def frames(self, frames: Any, connection: Any) -> Any:
        held: list[Any] = []
        async for frame in frames:
            if frame.get("done"):
                break
            held.append(frame)
        name = "message" if "message" in held[0] else "response"
        texts = [frame[name]["content"] if name == "message" else frame[name] for frame in held]
        entries = [entry for frame in held for entry in frame.get("logprobs", [])]

        def line(text: str, logprobs: list[Any]) -> dict[str, Any]:
            said = {"role": "assistant", "content": text} if name == "message" else text
            return {**held[0], name: said, "logprobs": logprobs}

        yield line("".join(texts[:3]), entries[:3])
        yield line("", entries[3:4])
        yield line("".join(texts[3:]), entries[4:])
        yield {**line("", []), "done": True, "done_reason": "stop"}


def test_b25cd_a_drafts_entries_are_joined_across_lines(pair: Pair) -> None:
    """However a draft's entries are spread over its lines, the text is used whole and the reply is right."""
    pair.says(REPLY)
    pair.draft.plan("draft", Spread())
    outcome = pair.ask()
    assert outcome.text == REPLY
    assert outcome.told.decision == "speculate"
    assert outcome.told.accepted_tokens > 0
