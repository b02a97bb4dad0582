"""The commands about configuration: files, what is stored, and who changed that."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import ConfigError, UsageError
from wormholectl.confirm import confirm
from wormholectl.errors import BROKEN, WRONG
from wormholectl.options import AsJson, ConfigFile, Yes, coordinator_at, now
from wormholectl.show.printer import print_json, print_line, print_text, print_warnings

if TYPE_CHECKING:
    from wormhole.admin.configuration import ConfigPlan
    from wormhole.coordination import Difference

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check configuration files, apply them, and see who changed what.")

StoredAt = Annotated[str, coordinator_at("Where the configuration is stored.")]
AppliedTo = Annotated[str, coordinator_at("Where the configuration is stored, if not where FILE says.")]
Prune = Annotated[bool, typer.Option("--prune", help="Remove what is stored and FILE lacks; else it stays.")]


@app.command("check", epilog="Example:\n\n  wormholectl config check shop.toml")
def config_check(file: ConfigFile, as_json: AsJson = False) -> None:
    """Check a configuration file: print every problem of it, and its certificates. Where a filter tests columns of a
    database, the database is asked which tables have them.

    Exit code 2 when something is wrong.
    """
    from wormhole.config.check import check_config, logs_of, missing_mask_key
    from wormholectl import lacking_columns
    from wormholectl.certificates import TlsReport, report_on

    try:
        config = check_config(file, now())
        warnings = [*missing_mask_key(config), *lacking_columns.in_config(config)]
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": error.message.splitlines()})
        raise typer.Exit(WRONG) from None
    logs, applications = logs_of(config), sorted(config.applications)
    tls = report_on(config.tls) or TlsReport()
    if as_json:
        certificates = {"facts": list(tls.facts), "faults": list(tls.faults)}
        print_json(
            {"ok": True, "logs": logs, "applications": applications, "certificates": certificates, "warnings": warnings}
        )
    else:
        print_text(
            f"{file}: right. Logs: {', '.join(logs) or 'none'}. Applications: {', '.join(applications) or 'none'}."
        )
        # A file may be checked on another host than its own, where these files are missing.
        for line in (*tls.facts, *(f"WARNING on this host: {fault}" for fault in tls.faults)):
            print_text(line)
        print_warnings(warnings)


@app.command(
    "diff",
    epilog=(
        "Examples:\n\n  wormholectl config diff shop.toml\n\n  wormholectl config diff shop.toml -c "
        "zk1:2181/wormhole --json"
    ),
)
def config_diff(file: ConfigFile, coordinator: AppliedTo = "", prune: Prune = False, as_json: AsJson = False) -> None:
    """Show what applying a file would change of what is stored; in the static form, what a restart would change of
    what this host's publishers run. Exit code 1 when it would change something.
    """
    from wormhole.admin import configuration
    from wormhole.config import CoordinatorForm
    from wormhole.config.check import check_config
    from wormholectl.running_config import differences_from_running

    if check_config(file, now()).form is CoordinatorForm.STATIC and coordinator in ("", os.fspath(file)):
        if prune:
            raise UsageError("--prune is for what is stored, and the static form stores nothing")
        settings, warnings = differences_from_running(file)
        if as_json:
            print_json({**_object(file, settings, version=None), "warnings": list(warnings)})
        else:
            _show_settings(settings)
            print_warnings(warnings)
            print_text(
                "a restart of the publishers takes this over"
                if settings
                else f"{file}: nothing differs from what the publishers of this host run"
            )
        raise typer.Exit(BROKEN if settings else 0)
    plan = configuration.plan(file, coordinator, prune=prune)
    _show(plan, as_json)
    if not plan.found.empty:
        raise typer.Exit(BROKEN)


@app.command(
    "apply",
    epilog="Examples:\n\n  wormholectl config apply shop.toml\n\n  wormholectl config apply shop.toml --yes --prune",
)
def config_apply(
    file: ConfigFile, coordinator: AppliedTo = "", prune: Prune = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Check a file, show what it changes, ask, and store its datasets and applications: all of it or nothing.

    Repeating it is safe.
    """
    from wormhole.admin import configuration

    plan = configuration.plan(file, coordinator, prune=prune)
    found = plan.found
    if found.empty or not yes or not as_json:
        _show(plan, as_json)
    if found.empty:
        return
    # No session is held while a person thinks: what others change meanwhile is found by its version.
    to = f" to {coordinator}" if coordinator else ""
    confirm(f"apply {file}{to}?", yes)
    version = configuration.apply(plan, coordinator)
    if as_json:
        print_json(_as_json(plan, version, changed=True))
    else:
        print_text(f"{file}: applied{to}, version {version}: {found.target}")


