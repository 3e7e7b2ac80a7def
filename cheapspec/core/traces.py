"""Traces: what replay, the clairvoyant and calibration need to know of a request, and nothing of its text.

One :class:`RequestTrace` a request, one line of JSON each (:func:`dump_trace`, :func:`load_trace`). Two sources
write it: a *recorded* trace runs a draft model along the whole final reply and knows every position; one of
*production* knows the positions that were drafted and scored, up to each first rejection.

Rules
-----
* Position i is the target's i-th token of the final reply (0-based). Everything at position i is said *given the
  first i tokens of the final reply*: after prompt and reply[:i], what does the drafter propose next?
* The reply counts its end-of-turn token. So with ``finish`` ``"stop"`` position ``reply_tokens - 1`` is the end of
  the turn, and a draft model agrees there if it would end its turn there. ``"length"``: no end token, the reply
  fills the caller's limit.
* A draft model's row has one entry a position. ``logprobs[i]``: natural log of the draft model's *own* probability of
  its *own* greedy token there (not of the target's token). ``agreed[i]``: that token is the target's.
* Where the draft model's own token is its end of turn, i is in ``ends`` (agreed or not): a draft that begins
  anywhere before and agrees so far ends there. The probability of an end is never shown to a planner, so
  ``logprobs[i]`` is ``None`` there or is ignored.
* A draft model with another tokenizer is aligned by bytes: its tokens that *begin* inside target token i add their
  log-probabilities up at i; where none begins (a draft token spans several target tokens) the entry is 0.0. It
  agrees at i if its text covers the target token's bytes.
* A greedy draft that has gone wrong at i goes on in one way only, wherever it began. ``branches[i]`` are the
  log-probabilities of that continuation (draft tokens after its wrong one), as far as somebody recorded it, and
  whether it ended the turn there. Optional: without it a replay takes the row's own entries from i + 1 on.
* Drafters of given text (``lookup``, ``prediction``) have no log-probabilities: ``proposed[i]`` is how many tokens
  (as the target counts) they propose at position i, ``right[i]`` how many of them, from the first on, are the
  reply's. ``None``: not known there. A proposal reaches to the end of the reply at most in ``right``, never beyond.
  ``whole``: each proposal reaches to the end of the given text (a prediction, not cut), and so claims the reply's end.
* ``None`` and ``"."`` mean *not known*, never *no*.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cheapspec.core.untyped import as_list, as_mapping, is_list, is_mapping, is_number

__all__ = ["Branch", "DraftRow", "RequestTrace", "StaticRow", "dump_trace", "load_trace"]

_VERSION = 1
_BITS: Mapping[bool | None, str] = {True: "1", False: "0", None: "."}
_DIGITS = 4  # of a log-probability: no bucket and no sum is finer


@dataclass(frozen=True, slots=True)
class Branch:
    """How a draft goes on after its own wrong token: log-probabilities of the tokens after that one; ``ended``: the
    draft model ended its turn after the last of them.
    """

    logprobs: tuple[float | None, ...]
    ended: bool = False


@dataclass(frozen=True, slots=True)
class DraftRow:
    """A draft model along the final reply; ``logprobs`` and ``agreed`` have ``reply_tokens`` entries each, ``None``
    not known. ``ends``: positions of its own end-of-turn tokens; ``branches`` by position (module's rules).
    """

    drafter: str
    logprobs: tuple[float | None, ...]
    agreed: tuple[bool | None, ...]
    ends: frozenset[int] = frozenset()
    branches: Mapping[int, Branch] = field(default_factory=dict[int, Branch])


@dataclass(frozen=True, slots=True)
class StaticRow:
    """A drafter of given text along the final reply: ``reply_tokens`` entries each, ``None`` not known. ``whole``:
    its proposals claim that the reply ends after them.
    """

    drafter: str
    proposed: tuple[int | None, ...]
    right: tuple[int | None, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """One request.

    ``workload``: the caller's tag (in a recorded set: the kind of prompt), under which estimates are learned and
    results are grouped. ``prompt_tokens``, ``reply_tokens``: as the target bills them, the reply with its end-of-turn
    token. ``cached_prompt_tokens``: how many of the prompt's tokens the *direct* call would have found in the
    provider's cache (a chat's earlier turns; 0 for a single turn). ``finish``: ``"stop"`` or ``"length"``.
    ``max_tokens``: the caller's limit, ``None`` without one. ``target``: its model. ``drafts`` and ``statics`` hold one
    row a drafter. Requests stand in a file in the order in which they were asked: estimates learn in that order.
    """

    id: str
    workload: str
    prompt_tokens: int
    reply_tokens: int
    finish: str = "stop"
    cached_prompt_tokens: int = 0
    max_tokens: int | None = None
    target: str | None = None
    drafts: tuple[DraftRow, ...] = ()
    statics: tuple[StaticRow, ...] = ()


def dump_trace(trace: RequestTrace) -> str:
    """One line of strict JSON, without its line end; log-probabilities are rounded to four decimals."""
    data: dict[str, Any] = {
        "v": _VERSION,
        "id": trace.id,
        "workload": trace.workload,
        "prompt_tokens": trace.prompt_tokens,
        "cached_prompt_tokens": trace.cached_prompt_tokens,
        "reply_tokens": trace.reply_tokens,
        "finish": trace.finish,
        "max_tokens": trace.max_tokens,
        "target": trace.target,
        "drafts": [_dump_draft(row) for row in trace.drafts],
        "statics": [
            {"drafter": row.drafter, "proposed": list(row.proposed), "right": list(row.right), "whole": row.whole}
            for row in trace.statics
        ],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def load_trace(line: str) -> RequestTrace:
    """Read what :func:`dump_trace` wrote. Unknown keys are passed over.

    :raises ValueError: the line is no trace; the message names the key that is wrong.
    """
    try:
        data: object = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not is_mapping(data) or data.get("v") != _VERSION:
        raise ValueError(f"not a trace of version {_VERSION}: key 'v' is missing or different")
    length = _count(data, "reply_tokens")
    prompt, cached = _count(data, "prompt_tokens"), _count(data, "cached_prompt_tokens", 0)
    limit = None if data.get("max_tokens") is None else _count(data, "max_tokens")
    if cached > prompt:
        raise ValueError("'cached_prompt_tokens' is more than 'prompt_tokens'")
    return RequestTrace(
        id=_text(data, "id"),
        workload=_text(data, "workload"),
        prompt_tokens=prompt,
        reply_tokens=length,
        finish=_text(data, "finish"),
        cached_prompt_tokens=cached,
        max_tokens=limit,
        target=None if data.get("target") is None else _text(data, "target"),
        drafts=tuple(_load_draft(as_mapping(row), length) for row in as_list(data.get("drafts"))),
        statics=tuple(_load_static(as_mapping(row), length) for row in as_list(data.get("statics"))),
    )


def _dump_draft(row: DraftRow) -> dict[str, Any]:
    out: dict[str, Any] = {
        "drafter": row.drafter,
        "logprobs": [_rounded(logprob) for logprob in row.logprobs],
        "agreed": "".join(_BITS[bit] for bit in row.agreed),
        "ends": sorted(row.ends),
    }
    if row.branches:
        out["branches"] = {
            str(at): {"logprobs": [_rounded(logprob) for logprob in branch.logprobs], "ended": branch.ended}
            for at, branch in sorted(row.branches.items())
        }
    return out


def _rounded(logprob: float | None) -> float | None:
    """No server's word for "none" (NaN, an infinity) gets into a file as a number."""
    return None if logprob is None or not math.isfinite(logprob) else round(logprob, _DIGITS)


