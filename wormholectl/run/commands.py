"""The commands ``publisher run``, ``monitor run``, ``up`` and ``down`` with their options and help."""

import os
from pathlib import Path
from typing import Annotated

import typer

from wormholectl.shared.errors import needs
from wormholectl.shared.options import LogLevel, LogLevelOption

__all__ = ["app", "monitor_app", "publisher_app"]

app = typer.Typer()
monitor_app = typer.Typer(no_args_is_help=True, help="Run the process that runs a host's publishers.")
publisher_app = typer.Typer(no_args_is_help=True, help="Run the process that tails a log and pushes its updates.")


@publisher_app.command("run", epilog="Example:\n\n  wormholectl publisher run -c shop.toml --log shop/main/db1")
def publisher_run(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE.toml", help="The configuration.", show_default=False)
    ],
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="DATASET/COPY/LOG", help="Which log; needed when the file has several."),
    ] = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Tail one log and push its updates until SIGTERM or Ctrl-C; then finish, store and leave."""
    from wormhole.config import find_log, load
    from wormhole.config.check import only_log
    from wormhole.config.datastores import datastore, installed

    loaded = load(config)
    chosen = only_log(loaded, log)
    # Without this setting, gRPC's library prints every connection that ends, in its own format.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with installed(datastore(find_log(loaded, *chosen).kind)):
        from publisher import daemon
        from wormhole.host import logs
    logs.configure(log_level.value)
    daemon.run(loaded, *chosen)


@monitor_app.command("run", epilog="Example:\n\n  wormholectl monitor run -c /etc/wormhole/host.toml --leave-running")
@needs("monitor")
def monitor_run(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE.toml", help="What holds on this host.", show_default=False)
    ],
    leave_running: Annotated[
        bool,
        typer.Option(
            "--leave-running", help="At SIGTERM leave the publishers running; the next monitor takes them over."
        ),
    ] = False,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run this host's publishers until SIGTERM or Ctrl-C, and show how they do on a status page.

    SIGHUP reads the file again and tries again what was given up.
    """
    from monitor import daemon
    from wormhole.host import logs

    logs.configure(log_level.value)
    daemon.run(config, leave=leave_running)


UpFile = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE.toml", help="The configuration.", show_default=False)
]
UpData = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Where everything is kept; by default .wormhole/NAME beside the file."),
]


@app.command(epilog="Example:\n\n  wormholectl up -f shop.toml --detach")
@needs("monitor")
def up(
    file: UpFile,
    data: UpData = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when everything is ready; `wormholectl down` stops it.")
    ] = False,
    report_to: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Run everything that a file describes on this machine: ZooKeeper if it names none, monitor and publishers."""
    from wormholectl.run import background as up_background
    from wormholectl.run import up as up_here

    if detach:
        up_background.detached(file, data)
    else:
        up_here.foreground(file, data, report_to)


@app.command("down", epilog="Example:\n\n  wormholectl down -f shop.toml")
def down_command(file: UpFile, data: UpData = None) -> None:
    """Stop what `wormholectl up` runs for a file. Nothing is lost: the next `up` goes on where this one stopped."""
    from wormholectl.run.background import down

    down(file, data)
