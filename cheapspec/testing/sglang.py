"""A stand-in for SGLang 0.5.23 over a toy model: ``/generate``, ``/tokenize``, ``/detokenize``, ``/model_info``.

Rules
-----
* Field names are those of its source; one that ``GenerateReqInput`` does not have is refused.
* A scoring call reads the prefix cache up to ``logprob_start_len``, in whole blocks of 16 tokens here.
* A last assistant message becomes one of the user's unless ``continue_final_message`` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cheapspec.testing.hosted import best
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.wire import Connection, Exchange, items, mapping

__all__ = ["FakeSglang"]

_FIELDS = frozenset(
    {
        *("rid", "text", "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num"),
        *("token_ids_logprob", "return_text_in_logprobs", "stream", "lora_path", "extra_key", "priority", "cache_salt"),
    }
)
_SAMPLING = frozenset(
    {
        *("max_new_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "n"),
        *("repetition_penalty", "stop", "stop_token_ids", "ignore_eos", "skip_special_tokens", "sampling_seed"),
    }
)


@dataclass
class FakeSglang(FakeTarget):
    """The server."""

    capabilities: Literal["vllm", "no_tokenize", "plain"] = "plain"

    def purpose(self, exchange: Exchange) -> str:
        return "score" if exchange.path == "/generate" else super().purpose(exchange)

    async def handle(self, connection: Connection) -> None:
        body = connection.exchange.body
        match connection.exchange.path:
            case "/generate":
                await self._generate(connection)
            case "/tokenize":
                ids = await self._chat_ids(connection) if "messages" in body else self.model.encode(str(body["prompt"]))
                await connection.answer(200, {"tokens": ids, "count": len(ids), "max_model_len": self.max_model_len})
            case "/detokenize":
                lists = items(body.get("tokens"))
                many = bool(lists) and isinstance(lists[0], list)
                texts = [self.model.decode(one) for one in (lists if many else [lists])]
                await connection.answer(200, {"text": texts if many else texts[0]})
            case "/model_info" | "/get_model_info":
                await connection.answer(200, {"model_path": self.name, "is_generation": True})
            case _:
                await super().handle(connection)

    async def _chat_ids(self, connection: Connection) -> list[int]:
        body = connection.exchange.body
        messages = [dict(mapping(one)) for one in items(body.get("messages"))]
        go_on = bool(body.get("continue_final_message")) and messages[-1].get("role") == "assistant"
        if messages and messages[-1].get("role") == "assistant" and not go_on:
            messages[-1]["role"] = "user"
        return self.model.encode(self.model.render(messages, generate=not go_on, go_on=go_on))

    async def _generate(self, connection: Connection) -> None:
        body = connection.exchange.body
        sampling = mapping(body.get("sampling_params"))
        unknown = sorted((body.keys() - _FIELDS) | (sampling.keys() - _SAMPLING))
        ids: list[int] = items(body.get("input_ids"))
        if unknown or not ids:
            await self._refuse(connection, 400, f"unexpected keyword: {unknown or 'no input_ids'}")
        start, count = int(body.get("logprob_start_len", -1)), int(body.get("top_logprobs_num", 0))
        hits = self._cached(ids, read=True)
        cached = None if hits is None else min(hits, start // 16 * 16 if start >= 0 else hits)
        self._remember(ids)
        limit = int(sampling.get("max_new_tokens", 128))
        steps = [step async for step in self._steps(connection, ids, max(1, limit))]
        written = [step.token for step in steps]
        meta: dict[str, Any] = {"id": f"rid-{next(self._numbers)}", "prompt_tokens": len(ids)}
        meta["completion_tokens"], meta["cached_tokens"] = len(written), cached or 0
        ended = steps[-1].finish == "stop"
        meta["finish_reason"] = {"type": "stop", "matched": written[-1]} if ended else {"type": "length", "length": 1}
        if body.get("return_logprob") and start >= 0:
            given: list[Any] = [[None, ids[start], self.model.decode([ids[start]])]]
            listed: list[Any] = [None]
            for at in range(start + 1, len(ids)):
                values = self.model.logprobs(ids[:at])
                given.append([values[ids[at]], ids[at], self.model.decode([ids[at]])])
                listed.append([[values[one], one, self.model.decode([one])] for one in best(values, count)])
            meta["input_token_logprobs"], meta["input_top_logprobs"] = given, listed
        self._count(connection, len(ids), len(written), cached)
        text = "".join(step.text for step in steps)
        await connection.answer_json({"text": text, "output_ids": written, "meta_info": meta})
