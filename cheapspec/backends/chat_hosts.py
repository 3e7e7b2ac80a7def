"""Which chat API a URL leads to, and what a verdict's call may ask there.

Rules
-----
* A host is known by its name only, never by what its replies claim. An unknown one is taken for OpenAI's chat API as
  most servers speak it: ``max_tokens``, temperature 0, twenty alternatives. LiteLLM's proxy is such a one.
* Host and model (:mod:`cheapspec.backends.chat_models`) both have a say: what either refuses is not sent.
* What a reply then refutes is learned (:mod:`cheapspec.backends.chat_learning`); the table need not be complete.
* Each row names its source. *Unverified*: taken from a schema, an SDK or other people's reports, and never seen in a
  reply; the first refusal, which costs nothing, corrects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from cheapspec.backends.chat_models import Kind, kind_of
from cheapspec.core.endpoint import Endpoint

__all__ = ["ANY", "HOSTS", "Host", "endpoint_for", "host_of"]

_OLLAMA_PORT: Final = 11434
_LEAST_RESPONSES: Final = 16
_OPENAI_MAKERS: Final = ("openai/", "azure/")


@dataclass(frozen=True, slots=True)
class Host:
    """A family of hosts. ``hosts``: their names; one that begins with a dot: all below it. ``limit_field``: the name of
    the output limit. ``alternatives``: at most so many, 0: no log-probabilities. ``off``: fields that switch thinking
    off, by this host's way. ``effort``: ``False``, the host knows no ``reasoning_effort``.
    """

    family: str
    hosts: tuple[str, ...] = ()
    limit_field: str = "max_tokens"
    alternatives: int = 20
    off: Mapping[str, Any] = field(default_factory=dict[str, Any])
    effort: bool = True
    notes: str = ""
    source: str = ""
    unverified: str = ""


ANY: Final = Host(
    "any other",
    notes="LiteLLM's proxy and other gateways: they may drop fields or convert them silently; a reply without "
    "log-probabilities shows it",
    source="OpenAI's API reference, 2026-11; `litellm` 1.110.2, run against a stand-in",
)

HOSTS: Final = (
    Host(
        "OpenRouter",
        ("openrouter.ai", ".openrouter.ai"),
        notes="`provider.require_parameters` where log-probabilities are asked for, since they are dropped silently "
        "otherwise; 16 output tokens at least for OpenAI's models; the reply's `usage.cost` is the price",
        source="its pages on provider routing, prompt caching, errors and model variants, 2026-11; "
        "vectorize-io/hindsight#58, vllm-project/guidellm#370; 404: block/buzz#3018, openstory-so/openstory#1317",
        unverified="which hosts serve log-probabilities of which model",
    ),
    Host(
        "OpenAI",
        ("api.openai.com", ".api.openai.com"),
        notes="`max_completion_tokens` for models that think; from 1,024 prompt tokens on cached; GPT-5.6 and later "
        "bill cache writes at 1.25 times input (`cache_write_tokens`)",
        source="`openai-openapi` f85dbe2 (2026-08-21), prompt caching guide, 2026-11",
    ),
    Host(
        "Azure OpenAI",
        (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
        notes="the model is a deployment's name, which need not say what it is: learned from replies",
        source="`openai` 3.57.0; gabrii/Cursor-Azure-GPT-5#33",
    ),
    Host(
        "Groq",
        ("api.groq.com",),
        limit_field="max_completion_tokens",
        alternatives=0,
        notes="no log-probabilities at all: a judge answers with a digit; cached input at half price",
        source="`groq` 1.7.0; groq/groq-python#25",
    ),
    Host(
        "DeepSeek",
        ("api.deepseek.com",),
        off={"thinking": {"type": "disabled"}},
        effort=False,
        notes="thinks unless told not to; tells `prompt_cache_hit_tokens`; only whole stored prompts are cached",
        source="its API documentation, 2026-11",
        unverified="log-probabilities of chat, reported as all 0 or −9999 at times: then they are no verdict",
    ),
    Host(
        "xAI",
        ("api.x.ai", ".api.x.ai"),
        notes="thinking by model: `none`, at least `low`, or no such field; errors are plain strings",
        source="`@ai-sdk/xai` 4.0.0-canary.61; docs.rs/mindfork 0.17.0",
        unverified="how many alternatives it lists",
    ),
    Host(
        "Mistral",
        ("api.mistral.ai",),
        alternatives=5,
        effort=False,
        notes="`random_seed` for `seed`; caches only with the caller's `prompt_cache_key`",
        source="`mistralai` 3.7.0",
        unverified="log-probabilities (in its SDK, not in its documentation), how many alternatives",
    ),
    Host(
        "Fireworks",
        ("api.fireworks.ai",),
        alternatives=5,
        notes="at most 5 alternatives",
        source="`fireworks-ai` 1.2.30",
    ),
    Host(
        "Together",
        ("api.together.ai", "api.together.xyz"),
        alternatives=0,
        effort=False,
        notes="log-probabilities in a shape of its own without bytes: a judge answers with a digit",
        source="`together` 3.1.1",
        unverified="what models return",
    ),
    Host(
        "Ollama",
        (),
        notes="known by its port, 11434. `max_completion_tokens` is ignored; effort `none` is always taken; nothing is "
        "said of cached tokens",
        source="replies of 0.24.0 and 0.33.0-rc2",
    ),
)
"""The first that fits. Host names as in the vendors' SDKs, 2026-11."""

