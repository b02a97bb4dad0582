"""The noun ``publishers``, which lists publishers, and whose verb ``move`` gives a log to another publisher. The nouns
``shards``, ``caravans`` and ``subscribers`` only list reports of publishers.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import Fatal, Retryable, WormholeError
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import AsJson, Where, Yes, duration, now, with_where
from wormholectl.show.printer import print_json, print_notes, print_text, print_warnings, span

if TYPE_CHECKING:
    from wormhole.coordination.port import Coordinator, HistoryEntry, LogOwners, MoveRequest
    from wormholectl.publishers.log_moves import PlannedMove

__all__ = ["app", "publishers_app"]

_EXAMPLES: Final = (
    "Examples:\n\n  wormholectl publishers -c shop.toml\n\n  wormholectl publishers -c zk1:2181/wormhole --json"
)
_MOVE_EXAMPLES: Final = (
    "Examples:\n\n  wormholectl publishers move shop/db1 --to db-8 -c shop.toml\n\n"
    "  wormholectl publishers move shop/db1 --to west@db-9 -c shop.toml --yes"
)

app = typer.Typer()
publishers_app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)


def _show(what: str, where: Where, as_json: bool) -> None:
    from wormhole.admin.admin_service import ask
    from wormholectl.publishers import show as publishers
    from wormholectl.show import lists

    raise typer.Exit(lists.show(getattr(publishers, what.upper()), ask(where), as_json))


@publishers_app.callback()
@with_where
def publishers(ctx: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List publishers: host, version, contact with the coordinator, end and growth of the log; below them those that
    stand by for a log, and which publisher took over from which. With `move`: give a log to another one.
    """
    if ctx.invoked_subcommand is not None:
        return
    from wormhole.admin.admin_service import Answer, ask
    from wormhole.admin.discovery import log_owners
    from wormholectl.publishers.show import PUBLISHERS
    from wormholectl.publishers.show_owners import log_object, show_log_owners
    from wormholectl.show import lists

    owners = log_owners(where)
    try:
        answers = ask(where)
    except Retryable as error:
        if not any(one.candidates for one in owners.values()):
            raise
        answers = [Answer("", None, error.message)]
    logs = [log_object(group, one) for group, one in sorted(owners.items(), key=lambda one: str(one[0]))]
    raise typer.Exit(lists.show(PUBLISHERS, answers, as_json, {"logs": logs}, lambda: show_log_owners(owners)))


@publishers_app.command(epilog=_MOVE_EXAMPLES)
@with_where
def move(
    log: Annotated[
        str,
        typer.Argument(
            metavar="DATASET/LOG", help="The log; DATASET/COPY/LOG where several copies have it.", show_default=False
        ),
    ],
    where: Where,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="COPY@HOST",
            help="The publisher that is to own the log; HOST alone if one publisher stands by there.",
            show_default=False,
        ),
    ],
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait for that.")] = "30s",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a log to a publisher that stands by for it: before maintenance, or back to the preferred one afterwards."""
    from wormhole.admin.discovery import with_coordinator
    from wormhole.coordination.current_user import current_user
    from wormhole.coordination.port import HistoryEntry, MoveRequest
    from wormhole.coordination.standbys import owner_name
    from wormholectl.publishers.log_moves import planned_move
    from wormholectl.publishers.show_owners import log_object

    timeout_s = duration("--timeout", timeout)

    async def look(coordinator: "Coordinator") -> "PlannedMove":
        datasets = (await coordinator.configuration()).datasets
        return planned_move(log, to, await coordinator.log_owners(), datasets)

    planned = with_coordinator(where, look)
    group, candidate, before = planned.group, planned.candidate, owner_name(planned.owners)
    if not as_json:
        print_text(
            f"{group} is owned by {before or 'no publisher'} and would be owned by {candidate.name}",
            f"{before} lets subscribers finish what they have begun, and stands by then"
            if before
            else "it takes over before all others that stand by",
        )
    print_warnings(planned.warnings)
    confirm(f"Move {group} to {candidate.name}?", yes)
    request = MoveRequest(candidate.name, current_user(), now())
    entry = HistoryEntry(request.at, request.by, "publishers move", str(group), before, candidate.name)
    after, took_s, notes = with_coordinator(
        where, lambda coordinator: _move(coordinator, planned, request, entry, timeout_s)
    )
    if as_json:
        changed = {"before": log_object(group, planned.owners), "after": log_object(group, after)}
        print_json(
            {"log": str(group), "changed": True, **changed, "took_s": took_s, "notes": [*planned.warnings, *notes]}
        )
        return
    print_text(f"{candidate.name} owns {group}, after {span(took_s)}")
    print_notes(notes)


async def _move(
    coordinator: "Coordinator", planned: "PlannedMove", request: "MoveRequest", entry: "HistoryEntry", timeout_s: float
) -> "tuple[LogOwners, float, list[str]]":
    """Request the move and wait for it. Returns the owner of the log, the seconds that the move took, and notes.

    Raises :class:`~wormhole.model.errors.Fatal` if another publisher takes the log, and
    :class:`~wormhole.model.errors.Retryable` if no publisher has taken it after ``timeout_s``.
    """
    import asyncio

    from wormhole.coordination.standbys import owner_name
    from wormhole.host.clock import SYSTEM_CLOCK

    group, notes, owners = planned.group, list[str](), planned.owners
    began = SYSTEM_CLOCK.monotonic()
    taken = False
    await coordinator.request_move(group, request)
    try:
        try:
            await coordinator.record(entry)
        except WormholeError as error:
            notes.append(f"it is missing in the history: {error}")
        async with asyncio.timeout(timeout_s):
            async for owners in coordinator.watch_log(group):
                if owner_name(owners) == request.to:
                    taken = True
                    return owners, SYSTEM_CLOCK.monotonic() - began, notes
                if owners.owner is not None and owners.move is None:
                    taken = True
                    # A publisher that takes a log clears the request for the log.
                    raise Fatal(
                        f"{owner_name(owners)} took {group} instead of {request.to}",
                        hint="`wormholectl publishers` shows why; then repeat it",
                        code="owner-elsewhere",
                    )
    except TimeoutError:
        pass
    finally:
        if not taken:  # withdraw the request: the log must not move unexpectedly when the host is back later
            await coordinator.request_move(group, None)
    raise Retryable(
        f"{request.to} does not own {group} after {timeout_s:g} s; {owner_name(owners) or 'no publisher'} does",
        hint="the request was withdrawn; `wormholectl publishers` shows who owns the log, and the publishers' logs "
        "show why",
        code="log-unowned",
    )


@app.command(epilog="Example:\n\n  wormholectl shards -c shop.toml")
@with_where
def shards(where: Where, as_json: AsJson = False) -> None:
    """List shards: the publisher that owns each, its applications, and how far the last of them is behind."""
    _show("shards", where, as_json)


@app.command(epilog="Example:\n\n  wormholectl caravans -c shop.toml")
@with_where
def caravans(where: Where, as_json: AsJson = False) -> None:
    """List caravans: where each log reader is, how fast it reads, and which flows travel with it."""
    _show("caravans", where, as_json)


@app.command(epilog="Example:\n\n  wormholectl subscribers -c shop.toml")
@with_where
def subscribers(where: Where, as_json: AsJson = False) -> None:
    """List subscribers: address, connection and number of flows of each."""
    _show("subscribers", where, as_json)
