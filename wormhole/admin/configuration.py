"""Compares a configuration file with what a coordinator stores, and applies it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wormhole.admin.discovery import ask_coordinator
from wormhole.config.check import check_config
from wormhole.coordination.config_review import Fleet, check_possible, warnings
from wormhole.coordination.current_user import current_user
from wormhole.coordination.differences import Differences, differences
from wormhole.coordination.port import Coordinator, HistoryEntry, StoredConfig
from wormhole.coordination.rules import nowhere_to_publish
from wormhole.coordination.static import StaticCoordinator
from wormhole.host.clock import SYSTEM_CLOCK

__all__ = ["ConfigPlan", "apply", "plan"]


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """The changes that applying ``file`` would make.

    ``found.settings``: the settings that differ. ``found.empty``: nothing differs. ``found.change.seen``: the version
    that was compared. ``warnings``: about the change.
    """

    file: Path
    found: Differences
    warnings: tuple[str, ...]


def plan(file: Path, target: str, *, prune: bool) -> ConfigPlan:
    """The changes that applying ``file`` to ``target`` would make. An empty ``target``: the coordinator that the file
    names. ``prune``: records that the file lacks are removed.

    Raises :class:`~wormhole.model.errors.WormholeError`, also for a change that would be refused.
    """
    config = check_config(file, SYSTEM_CLOCK.wall())

    async def compare(coordinator: Coordinator) -> ConfigPlan:
        if isinstance(coordinator, StaticCoordinator):
            raise nowhere_to_publish()
        stored = await coordinator.configuration()
        found = differences(stored, config, prune=prune)
        fleet = await _fleet(coordinator, stored)
        check_possible(stored, found, fleet)
        return ConfigPlan(file, found, warnings(stored, found, config, fleet))

    return ask_coordinator(target or file, compare)


def apply(planned: ConfigPlan, target: str) -> int:
    """Store the changes of the plan, and record them in the history. Returns the new version.

    Raises :class:`~wormhole.model.errors.WormholeError` when another version is stored by now.
    """
    found = planned.found
    who, when = current_user(), SYSTEM_CLOCK.wall()
    entry = HistoryEntry(when, who, "config apply", found.target, found.before, found.after)
    return ask_coordinator(target or planned.file, lambda coordinator: coordinator.publish(found.change, entry))


async def _fleet(coordinator: Coordinator, stored: StoredConfig) -> Fleet:
    served = {application for application, _ in await coordinator.flows()} & set(stored.applications)
    connected = {info.application for info in await coordinator.subscribers()}
    return Fleet(served, connected, {info.host for info in await coordinator.monitors()})