def _load_draft(data: Mapping[str, Any], length: int) -> DraftRow:
    bits = data.get("agreed")
    if not isinstance(bits, str) or len(bits) != length or set(bits) - set("01."):
        raise ValueError(f"'agreed' must be {length} characters of '0', '1' and '.'")
    ends = as_list(data.get("ends"))
    if not all(isinstance(at, int) and 0 <= at < length for at in ends):
        raise ValueError("'ends' holds something that is no position of the reply")
    branches = {
        _position(at, length): Branch(_logprobs(as_mapping(told), None), as_mapping(told).get("ended") is True)
        for at, told in as_mapping(data.get("branches")).items()
    }
    agreed = tuple({"1": True, "0": False}.get(bit) for bit in bits)
    return DraftRow(_text(data, "drafter"), _logprobs(data, length), agreed, frozenset(ends), branches)


def _load_static(data: Mapping[str, Any], length: int) -> StaticRow:
    proposed, right = _lengths(data, "proposed", length), _lengths(data, "right", length)
    for at, (long, good) in enumerate(zip(proposed, right, strict=True)):
        if long is not None and good is not None and (good > long or at + good > length):
            raise ValueError(f"'right' is more than 'proposed' or reaches beyond the reply at position {at}")
    return StaticRow(_text(data, "drafter"), proposed, right, data.get("whole") is True)


def _logprobs(data: Mapping[str, Any], length: int | None) -> tuple[float | None, ...]:
    told = data.get("logprobs")
    if not is_list(told) or (length is not None and len(told) != length):
        raise ValueError("'logprobs' must be a list" + ("" if length is None else f" of {length} entries"))
    if not all(value is None or (is_number(value) and value <= 0.01) for value in told):
        raise ValueError("'logprobs' holds something that is no log-probability")
    return tuple(None if value is None else float(value) for value in told)


def _lengths(data: Mapping[str, Any], key: str, length: int) -> tuple[int | None, ...]:
    told = data.get(key)
    if not is_list(told) or len(told) != length:
        raise ValueError(f"{key!r} must be a list of {length} entries")
    if not all(value is None or (isinstance(value, int) and value >= 0) for value in told):
        raise ValueError(f"{key!r} holds something that is no length")
    return tuple(told)


def _position(at: str, length: int) -> int:
    if not at.isdecimal() or int(at) >= length:
        raise ValueError("'branches' holds something that is no position of the reply")
    return int(at)


def _count(data: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key!r} must be a count of tokens")
    return value


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key!r} must be a text")
    return value
