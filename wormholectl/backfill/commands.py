"""The noun ``backfill``: its commands send rows that tables hold already to an application."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.exit_codes import UNREACHABLE
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import ApplicationName, AsJson, Where, Yes, with_where
from wormholectl.show.printer import print_warnings

if TYPE_CHECKING:
    from wormhole.admin.admin_service import Answer

__all__ = ["app"]

_EXAMPLES: Final = """Examples:

  wormholectl backfill -c shop.toml

  wormholectl backfill start cache --tables 'shop.users,shop.order*' --rate 4MiB/s -c shop.toml

  wormholectl backfill show cache --watch -c shop.toml
"""

app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Show the progress until it has ended; Ctrl-C stops looking.")
]


@app.callback()
@with_where
def backfill(ctx: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List the backfills of all flows. With a verb: start, show, pause, resume or cancel an application's."""
    if ctx.invoked_subcommand is None:
        raise typer.Exit(_show(where, "", as_json))


_START_EXAMPLES: Final = """Examples:

  wormholectl backfill start cache -c shop.toml

  wormholectl backfill start cache --tables shop.users --where 'country == "NZ"' --yes -c shop.toml

  wormholectl backfill start cache --rate 1MiB/s --yes --watch -c shop.toml
"""


@app.command(epilog=_START_EXAMPLES)
@with_where
def start(
    application: ApplicationName,
    where: Where,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            metavar="TABLE",
            help="Only these, as updates name them; patterns as in a shell, commas or repeats.",
            show_default=False,
        ),
    ] = None,
    chosen: Annotated[
        str, typer.Option("--where", metavar="FILTER", help="Only rows that this filter selects too (docs/filters.md).")
    ] = "",
    rate: Annotated[
        str,
        typer.Option(
            "--rate",
            metavar="BYTES/s",
            help="Read at most this much of the rows, such as 4MiB/s. Default: as configured.",
        ),
    ] = "",
    yes: Yes = False,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Send an application the rows that its tables hold already, as READ updates, beside the changes."""
    from wormhole.admin import Admin
    from wormholectl.backfill.changes import names_of, rate_of, start_each
    from wormholectl.backfill.flows import flows_of

    settings = {"where": chosen, "rate": rate_of(rate)}
    question = f"Send {application} these rows?"
    flows = flows_of(_ask(where), application)
    begun = start_each(
        Admin(where), "backfill_start", flows, names_of(tables), settings, question=question, yes=yes, as_json=as_json
    )
    if watch:
        raise typer.Exit(_watch(where, application, as_json, begun))


@app.command(epilog="Example:\n\n  wormholectl backfill show cache --watch -c shop.toml")
@with_where
def show(application: ApplicationName, where: Where, watch: Watch = False, as_json: AsJson = False) -> None:
    """Show how far an application's backfill is: flows, tables, rows sent, time left, and why it waits."""
    raise typer.Exit(_watch(where, application, as_json) if watch else _show(where, application, as_json))


@app.command(epilog="Example:\n\n  wormholectl backfill pause cache -c shop.toml")
@with_where
def pause(application: ApplicationName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Read no more rows for an application until it is resumed, also over restarts. Changes go on."""
    _change(where, application, "pause", f"Pause the backfill of {application}?", yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl backfill resume cache --yes -c shop.toml")
@with_where
def resume(application: ApplicationName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let a paused backfill go on where it was."""
    _change(where, application, "resume", f"Resume the backfill of {application}?", yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl backfill cancel cache -c shop.toml")
@with_where
def cancel(application: ApplicationName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """End a backfill early. The rows that were sent stay; the application gets no report that a table is complete."""
    _change(where, application, "cancel", f"Cancel the backfill of {application}?", yes, as_json)


def _change(where: Where, application: str, what: str, question: str, yes: bool, as_json: bool) -> None:
    """Preview a change of all flows that have a backfill, ask, and make the change."""
    from wormhole.admin import Admin
    from wormholectl.backfill.changes import before_and_after, change_each, notes_of
    from wormholectl.backfill.flows import running_of
    from wormholectl.show.backfills import show_changed

    admin, flows = Admin(where), running_of(_ask(where), application)

    def changed(preview: bool) -> None:
        found = change_each(admin, f"backfill_{what}", {flow: {} for flow in flows}, preview=preview)
        show_changed(application, what, before_and_after(found), notes_of(found), made=not preview, as_json=as_json)

    if not yes:
        changed(True)
    confirm(question, yes)
    changed(False)


def _show(where: Where, application: str, as_json: bool) -> int:
    from wormholectl.backfill.flows import backfills_of
    from wormholectl.show.backfills import show_backfills

    answers = _ask(where)
    silent = [one for one in answers if one.silent]
    show_backfills(backfills_of(answers, application), silent, as_json)
    print_warnings(one.problem for one in silent)
    return UNREACHABLE if silent else 0


def _watch(where: Where, application: str, as_json: bool, flows: Collection[str] = ()) -> int:
    from wormholectl.backfill.changes import watch

    return watch(where, application, as_json, flows)


def _ask(where: Where) -> "list[Answer]":
    from wormhole.admin import admin_service

    return admin_service.ask(where)
