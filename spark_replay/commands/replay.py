"""``wormholectl replay``: updates of the archive pushed to an application again."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Annotated, Any, Final, Literal

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.errors import needs
from wormholectl.shared.options import Archives, AsJson, DryRun, Master, Where, absolute, duration, parsed, with_where

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Exit codes: 0 handed over to the live log, 1 a flow was not, 2 the request is wrong, 3 unreachable.

Examples:

  wormholectl replay --app cache -c shop.toml --dry-run

  wormholectl replay --app cache --shards 'db1*' --since 2h -c shop.toml

  wormholectl replay --app search --from earliest --mode latest --rate 20MB/s -c zk1:2181/wormhole --archive s3://lake/shop

  wormholectl replay --app search --snapshot /data/snapshot -c shop.toml

  wormholectl replay --resume r-5f3a9c1e -c shop.toml
"""  # noqa: E501


@app.command(epilog=_EXAMPLES)
@with_where
def replay(
    where: Where,
    application: Annotated[str, typer.Option("--app", metavar="APP", help="The application.")] = "",
    archives: Archives = None,
    shards: Annotated[
        list[str] | None,
        typer.Option(
            "--shards", metavar="PATTERN", help="Only these; as in a shell, commas or repeats.", show_default=False
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="PLACE|TIME", help="marker (each flow's own), earliest, 1/42/32768, or a time."),
    ] = "",
    since: Annotated[str, typer.Option("--since", metavar="DURATION|TIME", help="From so long ago: 90s, 2h, 1d.")] = "",
    until: Annotated[
        str,
        typer.Option(
            "--until", metavar="PLACE|TIME", help="A place, a time or a span ago; else all the archive holds."
        ),
    ] = "",
    chosen: Annotated[
        str, typer.Option("--where", metavar="FILTER", help="Only these updates (docs/filters.md).")
    ] = "",
    snapshot: Annotated[
        str, typer.Option("--snapshot", metavar="FOLDER", help="Begin with the rows of `wormholectl snapshot`.")
    ] = "",
    mode: Annotated[
        Literal["auto", "log", "latest"],
        typer.Option("--mode", help="Every change, the last of each key, or whichever is faster."),
    ] = "auto",
    rate: Annotated[str, typer.Option("--rate", metavar="BYTES/s", help="Of all tasks together, such as 20MB/s.")] = "",
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, help="Flows that Spark is given at one time, at most.")
    ] = 256,
    master: Master = "",
    patience: Annotated[
        str, typer.Option("--patience", metavar="DURATION", help="How long a subscriber or publisher may be away.")
    ] = "5m",
    lease: Annotated[
        str, typer.Option("--lease", metavar="DURATION", help="How long flows are held when this command is gone.")
    ] = "30s",
    dry_run: DryRun = False,
    resume: Annotated[str, typer.Option("--resume", metavar="ID", help="Go on with a replay that ended early.")] = "",
    cancel: Annotated[str, typer.Option("--cancel", metavar="ID", help="Give the flows of a replay back.")] = "",
    as_json: AsJson = False,
) -> None:
    """Push updates of the archive to an application again, then hand over to the live log."""
    if snapshot and (start or since or cancel):
        raise UsageError(
            "--snapshot decides where a replay begins",
            hint="leave out --from, --since and --cancel: the archive goes on at its place",
        )
    _check(application, resume, cancel, anew=bool(shards or start or since or until or chosen or dry_run))
    if cancel:
        _cancel(where, cancel, as_json)
        return
    given = {
        "application": application,
        "archives": tuple(archives or ()),
        "shards": tuple(one.strip() for given in shards or () for one in given.split(",") if one.strip()),
        "start": start,
        "since": since,
        "until": until,
        "where": chosen,
        "snapshot": absolute(snapshot),
        "mode": mode,
        "rate": _rate(rate),
        "at_once": at_once,
        "master": master,
        "patience_s": duration("--patience", patience),
        "lease_s": _lease(lease),
        "resume": resume,
    }
    raise typer.Exit(_replay(where, given, dry_run=dry_run, as_json=as_json))


@needs("spark")
def _replay(where: Where, given: Mapping[str, Any], *, dry_run: bool, as_json: bool) -> int:
    """Replay, or with ``dry_run`` show what it would do. Returns the exit code: 1 when a flow was not handed over."""
    from spark_replay.commands.show_replay import Teller, show_plan, show_reports
    from spark_replay.replay.job import Replay, plan_replay, run_replay

    replay = Replay(**given)
    with ExitStack() as stack:

        def observer(replay_id: str) -> Teller:
            return stack.enter_context(closing(Teller(replay_id, as_json=as_json)))

        if dry_run:
            planned = plan_replay(where, replay, observer)
        else:
            replayed = run_replay(where, replay, observer)
    if dry_run:
        show_plan(planned.plans, planned.estimates, planned.slots, replay.rate, planned.no_subscriber, as_json=as_json)
        return 0
    show_reports(replayed.id, replayed.reports, as_json=as_json)
    return 0 if replayed.handed_over else BROKEN


@needs("spark")
def _cancel(where: Where, replay_id: str, as_json: bool) -> None:
    from spark_replay.commands.show_replay import show_cancelled
    from spark_replay.replay.job import cancel_replay

    show_cancelled(replay_id, cancel_replay(where, replay_id), as_json=as_json)


def _check(application: str, resume: str, cancel: str, *, anew: bool) -> None:
    if resume and cancel:
        raise UsageError("--resume and --cancel exclude each other", hint="give one of them")
    if (resume or cancel) and anew:
        raise UsageError(
            "a replay that was begun keeps its range, its filter and its flows",
            hint="leave out --shards, --from, --since, --until, --where and --dry-run",
        )
    if not application and not resume and not cancel:
        raise UsageError("no application is named", hint="--app APP; `wormholectl flows` lists them")


def _rate(text: str) -> float:
    from wormhole.model.units import parse_rate

    return parsed(parse_rate, "--rate", text, "20MB/s") if text else 0.0


def _lease(text: str) -> float:
    seconds = duration("--lease", text)
    if not 1 <= seconds <= 3600:  # the range of leases that a publisher grants
        raise UsageError(f"--lease {text}: from 1s to 1h are possible", hint="for example --lease 30s")
    return seconds
