"""What the fuzz tests share: how often, how replies are spoiled, and the exchanges that are spoiled.

``CHEAPSPEC_FUZZ=N`` makes every test try N times as many examples (the default keeps all of them within a minute of
one core). Examples are derived from the test itself (``derandomize``), so a run repeats; a found one is a failing test
for good.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
from hypothesis import HealthCheck, settings

from cheapspec.backends.facts import Facts
from cheapspec.core.effects import HttpReply, HttpRequest, Op
from cheapspec.core.ports import Decoder, Target
from cheapspec.core.request import Request
from cheapspec.testing.hosted import FakeFireworks, FakeLlamaCppPython, FakeMistral, FakeTogether
from cheapspec.testing.sglang import FakeSglang
from cheapspec.testing.target import FakeTarget
from cheapspec.testing.toy import ToyModel

T = TypeVar("T")
P = TypeVar("P")

TIMES = int(os.environ.get("CHEAPSPEC_FUZZ", "1"))
MODEL = ToyModel(3)
JUNK: list[Any] = [
    *(None, True, False, "", "x", "\ud800", "\ufffd", [], {}, [[]], [None], {"": None}, [{}], "é🙂", "<think>"),
    *(
        0,
        -1,
        7,
        2**63,
        10**400,
        -(10**400),
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        float("-inf"),
        -9999.0,
        "-0.1",
        "NaN",
    ),
]


def often(examples: int) -> settings:
    """So many examples, or ``CHEAPSPEC_FUZZ`` times as many."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples * TIMES, deadline=None, derandomize=True, database=None, suppress_health_check=quiet
    )


# --- spoiling ------------------------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*path, index))


def spoil(value: Any, source: random.Random, times: int) -> Any:
    """The value with parts removed, replaced, repeated, cut off or turned round."""
    value = copy.deepcopy(value)
    for _ in range(times):
        path = source.choice(list(places(value)))
        if not path:
            if source.random() < 0.1:
                return copy.deepcopy(source.choice(JUNK))
            continue
        parent: Any = value
        for step in path[:-1]:
            parent = parent[step]
        spot, kind = path[-1], source.randrange(6)
        old = parent[spot]
        if kind == 0:
            del parent[spot]
        elif kind == 1 and isinstance(old, list) and old:
            parent[spot] = old[: source.randrange(len(old))]
        elif kind == 2 and isinstance(old, list):
            parent[spot] = list(reversed(old))
        elif kind == 3 and isinstance(parent, list):
            parent.insert(spot, copy.deepcopy(old))
        elif kind == 4 and isinstance(old, list):
            parent[spot] = old + old
        else:
            parent[spot] = copy.deepcopy(source.choice(JUNK))
    return value


def without_numbers(value: Any, junk: Any) -> Any:
    """The value with every number that is no whole one replaced: whatever it was evidence of, it no longer is."""
    if isinstance(value, dict):
        return {key: without_numbers(item, junk) for key, item in value.items()}
    if isinstance(value, list):
        return [without_numbers(item, junk) for item in value]
    return junk if isinstance(value, float) else value


def body_of(value: Any) -> bytes:
    """As a server sends it; what JSON cannot carry goes out in Python's spelling, lone surrogates escaped."""
    return json.dumps(value).encode()


# --- exchanges -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    """A dialect's operation with the replies of a healthy server."""

    name: str
    make: Callable[[], Target]
    request: Request
    replies: tuple[tuple[HttpRequest, HttpReply], ...]

    @property
    def bodies(self) -> list[Any]:
        """The replies' JSON."""
        return [reply.json() for _, reply in self.replies]


def play(op: Op[T], answer: Callable[[int, HttpRequest], HttpReply | None]) -> T:
    """The result of an operation whose calls are answered; at most 50 calls."""
    try:
        call = next(op)
        for number in range(50):
            call = op.send(answer(number, call))
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the operation does not end")


def served(base: str, root: str) -> Callable[[int, HttpRequest], HttpReply]:
    """Answers of a server over HTTP."""

    def answer(number: int, call: HttpRequest) -> HttpReply:
        url = root + call.path if call.path.startswith("/") else f"{base}/{call.path}"
        reply = httpx2.request(call.method, url, json=call.body)
        return HttpReply(reply.status_code, reply.content)

    return answer


SERVERS: dict[str, tuple[Callable[[], FakeTarget], str, Facts]] = {
    "vllm by ids": (lambda: FakeTarget(model=MODEL), "vllm", Facts(route="ids")),
    "vllm by text": (lambda: FakeTarget(model=MODEL, capabilities="no_tokenize"), "vllm", Facts(route="text")),
    "sglang": (lambda: FakeSglang(model=MODEL), "sglang", Facts()),
    "fireworks": (lambda: FakeFireworks(model=MODEL), "fireworks", Facts()),
    "together": (lambda: FakeTogether(model=MODEL), "together", Facts()),
    "mistral": (lambda: FakeMistral(model=MODEL), "mistral", Facts()),
    "llamacpp-python": (lambda: FakeLlamaCppPython(model=MODEL, shift=0), "llamacpp-python", Facts(shift=0)),
}


def splits(data: bytes, source: random.Random) -> list[bytes]:
    """The bytes in parts, cut anywhere."""
    cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(9)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def decoded(decoder: Decoder[P], parts: list[bytes]) -> list[P]:
    """All pieces."""
    return [piece for part in parts for piece in decoder.feed(part)] + decoder.close()
