"""The noun ``sink``: other stores, filled with the updates of applications."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.exit_codes import BROKEN
from wormholectl.shared.errors import needs
from wormholectl.shared.options import AsJson, LogLevel, LogLevelOption

if TYPE_CHECKING:
    from sinks.settings import ConfiguredSink
    from wormhole.config import Config
    from wormhole.model.findings import Report

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Fill other stores with the updates of applications.")

SinkName = Annotated[str, typer.Argument(metavar="[NAME]", help="The sink; may be left out if the file has only one.")]
ConfigAt = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="FILE.toml",
        help="The configuration of this host, which has the sink.",
        show_default=False,
    ),
]

_RUN: Final = """Examples:

  wormholectl sink run warehouse -c shop.toml

  wormholectl sink run -c /etc/wormhole/host.toml --http 127.0.0.1:9103
"""


@app.command(epilog=_RUN)
def run(
    config: ConfigAt,
    name: SinkName = "",
    http: Annotated[
        str,
        typer.Option("--http", metavar="HOST:PORT", help="Answer `/metrics` and `/healthz` here.", show_default=False),
    ] = "",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Fill a store with the updates of an application, until SIGTERM or Ctrl-C. Several at a time share the shards."""
    from wormhole.host import logs

    logs.configure(log_level.value)
    if http:
        with needs("monitor"):
            import aiohttp  # noqa: F401
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import uvloop

    from sinks.running import run_sink
    from subscriber_sdk import SubscriberOptions

    loaded, sink = _chosen(config, name)
    options: SubscriberOptions = {"coordinator": os.fspath(config)}
    if loaded.tls is not None and "WORMHOLE_TLS" not in os.environ:
        options["tls"] = loaded.tls
    if loaded.insecure:
        options["insecure"] = True
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_sink(sink, options, loaded, http))


@app.command(epilog="Examples:\n\n  wormholectl sink check warehouse -c shop.toml")
def check(config: ConfigAt, name: SinkName = "", as_json: AsJson = False) -> None:
    """Connect to a sink's store, and report what matters there. Changes nothing.

    Exit code 1 when something should be changed, 3 when the store cannot be reached.
    """
    from wormholectl.doctor.show import show_report

    report = asyncio.run(_examined(_chosen(config, name)[1]))
    show_report(report, as_json)
    if report.severity.value == "problem":
        raise typer.Exit(BROKEN)


async def _examined(sink: "ConfiguredSink") -> "Report":
    opened = await asyncio.to_thread(sink.open)
    try:
        return await opened.examine()
    finally:
        await opened.close()


def _chosen(file: Path, name: str) -> "tuple[Config, ConfiguredSink]":
    """The configuration, and its sink ``name``, or the only one. Raises as
    :func:`~sinks.settings.configured_sink`.
    """
    from sinks.settings import configured_sink, only_sink
    from wormhole.config import load

    config = load(file)
    return config, configured_sink(config, file, name or only_sink(config, file))
