"""The root of ``wormholectl``: every module of commands, and the options before them."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from wormhole import __version__
from wormholectl import (
    archive,
    audit,
    config,
    doctor,
    filters,
    flows,
    hosts,
    init,
    lag,
    markers,
    publishers,
    replay,
    run,
    support_dump,
    tables,
    tail,
    zookeeper,
)
from wormholectl.guard import GuardedGroup
from wormholectl.show.printer import print_text

__all__ = ["app"]

app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Wormhole pub-sub: every committed change of a database, pushed to the services that asked for it.",
    epilog=(
        "Exit codes: 0 all well, 1 a problem, 2 a wrong request, 3 unreachable. WORMHOLE_DEBUG=1 shows where an "
        "error came from."
    ),
)
app.add_typer(tail.app)
app.add_typer(doctor.app)
app.add_typer(init.app)
app.add_typer(flows.app, name="flows")
app.add_typer(markers.app, name="markers")
app.add_typer(publishers.app)
app.add_typer(hosts.hosts_app, name="hosts")
app.add_typer(hosts.app)
app.add_typer(lag.app)
app.add_typer(support_dump.app)
app.add_typer(run.app)
app.add_typer(run.publisher_app, name="publisher")
app.add_typer(run.monitor_app, name="monitor")
app.add_typer(config.app, name="config")
app.add_typer(filters.app, name="filters")
app.add_typer(archive.app, name="archive")
app.add_typer(replay.app)
app.add_typer(audit.app)
app.add_typer(tables.app)
app.add_typer(zookeeper.app, name="zookeeper")


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
