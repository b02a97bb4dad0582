"""Prints differences of configuration, applied changes and their history, as lines or as JSON objects."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from wormhole.admin.configuration import ConfigPlan
from wormhole.coordination.differences import SettingDifference
from wormhole.coordination.port import HistoryEntry
from wormhole.coordination.records import history_fields
from wormholectl.show.printer import print_json, print_line, print_text, print_warnings

__all__ = ["show_applied", "show_history", "show_plan", "show_running"]

_STYLES: Final = {"added": "green", "removed": "red", "changed": "yellow"}


def show_plan(plan: ConfigPlan, as_json: bool) -> None:
    """Print how applying a file would change the stored configuration."""
    if as_json:
        print_json(_plan_object(plan, plan.found.change.seen, changed=False))
        return
    _print_settings(plan.found.settings)
    for name in plan.found.kept:
        print_line([(f"  {name} stays: {plan.file} lacks it, --prune would remove it", "dim")])
    if plan.found.empty:
        print_text(f"{plan.file}: nothing differs from version {plan.found.change.seen}")
    print_warnings(plan.warnings)


def show_applied(plan: ConfigPlan, version: int, target: str, as_json: bool) -> None:
    """Print the changes that were applied to ``target`` (empty: as the file names it), and the new ``version``."""
    if as_json:
        print_json(_plan_object(plan, version, changed=True))
    else:
        to = f" to {target}" if target else ""
        print_text(f"{plan.file}: applied{to}, version {version}: {plan.found.target}")


def show_running(file: Path, settings: Sequence[SettingDifference], warnings: Sequence[str], as_json: bool) -> None:
    """Print how a file of the static form differs from the configuration that this host's publishers run."""
    if as_json:
        print_json({**_object(file, settings, None), "warnings": list(warnings)})
        return
    _print_settings(settings)
    print_warnings(warnings)
    if not settings:
        print_text(f"{file}: nothing differs from what the publishers of this host run")
        return
    again = shlex.quote(str(file))
    print_text(
        "this takes effect when the publishers are restarted",
        f"  next: where `wormholectl up` runs them: wormholectl down -f {again}, then wormholectl up -f {again}",
    )


def show_history(entries: Sequence[HistoryEntry], as_json: bool) -> None:
    """Print who changed what and when."""
    if as_json:
        print_json({"entries": [history_fields(entry) for entry in entries]})
        return
    for entry in entries:
        when = datetime.fromtimestamp(entry.at).astimezone().isoformat(" ", "seconds")
        print_line([(f"{when}  ", "dim"), (entry.who, ""), ("  ", ""), (entry.what, "bold"), (f"  {entry.target}", "")])
        for sign, style, text in (("-", "red", entry.before), ("+", "green", entry.after)):
            for line in text.splitlines():
                print_line([(f"  {sign} {line}", style)])
    if not entries:
        print_text("no change yet")


def _print_settings(settings: Sequence[SettingDifference]) -> None:
    for one in settings:
        print_line([(_line(one), _STYLES[one.kind])])


def _line(one: SettingDifference) -> str:
    match one.kind:
        case "added":
            return f"+ {one.path} = {one.after}"
        case "removed":
            return f"- {one.path} = {one.before}"
        case "changed":
            return f"~ {one.path} = {one.before} -> {one.after}"


def _plan_object(plan: ConfigPlan, version: int, *, changed: bool) -> dict[str, Any]:
    found = _object(plan.file, plan.found.settings, version)
    about = {"differs": not plan.found.empty, "changed": changed, "kept": list(plan.found.kept)}
    return {**found, **about, "warnings": list(plan.warnings)}


def _object(file: Path, settings: Sequence[SettingDifference], version: int | None) -> dict[str, Any]:
    return {
        "file": os.fspath(file),
        "version": version,
        "differs": bool(settings),
        "changed": False,
        "settings": [
            {"path": one.path, "kind": one.kind, "before": _value(one.before), "after": _value(one.after)}
            for one in settings
        ],
        "kept": [],
        "warnings": [],
    }


def _value(text: str) -> Any:
    return json.loads(text) if text else None
