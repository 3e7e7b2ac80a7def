"""What the setting ``draft`` may say.

==================================  ======================================================
``qwen2.5:3b``                      a model of the local Ollama, named as Ollama names it
``ollama:NAME``                     the same, for names that look like one of the forms below
``llamacpp:http://host:port``       a llama.cpp server
``openai:NAME@http://host:port/v1`` any server with OpenAI's API
``embedded``                        llama.cpp in this process (extra ``[embedded]``)
``lookup``                          text copied from the prompt; no model at all
==================================  ======================================================

Several are separated by commas. Colons, slashes and dots inside an Ollama name are kept as they are
(``hf.co/org/m:Q4_K_M``); a comma inside the name of an ``openai:`` draft is kept too, since that form
ends with its URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["DraftSpec", "parse_draft", "parse_drafts"]

_FORMS = (
    "write an Ollama model's name, ollama:NAME, llamacpp:http://host:port, openai:NAME@http://host:port/v1, "
    "embedded or lookup"
)


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """One drafter as named in the settings.

    ``kind``: ``ollama``, ``llamacpp``, ``openai``, ``embedded`` or ``lookup``. ``name``: the model, empty
    where the form has none. ``url``: set for ``llamacpp`` and ``openai``; an Ollama draft takes ``draft_url``.
    """

    kind: str
    name: str = ""
    url: str | None = None

    def __str__(self) -> str:
        """The unambiguous form (``ollama:qwen2.5:3b``), as shown to users."""
        return ":".join(filter(None, [self.kind, "@".join(filter(None, [self.name, self.url]))]))


def parse_draft(text: str) -> DraftSpec:
    """Read one drafter. Raises ``ValueError`` saying what is wrong and which forms there are."""
    text = text.strip()
    kind, colon, rest = text.partition(":")
    match kind:
        case "embedded" | "lookup":
            if colon:
                raise ValueError(f"{kind!r} takes no name; for an Ollama model of that name write ollama:{text}")
            return DraftSpec(kind)
        case "ollama" if colon:
            return DraftSpec("ollama", _ollama_name(rest))
        case "llamacpp":
            return DraftSpec("llamacpp", url=_url(rest, text))
        case "openai":
            name, _, url = rest.rpartition("@")
            if not name.strip():
                raise ValueError(f"{text!r} has no model name before '@': write openai:NAME@http://host:port/v1")
            return DraftSpec("openai", name.strip(), _url(url, text))
        case _:
            return DraftSpec("ollama", _ollama_name(text))


def parse_drafts(text: str | None) -> tuple[DraftSpec, ...]:
    """Read a comma-separated list of drafters, best first. Raises ``ValueError``; ``None`` gives none."""
    return () if text is None else tuple(parse_draft(item) for item in _split(text))


def _split(text: str) -> Iterator[str]:
    held = ""
    for part in text.split(","):
        held = f"{held},{part}" if held else part
        if held.strip().startswith("openai:") and "@" not in held:
            continue  # a comma of its name, or the URL is missing: the end of the text tells
        yield held
        held = ""
    if held:
        yield held


def _ollama_name(name: str) -> str:
    name = name.strip()
    if not name:
        raise ValueError(f"a draft has no name: {_FORMS}")
    if "://" in name:
        raise ValueError(f"{name!r} is no Ollama model's name: {_FORMS} (the Ollama server itself goes into draft_url)")
    if any(character.isspace() for character in name):
        raise ValueError(f"the model name {name!r} contains a space: {_FORMS}")
    return name


def _url(url: str, text: str) -> str:
    url = url.strip().rstrip("/")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError(f"{text!r}: a URL contains no spaces (in a path they are written %20)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError(f"{text!r} needs a URL with http:// or https:// and a host: {_FORMS}")
    return url
