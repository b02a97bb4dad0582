"""Collects the hosts of an installation: their monitors, their configured logs, and whether they are drained."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wormhole.admin.discovery import configured, group_of, host_request, serving, with_coordinator
from wormhole.config import Config, CoordinatorForm
from wormhole.coordination.port import CandidateInfo, Coordinator, HostRequest, MonitorInfo, StoredConfig
from wormhole.coordination.standbys import owner_name
from wormholectl.publishers.log_moves import refusal
from wormholectl.shared.options import Where

__all__ = ["Host", "hosts_of", "known_hosts", "lock_holder", "served_elsewhere"]

_LOCKS: Final = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Host:
    """A host that has a monitor, or that the configuration names.

    ``logs``: the logs that should be served there. ``monitor``: its monitor, with the publishers that run there.
    """

    name: str
    monitor: MonitorInfo | None
    request: HostRequest
    logs: tuple[str, ...]


def known_hosts(
    stored: StoredConfig, monitors: Iterable[MonitorInfo], *, static: bool = False
) -> dict[str, tuple[MonitorInfo | None, tuple[str, ...]]]:
    """By name of the host: its live monitor, and the logs that name the host. In the static form, logs without a host
    are included.
    """
    live = {one.host: one for one in monitors}
    anywhere = tuple(live) if static else ()
    logs: dict[str, list[str]] = {name: [] for name in live}
    for dataset, settings in stored.datasets.items():
        for copy, one in settings.copies.items():
            for log, named in one.logs.items():
                for host in named.candidates or anywhere:
                    logs.setdefault(host, []).append(f"{dataset}/{copy}/{log}")
    return {name: (live.get(name), tuple(sorted(named))) for name, named in sorted(logs.items())}


def hosts_of(where: Where) -> list[Host]:
    """Every known host, by name; blocks. Raises :class:`~wormhole.model.errors.WormholeError`."""
    config = configured(where)
    static = config is not None and config.form is CoordinatorForm.STATIC

    async def read(coordinator: Coordinator) -> list[Host]:
        monitors: Sequence[MonitorInfo] = await coordinator.monitors()
        if static:  # the only host is this one, and monitors do not register
            assert config is not None
            monitors = await asyncio.to_thread(_of_this_host, config)
        found = known_hosts(await coordinator.configuration(), monitors, static=static)
        return [Host(name, one, await host_request(coordinator, name), logs) for name, (one, logs) in found.items()]

    return with_coordinator(where, read)


def served_elsewhere(where: Where, host: str, logs: Iterable[str]) -> dict[str, str]:
    """The ``logs`` that stay served if ``host`` serves none. The text of each names the host that serves it or takes it
    over. Blocks. Raises :class:`~wormhole.model.errors.WormholeError`.
    """

    async def read(coordinator: Coordinator) -> dict[str, str]:
        datasets = (await coordinator.configuration()).datasets
        known = await coordinator.log_owners()
        found: dict[str, str] = {}
        for log in logs:
            owners = known.get(group_of(datasets, log))
            if owners is None:
                continue
            able = [one for one in owners.candidates if one.host != host and not refusal(one, owners)]
            if owners.owner is not None and owners.owner.host != host:
                found[log] = f"{owner_name(owners)} serves it"
            elif able:
                found[log] = _takes_over(min(able, key=lambda one: bool(one.lacking)))
        return found

    return with_coordinator(where, read)


def _takes_over(candidate: CandidateInfo) -> str:
    if not candidate.lacking:
        return f"{candidate.name} takes it over"
    lacks = f"it lacks {candidate.lacking}, which was delivered"
    return f"{candidate.name} takes it over after its patience, and its flows are held as diverged: {lacks}"


def _of_this_host(config: Config) -> list[MonitorInfo]:
    pid = lock_holder(config.monitor_state_dir / "monitor.lock")
    if pid is None:
        return []
    return [MonitorInfo(config.monitor.host_name, pid, "", 0.0, dict.fromkeys(serving(config), "running"))]


def lock_holder(path: Path) -> int | None:
    """The process that holds a lock on this file; ``None`` without one. Does not change the lock. Blocks."""
    try:
        inode = path.stat().st_ino
        held = _LOCKS.read_text()
    except OSError:
        return None
    found = re.search(rf"FLOCK +\S+ +WRITE +(-?[0-9]+) +\S+:{inode} ", held)
    return int(found[1]) if found else None
