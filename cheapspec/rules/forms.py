"""Which drafters are unlike: the family of a draft model, read from its name.

Rules
-----
* Models of one family (Qwen2.5 and Qwen3, any size, any fine-tune) were taught alike and make the same mistakes, so
  they count once. Only the letters that a name begins with tell the family: rather too few forms than too many.
* A host that does not say which model it runs (``llamacpp:…``) is a form of its own by its name.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["form_of"]

_LETTERS: Final = re.compile(r"[a-z]+")
_MAKERS: Final = ("meta-", "google-", "microsoft-", "mistralai-", "ibm-")
"""Some names begin with the maker's."""


def form_of(drafter: str) -> str:
    """The form of a drafter by its name (``ollama:qwen2.5:3b``, ``openai:org/Llama-3.2-3B@host``)."""
    kind, _, name = drafter.partition(":")
    if kind not in ("ollama", "openai"):
        return drafter
    plain = name.partition("@")[0].rpartition("/")[2].lower()
    for maker in _MAKERS:
        plain = plain.removeprefix(maker)
    found = _LETTERS.match(plain)
    return found[0] if found else drafter
