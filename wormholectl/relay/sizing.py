"""Computes how long a relay's budgets last at the measured growth of the log, and whether the relay's disk has space.

Only :func:`plan_of` and :func:`free_bytes` do I/O.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from publisher.relay.configured import SLOT_BUDGET, configured_relay
from wormhole.admin.discovery import configured
from wormhole.config import RelayMode, SourceConfig, find_log
from wormhole.host.where import Where
from wormhole.model.errors import ConfigError
from wormhole.model.findings import Finding, LogGrowth, Severity
from wormhole.ports.datastore import Datastore
from wormholectl.show.printer import size, span

__all__ = ["BUDGET", "RelayPlan", "findings", "free_bytes", "growth_text", "lasts", "plan_of"]

BUDGET: Final[int] = SourceConfig.model_fields["relay_budget"].default
"""The budget of a relay if none is configured."""

_SHORT_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """The relay of a log. ``free``: bytes for it on its disk, with its present files; ``None`` for another host's."""

    mode: RelayMode
    budget: int
    slot_budget: int
    folder: Path | None = None
    free: int | None = None


def plan_of(found: Datastore, where: Where, path: str) -> RelayPlan:
    """The relay of the log ``path`` (``DATASET/COPY/LOG``) in the file of ``where``. Without a file, the default relay
    of a log that one host publishes.
    """
    config = configured(where) if path else None
    if config is None:
        return RelayPlan("hold" if found.holds_log else "off", BUDGET, SLOT_BUDGET)
    dataset, copy, log = path.split("/")
    try:
        relay = configured_relay(config, dataset, copy, log)
    except ConfigError:  # `config check` shows what is wrong
        return RelayPlan("off", 0, 0)
    if relay is None:
        return RelayPlan("off", 0, 0)
    hosts = find_log(config, dataset, copy, log).candidates
    here = not hosts or config.monitor.host_name in hosts
    free = free_bytes(relay.folder) if here else None
    return RelayPlan(relay.settings.mode, relay.settings.budget, relay.settings.slot_budget, relay.folder, free)


def growth_text(growth: LogGrowth) -> str:
    """The growth of the log and the method of its measurement, as text."""
    if growth.unknown:
        return f"not measured: {growth.unknown}"
    return f"{size(growth.rate * 3600)} an hour, over the last {span(growth.seconds)} ({growth.how})"


def lasts(growth: LogGrowth, budget: int) -> str:
    """How long ``budget`` bytes last: ``about 9h at the rate of the last 24h``; empty if the rate is not known."""
    if not growth.rate:
        return ""
    return f"about {span(budget / growth.rate)} at the rate of the last {span(growth.seconds)}"


def findings(growth: LogGrowth | None, plan: RelayPlan) -> list[Finding]:
    """The findings of ``doctor`` about the relay; empty without a relay."""
    if plan.mode == "off":
        return []
    found = []
    about = f"the relay ({plan.mode}) holds {size(plan.budget)}"
    if growth is None or growth.unknown:
        why = "the datastore does not say how fast its log grows" if growth is None else growth.unknown
        found.append(Finding("relay", Severity.OK, f"{about}; for how long is not known: {why}"))
    elif not growth.rate:
        found.append(Finding("relay", Severity.OK, f"{about}; the log did not grow in the last {span(growth.seconds)}"))
    else:
        short = plan.budget / growth.rate < _SHORT_S
        slot = ""
        if plan.mode == "hold":
            slot = f"; the server keeps {size(plan.slot_budget)}, {lasts(growth, plan.slot_budget)}"
        found.append(
            Finding(
                "relay",
                Severity.WARN if short else Severity.OK,
                f"{about}, uncompressed {lasts(growth, plan.budget)}{slot}",
                "a subscriber that is away for longer loses what only the relay has" if short and slot else "",
                "raise relay_budget (docs/relay.md)" if short else "",
            )
        )
    if plan.free is not None and plan.free < plan.budget:
        found.append(
            Finding(
                "relay_disk",
                Severity.WARN,
                f"the disk of {plan.folder} has {size(plan.free)} for a relay of {size(plan.budget)}",
                "it is full before its budget is",
                "make room there, lower relay_budget, or name a folder on another disk as relay_folder",
            )
        )
    return found


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user may still write in ``folder``, plus the size of the relay's files; ``None`` if unknown."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        disk = os.statvfs(place)
        taken = sum(file.stat().st_size for file in folder.glob("relay-*")) if place == folder.absolute() else 0
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize + taken
