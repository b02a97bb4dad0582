"""The noun ``hosts``, which lists hosts and adopts their sources, and the command ``drain``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from wormhole.model.errors import UsageError, WormholeError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import AsJson, Where, Yes, now, with_where
from wormholectl.show.printer import print_json, print_notes, print_text

__all__ = ["app", "hosts_app"]

_EXAMPLES: Final = "Examples:\n\n  wormholectl hosts -c zk1:2181/wormhole\n\n  wormholectl hosts -c shop.toml --json"

app = typer.Typer()
hosts_app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)


@hosts_app.callback()
@with_where
def hosts(ctx: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List hosts: their monitor, its publishers, and whether they are drained. Exit code 1 when one that should run
    logs has no monitor. With `adopt`: write what this host lets datasets read.
    """
    if ctx.invoked_subcommand is not None:
        return
    from wormholectl.hosts.show import HOSTS
    from wormholectl.hosts.status import hosts_of

    found = hosts_of(where)
    if as_json:
        print_json({"hosts": HOSTS.objects(found)})
    else:
        HOSTS.show(found, "no monitor runs, and no log names a host")
    if any(host.monitor is None and not host.request.drained for host in found):
        raise typer.Exit(BROKEN)


@hosts_app.command("adopt", epilog="Example:\n\n  wormholectl hosts adopt -c /etc/wormhole/host.toml")
def hosts_adopt(
    config: Annotated[
        Path,
        typer.Option(
            "--config", "-c", metavar="FILE.toml", help="The file of this host's monitor.", show_default=False
        ),
    ],
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the tables only, for a file that something else writes.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Add to this host's file the sources that an earlier release stored in ZooKeeper for it; from then on only that
    list counts.
    """
    from wormholectl.hosts.adopt import adopt

    adopt(config, yes, only_print)


@app.command(
    epilog="Examples:\n\n  wormholectl drain db-7 -c shop.toml\n\n  wormholectl drain db-7 --undo -c shop.toml --yes"
)
@with_where
def drain(
    host: Annotated[str, typer.Argument(metavar="HOST", help="As `wormholectl hosts` lists it.", show_default=False)],
    where: Where,
    undo: Annotated[bool, typer.Option("--undo", help="Let it run its publishers again.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Stop all publishers of a host, cleanly, and keep them stopped: before maintenance. Publishers that stand by on
    other hosts take its logs over.
    """
    from wormhole.admin.admin_service import nearest
    from wormhole.admin.discovery import with_coordinator
    from wormhole.coordination.current_user import current_user
    from wormhole.coordination.port import Coordinator, HistoryEntry, HostRequest
    from wormholectl.hosts.show import HOSTS
    from wormholectl.hosts.status import hosts_of, served_elsewhere

    known = {one.name: one for one in hosts_of(where)}
    if host not in known:
        raise UsageError(
            f"no monitor runs on {host!r} and no log names it",
            hint=nearest(host, known, "host", "wormholectl hosts"),
            code="flow-unknown",
        )
    before = known[host]
    after = replace(before, request=HostRequest(not undo, current_user(), now()))
    old, new = ("drained" if one.request.drained else "in use" for one in (before, after))
    logs = sorted((before.monitor.publishers if before.monitor else {}) or before.logs)
    elsewhere = {} if undo else served_elsewhere(where, host, logs)
    goes_on = [f"{log}: {how}" for log, how in elsewhere.items()]
    if not as_json:
        unread = [log for log in logs if log not in elsewhere]
        effect = "run again" if undo else "stop" if elsewhere else "stop; no process then reads its logs"
        runs = ", ".join(logs) or "none"
        print_text(f"{host} is {old} and would be {new}", f"its publishers ({runs}) would {effect}", *goes_on)
        if elsewhere and unread:
            print_text(f"{', '.join(unread)}: no process then reads it")
    confirm(f"{'Undo the drain of' if undo else 'Drain'} {host}?", yes)
    entry = HistoryEntry(after.request.at, after.request.by, "drain --undo" if undo else "drain", host, old, new)

    async def apply(coordinator: Coordinator) -> list[str]:
        await coordinator.set_host(host, after.request)
        try:
            await coordinator.record(entry)
        except WormholeError as error:
            return [f"it is missing in the history: {error}"]
        return []

    notes = [*(goes_on if as_json else ()), *with_coordinator(where, apply)]
    if before.monitor is None:
        notes.append("no monitor runs there now; it follows this when it starts")
    if as_json:
        change = {"before": HOSTS.object(before), "after": HOSTS.object(after), "notes": notes}
        print_json({"host": host, "changed": True, **change})
        return
    print_text(f"{host} is {new}; `wormholectl hosts` shows the progress of its monitor")
    print_notes(notes)
