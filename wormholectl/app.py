"""The root of ``wormholectl``: every module of commands, and the options before them."""

from __future__ import annotations

import platform
from inspect import getdoc
from typing import Annotated

import typer
from typer.models import CommandInfo, TyperInfo

from wormhole import __version__
from wormholectl import (
    archive,
    audit,
    backfill,
    config,
    doctor,
    filters,
    flows,
    hosts,
    init,
    lag,
    markers,
    models,
    objects,
    publishers,
    replay,
    run,
    snapshots,
    support_dump,
    tail,
    verify,
    zookeeper,
)
from wormholectl.errors import GuardedGroup
from wormholectl.show.printer import print_text

__all__ = ["app"]


def _flow_help(commands: typer.Typer) -> None:
    """Make each paragraph of the commands' help one line, for the terminal to wrap: typer keeps a docstring's
    breaks."""
    documented: list[CommandInfo | TyperInfo] = [*commands.registered_commands]
    if commands.registered_callback is not None:
        documented.append(commands.registered_callback)
    for command in documented:
        paragraphs = (command.help or getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _flow_help(group.typer_instance)


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
for _commands, _noun in (  # in the order of `--help`
    (tail.app, None),
    (doctor.app, None),
    (init.app, None),
    (models.app, None),
    (objects.app, "objects"),
    (flows.app, "flows"),
    (markers.app, "markers"),
    (publishers.app, None),
    (hosts.hosts_app, "hosts"),
    (hosts.app, None),
    (lag.app, None),
    (support_dump.app, None),
    (run.app, None),
    (run.publisher_app, "publisher"),
    (run.monitor_app, "monitor"),
    (config.app, "config"),
    (filters.app, "filters"),
    (archive.app, "archive"),
    (backfill.app, "backfill"),
    (verify.app, None),
    (replay.app, None),
    (audit.app, None),
    (snapshots.app, None),
    (zookeeper.app, "zookeeper"),
):
    _flow_help(_commands)
    app.add_typer(_commands, name=_noun)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from wormhole.host.compiled import compiled_modules, hot_modules

    compiled = compiled_modules()
    interpreted = [name for name in hot_modules() if name not in compiled]
    form = "interpreted, 5 to 70 times slower" if not compiled else "compiled"
    if compiled and interpreted:
        form = f"compiled but for {', '.join(interpreted)}"
    print_text(f"wormholectl {__version__}, Python {platform.python_version()}, {form}")
    raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version, and whether it runs compiled."
        ),
    ] = False,
) -> None:
    """The options before the command."""
