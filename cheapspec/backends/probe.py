"""What can this endpoint do? A few cheap calls with controls; nothing is believed that no reply shows.

Rules
-----
1. Who is it: ``GET /version`` (vLLM), ``GET /props`` (llama.cpp). Neither: perhaps a gateway in front of one,
   or an Ollama, whose replies say so and which is asked nothing further.
2. Scoring is tried by the very code that will score, on the target's *own* greedy reply. Its tokens
   must be their own argmax: that catches numbers shifted by one position (llama-cpp-python scores
   each token by the distribution after it), hidden sampling defaults, and other kernels. A corrupted
   copy must not pass: that catches numbers that say yes to everything.
3. Tokenizing must give the prompt that the chat route really used, else the text route is tried.
4. Continuing is tried from the middle of that reply: the continuation must be its rest. A server that
   closes the turn or begins again writes something else.
5. An endpoint that cannot score is asked once for echoed log-probabilities, so that the user can be told
   *why* not: refused, ignored, or given but shifted.
6. A server that did not answer, or was busy, has shown nothing: reason ``not_probed``, to be repeated.

Billed calls are marked so; together they send some 300 tokens and receive some 25.
"""

from __future__ import annotations

from dataclasses import replace

from cheapspec.backends.echo import read_echo
from cheapspec.backends.facts import Facts
from cheapspec.backends.generic import GenericTarget
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.probe_steps import Probe
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.effects import HttpRequest, Op
from cheapspec.core.ports import Target
from cheapspec.core.untyped import as_mapping
from cheapspec.errors import CapabilityError

__all__ = ["Facts", "probe", "target_for"]

_ECHO_TEXT = "The capital of France is Paris, and the capital of Spain is"


def target_for(name: str, facts: Facts | None = None, *, simulate_scoring: bool = False) -> Target:
    """The dialect of this name: ``vllm``, ``llamacpp``, ``generic`` or ``openai``.

    :raises CapabilityError: there is no such dialect.
    """
    ends = facts.eos_ids if facts is not None else ()
    match name:
        case "vllm":
            return VllmTarget(end_ids=ends, route=facts.route if facts is not None else None)
        case "llamacpp":
            return LlamaCppTarget(simulate_scoring, end_ids=ends)
        case "generic" | "openai":
            return GenericTarget()
        case _:
            raise CapabilityError(f"target_backend {name!r} is unknown; known are vllm, llamacpp, generic, openai.")


def probe(model: str) -> Op[Facts]:
    """Ask the target about itself. Never raises; a broken call ends the probe."""
    version = yield _get("/version")
    if version is None:
        return Facts(reason="not_probed", evidence=("the server did not answer",))
    told: object = as_mapping(version.json()).get("version") if version.status < 300 else None
    if isinstance(told, str):
        return (yield from Probe(model, VllmTarget(), "vllm", (f"GET /version says {told}",)).run())
    props = yield _get("/props")
    shown = as_mapping(props.json() if props is not None and props.status < 300 else None)
    if "default_generation_settings" in shown:
        window: object = as_mapping(shown["default_generation_settings"]).get("n_ctx")
        found = Probe(model, LlamaCppTarget(), "llamacpp", ("GET /props is llama.cpp's",))
        found.facts = replace(found.facts, max_context=window if isinstance(window, int) else None)
        return (yield from found.run())
    evidence = ("neither /version nor /props is served: a gateway, or another server",)
    facts = yield from Probe(model, VllmTarget(route="text"), "vllm", evidence).run()
    if facts.can_score or facts.reason == "not_probed" or facts.backend == "ollama":
        return facts
    return (yield from _why_not(model, facts))


def _get(path: str) -> HttpRequest:
    return HttpRequest("probe", path, method="GET")


def _why_not(model: str, facts: Facts) -> Op[Facts]:
    body = {"model": model, "prompt": _ECHO_TEXT, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    reply = yield HttpRequest("probe", "completions", body, billed=True)
    return replace(facts, backend="generic", evidence=(*facts.evidence, read_echo(reply, _ECHO_TEXT)))
