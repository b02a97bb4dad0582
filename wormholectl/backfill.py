"""The noun ``backfill``: the rows that tables hold already, sent to an application."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError, WormholeError
from wormholectl.confirm import confirm
from wormholectl.errors import BROKEN, UNREACHABLE
from wormholectl.options import ApplicationName, AsJson, Where, Yes, parsed, with_where
from wormholectl.show.printer import counted, print_warnings

if TYPE_CHECKING:
    from wormhole.admin import Admin, Change
    from wormhole.admin.admin_service import Answer
    from wormholectl.show.backfills import FlowBackfill

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

  wormholectl backfill start cache --tables shop.users --where 'after.country == "NZ"' --yes -c shop.toml

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
        str, typer.Option("--rate", metavar="BYTES/s", help="Of rows at most, such as 4MiB/s; else as configured.")
    ] = "",
    yes: Yes = False,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Send an application the rows that its tables hold already, as READ updates, beside the changes."""
    from wormhole.admin import Admin
    from wormholectl.backfill_flows import flows_of, tables_of
    from wormholectl.show.backfills import show_changed, show_planned

    names = tuple(one.strip() for given in tables or () for one in given.split(",") if one.strip())
    settings: dict[str, object] = {"where": chosen, **({"rate": _rate(rate)} if rate else {})}
    admin = Admin(where)
    chosen_tables: dict[str, tuple[str, ...]] = dict.fromkeys(flows_of(_ask(where), application), ())

    def begin(preview: bool) -> "list[Change]":
        each = {flow: {**settings, "tables": of_flow} for flow, of_flow in chosen_tables.items()}
        return _change_each(admin, "backfill_start", each, preview=preview)

    planned = begin(True)  # what is wrong is reported before any flow begins
    if names:
        chosen_tables = tables_of(names, [_after(one) for one in planned])
        planned = begin(True)
    if not yes:
        show_planned(application, [_after(one) for one in planned], _notes(planned), as_json)
    confirm(f"Send {application} these rows?", yes)
    made = begin(False)
    show_changed(application, "start", _before_and_after(made), _notes(made), made=True, as_json=as_json)
    if watch:
        raise typer.Exit(_watch(where, application, as_json))


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
    """End a backfill early. The rows that were sent stay; the application is not told that a table is complete."""
    _change(where, application, "cancel", f"Cancel the backfill of {application}?", yes, as_json)


def _change(where: Where, application: str, what: str, question: str, yes: bool, as_json: bool) -> None:
    """Preview a change of all flows that have a backfill, ask, make it."""
    from wormhole.admin import Admin
    from wormholectl.backfill_flows import running_of
    from wormholectl.show.backfills import show_changed

    admin, flows = Admin(where), running_of(_ask(where), application)

    def changed(preview: bool) -> None:
        found = _change_each(admin, f"backfill_{what}", {flow: {} for flow in flows}, preview=preview)
        show_changed(application, what, _before_and_after(found), _notes(found), made=not preview, as_json=as_json)

    if not yes:
        changed(True)
    confirm(question, yes)
    changed(False)


def _change_each(
    admin: "Admin", what: str, settings: Mapping[str, Mapping[str, object]], *, preview: bool
) -> "list[Change]":
    """A change of several flows, with the settings of each. An error says how many flows were changed before it."""
    done: list[Change] = []
    for flow, of_flow in settings.items():
        try:
            done.append(getattr(admin, what)(flow, preview=preview, **of_flow))
        except WormholeError as error:
            if done and not preview:
                error.message += f" ({flow}; {counted(len(done), 'other flow')} changed before it)"
            raise
    return done


def _after(change: "Change") -> "FlowBackfill":
    from wormhole.admin.admin_service import publisher_name
    from wormholectl.show.backfills import FlowBackfill

    status = change.after.backfill if change.after.HasField("backfill") else None
    return FlowBackfill(publisher_name(change.publisher), change.flow, status)


def _before_and_after(changes: "Sequence[Change]") -> "list[tuple[FlowBackfill, FlowBackfill]]":
    from wormholectl.show.backfills import FlowBackfill

    found = []
    for change in changes:
        after = _after(change)
        status = change.before.backfill if change.before.HasField("backfill") else None
        found.append((FlowBackfill(after.publisher, after.flow, status), after))
    return found


def _notes(changes: "Sequence[Change]") -> list[str]:
    """What the publishers remarked, each remark once."""
    return list(dict.fromkeys(note for change in changes for note in change.notes))


def _show(where: Where, application: str, as_json: bool) -> int:
    from wormholectl.backfill_flows import backfills_of
    from wormholectl.show.backfills import show_backfills

    answers = _ask(where)
    silent = [(one.address, one.problem) for one in answers if one.silent]
    show_backfills(backfills_of(answers, application), silent, as_json)
    print_warnings(problem for _, problem in silent)
    return UNREACHABLE if silent else 0


def _watch(where: Where, application: str, as_json: bool) -> int:
    """Show the progress until every backfill has ended. Returns 1 where a table was not sent as a whole."""
    from wormholectl.backfill_flows import wait_until_ended
    from wormholectl.show.backfills import Progress, is_complete, show_backfills

    progress = Progress(application, as_json=as_json)
    ended = wait_until_ended(lambda: _ask(where), application, progress.show)
    progress.close()
    show_backfills(ended, (), as_json)
    return 0 if all(one.status is not None and is_complete(one.status) for one in ended) else BROKEN


def _ask(where: Where) -> "list[Answer]":
    from wormhole.admin import admin_service

    return admin_service.ask(where)


def _rate(text: str) -> float:
    from wormhole.config import parse_rate

    rate = parsed(parse_rate, "--rate", text, "4MiB/s")
    if not rate:
        raise UsageError("--rate 0: no row would ever be sent", hint="leave out --rate, or `backfill pause`")
    return rate
