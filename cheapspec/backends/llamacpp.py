"""llama.cpp's own server (``llama-server``, xllamacpp): a drafter, and a target that can be *forced*.

Facts: llama.cpp build 11549 (November 2026), seen in its replies.

Rules
-----
1. There is no prompt scoring over HTTP: ``echo`` and ``prompt_logprobs`` are silently ignored. Instead a
   grammar that allows exactly the draft makes the server *generate* it, and each token comes with its
   log-probability and alternatives **before** the grammar. That costs one decode step a token, so such a
   target is ``can_force``, not ``can_score``.
2. When the grammar is complete only an end token is left: the last entry's alternatives say what the
   target would have written next.
3. Prompts travel as token ids (``/apply-template``, then ``/tokenize``): the split of the draft is the
   target's own choice, and it can continue from any token.
4. The tokens of one character are shown as *one* entry, with the bytes of all and the log-probability of
   the last. Of the others there is no evidence: their log-probability is unknown, never 0.
5. Bytes are exact; ``token`` is not ("" or U+FFFD for a part of a character). A token without bytes
   is a control token; the ids that end a turn are learned, nothing is concluded from a name.
6. ``/completion`` streams as server-sent events without ``[DONE]``; the event with ``stop: true`` ends it.
"""

from __future__ import annotations

from cheapspec.backends.llamacpp_draft import LlamaCppDrafter
from cheapspec.backends.llamacpp_target import LlamaCppTarget

__all__ = ["LlamaCppDrafter", "LlamaCppTarget"]
