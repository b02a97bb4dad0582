"""The noun ``hosts``: bare it lists, ``adopt`` writes what a host allows; and the verb ``drain``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import UsageError, WormholeError
from wormholectl.confirm import confirm
from wormholectl.guard import BROKEN
from wormholectl.options import AsJson, Yes, with_where
from wormholectl.show.printer import SCHEMA, print_json, print_table, print_text

if TYPE_CHECKING:
    from wormhole.coordination import Coordinator, HostRequest
    from wormholectl.discovery import Where
    from wormholectl.host_status import Host

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
    raise typer.Exit(_show(where, as_json))


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
    from wormholectl.hosts_adopt import adopt

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
    """Stop all publishers of a host, cleanly, and keep them stopped: before maintenance."""
    _drain(where, host, undo, yes, as_json)


def _show(where: Where, as_json: bool) -> int:
    """Print every host. The exit code is 1 when one that should run logs has no monitor."""
    from wormholectl.host_status import hosts_of

    hosts = hosts_of(where)
    if as_json:
        print_json({"schema": SCHEMA, "hosts": [_object(host) for host in hosts]})
    else:
        columns = ("HOST", "MONITOR", "UP SINCE", "PUBLISHERS", "DRAINED", "CAUSE")
        print_table(columns, [_row(host) for host in hosts], "no monitor runs, and no log names a host")
    return BROKEN if any(host.monitor is None and not host.request.drained for host in hosts) else 0


def _row(host: Host) -> Sequence[str]:
    monitor, request = host.monitor, host.request
    phases: dict[str, int] = {}
    for phase in (monitor.publishers if monitor else {}).values():
        phases[phase] = phases.get(phase, 0) + 1
    idle = f"{', '.join(host.logs)} not run: start `wormholectl monitor run` there" if host.logs else ""
    return (
        host.name,
        (monitor.address or "yes") if monitor else "none",
        f"{datetime.fromtimestamp(monitor.started).astimezone():%Y-%m-%d %H:%M:%S}"
        if monitor and monitor.started
        else "-",
        ", ".join(f"{count} {phase.replace('_', ' ')}" for phase, count in sorted(phases.items())) or "-",
        f"by {request.by or 'somebody'}" if request.drained else "no",
        "" if monitor or request.drained else idle,
    )


def _object(host: Host) -> dict[str, Any]:
    monitor = host.monitor
    return {
        "host": host.name,
        "monitor": None
        if monitor is None
        else {
            "address": monitor.address or None,
            "pid": monitor.pid,
            "started": _time(monitor.started) if monitor.started else None,
        },
        "publishers": {} if monitor is None else dict(monitor.publishers),
        "logs": list(host.logs),
        "drained": host.request.drained,
        "said_by": host.request.by or None,
        "said_at": _time(host.request.at) if host.request.at else None,
    }


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def _drain(where: Where, host: str, undo: bool, yes: bool, as_json: bool) -> None:
    """Let a host run no publishers any more, or (``undo``) again: its monitor stops them cleanly or starts them.

    Raises :class:`~wormhole.model.errors.UsageError` for a host that nobody knows.
    """
    from wormhole.coordination import HistoryEntry, HostRequest
    from wormhole.coordination.current_user import current_user
    from wormholectl.admin_client import nearest
    from wormholectl.discovery import with_coordinator
    from wormholectl.host_status import Host, hosts_of

    known = {one.name: one for one in hosts_of(where)}
    if host not in known:
        raise UsageError(
            f"no monitor runs on {host!r} and no log names it", hint=nearest(host, known, "host", "wormholectl hosts")
        )
    before = known[host]
    request = HostRequest(not undo, current_user(), time.time())
    runs = sorted((before.monitor.publishers if before.monitor else {}) or before.logs)
    if not as_json:
        print_text(f"{host} is {_word(before.request)} and would be {_word(request)}")
        print_text(
            f"its publishers ({', '.join(runs) or 'none'}) would "
            f"{'run again' if undo else 'stop; its logs are then read by nobody'}"
        )
    confirm(f"{'Undo the drain of' if undo else 'Drain'} {host}?", yes)
    entry = HistoryEntry(
        request.at, request.by, "drain --undo" if undo else "drain", host, _word(before.request), _word(request)
    )

    async def apply(coordinator: Coordinator) -> str:
        await coordinator.set_host(host, request)
        try:
            await coordinator.record(entry)
        except WormholeError as error:
            return f"the history missed it: {error}"
        return ""

    note = with_coordinator(where, apply)
    after = Host(host, before.monitor, request, before.logs)
    notes = [note] if note else []
    if before.monitor is None:
        notes.append("no monitor runs there now; it will see this when it starts")
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "host": host,
                "changed": True,
                "before": _object(before),
                "after": _object(after),
                "notes": notes,
            }
        )
        return
    print_text(f"{host} is {_word(request)}; `wormholectl hosts` shows how far its monitor is")
    for one in notes:
        print_text(f"note: {one}")


def _word(request: HostRequest) -> str:
    return "drained" if request.drained else "in use"
