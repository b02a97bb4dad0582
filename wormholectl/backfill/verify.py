"""The commands ``verify`` and ``repair``: they compare an application's rows with its tables and repair differences."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import WormholeError
from wormholectl.shared.options import AsJson, FlowName, Where, Yes, application_names, flow_names, with_where
from wormholectl.show.printer import print_text

if TYPE_CHECKING:
    from wormhole.coordination.port import HistoryEntry

__all__ = ["app"]

app = typer.Typer()

Rate = Annotated[
    str,
    typer.Option(
        "--rate", metavar="BYTES/s", help="Read at most this much of the rows, such as 4MiB/s. Default: as configured."
    ),
]
Background = Annotated[bool, typer.Option("--background", help="Start it and return; `backfill show` has the result.")]

_INTERRUPTED: Final = 130

_VERIFY_EXAMPLES: Final = """Exit codes: 0 equal, or equal now; 1 differences are left, or not everything was \
compared; 2 a wrong request; 3 unreachable; 130 interrupted, it goes on.

Examples:

  wormholectl verify cache -c shop.toml

  wormholectl verify cache/db1 --tables 'shop.users,shop.order*' --rate 4MiB/s --yes -c shop.toml

  wormholectl verify cache --repair --yes --json -c shop.toml
"""

_REPAIR_EXAMPLES: Final = """Exit codes: 0 the application equals its tables, or got all rows; 1 something is left, or \
nothing was begun; 2 a wrong request; 3 unreachable; 130 interrupted, it goes on.

Examples:

  wormholectl repair cache/db1 -c shop.toml

  wormholectl repair cache/db1 --rate 4MiB/s --yes --json -c shop.toml
"""


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    return sorted({*application_names(ctx, incomplete), *flow_names(ctx, incomplete)})


@app.command(epilog=_VERIFY_EXAMPLES)
@with_where
def verify(
    which: Annotated[
        str,
        typer.Argument(
            metavar="APP[/SHARD]", help="The application, or one flow.", show_default=False, autocompletion=_names
        ),
    ],
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
    repair: Annotated[bool, typer.Option("--repair", help="Deliver what differs, and nothing else.")] = False,
    rate: Rate = "",
    background: Background = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Compare the rows that an application holds with those of its tables, while changes go on."""
    from wormhole.admin import Admin, admin_service
    from wormholectl.backfill.changes import await_first_rows, names_of, rate_of, start_each
    from wormholectl.backfill.flows import flows_named

    application = which.partition("/")[0]
    flows = flows_named(admin_service.ask(where), which)
    if not background:
        await_first_rows(where, application, flows, as_json)
    question = f"Compare the rows of {which}{', and repair those that differ' if repair else ''}?"
    begun = start_each(
        Admin(where),
        "verify",
        flows,
        names_of(tables),
        {"repair": repair, "rate": rate_of(rate)},
        question=question,
        yes=yes,
        as_json=as_json,
    )
    _follow(where, application, begun, background=background, as_json=as_json)


def _follow(where: Where, application: str, flows: list[str], *, background: bool, as_json: bool) -> None:
    """Show the progress, then the result, and exit with the result's code. Ctrl-C leaves the work running."""
    from wormholectl.backfill.changes import watch

    if background:
        if not as_json:
            print_text(f"it runs: `wormholectl backfill show {application}` has the result")
        return
    try:
        raise typer.Exit(watch(where, application, as_json, flows))
    except KeyboardInterrupt:
        print_text(
            "",
            f"it goes on: `wormholectl backfill show {application} --watch` looks again, "
            f"`wormholectl backfill cancel {application}` ends it",
            error=True,
        )
        raise typer.Exit(_INTERRUPTED) from None


@app.command(epilog=_REPAIR_EXAMPLES)
@with_where
def repair(
    flow: FlowName,
    where: Where,
    rate: Rate = "",
    background: Background = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Repair a flow after a data loss: show what was lost, send what differs, and let the flow go on.

    An application that can be verified gets the rows that differ. Any other gets all rows of its tables.
    """
    from wormhole.admin import Admin
    from wormholectl.backfill.changes import rate_of
    from wormholectl.backfill.show_repairs import show_repair
    from wormholectl.shared.confirm import confirm

    admin, accepted = Admin(where), _accepted(where, flow)
    given = rate_of(rate)
    planned = admin.repair(flow, given, preview=True)
    if not yes:
        show_repair(planned, accepted, as_json)
    confirm(f"Repair {flow}?", yes)
    show_repair(admin.repair(flow, given), accepted, as_json)
    _follow(where, flow.partition("/")[0], [flow], background=background, as_json=as_json)


def _accepted(where: Where, flow: str) -> "HistoryEntry | None":
    """The flow's last loss that an operator accepted; ``None`` without one, or if the history cannot be read."""
    from wormhole.admin.discovery import ask_coordinator
    from wormhole.coordination.port import HISTORY_KEPT

    if not where.coordinator:
        return None
    try:
        entries = ask_coordinator(where.coordinator, lambda client: client.history(HISTORY_KEPT))
    except WormholeError:
        return None  # the entry is only shown: the repair does not depend on it
    return next((one for one in entries if (one.what, one.target) == ("accept-loss", flow)), None)
