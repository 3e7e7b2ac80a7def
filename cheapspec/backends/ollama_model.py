"""What ``POST /api/show`` tells about a model, as far as drafting needs it.

Facts from Ollama 0.24.0 and 0.33.0-rc2: ``capabilities`` lists ``completion``, ``thinking`` …;
``parameters`` is text, one ``name "value"`` a line; ``model_info`` holds the GGUF's own keys.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from cheapspec.backends.ollama_json import as_object, is_list

__all__ = ["ModelFacts", "read_show", "without_bos"]

_ALWAYS_THINKING = frozenset({"gptoss", "gpt-oss"})  # take a level of thinking, never "off"
_DRAFT_LINE = re.compile(r"^\s*DRAFT\s", re.MULTILINE)
_BOS = ("<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """``obstacle``: why the model cannot draft at all, empty if it can. ``thinking``: it thinks unless
    told not to (``None``: unknown). ``draft_layer``: it may run speculative decoding of its own, which
    makes its log-probabilities 0.0 (llama.cpp issue 27972). ``train_context``: tokens. ``stops``: its
    own stop strings, which a request's ``stop`` would replace. ``adds_bos``: the tokenizer puts the
    beginning-of-sequence token in front by itself.
    """

    obstacle: str = ""
    thinking: bool | None = None
    draft_layer: bool = False
    train_context: int | None = None
    stops: tuple[str, ...] = ()
    adds_bos: bool = False


def read_show(reply: object) -> ModelFacts:
    """Read the reply. What is missing or of another type is unknown."""
    show = as_object(reply)
    details, info = as_object(show.get("details")), as_object(show.get("model_info"))
    parameters = show.get("parameters")
    parameters = parameters if isinstance(parameters, str) else ""
    capabilities = show.get("capabilities")
    listed = capabilities if is_list(capabilities) else None
    obstacle = ""
    if listed is not None and "completion" not in listed:
        obstacle = "the model does not generate text"
    elif details.get("family") in _ALWAYS_THINKING:
        obstacle = "the model's thinking cannot be switched off"
    contexts = [value for key, value in info.items() if key.endswith(".context_length") and isinstance(value, int)]
    layers = [value for key, value in info.items() if key.endswith(".nextn_predict_layers")]
    return ModelFacts(
        obstacle=obstacle,
        thinking=None if listed is None else "thinking" in listed,
        draft_layer=bool(
            _DRAFT_LINE.search(str(show.get("modelfile", "")))
            or "draft_num_predict" in parameters
            or any(isinstance(value, int) and value > 0 for value in layers)
        ),
        train_context=contexts[0] if contexts else None,
        stops=tuple(_stop_values(parameters)),
        adds_bos=info.get("tokenizer.ggml.add_bos_token") is True,
    )


def without_bos(rendered: str, facts: ModelFacts) -> str:
    """A rendered prompt for the raw route, whose tokenizer adds the token itself: a second one spoils the text."""
    if facts.adds_bos:
        for mark in _BOS:
            if rendered.startswith(mark):
                return rendered[len(mark) :]
    return rendered


def _stop_values(parameters: str) -> list[str]:
    values: list[str] = []
    for line in parameters.splitlines():
        name, _, value = line.strip().partition(" ")
        if name != "stop":
            continue
        value = value.strip()
        try:
            decoded: Any = json.loads(value)
        except ValueError:
            decoded = value.strip('"')
        if decoded:
            values.append(str(decoded))
    return values
