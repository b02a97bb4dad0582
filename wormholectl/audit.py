"""``wormholectl audit``: whether everything that was archived was delivered and processed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import Fatal, StreamBroken, UsageError
from wormholectl.guard import BROKEN, needs
from wormholectl.options import Archives, AsJson, with_where
from wormholectl.show.printer import SCHEMA, print_json, print_table, print_text, say_waiting, span

if TYPE_CHECKING:
    from spark_replay.audit.auditor import Audit
    from spark_replay.audit.compare import Finding, Window
    from wormholectl.discovery import Where

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Exit codes: 0 nothing is lost, 1 something is, 2 the request is wrong, 3 unreachable.

Examples:

  wormholectl audit --app cache -c shop.toml

  wormholectl audit --app cache --since 1d --json -c zk1:2181/wormhole --archive s3://lake/shop

  wormholectl audit --app cache --parquet audit.parquet -c shop.toml
"""


@app.command(epilog=_EXAMPLES)
@with_where
def audit(
    where: Where,
    application: Annotated[str, typer.Option("--app", metavar="APP", help="The application.", show_default=False)],
    archives: Archives = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only so far back, 2h or 3d, or from a time on.")
    ] = "7d",
    parquet: Annotated[str, typer.Option("--parquet", metavar="FILE", help="Write the windows to this file too.")] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's; else spark-submit's, else local[*].")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Compare what was archived with what was delivered and processed, by windows of ten minutes; say which updates are
    lost.
    """
    raise typer.Exit(_audit(where, application, archives or (), since, parquet, master, as_json))


@needs("spark")
def _audit(
    where: Where, application: str, archives: Sequence[str], since: str, parquet: str, master: str, as_json: bool
) -> int:
    """Returns the exit code: 1 when something is lost. Raises :class:`~wormhole.model.errors.WormholeError`."""
    from spark_replay.spark.session import check_spark, spark_session

    check_spark()
    from spark_replay.audit import auditor
    from spark_replay.audit.archived import Selecting
    from spark_replay.replay.plan import asked_time
    from wormhole.wire.v1 import admin_pb2
    from wormholectl import admin_client
    from wormholectl.replay_job import setting_of

    now_s = time.time()
    begin = asked_time(since, "--since", round(now_s * 1e6))
    setting = setting_of(where, application, archives)
    selecting = Selecting(setting.application.where or "", tuple(setting.application.tables), setting.formats, {})
    answers = admin_client.ask(where)
    if silent := [one.problem for one in answers if one.status is None]:
        raise StreamBroken(
            "; ".join(silent), hint="start that publisher: the delivery counts of its flows are needed too"
        )
    admin_client.check_application(answers, application)
    statuses = [one.status for one in answers if one.status is not None]
    flows = [flow.flow for status in statuses for flow in status.flows if flow.flow.partition("/")[0] == application]
    copies = {status.copy for status in statuses for flow in status.flows if flow.flow in flows}
    if setting.store.copy and copies - {setting.store.copy}:
        raise UsageError(
            f"the archive is of copy {setting.store.copy!r}, {application} is served from {', '.join(sorted(copies))}: "
            "places of two copies cannot be compared",
            hint="archive the copy that serves the application",
        )
    replies = [admin_client.audit(one, admin_pb2.AuditRequest()) for one in answers]
    counts = auditor.flow_counts(application, selecting.filter().hash, replies)
    if not counts:
        raise UsageError(
            f"the publishers have no delivery counts of {application} yet",
            hint="they begin with the first acknowledgement",
        )
    say_waiting("starting Spark")
    spark = spark_session(f"wormhole audit {application}", master or None)
    try:
        audited = auditor.audit(
            spark, setting.store, flows, counts, selecting, since_s=(begin.at_us or 0) / 1e6, now_s=now_s
        )
    finally:
        spark.stop()
    if parquet:
        try:
            auditor.write_parquet(audited, parquet)
        except OSError as error:
            raise Fatal(
                f"{parquet} cannot be written: {error}", hint="name a file in a folder that is there"
            ) from error
    if as_json:
        print_json(_as_json(application, audited))
    else:
        _show(application, audited)
    return 0 if audited.whole else BROKEN


def _as_json(application: str, audited: Audit) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "application": application,
        "whole": audited.whole,
        "windows": [
            {
                "flow": one.flow,
                "begin": _time(one.window),
                "archived": one.archived,
                "delivered": one.delivered,
                "processed": one.processed,
                "set_aside": one.set_aside,
                "duplicates": one.duplicates,
                "lost": one.lost,
                "unprocessed": one.unprocessed,
                "unaudited": one.unaudited,
                "replayed": one.replayed,
                "replayed_processed": one.replayed_processed,
                "pending": one.pending,
                "state": one.state,
                "complete_s": one.complete_s if one.complete_s is None or math.isfinite(one.complete_s) else None,
            }
            for one in audited.windows
        ],
        "findings": [
            {
                "kind": one.kind,
                "flow": one.flow,
                "begin": _time(one.window),
                "updates": one.updates,
                "update": one.update,
                "where": one.where,
            }
            for one in audited.findings
        ],
        "unbooked": list(audited.uncounted),
        "unarchived": list(audited.unarchived),
    }


def _time(window: int) -> str | None:
    return _begin(window).isoformat().replace("+00:00", "Z") if window else None


def _show(application: str, audited: Audit) -> None:
    columns = (
        "FLOW",
        "WINDOW (UTC)",
        "ARCHIVED",
        "DELIVERED",
        "PROCESSED",
        "SET ASIDE",
        "DUPLICATES",
        "LOST",
        "STATE",
        "99.9 % WITHIN",
    )
    print_table(columns, [_row(one) for one in audited.windows], f"{application}: no updates in this time")
    for one in audited.findings:
        print_text(_text(one))
    for flow in audited.uncounted:
        print_text(f"{flow} has no delivery counts under the filter that {application} has now: unaudited")
    for flow in audited.unarchived:
        print_text(f"{flow}: the archive has nothing of its shard: unaudited")
    if audited.whole:
        beside = (
            audited.uncounted or audited.unarchived or any(one.unaudited or one.replayed for one in audited.windows)
        )
        print_text("nothing is lost of what could be compared" if beside else "nothing is lost")


def _row(one: Window) -> tuple[str, ...]:
    within = "" if one.complete_s is None else "longer" if math.isinf(one.complete_s) else span(one.complete_s)
    state = one.state
    if one.replayed:
        state = f"replayed, {one.replayed}" if state == "replayed" else f"{state}, {one.replayed} replayed in part"
    if one.unaudited:
        state = f"unaudited, {one.unaudited}" if state == "unaudited" else f"{state}, {one.unaudited} unaudited"
    if one.pending:
        state += f", {one.pending} to come"
    return (
        one.flow,
        _when(one.window),
        str(one.archived),
        str(one.delivered),
        "?" if one.processed is None else str(one.processed),
        str(one.set_aside or ""),
        "?" if one.duplicates is None else str(one.duplicates or ""),
        str(one.lost + one.unprocessed or ""),
        state,
        within,
    )


def _when(window: int) -> str:
    return f"{_begin(window):%Y-%m-%d %H:%M}" if window else "no time"


def _begin(window: int) -> datetime:
    from wormhole.wire.tally import WINDOW_S

    return datetime.fromtimestamp(window * WINDOW_S, UTC)


_KINDS = {
    "lost": "lost: archived, and never delivered",
    "unprocessed": "lost: delivered, and no callback returned",
    "repaired": "repaired by a replay: delivered, and no callback had returned",
    "differs": "not the same ones: as many were archived as delivered, the checksums differ",
    "set_aside": "set aside: skipped or parked",
    "unarchived": "delivered, and not in the archive",
}


def _text(one: Finding) -> str:
    what = f"update {one.update}" if one.update else f"{one.updates} updates"
    return f"{one.flow}, {_when(one.window)}: {what}: {_KINDS[one.kind]}{f' ({one.where})' if one.where else ''}"
