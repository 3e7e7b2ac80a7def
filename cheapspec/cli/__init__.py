"""The command line: ``cheapspec demo``, ``chat``, ``plan``, ``doctor``, ``report``, ``replay``, ``estimate``,
``bench``, ``prices``, ``tune``.

Exit status: 0 good, 1 found something wrong, 2 misuse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cheapspec.errors import CheapspecError, SettingsError

__all__ = ["app", "main"]

app = typer.Typer(
    name="cheapspec",
    help="Draft on your own machine, let the paid model verify, see what it saved.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def _version(asked: bool) -> None:
    if asked:
        from cheapspec import __version__

        typer.echo(f"cheapspec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Draft on your own machine, let the paid model verify, see what it saved."""


@app.command()
def demo(
    prompt: Annotated[str | None, typer.Argument(help="What to ask; a small coding task by default.")] = None,
    draft: Annotated[str, typer.Option(help="Which draft: twin (alike), drop1, drop3 (ever weaker).")] = "twin",
    draft_tokens: Annotated[int | None, typer.Option(min=1, help="Fixed draft tokens a round; else planned.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 200,
    json: Json = False,
    reproducible: Annotated[bool, typer.Option(help="Leave out what differs between runs (seconds).")] = False,
) -> None:
    """Run draft and target on this machine, without keys, and compare with the target alone."""
    from cheapspec.cli.demo import run

    raise typer.Exit(run(prompt, draft, draft_tokens, max_tokens, as_json=json, times=not reproducible))


@app.command()
def chat(
    model: Annotated[str | None, typer.Option(help="Target model; the embedded one by default.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Target's API, as for openai (…/v1).")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 400,
) -> None:
    """Talk to the target; drafts come from CHEAPSPEC_DRAFT or cheapspec.toml (embedded: from the demo's twin)."""
    from cheapspec.cli.chat import run

    raise typer.Exit(run(model, base_url, max_tokens))


@app.command()
def plan(
    file: Annotated[
        Path | None, typer.Argument(help="A request's body or messages as JSON, or a text; - or none: standard input.")
    ] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", help="The user's message, instead of FILE.")] = None,
    model: Annotated[str | None, typer.Option(help="Target model.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Target's API, as for openai (…/v1).")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The caller's limit.")] = None,
    temperature: Annotated[float | None, typer.Option(help="The caller's; 0 where nothing says.")] = None,
    reply_tokens: Annotated[int | None, typer.Option(min=1, help="How long the reply will be, about.")] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Have a draft written, on your machine, to plan with.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what would become of a request, and what each way would cost, before anything is spent."""
    from cheapspec.cli.plan import Asked, run

    asked = Asked(file, message, model, base_url, max_tokens, temperature, reply_tokens, draft)
    raise typer.Exit(run(asked, as_json=json))


@app.command()
def report(
    session: Annotated[str | None, typer.Option(help="One session: its name or id.")] = None,
    since: Annotated[str | None, typer.Option(help="24h, 7d (also m, w) ago, or a date such as 2026-11-29.")] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="URL", help="Which ledger; the settings' own by default.")
    ] = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="One line a request.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A page with charts (- for standard output).")
    ] = None,
) -> None:
    """Show what the ledger adds up to: bypassed, paid, saved or lost, and why."""
    from cheapspec.cli.report import run

    raise typer.Exit(run(session, since, ledger, as_json=json, as_csv=csv, html=html))


@app.command()
def replay(
    ledger: Annotated[
        str | None, typer.Option(metavar="URL", help="Which ledger; the settings' own by default.")
    ] = None,
    traces: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Recorded traces instead (.jsonl, .jsonl.gz).")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="planner (default), fixed:8, whole, whole-again, direct; several allowed.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="MODEL, or INPUT,CACHED,OUTPUT in $ per million; the target's by default.")
    ] = None,
    qs: Annotated[str, typer.Option(help="Price of a context token in a scoring call: c (cached) or × input.")] = "c",
    qh: Annotated[str, typer.Option(help="The same in a hand-off.")] = "c",
    q0: Annotated[str | None, typer.Option(help="The same in a direct call; each request's own by default.")] = None,
    drafter: Annotated[list[str] | None, typer.Option(help="Only drafts of this one; several allowed.")] = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="What knowing every run length could have saved.")] = False,
    objective: Annotated[str, typer.Option(help="What the planner minimises: cost or latency.")] = "cost",
    allowance: Annotated[float | None, typer.Option(min=0.0, help="Keep to an allowance, as .02; else none.")] = None,
    seed_usd: Annotated[float, typer.Option(min=0.0, help="Its seed, in dollars.")] = 0.05,
    since: Annotated[str | None, typer.Option(help="24h, 7d (also m, w) ago, or a date such as 2026-11-29.")] = None,
    session: Annotated[str | None, typer.Option(help="One session: its name or id.")] = None,
    json: Json = False,
) -> None:
    """Price past requests again under another rule, price list or objective: no call is made."""
    from cheapspec.cli.replay import Asked, run

    chosen, files, only = tuple(policy or ("planner",)), tuple(traces or ()), tuple(drafter or ())
    asked = Asked(
        ledger, files, chosen, prices, qs, qh, q0, only, oracle, objective, allowance, seed_usd, since, session
    )
    raise typer.Exit(run(asked, as_json=json))


@app.command()
def estimate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Past requests and replies (.jsonl, .jsonl.gz): batch files, pairs."),
    ],
    draft: Annotated[str | None, typer.Option(help="What drafts, as in the settings; theirs by default.")] = None,
    prices: Annotated[
        str | None, typer.Option(help="MODEL, or INPUT,CACHED,OUTPUT in $ per million; each model's by default.")
    ] = None,
    base_url: Annotated[str, typer.Option(help="Whose API it was: decides about prices, and what it can.")] = "",
    qs: Annotated[
        str | None, typer.Option(help="Price of a context token in a scoring call: c (cached) or × input; both.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many requests.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Only so many, drawn by chance (the same each time).")
    ] = None,
    assume_temperature: Annotated[
        float | None, typer.Option(min=0.0, max=2.0, help="What an omitted temperature meant.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(metavar="KEY", help="Group by this key of the metadata; else by system prompt.")
    ] = None,
    answers: Annotated[bool, typer.Option(help="Compare final numbers and JSON, for lossy rules.")] = True,
    oracle: Annotated[bool, typer.Option("--oracle", help="What knowing every run length could have saved.")] = False,
    json: Json = False,
) -> None:
    """Draft along past requests on this machine; say what each rule would have saved. No target is called."""
    from cheapspec.cli.estimate import Asked, run

    asked = Asked(
        tuple(files), draft, prices, base_url, qs, limit, sample, assume_temperature, workload, answers, oracle
    )
    raise typer.Exit(run(asked, as_json=json))


@app.command()
def bench(
    target: Annotated[str | None, typer.Option(help="Target model; embedded ones by default.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Target's API, as for openai (…/v1).")] = None,
    draft: Annotated[str | None, typer.Option(help="What drafts, as in the settings; theirs by default.")] = None,
    embedded: Annotated[str | None, typer.Option(help="Pair on this machine: smollm2 (default) or qwen.")] = None,
    prompts: Annotated[Path | None, typer.Option(metavar="FILE", help="A prompt set (TOML); ours by default.")] = None,
    kinds: Annotated[str | None, typer.Option(help="Only these kinds of prompts, commas between.")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Only so many prompts of each kind.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 200,
    price_list: Annotated[
        str | None, typer.Option(metavar="R,C", help="Embedded: price of output and of cached input, over input.")
    ] = None,
    draft_tokens: Annotated[int | None, typer.Option(min=1, help="Fixed draft tokens a round; else planned.")] = None,
    prediction: Annotated[bool, typer.Option(help="Send the original of code edits as prediction.")] = False,
    capture: Annotated[bool, typer.Option(help="Ask the drafters again, for what a clairvoyant would pay.")] = True,
    json: Json = False,
) -> None:
    """Run a prompt set through the target alone and through cheapspec; compare money, time and text."""
    from cheapspec.cli.bench import Asked, run

    pair = Asked(target, base_url, draft, embedded, price_list, draft_tokens)
    code = run(
        pair,
        prompts=prompts,
        kinds=kinds,
        first=first,
        max_tokens=max_tokens,
        prediction=prediction,
        capture=capture,
        as_json=json,
    )
    raise typer.Exit(code)


@app.command()
def prices(
    model: Annotated[str | None, typer.Argument(help="The model, named as in a request.")] = None,
    base_url: Annotated[str, typer.Option(help="Whose API it is; without it the name alone decides.")] = "",
    update: Annotated[bool, typer.Option("--update", help="Fetch the newest list prices first.")] = False,
    json: Json = False,
) -> None:
    """Show which prices apply to a model and why; status 1 if nobody knows them."""
    from cheapspec.cli.prices import run

    raise typer.Exit(run(model, base_url, refresh=update, as_json=json))


@app.command()
def doctor(
    model: Annotated[str | None, typer.Option(help="Target model to be checked.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Its API, as for openai (…/v1).")] = None,
    yes_spend: Annotated[
        bool, typer.Option("--yes-spend", "--yes", "-y", help="Probe the target without asking; it costs a little.")
    ] = False,
    json: Json = False,
) -> None:
    """Check settings, draft host, target and prices: which rules can save here, and what to do if none can."""
    from cheapspec.cli.doctor import run

    raise typer.Exit(run(model, base_url, spend=yes_spend, as_json=json))


@app.command()
def tune(
    workload: Annotated[str | None, typer.Option(help="One: its tag, or the hash of its system prompt.")] = None,
    loss: Annotated[float, typer.Option(help="Share of requests that may be lost at most.")] = 0.01,
    confidence: Annotated[float, typer.Option(help="How sure of that (0.5 to 1).")] = 0.95,
    ledger: Annotated[
        str | None, typer.Option(metavar="URL", help="Which ledger; the settings' own by default.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="MODEL, or INPUT,CACHED,OUTPUT in $ per million; the target's by default.")
    ] = None,
    store: Annotated[bool, typer.Option(help="Keep the certificate, for the clients to use.")] = True,
    logs: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Past requests instead, as for estimate; several allowed.")
    ] = None,
    draft: Annotated[str | None, typer.Option(help="--logs: what drafts; the settings' own.")] = None,
    accept: Annotated[str | None, typer.Option(help="--logs: rules, such as agree,answer; the settings' own.")] = None,
    base_url: Annotated[str, typer.Option(help="--logs: whose API it was; a certificate is bound to it.")] = "",
    spend: Annotated[
        float | None, typer.Option(min=0.0, help="--logs: ask the target for verdicts, for so many dollars at most.")
    ] = None,
    json: Json = False,
) -> None:
    """Turn requests tried in shadow into thresholds and certificates of lossy rules; status 1 without any."""
    from cheapspec.cli.tune import Asked, run
    from cheapspec.cli.tune_logs import Source

    past = None if not logs else Source(tuple(logs), draft, accept, base_url, workload, prices, spend)
    if past is None and (draft, accept, base_url, spend) != (None, None, "", None):
        raise SettingsError("--draft, --accept, --base-url and --spend are for --logs.")
    raise typer.Exit(run(Asked(workload, loss, confidence, ledger, prices, store, past), as_json=json))


def main() -> None:
    """Entry point: our own errors are a sentence on standard error, not a traceback."""
    try:
        app()
    except SettingsError as error:
        typer.echo(f"cheapspec: {error}", err=True)
        raise SystemExit(2) from None
    except CheapspecError as error:
        typer.echo(f"cheapspec: {error}", err=True)
        raise SystemExit(1) from None
