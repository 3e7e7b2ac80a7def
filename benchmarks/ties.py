"""``python -m benchmarks.ties``: how often the Qwen target, shown its own greedy reply, would write another token.

4-bit weights decide near-ties differently when a batch has another shape: the replies were recorded several at a time,
here each is forced by itself. What differs is no error of anybody's, but it bounds what "equal text" can mean on such
weights. Takes the first recorded replies of each kind; writes ``benchmarks/data/ties-qwen.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks.record import DATA, MAX_TOKENS, TARGET, WINDOW
from benchmarks.replies import Engine, Reply, Store, kept_replies
from cheapspec.bench.prompts import chosen, shipped
from cheapspec.embedded import EmbeddedServer, weights

__all__ = ["Gap", "main", "rescore"]

Gap = float
"""By how many nats the model prefers another token to its own; 0.0 where it prefers its own."""


def rescore(engine: Engine, reply: Reply) -> list[Gap]:
    """One gap a token of the reply that the model splits as it did when it wrote it. Where the reply was cut by its
    limit, the end that the grammar forces behind it is no token of the reply.
    """
    gaps: list[Gap] = []
    place, offsets = 0, dict.fromkeys(_offsets(reply))
    for entry in engine.follow(reply.prompt, reply.text):
        if entry.top and entry.logprob is not None and place in offsets:
            best = entry.top[0]
            gaps.append(0.0 if best.token_id == entry.token_id else best.logprob - entry.logprob)
        place += len(entry.data)
    return gaps


def _offsets(reply: Reply) -> list[int]:
    """Where the reply's tokens begin; its end of turn is one of them."""
    out = [0]
    for size in reply.sizes[:-1]:
        out.append(out[-1] + size)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write. Exit status 0, or 1 when nothing has been recorded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ties", description="Ties of the Qwen target.")
    parser.add_argument("--first", type=int, default=2, help="prompts of each kind")
    asked = parser.parse_args(arguments)
    store = Store()
    replies = [
        reply
        for prompt in chosen(shipped(), (), asked.first)
        for reply in kept_replies(store, TARGET, prompt, MAX_TOKENS)
    ]
    if not replies:
        print("nothing is recorded: run python -m benchmarks.record", file=sys.stderr)
        return 1
    gaps: list[Gap] = []
    with EmbeddedServer(weights(TARGET), n_ctx=WINDOW, threads=1) as server:
        engine = Engine(server.url, TARGET)
        for reply in replies:
            kept = store.get("gaps", TARGET, reply.prompt, reply.ids)
            if kept is None:
                kept = rescore(engine, reply)
                store.put(kept, "gaps", TARGET, reply.prompt, reply.ids)
            gaps += kept
            print(f"{reply.id}: {sum(gap > 0 for gap in kept)} of {len(kept)}", file=sys.stderr)
        engine.close()
    other = sorted((round(gap, 3) for gap in gaps if gap > 0), reverse=True)
    figures = {"replies": len(replies), "tokens": len(gaps), "prefers_another": len(other), "gaps_nats": other}
    (DATA / "ties-qwen.json").write_text(json.dumps(figures) + "\n", "utf-8")
    print(f"{len(other)} of {len(gaps)} tokens", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
