"""Hosts: who monitors them, what runs there, and whether it should."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from wormhole.config import Config, CoordinatorForm
from wormhole.coordination import Coordinator, HistoryEntry, HostWish, MonitorInfo, StoredConfig
from wormhole.coordination.who import who
from wormhole.model.errors import UsageError, WormholeError
from wormholectl.admin_client import nearest
from wormholectl.confirm import confirm
from wormholectl.discovery import Where, configured, serving, with_coordinator
from wormholectl.guard import BROKEN
from wormholectl.output import print_json, print_table, print_text
from wormholectl.render import SCHEMA

__all__ = ["Host", "drain", "hosts_of", "known_hosts", "lock_holder", "show"]

_LOCKS: Final = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Host:
    """A host that a monitor speaks for or that the configuration names: ``logs`` should run there, ``monitor`` says what does."""

    name: str
    monitor: MonitorInfo | None
    wish: HostWish
    logs: tuple[str, ...]


def known_hosts(
    stored: StoredConfig, monitors: Iterable[MonitorInfo], *, static: bool = False
) -> dict[str, tuple[MonitorInfo | None, tuple[str, ...]]]:
    """By name: the live monitor, and the logs that name this host; in the static form it runs those that name none, too."""
    live = {one.host: one for one in monitors}
    anywhere = tuple(live) if static else ()
    logs: dict[str, list[str]] = {name: [] for name in live}
    for dataset, settings in stored.datasets.items():
        for copy, one in settings.copies.items():
            for log, named in one.logs.items():
                for host in (named.host,) if named.host else anywhere:
                    logs.setdefault(host, []).append(f"{dataset}/{copy}/{log}")
    return {name: (live.get(name), tuple(sorted(named))) for name, named in sorted(logs.items())}


def hosts_of(where: Where) -> list[Host]:
    """Every known host, by name; blocks. Raises :class:`~wormhole.model.errors.WormholeError`."""
    config = configured(where)
    static = config is not None and config.form is CoordinatorForm.STATIC

    async def read(coordinator: Coordinator) -> list[Host]:
        monitors: Sequence[MonitorInfo] = await coordinator.monitors()
        if static:  # which is one host, where nobody registers
            assert config is not None
            monitors = await asyncio.to_thread(_of_this_host, config)
        found = known_hosts(await coordinator.configuration(), monitors, static=static)
        return [Host(name, one, await _wish(coordinator, name), logs) for name, (one, logs) in found.items()]

    return with_coordinator(where, read)


def _of_this_host(config: Config) -> list[MonitorInfo]:
    pid = lock_holder(config.monitor_state_dir / "monitor.lock")
    if pid is None:
        return []
    return [MonitorInfo(config.monitor.host_name, pid, "", 0.0, dict.fromkeys(serving(config), "running"))]


def lock_holder(path: Path) -> int | None:
    """The process that holds a lock on this file, asked without touching the lock; ``None``: nobody. Blocks."""
    try:
        inode = path.stat().st_ino
        held = _LOCKS.read_text()
    except OSError:
        return None
    found = re.search(rf"FLOCK +\S+ +WRITE +(-?[0-9]+) +\S+:{inode} ", held)
    return int(found[1]) if found else None


async def _wish(coordinator: Coordinator, host: str) -> HostWish:
    watch = coordinator.watch_host(host)
    return await anext(watch)


def show(where: Where, as_json: bool) -> int:
    """Print every host. The exit code is 1 when one that should run logs has no monitor."""
    hosts = hosts_of(where)
    if as_json:
        print_json({"schema": SCHEMA, "hosts": [_object(host) for host in hosts]})
    else:
        columns = ("HOST", "MONITOR", "UP SINCE", "PUBLISHERS", "DRAINED", "CAUSE")
        print_table(columns, [_row(host) for host in hosts], "no monitor runs, and no log names a host")
    return BROKEN if any(host.monitor is None and not host.wish.drained for host in hosts) else 0


def _row(host: Host) -> Sequence[str]:
    monitor, wish = host.monitor, host.wish
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
        f"by {wish.by or 'somebody'}" if wish.drained else "no",
        "" if monitor or wish.drained else idle,
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
        "drained": host.wish.drained,
        "said_by": host.wish.by or None,
        "said_at": _time(host.wish.at) if host.wish.at else None,
    }


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def drain(where: Where, host: str, undo: bool, yes: bool, as_json: bool) -> None:
    """Let a host run no publishers any more, or (``undo``) again: its monitor stops them cleanly or starts them.

    Raises :class:`~wormhole.model.errors.UsageError` for a host that nobody knows.
    """
    known = {one.name: one for one in hosts_of(where)}
    if host not in known:
        raise UsageError(
            f"no monitor runs on {host!r} and no log names it", hint=nearest(host, known, "host", "wormholectl hosts")
        )
    before = known[host]
    wish = HostWish(not undo, who(), time.time())
    runs = sorted((before.monitor.publishers if before.monitor else {}) or before.logs)
    if not as_json:
        print_text(f"{host} is {_word(before.wish)} and would be {_word(wish)}")
        print_text(
            f"its publishers ({', '.join(runs) or 'none'}) would {'run again' if undo else 'stop; its logs are then read by nobody'}"
        )
    confirm(f"{'Undo the drain of' if undo else 'Drain'} {host}?", yes)
    entry = HistoryEntry(wish.at, wish.by, "drain --undo" if undo else "drain", host, _word(before.wish), _word(wish))

    async def apply(coordinator: Coordinator) -> str:
        await coordinator.set_host(host, wish)
        try:
            await coordinator.record(entry)
        except WormholeError as error:
            return f"the history missed it: {error}"
        return ""

    note = with_coordinator(where, apply)
    after = Host(host, before.monitor, wish, before.logs)
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
    print_text(f"{host} is {_word(wish)}; `wormholectl hosts` shows how far its monitor is")
    for one in notes:
        print_text(f"note: {one}")


def _word(wish: HostWish) -> str:
    return "drained" if wish.drained else "in use"
