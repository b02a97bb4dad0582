"""``wormholectl audit``: whether everything that was archived was delivered and processed."""

from typing import Annotated, Final

import typer

from wormhole.model.errors import Fatal, StreamBroken, UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.errors import needs
from wormholectl.shared.options import Archives, AsJson, Master, Where, now, with_where
from wormholectl.show.printer import print_json, say_waiting

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
@needs("spark")
def audit(
    where: Where,
    application: Annotated[str, typer.Option("--app", metavar="APP", help="The application.", show_default=False)],
    archives: Archives = None,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Only so far back, 2h or 3d, or from a time on.")
    ] = "7d",
    parquet: Annotated[str, typer.Option("--parquet", metavar="FILE", help="Write the windows to this file too.")] = "",
    master: Master = "",
    as_json: AsJson = False,
) -> None:
    """Compare what was archived with what was delivered and processed, by windows of ten minutes; say which updates are
    lost.
    """
    from spark_replay.spark.session import check_spark, spark_session

    check_spark()
    from spark_replay.archive.ranges import asked_time
    from spark_replay.audit import auditor
    from spark_replay.audit.archived import Selecting
    from spark_replay.commands.show_audit import audit_object, show_audit
    from spark_replay.replay.job import setting_of
    from wormhole.admin import admin_service
    from wormhole.config.application_filter import application_filter
    from wormhole.wire.v1 import admin_pb2

    now_s = now()
    begin = asked_time(since, "--since", round(now_s * 1e6))
    setting = setting_of(where, application, archives or ())
    selecting = Selecting(setting.application.where or "", tuple(setting.application.tables), setting.formats, {})
    answers = admin_service.ask(where)
    if silent := [one.problem for one in answers if one.may_have(application)]:
        raise StreamBroken(
            "; ".join(silent), hint="start that publisher: its delivery counts are needed too", code="publisher-silent"
        )
    admin_service.check_application(answers, application)
    statuses = [one.status for one in answers if one.status is not None]
    flows = [flow.flow for status in statuses for flow in status.flows if flow.flow.partition("/")[0] == application]
    copies = {status.copy for status in statuses for flow in status.flows if flow.flow in flows}
    if not all(map(setting.archives, copies)):
        raise UsageError(
            f"the archive is of copy {setting.store.copy!r}, {application} is served from {', '.join(sorted(copies))}: "
            "places of two copies cannot be compared",
            hint="archive the copy that serves the application",
        )
    replies = [admin_service.audit(one, admin_pb2.AuditRequest()) for one in answers if one.status is not None]
    counted = application_filter(setting.application, setting.formats.open()).hash
    counts = auditor.flow_counts(application, counted, replies)
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
                f"{parquet} cannot be written: {error}",
                hint="name a file in a folder that is there",
                code="file-unwritable",
            ) from error
    if as_json:
        print_json(audit_object(application, audited))
    else:
        show_audit(application, audited)
    if not audited.whole:
        raise typer.Exit(BROKEN)