@app.command(
    "show",
    epilog=(
        "Examples:\n\n  wormholectl config show -c zk1:2181/wormhole > shop.toml\n\n  wormholectl config show -c "
        "shop.toml --json"
    ),
)
def config_show(
    coordinator: StoredAt = "",
    as_json: Annotated[bool, typer.Option("--json/--toml", help="JSON for programs (docs/cli.md), or TOML.")] = False,
) -> None:
    """Print the datasets and applications that are stored, as a file that could be applied."""
    from wormhole.admin.discovery import ask_coordinator
    from wormhole.config import plain, to_toml

    stored = ask_coordinator(_named(coordinator), lambda client: client.configuration())
    if as_json:
        tables = {
            "datasets": {name: plain(settings) for name, settings in stored.datasets.items()},
            "applications": {name: plain(settings) for name, settings in stored.applications.items()},
        }
        print_json({"version": stored.version, **tables})
    else:
        print_text(f"# version {stored.version} at {coordinator}")
        print_text(*to_toml(stored.datasets, stored.applications).splitlines())


@app.command(
    "history",
    epilog=(
        "Examples:\n\n  wormholectl config history -c shop.toml\n\n  wormholectl config history -c "
        "zk1:2181/wormhole -n 5 --json"
    ),
)
def config_history(
    coordinator: StoredAt = "",
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="So many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List who changed what and when: the configuration, flows, hosts. The last 1,000 changes are kept."""
    from wormhole.admin.discovery import ask_coordinator
    from wormhole.coordination import HISTORY_KEPT

    entries = ask_coordinator(_named(coordinator), lambda client: client.history(min(last, HISTORY_KEPT)))
    if as_json:
        print_json({"entries": [asdict(entry) for entry in entries]})
        return
    for entry in entries:
        when = datetime.fromtimestamp(entry.at).astimezone().isoformat(" ", "seconds")
        print_line([(f"{when}  ", "dim"), (entry.who, ""), ("  ", ""), (entry.what, "bold"), (f"  {entry.target}", "")])
        for sign, style, text in (("-", "red", entry.before), ("+", "green", entry.after)):
            for line in text.splitlines():
                print_line([(f"  {sign} {line}", style)])
    if not entries:
        print_text("no change yet")


_STYLES: Final = {"added": "green", "removed": "red", "changed": "yellow"}


def _named(coordinator: str) -> str:
    if not coordinator:
        raise UsageError(
            "nothing says which configuration is meant",
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)",
        )
    return coordinator


def _show(plan: "ConfigPlan", as_json: bool) -> None:
    if as_json:
        print_json(_as_json(plan, plan.found.change.seen))
        return
    _show_settings(plan.found.settings)
    for name in plan.found.kept:
        print_line([(f"  {name} stays: {plan.file} lacks it, --prune would remove it", "dim")])
    if plan.found.empty:
        print_text(f"{plan.file}: nothing differs from version {plan.found.change.seen}")
    print_warnings(plan.warnings)


def _show_settings(settings: Sequence["Difference"]) -> None:
    for one in settings:
        print_line([(_line(one), _STYLES[one.kind])])


def _line(one: "Difference") -> str:
    match one.kind:
        case "added":
            return f"+ {one.path} = {one.after}"
        case "removed":
            return f"- {one.path} = {one.before}"
        case "changed":
            return f"~ {one.path} = {one.before} -> {one.after}"


def _as_json(plan: "ConfigPlan", version: int, *, changed: bool = False) -> dict[str, Any]:
    found = _object(plan.file, plan.found.settings, version)
    about = {"differs": not plan.found.empty, "changed": changed, "kept": list(plan.found.kept)}
    return {**found, **about, "warnings": list(plan.warnings)}


def _object(file: Path, settings: Sequence["Difference"], version: int | None) -> dict[str, Any]:
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
