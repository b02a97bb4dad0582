"""Hosts as rows and as objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from wormholectl.hosts.status import Host
from wormholectl.show.printer import print_table, utc

__all__ = ["host_object", "show_hosts"]


def show_hosts(hosts: Sequence[Host]) -> None:
    """A table of them."""
    columns = ("HOST", "MONITOR", "UP SINCE", "PUBLISHERS", "DRAINED", "CAUSE")
    print_table(columns, [_row(host) for host in hosts], "no monitor runs, and no log names a host")


def _row(host: Host) -> Sequence[str]:
    monitor, request = host.monitor, host.request
    phases = Counter(monitor.publishers.values() if monitor else ())
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


def host_object(host: Host) -> dict[str, Any]:
    """One host for programs (docs/cli-schema.json: ``host``)."""
    monitor = host.monitor
    return {
        "host": host.name,
        "monitor": None
        if monitor is None
        else {
            "address": monitor.address or None,
            "pid": monitor.pid,
            "started": utc(monitor.started) if monitor.started else None,
        },
        "publishers": {} if monitor is None else dict(monitor.publishers),
        "logs": list(host.logs),
        "drained": host.request.drained,
        "said_by": host.request.by or None,
        "said_at": utc(host.request.at) if host.request.at else None,
    }
