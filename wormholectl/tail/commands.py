"""The command ``tail``, which shows a log's updates: its options and help."""

from contextlib import suppress
from typing import Annotated, Final

import typer

from wormholectl.exit_codes import BROKEN
from wormholectl.shared.options import LOG_HELP, AsJson, Formats, LogName, PasswordFile

__all__ = ["app"]

_NAMED: Final = 50

app = typer.Typer()

_TAIL_EXAMPLES: Final = """Examples:

  wormholectl tail "$LOG"

  wormholectl tail "$LOG" --from earliest --no-follow --json | jq .key

  wormholectl tail "$LOG" --filter 'op == "delete" and key startswith "user:"'

  wormholectl tail "$SERVER/shop" --password-file db1.password --table users --from 0-1-1742
"""


@app.command(epilog=_TAIL_EXAMPLES)
def tail(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help=f"{LOG_HELP} Of a server with databases: SCHEME://user@host:port/database shows the tables of one.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    where: Annotated[
        str | None,
        typer.Option("--filter", "-f", metavar="EXPR", help="Show only the updates that pass (docs/filters.md)."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="PATTERN",
            help="Only these tables (shop.users, 'shop.*'); repeatable.",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="earliest|latest|PLACE", help="Where to begin: 1/42/32768, or the datastore's own form."
        ),
    ] = "latest",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after this many updates.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end of the log.")] = True,
    formats: Formats = None,
    password_file: PasswordFile = None,
    log_name: LogName = "",
) -> None:
    """Show a database's changes as they are committed. Needs no ZooKeeper and disturbs no other reader."""
    from wormhole.config.passwords import without_password
    from wormhole.filters import Filter
    from wormhole.model.errors import DecodeError
    from wormhole.model.loss import LogGap, LossKind
    from wormhole.model.position import LogPosition
    from wormholectl.filters.effect import formats_of
    from wormholectl.logs.sources import datastore_at, split_database, tables_within
    from wormholectl.show.printer import print_json, print_line, print_text, print_warnings
    from wormholectl.tail import show as updates
    from wormholectl.tail.log_tail import ShownPlaces, TailEvents, TailOptions
    from wormholectl.tail.log_tail import tail as run_tail

    log, database = split_database(url)
    if log_name:
        log = datastore_at(log).url_of_log(log, log_name.rpartition("/")[2])
    wanted = Filter.parse(where, tables_within(database, tables or ()), formats_of(formats or ()))
    places = ShownPlaces()
    left_out: set[str] = set()
    lost: list[LogGap] = []

    def broken(error: DecodeError) -> None:
        # Each transaction that changes such a table has the error. One error may concern several tables.
        if error.message not in left_out:
            print_text(f"warning: not shown: {error}", error=True)
        others = [one for one in dict.fromkeys(error.tables) if one not in left_out and one not in error.message]
        if others:
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            print_text(f"warning: not shown either: {', '.join(others[:_NAMED])}{more}", error=True)
        left_out.update((error.message, *error.tables))

    def gap(missing: LogGap, begin: LogPosition) -> None:
        if missing.kind is not LossKind.NOT_LOGGED:  # unlogged changes were never in the log
            lost.append(missing)
        if as_json:
            print_json(updates.gap_as_json(missing, begin, places.native(begin)))
        else:
            print_line(updates.gap_as_line(missing, places.shown(begin)))

    def warning(sentence: str) -> None:
        print_warnings([sentence])

    def waiting(sentence: str) -> None:
        print_text(f"waiting for {without_password(url)}: {sentence}", error=True)

    if as_json:
        events = TailEvents(
            lambda update: print_json(updates.update_as_json(update, places.native(update.transaction.position))),
            gap,
            broken=broken,
            waiting=waiting,
            warning=warning,
        )
    else:
        events = TailEvents(
            lambda update: print_line(updates.update_as_line(update)),
            gap,
            lambda marker: print_text(
                f"tailing {without_password(url)} from {places.shown(marker.order)}"
                f"{f', after {marker.delivered}' if marker.delivered else ''}{'; Ctrl-C ends' if follow else ''}",
                error=True,
            ),
            broken,
            waiting,
            warning,
        )
    options = TailOptions(wanted, start, limit, follow)
    with suppress(KeyboardInterrupt):
        run_tail(log, options, events, password_file, places)
    if lost:
        print_text(
            f"error [data-lost]: the log no longer holds all of what was asked for: {lost[0].message}",
            "  next: what was shown lacks that; replay it from an archive, or copy the tables anew",
            error=True,
        )
    if left_out or lost:
        raise typer.Exit(BROKEN)
