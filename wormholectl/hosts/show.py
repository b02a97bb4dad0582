"""What the table of hosts shows."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from wormholectl.hosts.status import Host
from wormholectl.show.columns import Column, Table
from wormholectl.show.printer import local, utc

__all__ = ["HOSTS"]


def _monitor(host: Host) -> dict[str, Any] | None:
    one = host.monitor
    if one is None:
        return None
    return {"address": one.address or None, "pid": one.pid, "started": utc(one.started) if one.started else None}


def _phases(publishers: dict[str, str]) -> str:
    counts = sorted(Counter(publishers.values()).items())
    return ", ".join(f"{count} {phase.replace('_', ' ')}" for phase, count in counts) or "-"


def _cause(host: Host) -> str:
    idle = host.monitor is None and not host.request.drained and host.logs
    return f"{', '.join(host.logs)} not run: start `wormholectl monitor run` there" if idle else ""


HOSTS: Final = Table[Host](
    Column("HOST", "host", lambda host: host.name),
    Column("MONITOR", None, lambda host: (host.monitor.address or "yes") if host.monitor else "none"),
    Column(None, "monitor", _monitor),
    Column("UP SINCE", None, lambda host: host.monitor.started if host.monitor else None, local),
    Column("PUBLISHERS", "publishers", lambda host: dict(host.monitor.publishers) if host.monitor else {}, _phases),
    Column(None, "logs", lambda host: list(host.logs)),
    Column("DRAINED", None, lambda host: f"by {host.request.by or 'somebody'}" if host.request.drained else "no"),
    Column(None, "drained", lambda host: host.request.drained),
    Column(None, "said_by", lambda host: host.request.by or None),
    Column(None, "said_at", lambda host: utc(host.request.at) if host.request.at else None),
    Column("CAUSE", None, _cause),
)
"""A host for programs is a ``host`` of docs/cli-schema.json."""
