"""What can this endpoint do? A few cheap calls with controls; nothing is believed that no reply shows.

Rules
-----
1. Who is it: ``GET /version`` (vLLM), ``GET /model_info`` (SGLang), ``GET /props`` (llama.cpp). None: perhaps a gateway
   in front of one, or an Ollama, whose replies say so and which is asked nothing further. A backend that was named,
   or a host that is known by name, is not asked who it is, but has to show the same.
2. Scoring is tried by the very code that will score, on the target's *own* greedy reply. Its tokens
   must be their own argmax: that catches numbers shifted by one position (llama-cpp-python scores
   each token by the distribution after it), hidden sampling defaults, and other kernels. A corrupted
   copy must not pass: that catches numbers that say yes to everything. What both begin with is scored twice, cold
   and warm, and must be scored alike.
3. Tokenizing must give the prompt that the chat route really used, else the text route is tried.
4. Continuing is tried from the middle of that reply: the continuation must be its rest, or say its beginning again
   and then its rest. A server that closes the turn or begins anew writes something else.
5. Judging needs the log-probabilities of the reply's own tokens, with others beside them.
6. An endpoint that cannot score a chat is asked once for echoed log-probabilities of a text. Where they are real, in
   place or shifted by one, text completions are tried by them; else the user can be told *why* not: refused,
   ignored, placeholders.
7. What it does to the distribution by itself is asked last (:mod:`cheapspec.backends.probe_sampling`).
8. A server that did not answer, or was busy, has shown nothing: reason ``not_probed``, to be repeated.

Billed calls are marked so; together they send some 300 tokens and receive some 40.
"""

from __future__ import annotations

from dataclasses import replace

from cheapspec.backends.echo import is_echoed, read_echo
from cheapspec.backends.facts import Facts
from cheapspec.backends.llamacpp import LlamaCppTarget
from cheapspec.backends.llamacpp_python import LlamaCppPythonTarget
from cheapspec.backends.probe_sampling import DEFAULTS_CALLS, ask_defaults
from cheapspec.backends.probe_steps import Probe
from cheapspec.backends.sglang import SglangTarget
from cheapspec.backends.targets import target_for
from cheapspec.backends.vllm import VllmTarget
from cheapspec.core.effects import HttpRequest, Op
from cheapspec.core.untyped import as_mapping

__all__ = ["PROBE_CALLS", "PROBE_TOKENS", "Facts", "probe", "target_for"]

PROBE_TOKENS = (800, 60)
"""Input and output tokens of a probe, on the long side."""

PROBE_CALLS = (4, 6 + DEFAULTS_CALLS)
"""Billed calls of a probe of one dialect that scores: question, score, corrupted copy and continuation; at most also
the question without log-probabilities, the echo of a text, and those about what it does by itself."""

_ECHO_TEXT = "The capital of France is Paris, and the capital of Spain is"


def probe(model: str, backend: str = "auto") -> Op[Facts]:
    """Ask the target about itself. ``backend``: the dialect that was named, ``auto``: find out. Never raises; a broken
    call ends the probe.
    """
    return (yield from ask_defaults(model, (yield from _probe(model, backend))))


def _probe(model: str, backend: str) -> Op[Facts]:
    match backend:
        case "auto":
            return (yield from _find_out(model))
        case "generic" | "openai":
            return Facts(backend="generic", reason="cannot_score", evidence=("named as one that does not score",))
        case "llamacpp-python":
            return (yield from _completions(model, Facts()))
        case _:
            named = (f"named {backend}, or its host is known as that",)
            return (yield from Probe(model, target_for(backend), backend, named).run())


def _find_out(model: str) -> Op[Facts]:
    version = yield _get("/version")
    if version is None:
        return Facts(reason="not_probed", evidence=("the server did not answer",))
    told: object = as_mapping(version.json()).get("version") if version.status < 300 else None
    if isinstance(told, str):
        return (yield from Probe(model, VllmTarget(), "vllm", (f"GET /version says {told}",)).run())
    info = yield _get("/model_info")
    if info is not None and info.status < 300 and "model_path" in as_mapping(info.json()):
        return (yield from Probe(model, SglangTarget(), "sglang", ("GET /model_info is SGLang's",)).run())
    props = yield _get("/props")
    shown = as_mapping(props.json() if props is not None and props.status < 300 else None)
    if "default_generation_settings" in shown:
        return (yield from Probe(model, LlamaCppTarget(), "llamacpp", ("GET /props is llama.cpp's",)).run())
    evidence = ("none of /version, /model_info and /props is served: a gateway, or another server",)
    facts = yield from Probe(model, VllmTarget(route="text"), "vllm", evidence).run()
    if facts.can_score or facts.reason == "not_probed" or facts.backend == "ollama":
        return facts
    return (yield from _completions(model, replace(facts, backend="generic")))


def _get(path: str) -> HttpRequest:
    return HttpRequest("probe", path, method="GET")


def _completions(model: str, facts: Facts) -> Op[Facts]:
    """What is known of the chat route stands in ``facts``; text completions remain."""
    body = {"model": model, "prompt": _ECHO_TEXT, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    reply = yield HttpRequest("probe", "completions", body, billed=True)
    told = replace(facts, evidence=(*facts.evidence, read_echo(reply, _ECHO_TEXT)))
    if not is_echoed(reply, _ECHO_TEXT):
        return replace(told, reason=told.reason or "cannot_score")
    tried = Probe(model, LlamaCppPythonTarget(shift=0), "llamacpp-python", told.evidence, "completion")
    tried.note("a chat is not scored: nothing renders its template, so only text completions are")
    found = yield from tried.run()
    return found if found.can_score else replace(told, reason=found.reason, evidence=found.evidence)
