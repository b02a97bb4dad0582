"""The root of ``wormholectl``: every module of commands, and the options before them."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from wormhole import __version__
from wormholectl import (
    archive_commands,
    audit_commands,
    config_commands,
    doctor_commands,
    filter_commands,
    flow_commands,
    host_commands,
    init_commands,
    lag_commands,
    list_commands,
    marker_commands,
    replay_commands,
    run_commands,
    support_commands,
    table_commands,
    tail_commands,
    zookeeper_commands,
)
from wormholectl.guard import GuardedGroup
from wormholectl.output import print_text

__all__ = ["app"]

app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Wormhole pub-sub: every committed change of a database, pushed to the services that asked for it.",
    epilog="Exit codes: 0 all well, 1 a problem, 2 a wrong request, 3 unreachable. WORMHOLE_DEBUG=1 shows where an error came from.",
)
app.add_typer(tail_commands.app)
app.add_typer(doctor_commands.app)
app.add_typer(init_commands.app)
app.add_typer(flow_commands.app, name="flows")
app.add_typer(marker_commands.app, name="markers")
app.add_typer(list_commands.app)
app.add_typer(host_commands.hosts_app, name="hosts")
app.add_typer(host_commands.app)
app.add_typer(lag_commands.app)
app.add_typer(support_commands.app)
app.add_typer(run_commands.app)
app.add_typer(run_commands.publisher_app, name="publisher")
app.add_typer(run_commands.monitor_app, name="monitor")
app.add_typer(config_commands.app, name="config")
app.add_typer(filter_commands.app, name="filters")
app.add_typer(archive_commands.app, name="archive")
app.add_typer(replay_commands.app)
app.add_typer(audit_commands.app)
app.add_typer(table_commands.app)
app.add_typer(zookeeper_commands.app, name="zookeeper")


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from wormhole.host.compiled import compiled_modules, hot_modules

    compiled = compiled_modules()
    interpreted = [name for name in hot_modules() if name not in compiled]
    print_text(f"wormholectl {__version__} (Python {platform.python_version()})")
    print_text(f"compiled modules: {', '.join(compiled) or 'none'}")
    if interpreted:
        print_text(f"interpreted hot modules: {', '.join(interpreted)}")
    raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show version and compiled modules."),
    ] = False,
) -> None:
    """What stands before the command."""
