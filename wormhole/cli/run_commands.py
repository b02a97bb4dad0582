"""The commands that run processes of ours: ``publisher run``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["publisher_app"]

publisher_app = typer.Typer(no_args_is_help=True, help="Run the process that tails a log and pushes its updates.")


class LogLevel(StrEnum):
    """How much a daemon says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@publisher_app.command("run", epilog="Example:\n\n  wormholectl publisher run -c shop.toml --log shop/main/db1")
def publisher_run(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE.toml", help="The configuration.", show_default=False)
    ],
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="DATASET/COPY/LOG", help="Which log; needed when the file has several."),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="How much to say on standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Tail one log and push its updates until SIGTERM or Ctrl-C; then finish, store and leave."""
    from wormhole.cli.operate import run_publisher

    run_publisher(config, log, log_level.value)
