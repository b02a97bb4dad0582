"""The command ``doctor``, which examines a database or an installation: its options and help."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN, UNREACHABLE
from wormholectl.shared.options import LOG_HELP, AsJson, LogName, PasswordFile, Where, with_where

if TYPE_CHECKING:
    from wormhole.model.findings import Report
    from wormhole.ports.datastore import Datastore

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl doctor "$LOG"

  wormholectl doctor "$LOG" --password-file db1.password --json

  wormholectl doctor "$LOG" -c shop.toml

  wormholectl doctor -c shop.toml
"""


@app.command(epilog=_EXAMPLES)
@with_where
def doctor(
    where: Where,
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help=f"{LOG_HELP} Without it: the installation.", show_default=False)
    ] = "",
    as_json: AsJson = False,
    password_file: PasswordFile = None,
    log: LogName = "",
) -> None:
    """Say what matters for tailing a database: settings, privileges, tables, files. With a configuration file beside
    the URL also whether the existing rows may be read that its applications begin with, and what its binlog_folder
    holds. Without a URL examine an installation: coordinator, monitors, publishers, flows, versions, clocks, disks.
    Exit code 1 when something should be changed.
    """
    if not (url or where.publisher or where.coordinator):
        raise UsageError(
            "doctor of what?",
            hint="give the URL of a database; for an installation -c FILE.toml, -c ZK:2181/ROOT "
            "(WORMHOLE_COORDINATOR) or --publisher HOST:PORT",
        )
    from wormholectl.doctor.show import show_report
    from wormholectl.show.printer import print_warnings

    unreachable = False
    if url:
        from wormhole.admin.discovery import STATE_DIR
        from wormhole.config.datastores import installed
        from wormholectl.logs.configured import chosen_log
        from wormholectl.logs.sources import datastore_at, login_of

        found, login = datastore_at(url), login_of(url, password_file)
        with installed(found):
            known = chosen_log(found, url, where, log)
            if where.coordinator and not known.source:
                print_warnings([f"{where.coordinator} has no log at this URL: nothing of it counts here"])
            named = found.url_of_log(url, known.name, known.source) if known.name else url
            report = found.examine(named, where.folder or STATE_DIR, login)
            if tables := known.wanted_rows:
                report.findings = [one for one in report.findings if one.check != "existing_rows"]
                report.findings += found.examine_existing_rows(url, login, tables)
            if known.binlog_folder is not None:
                report.findings += found.examine_binlog_folder(url, login, known.binlog_folder)
            _add_growth(report, found, where, known.path)
    else:
        from wormholectl.doctor.installation import judge
        from wormholectl.doctor.survey import look

        seen = look(where)
        report, unreachable = judge(seen), seen.unreachable
    show_report(report, as_json)
    if unreachable:
        raise typer.Exit(UNREACHABLE)
    if report.severity.value == "problem":
        raise typer.Exit(BROKEN)


def _add_growth(report: "Report", found: "Datastore", where: Where, path: str) -> None:
    """Add the growth of the log, and for how long a relay's budget lasts. The relay is that of the log ``path``, or the
    default one."""
    from wormholectl.relay import sizing as relay_sizing

    if report.growth is not None:
        report.facts["log grows"] = relay_sizing.growth_text(report.growth)
    report.findings += relay_sizing.findings(report.growth, relay_sizing.plan_of(found, where, path))