_BY_FAMILY: Final = {host.family: host for host in (*HOSTS, ANY)}


def host_of(base_url: str) -> Host:
    """The family of a base URL, by its host's name (Ollama: by its port)."""
    try:
        split = urlsplit(base_url if "//" in base_url else f"//{base_url}")
        name, port = (split.hostname or "").rstrip("."), split.port
    except ValueError:  # no URL at all; whoever is to be called will say so
        return ANY
    for host in HOSTS:
        if any(name.endswith(one) if one.startswith(".") else name == one for one in host.hosts):
            return host
    return _BY_FAMILY["Ollama"] if port == _OLLAMA_PORT else ANY


def endpoint_for(base_url: str, model: str, body: Mapping[str, Any]) -> Endpoint:
    """What a verdict's call may ask of this model at this URL. ``body``: the caller's request (its ``models`` are
    OpenRouter's fallbacks, each of which may answer).
    """
    host = host_of(base_url)
    named: object = body.get("models")
    others: list[Any] = list(named) if isinstance(named, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    models = [model, *(one for one in others if isinstance(one, str))]
    found = [_one(host, kind_of(one), one) for one in (models if host.family == "OpenRouter" else [model])]
    return found[0] if len(found) == 1 else _for_all(found)


def _one(host: Host, kind: Kind, model: str) -> Endpoint:
    router = host.family == "OpenRouter"
    alternatives = host.alternatives if kind.logprobs else 0
    limit = host.limit_field
    if host.family in ("OpenAI", "Azure OpenAI") and kind.reasons:
        limit = "max_completion_tokens"
    effort = kind.effort if host.effort else None
    thinking = kind.thinking
    if host.family == "Ollama":
        effort, thinking = "none", 0 if kind.off else kind.thinking
    if host.off:  # switched off by the host's own field, whatever the model's name says
        thinking = 0
    return Endpoint(
        alternatives=alternatives,
        least_output=_LEAST_RESPONSES if router and model.lower().startswith(_OPENAI_MAKERS) else 1,
        limit_field=limit,
        # OpenRouter's hosts of models that think do not name it among what they know: requiring it finds no host.
        temperature=kind.temperature and not (router and kind.reasons and model.lower().startswith(_OPENAI_MAKERS)),
        effort=effort,
        thinking=thinking,
        fields=dict(host.off),
        require_parameters=router and alternatives > 0,
        family=host.family,
    )


def _for_all(found: list[Endpoint]) -> Endpoint:
    """What every one of several models takes."""
    first = found[0]
    alternatives = min(one.alternatives for one in found)
    efforts = {one.effort for one in found}
    return Endpoint(
        alternatives=alternatives,
        least_output=max(one.least_output for one in found),
        limit_field=first.limit_field,
        temperature=all(one.temperature for one in found),
        effort=first.effort if len(efforts) == 1 else None,
        thinking=max(max(one.thinking for one in found), 0 if len(efforts) == 1 else 1024),
        fields=first.fields,
        require_parameters=alternatives > 0,
        family=first.family,
    )
