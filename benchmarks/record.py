"""``python -m benchmarks.record``: run the real engines along the prompt set once, write traces of numbers only.

The target (Qwen2.5-Coder-1.5B-Instruct, Q4_K_M) answers every prompt and every turn of every chat, greedily, with at
most 200 tokens. Then each drafter is asked at every position of every reply (:mod:`benchmarks.rows`): the draft
model (Qwen2.5-Coder-0.5B-Instruct, Q4_K_M), prompt lookup, for code edits the original file as prediction, and, for
translation and open questions, a draft model of another family (SmolLM2-135M-Instruct, Q4_1).

All of it is kept in the weights' cache as it comes, so that a recording may be interrupted and goes on at the next
run; ``--first 2`` records two prompts a kind, ``--prompts FILE --name NAME`` another set. The weights are fetched by
``python -m cheapspec.embedded fetch NAME``.
Times are not recorded: nothing here depends on how fast or how busy the machine is.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.replies import Engine, Reply, Store, converse, kept_replies
from benchmarks.rows import model_row, static_rows, text_row
from cheapspec.bench.prompts import CHAT, KINDS, Prompt, chosen, load, shipped
from cheapspec.core.traces import DraftRow, RequestTrace, StaticRow, dump_trace, load_trace
from cheapspec.embedded import EmbeddedServer, weights

__all__ = ["DRAFT", "FOREIGN", "TARGET", "main"]

TARGET = "qwen2.5-coder-1.5b-q4_k_m"
DRAFT = "qwen2.5-coder-0.5b-q4_k_m"
FOREIGN = "smollm2-135m-q4_1"
FOREIGN_KINDS = frozenset({"open", "translation"})
DATA = Path(__file__).parent / "data"
MAX_TOKENS = 200
WINDOW = 2560  # tokens of context: the longest prompt, 200 reply tokens and room

X = TypeVar("X")
Y = TypeVar("Y")
RowMaker = Callable[[Engine, Reply, str], DraftRow]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what is missing, write the files. Exit status 0, or 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description="Record traces on real engines.")
    parser.add_argument("--first", type=int, help="only so many prompts of each kind")
    parser.add_argument("--kinds", default="", help=f"only these, of {', '.join((*KINDS, CHAT))}; commas between")
    parser.add_argument("--threads", type=int, default=1, help="of each engine's computation")
    parser.add_argument("--parallel", type=int, default=4, help="replies at a time")
    parser.add_argument("--done", action="store_true", help="write what has been recorded, ask no model for more")
    parser.add_argument("--prompts", type=Path, help="a prompt set of yours (TOML) instead of the shipped one")
    parser.add_argument("--name", default="qwen", help="what the files are called: traces-NAME.jsonl.gz")
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the files")
    asked = parser.parse_args(arguments)
    kinds = [kind.strip() for kind in asked.kinds.split(",") if kind.strip()]
    prompts = chosen(shipped() if asked.prompts is None else load(asked.prompts), kinds, asked.first)
    recorder = Recorder(Console(stderr=True), Store(), asked.threads, asked.parallel)
    try:
        traces, texts = recorder.record(prompts, ask=not asked.done)
    except KeyboardInterrupt:
        print("interrupted; what is recorded is kept, and the next run goes on there", file=sys.stderr)
        return 130
    _write(asked.out, asked.name, traces, texts)
    return 0


class Recorder:
    """Runs one model at a time over all replies, ``parallel`` of them at once."""

    def __init__(self, console: Console, store: Store, threads: int, parallel: int) -> None:
        self._console = console
        self._store = store
        self._threads = threads
        self._parallel = parallel

    def record(self, prompts: Sequence[Prompt], *, ask: bool) -> tuple[list[RequestTrace], dict[str, str]]:
        """The traces in the order of the prompts, and the replies' texts by id."""
        if ask:
            with self._engines(TARGET) as engines:
                said = self._each("target", prompts, engines, self._converse)
        else:
            said = [kept_replies(self._store, TARGET, prompt, MAX_TOKENS) for prompt in prompts]
        replies = [reply for conversation in said for reply in conversation]
        foreign = [reply for reply in replies if reply.kind in FOREIGN_KINDS]
        rows = self._rows(replies, DRAFT, model_row, ask)
        others = self._rows(foreign, FOREIGN, text_row, ask)
        statics: dict[str, tuple[StaticRow, ...]] = {}
        with self._engines(DRAFT) as engines:  # it has the target's vocabulary and loads faster
            told = self._each("lookup", replies, engines, static_rows)
        statics = {reply.id: row for reply, row in zip(replies, told, strict=True)}
        traces = [
            RequestTrace(
                id=reply.id,
                workload=reply.kind,
                prompt_tokens=len(reply.prompt),
                reply_tokens=len(reply.ids),
                finish=reply.finish,
                cached_prompt_tokens=reply.shared,
                max_tokens=MAX_TOKENS,
                target=TARGET,
                drafts=tuple(row for row in (rows.get(reply.id), others.get(reply.id)) if row is not None),
                statics=statics[reply.id],
            )
            for reply in replies
            if reply.id in rows and (reply.id in others or reply.kind not in FOREIGN_KINDS)
        ]
        return traces, {reply.id: reply.text for reply in replies}

    def _converse(self, engine: Engine, prompt: Prompt) -> list[Reply]:
        return converse(engine, self._store, prompt, MAX_TOKENS)

    def _rows(self, replies: Sequence[Reply], model: str, make: RowMaker, ask: bool) -> dict[str, DraftRow]:
        """Rows of one draft model by reply; those in the store are not asked for again."""
        out: dict[str, DraftRow] = {}
        missing: list[Reply] = []
        for reply in replies:
            kept = self._store.get("row", model, reply.prompt, reply.ids)
            if kept is None:
                missing.append(reply)
            else:
                out[reply.id] = load_trace(kept).drafts[0]

        def one(engine: Engine, reply: Reply) -> DraftRow:
            row = make(engine, reply, f"embedded:{model}")
            alone = RequestTrace(reply.id, reply.kind, len(reply.prompt), len(reply.ids), reply.finish, drafts=(row,))
            self._store.put(dump_trace(alone), "row", model, reply.prompt, reply.ids)
            return row

        if missing and ask:
            with self._engines(model) as engines:
                made = self._each(model, missing, engines, one)
            out |= {reply.id: row for reply, row in zip(missing, made, strict=True)}
        return out

    @contextmanager
    def _engines(self, model: str) -> Generator[SimpleQueue[Engine]]:
        """One server with a slot for each worker."""
        slots = self._parallel
        with EmbeddedServer(weights(model), n_ctx=WINDOW, threads=self._threads, parallel=slots) as server:
            engines = [Engine(server.url, model, slot) for slot in range(slots)]
            free: SimpleQueue[Engine] = SimpleQueue()
            for engine in engines:
                free.put(engine)
            try:
                yield free
            finally:
                for engine in engines:
                    engine.close()

    def _each(
        self, what: str, items: Sequence[X], engines: SimpleQueue[Engine], work: Callable[[Engine, X], Y]
    ) -> list[Y]:
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as progress, ThreadPoolExecutor(self._parallel) as pool:
            task = progress.add_task(what, total=len(items))

            def one(item: X) -> Y:
                engine = engines.get()
                try:
                    return work(engine, item)
                finally:
                    engines.put(engine)
                    progress.advance(task)

            try:
                return list(pool.map(one, items))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _write(folder: Path, name: str, traces: Sequence[RequestTrace], texts: dict[str, str]) -> None:
    """``traces-NAME.jsonl.gz`` (the same bytes for the same traces) and the hashes of the replies' texts."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{dump_trace(trace)}\n" for trace in traces)
    (folder / f"traces-{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    hashes = "".join(f"{hashlib.sha256(texts[trace.id].encode()).hexdigest()}  {trace.id}\n" for trace in traces)
    (folder / f"traces-{name}.sha256").write_text(hashes, "utf-8")
    positions = sum(trace.reply_tokens for trace in traces)
    print(f"{len(traces)} traces with {positions} positions in {folder}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
