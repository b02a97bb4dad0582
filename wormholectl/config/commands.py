"""The noun ``config``: check and apply configuration files, and show the stored configuration and its history."""

import os
from typing import Annotated

import typer

from wormhole.model.errors import ConfigError, UsageError
from wormholectl.exit_codes import BROKEN, WRONG
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import AsJson, ConfigFile, Yes, coordinator_at, now
from wormholectl.show.printer import print_json, print_text, print_warnings

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check configuration files, apply them, and see who changed what.")

StoredAt = Annotated[str, coordinator_at("Where the configuration is stored.")]
AppliedTo = Annotated[str, coordinator_at("Where the configuration is stored. Default: as FILE names it.")]
Prune = Annotated[bool, typer.Option("--prune", help="Remove what is stored and FILE lacks; else it stays.")]


@app.command("check", epilog="Example:\n\n  wormholectl config check shop.toml")
def config_check(file: ConfigFile, as_json: AsJson = False) -> None:
    """Check a configuration file: print every problem of it, and its certificates. Where a filter tests columns of a
    database, the database is asked which tables have them.

    Exit code 2 when something is wrong.
    """
    from wormhole.config.check import check_config, logs_of, mask_key_warnings
    from wormholectl.filters import lacking_columns
    from wormholectl.shared.certificates import TlsReport, report_on

    try:
        config = check_config(file, now())
        warnings = [*mask_key_warnings(config), *lacking_columns.in_config(config)]
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": error.message.splitlines()})
        raise typer.Exit(WRONG) from None
    logs, applications, sinks = logs_of(config), sorted(config.applications), sorted(config.sinks)
    tls = report_on(config.tls) or TlsReport()
    if as_json:
        certificates = {"facts": list(tls.facts), "faults": list(tls.faults)}
        found = {"ok": True, "logs": logs, "applications": applications, "sinks": sinks}
        print_json({**found, "certificates": certificates, "warnings": warnings})
    else:
        print_text(
            f"{file}: right. Logs: {', '.join(logs) or 'none'}. Applications: {', '.join(applications) or 'none'}."
            + (f" Sinks: {', '.join(sinks)}." if sinks else "")
        )
        # A configuration may be checked on a host that lacks the certificate files.
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
    from wormholectl.config.running import differences_from_running
    from wormholectl.config.show import show_plan, show_running

    if check_config(file, now()).form is CoordinatorForm.STATIC and coordinator in ("", os.fspath(file)):
        if prune:
            raise UsageError("--prune is for what is stored, and the static form stores nothing")
        settings, warnings = differences_from_running(file)
        show_running(file, settings, warnings, as_json)
        raise typer.Exit(BROKEN if settings else 0)
    plan = configuration.plan(file, coordinator, prune=prune)
    show_plan(plan, as_json)
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
    from wormholectl.config.show import show_applied, show_plan

    plan = configuration.plan(file, coordinator, prune=prune)
    found = plan.found
    if found.empty or not yes or not as_json:
        show_plan(plan, as_json)
    if found.empty:
        return
    # No session stays open during the question. A change by another process meanwhile is detected by the version.
    to = f" to {coordinator}" if coordinator else ""
    confirm(f"apply {file}{to}?", yes)
    show_applied(plan, configuration.apply(plan, coordinator), coordinator, as_json)


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
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="The number of entries, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List who changed what and when: the configuration, flows, hosts. The last 1,000 changes are kept."""
    from wormhole.admin.discovery import ask_coordinator
    from wormhole.coordination.port import HISTORY_KEPT
    from wormholectl.config.show import show_history

    entries = ask_coordinator(_named(coordinator), lambda client: client.history(min(last, HISTORY_KEPT)))
    show_history(entries, as_json)


def _named(coordinator: str) -> str:
    if not coordinator:
        raise UsageError(
            "it is not known which configuration is meant",
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)",
        )
    return coordinator
