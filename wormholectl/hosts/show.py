"""Declares the columns of the table of hosts."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from wormholectl.hosts.status import Host
from wormholectl.show.columns import ShownColumn, ShownTable
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


HOSTS: Final = ShownTable[Host](
    ShownColumn("HOST", "host", lambda host: host.name),
    ShownColumn("MONITOR", None, lambda host: (host.monitor.address or "yes") if host.monitor else "none"),
    ShownColumn(None, "monitor", _monitor),
    ShownColumn("UP SINCE", None, lambda host: host.monitor.started if host.monitor else None, local),
    ShownColumn(
        "PUBLISHERS", "publishers", lambda host: dict(host.monitor.publishers) if host.monitor else {}, _phases
    ),
    ShownColumn(None, "logs", lambda host: list(host.logs)),
    ShownColumn(
        "DRAINED", None, lambda host: f"by {host.request.by or 'an operator'}" if host.request.drained else "no"
    ),
    ShownColumn(None, "drained", lambda host: host.request.drained),
    ShownColumn(None, "said_by", lambda host: host.request.by or None),
    ShownColumn(None, "said_at", lambda host: utc(host.request.at) if host.request.at else None),
    ShownColumn("CAUSE", None, _cause),
)
"""The table of hosts. In JSON, an item is a ``host`` of docs/cli-schema.json."""
