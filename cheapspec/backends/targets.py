"""The targets' dialects by name, and the hosts whose name says which one they speak."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from cheapspec.backends.facts import Facts
from cheapspec.backends.fireworks import FireworksTarget
from cheapspec.backends.generic import GenericTarget
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.llamacpp_python import LlamaCppPythonTarget
from cheapspec.backends.mistral import MistralTarget
from cheapspec.backends.sglang import SglangTarget
from cheapspec.backends.together import TogetherTarget
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.ports import Target
from cheapspec.errors import CapabilityError

__all__ = ["HOSTS", "NAMES", "REAL", "backend_of", "target_for"]

HOSTS = {
    "api.fireworks.ai": "fireworks",
    "api.together.ai": "together",
    "api.together.xyz": "together",
    "api.mistral.ai": "mistral",
}
"""API hosts (their SDKs' base URLs, November 2026) and their dialects."""

_MAKERS: dict[str, Callable[[Facts, bool], Target]] = {
    "vllm": lambda facts, simulate: VllmTarget(end_ids=facts.eos_ids, route=facts.route),
    "sglang": lambda facts, simulate: SglangTarget(end_ids=facts.eos_ids),
    "llamacpp": lambda facts, simulate: LlamaCppTarget(simulate, end_ids=facts.eos_ids),
    "llamacpp-python": lambda facts, simulate: LlamaCppPythonTarget(shift=facts.shift),
    "fireworks": lambda facts, simulate: FireworksTarget(end_ids=facts.eos_ids, says_again=facts.says_again),
    "together": lambda facts, simulate: TogetherTarget(end_ids=facts.eos_ids, says_again=facts.says_again),
    "mistral": lambda facts, simulate: MistralTarget(
        end_ids=facts.eos_ids, says_again=True if facts.says_again is None else facts.says_again
    ),
    "generic": lambda facts, simulate: GenericTarget(),
    "openai": lambda facts, simulate: GenericTarget(),
}
NAMES = tuple(_MAKERS)

REAL = {
    "vllm": "vLLM 0.32.0, by token ids and by text",
    "llamacpp": "llama.cpp build 11549",
}
"""What the dialects have been run against. All others are *experimental*: written after an API's source or SDK, and
tested against stand-ins of the same shape; a probe has to confirm each endpoint in any case."""


def backend_of(host: str) -> str | None:
    """The dialect of an API host that is known by name."""
    return HOSTS.get(host.lower().rstrip("."))


def target_for(name: str, facts: Facts | None = None, *, simulate_scoring: bool = False) -> Target:
    """The dialect of this name, with what a probe found.

    :raises CapabilityError: there is no such dialect.
    """
    make = _MAKERS.get(name)
    if make is None:
        near = get_close_matches(name, NAMES, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise CapabilityError(f"target_backend {name!r} is unknown; {hint}known are {', '.join(NAMES)}.")
    return make(facts or Facts(), simulate_scoring)
