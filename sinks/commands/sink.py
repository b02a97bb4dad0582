"""The noun ``sink``: other stores, filled with the updates of applications."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.exit_codes import UNREACHABLE
from wormholectl.shared.errors import needs
from wormholectl.shared.options import AsJson, LogLevel, LogLevelOption

if TYPE_CHECKING:
    from sinks.settings import ConfiguredSink
    from wormhole.config import Config

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
    coordinator: Annotated[str, typer.Option(hidden=True)] = "",
    ready_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
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

    loaded, [sink] = _chosen(config, name)
    if sys.stderr.isatty():
        from sinks.commands.progress import begin_progress

        begin_progress(sink.application, config)
    options: SubscriberOptions = {"coordinator": coordinator or os.fspath(config)}
    if loaded.tls is not None and "WORMHOLE_TLS" not in os.environ:
        options["tls"] = loaded.tls
    if loaded.insecure:
        options["insecure"] = True
    if sink.settings.dial:
        options["dial"] = sink.settings.dial
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_sink(sink, options, loaded, http, ready_file))


@app.command(
    epilog=(
        "Examples:\n\n  wormholectl sink check warehouse -c shop.toml\n\n  wormholectl sink check -c shop.toml --json"
    )
)
def check(
    config: ConfigAt,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The sink; without it every one of the file.")] = "",
    as_json: AsJson = False,
) -> None:
    """Connect to the stores of sinks, and report what matters there. Changes nothing.

    Exit code 1 when something should be changed, 3 when a store cannot be reached.
    """
    from sinks.commands.examining import examined
    from sinks.commands.show import show_checks

    loaded, sinks = _chosen(config, name) if name else _all(config)
    found = examined(sinks, loaded)
    show_checks(found, as_json)
    raise typer.Exit(max((one.code for one in found), default=0))


@app.command(epilog="Examples:\n\n  wormholectl sink show -c shop.toml\n\n  wormholectl sink show -c shop.toml --json")
def show(config: ConfigAt, as_json: AsJson = False) -> None:
    """List the sinks of a file: kind, guarantee, flows and their largest lag, and whether the store can be used.

    Exit code 3 when a store or a publisher cannot be reached.
    """
    from sinks.commands.examining import asked, examined, flows_of
    from sinks.commands.show import show_sinks

    _, sinks = _all(config)
    answers, silent = asked(config) if sinks else ([], "")
    found = examined(sinks)
    show_sinks(found, [flows_of(sink, answers) for sink in sinks], silent, as_json)
    if silent or any(one.code == UNREACHABLE for one in found):
        raise typer.Exit(UNREACHABLE)


def _chosen(file: Path, name: str) -> "tuple[Config, list[ConfiguredSink]]":
    """The configuration, and its sink ``name`` (empty: its only sink). Raises as
    :func:`~sinks.settings.configured_sink`.
    """
    from sinks.settings import configured_sink, only_sink
    from wormhole.config import load

    config = load(file)
    return config, [configured_sink(config, file, name or only_sink(config, file))]


def _all(file: Path) -> "tuple[Config, list[ConfiguredSink]]":
    """The configuration, and its sinks by name. Raises as :func:`~sinks.settings.configured_sinks`."""
    from sinks.settings import configured_sinks
    from wormhole.config import load

    config = load(file)
    return config, [sink for _, sink in sorted(configured_sinks(config, file).items())]
