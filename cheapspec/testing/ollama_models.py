"""Models of a stand-in Ollama: what the listings say about them, and how their templates render.

Three templates were recorded (2026-11-29), all of ChatML shape, which differ in what a trailing
assistant message does:

* ``closes``: the turn is closed and a new one begun (SmolLM2's Go template, 0.24.0 and 0.33.0-rc2);
* ``continues``: the turn is left open (Qwen2.5-Coder's Go template);
* ``native``: left open too, rendered by the GGUF's own template in llama.cpp, which adds a default
  system prompt and whose reply then contains the assistant message (0.33.0-rc2 only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["NATIVE_SYSTEM", "SMOLLM2", "StandInModel"]

NATIVE_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_MODIFIED = "2026-11-29T19:38:10.264206789Z"
_OPENED = "<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class StandInModel:
    """``name`` with its tag; ``template`` as above; ``train_context`` in tokens. ``draft_layer``: the
    Modelfile has a ``DRAFT`` line.
    """

    name: str
    template: str = "closes"
    train_context: int = 8192
    capabilities: tuple[str, ...] = ("completion",)
    stops: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")
    family: str = "llama"
    draft_layer: bool = False

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt of a chat."""
        turns = [(str(message.get("role", "")), str(message.get("content", ""))) for message in messages]
        if self.template == "native" and not any(role == "system" for role, _ in turns):
            turns.insert(0, ("system", NATIVE_SYSTEM))
        text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
        if self.template != "closes" and turns and turns[-1][0] == "assistant":
            return text.removesuffix("<|im_end|>\n")
        return text + _OPENED

    def listing(self, *, modern: bool) -> dict[str, Any]:
        """The entry of ``/api/tags``; ``modern``: as 0.33 writes it."""
        details: dict[str, Any] = {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": "134.52M",
            "quantization_level": "Q4_1",
        }
        entry: dict[str, Any] = {
            "name": self.name,
            "model": self.name,
            "modified_at": _MODIFIED,
            "size": 98362745,
            "digest": "0" * 64,
            "details": details,
        }
        if modern:
            details |= {"context_length": self.train_context, "embedding_length": 576}
            entry["capabilities"] = list(self.capabilities)
        return entry

    def shown(self) -> dict[str, Any]:
        """The reply of ``/api/show``. A native model has no Go template and no stop parameters."""
        stops = () if self.template == "native" else self.stops
        close = (
            "{{ .Content }}<|im_end|>\n"
            if self.template == "closes"
            else "{{ .Content }}{{ if not $last }}<|im_end|>\n"
        )
        template = f"{{{{- range .Messages }}}}<|im_start|>{{{{ .Role }}}}\n{close}{{{{ end }}}}{_OPENED}"
        reply: dict[str, Any] = {
            "modelfile": f"FROM {self.name}\n" + ("DRAFT /blobs/sha256-draft\n" if self.draft_layer else ""),
            "template": template,
            "details": self.listing(modern=False)["details"],
            "model_info": {
                "general.architecture": "llama",
                "llama.context_length": self.train_context,
                "llama.embedding_length": 576,
                "tokenizer.ggml.add_bos_token": False,
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": None,
            },
            "tensors": [{"name": "token_embd.weight", "type": "Q8_0", "shape": [576, 49152]}],
            "capabilities": list(self.capabilities),
            "modified_at": _MODIFIED,
        }
        if stops:
            reply["parameters"] = "\n".join(f'stop                           "{stop}"' for stop in stops)
        return reply


SMOLLM2 = StandInModel("smollm2:135m")
"""The model of the recordings that a small engine can replay."""
