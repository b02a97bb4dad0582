"""``wormholectl config diff|apply|show|history``: a file against what is stored, and who changed that."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from wormhole.config import plain, to_toml
from wormhole.coordination import (
    HISTORY_KEPT,
    Coordinator,
    Difference,
    Differences,
    HistoryEntry,
    StaticCoordinator,
    StoredConfig,
    connect,
    differences,
)
from wormhole.coordination.advice import Fleet, check_possible, warnings
from wormhole.coordination.rules import nowhere_to_publish
from wormhole.coordination.who import who
from wormhole.model.errors import UsageError
from wormholectl.confirm import confirm
from wormholectl.guard import BROKEN
from wormholectl.operate import check_config
from wormholectl.output import print_json, print_line, print_text
from wormholectl.render import SCHEMA

__all__ = ["Wish", "apply", "diff", "history", "show"]

_T = TypeVar("_T")

_STYLES: Final = {"added": "green", "removed": "red", "changed": "yellow"}


@dataclass(slots=True, frozen=True)
class Wish:
    """What a file should become: where (``coordinator``, else where the file says), and how."""

    file: Path
    coordinator: str = ""
    prune: bool = False
    yes: bool = False
    as_json: bool = False


@dataclass(slots=True, frozen=True)
class _Plan:
    """What the file would change, and what is to be known before."""

    wish: Wish
    found: Differences
    warnings: tuple[str, ...]


def diff(wish: Wish) -> int:
    """Show what applying a file would change. The exit code: 1 when it would change anything.

    Raises :class:`~wormhole.model.errors.WormholeError`, also for a change that would be refused.
    """
    plan = _plan(wish)
    _show(plan)
    return 0 if plan.found.empty else BROKEN


def apply(wish: Wish) -> None:
    """Show what applying a file would change, ask, and do it. Raises :class:`~wormhole.model.errors.WormholeError`."""
    plan = _plan(wish)
    found = plan.found
    if found.empty or not wish.yes or not wish.as_json:
        _show(plan)
    if found.empty:
        return
    # No session is held while a person thinks: what others change meanwhile is found by its version.
    confirm(f"apply {wish.file}{_to(wish)}?", wish.yes)
    entry = HistoryEntry(time.time(), who(), "config apply", found.target, found.before, found.after)
    version = _with(wish.coordinator or wish.file, lambda coordinator: coordinator.publish(found.change, entry))
    if wish.as_json:
        print_json(_as_json(plan, version, changed=True))
    else:
        print_text(f"{wish.file}: applied{_to(wish)}, version {version}: {found.target}")


def show(coordinator: str, as_json: bool) -> None:
    """Print what is stored, as TOML or JSON. Raises :class:`~wormhole.model.errors.WormholeError`."""
    stored = _with(_named(coordinator), lambda client: client.configuration())
    if as_json:
        tables = {
            "datasets": {name: plain(settings) for name, settings in stored.datasets.items()},
            "applications": {name: plain(settings) for name, settings in stored.applications.items()},
        }
        print_json({"schema": SCHEMA, "version": stored.version, **tables})
    else:
        print_text(f"# version {stored.version} at {coordinator}")
        print_text(*to_toml(stored.datasets, stored.applications).splitlines())


def history(coordinator: str, last: int, as_json: bool) -> None:
    """Print who changed what, the newest first. Raises :class:`~wormhole.model.errors.WormholeError`."""
    entries = _with(_named(coordinator), lambda client: client.history(min(last, HISTORY_KEPT)))
    if as_json:
        plain_entries = [
            {
                "at": entry.at, "who": entry.who, "what": entry.what,
                "target": entry.target, "before": entry.before, "after": entry.after,
            }
            for entry in entries
        ]  # fmt: skip
        print_json({"schema": SCHEMA, "entries": plain_entries})
        return
    for entry in entries:
        when = datetime.fromtimestamp(entry.at).astimezone().isoformat(" ", "seconds")
        print_line([(f"{when}  ", "dim"), (entry.who, ""), ("  ", ""), (entry.what, "bold"), (f"  {entry.target}", "")])
        for sign, style, text in (("-", "red", entry.before), ("+", "green", entry.after)):
            for line in text.splitlines():
                print_line([(f"  {sign} {line}", style)])
    if not entries:
        print_text("nobody changed anything yet")


def _to(wish: Wish) -> str:
    return f" to {wish.coordinator}" if wish.coordinator else ""


def _named(coordinator: str) -> str:
    if not coordinator:
        raise UsageError(
            "nothing says which configuration is meant",
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)",
        )
    return coordinator


def _with(target: str | Path, ask: Callable[[Coordinator], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        coordinator = await asyncio.to_thread(connect, target)
        try:
            await coordinator.start()
            return await ask(coordinator)
        finally:
            await coordinator.stop()

    return asyncio.run(run())


def _plan(wish: Wish) -> _Plan:
    config = check_config(wish.file)

    async def look(coordinator: Coordinator) -> _Plan:
        if isinstance(coordinator, StaticCoordinator):
            raise nowhere_to_publish()
        stored = await coordinator.configuration()
        found = differences(stored, config, prune=wish.prune)
        fleet = await _fleet(coordinator, stored)
        check_possible(stored, found, fleet)
        return _Plan(wish, found, warnings(stored, found, config, fleet))

    return _with(wish.coordinator or wish.file, look)


async def _fleet(coordinator: Coordinator, stored: StoredConfig) -> Fleet:
    served = {application for application, _ in await coordinator.flows()} & set(stored.applications)
    connected = {info.application for info in await coordinator.subscribers()}
    return Fleet(served, connected, {info.host for info in await coordinator.monitors()})


def _show(plan: _Plan) -> None:
    if plan.wish.as_json:
        print_json(_as_json(plan, plan.found.change.seen))
        return
    for one in plan.found.settings:
        print_line([(_line(one), _STYLES[one.kind])])
    for name in plan.found.kept:
        print_line([(f"  {name} stays: {plan.wish.file} lacks it, --prune would remove it", "dim")])
    if plan.found.empty:
        print_text(f"{plan.wish.file}: nothing differs from version {plan.found.change.seen}")
    for warning in plan.warnings:
        print_text(f"warning: {warning}", error=True)


def _line(one: Difference) -> str:
    match one.kind:
        case "added":
            return f"+ {one.path} = {one.after}"
        case "removed":
            return f"- {one.path} = {one.before}"
        case "changed":
            return f"~ {one.path} = {one.before} -> {one.after}"


def _as_json(plan: _Plan, version: int, *, changed: bool = False) -> dict[str, Any]:
    settings = [
        {"path": one.path, "kind": one.kind, "before": _value(one.before), "after": _value(one.after)}
        for one in plan.found.settings
    ]
    return {
        "schema": SCHEMA,
        "file": os.fspath(plan.wish.file),
        "version": version,
        "differs": not plan.found.empty,
        "changed": changed,
        "settings": settings,
        "kept": list(plan.found.kept),
        "warnings": list(plan.warnings),
    }


def _value(text: str) -> Any:
    return json.loads(text) if text else None
