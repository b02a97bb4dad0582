"""The commands of ``wormholectl``, their options and their help."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from wormhole import __version__
from wormhole.cli.guard import BROKEN, WRONG, GuardedGroup
from wormhole.config.server_url import without_password
from wormhole.errors import UsageError

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
publisher_app = typer.Typer(no_args_is_help=True, help="Run the process that tails a log and pushes its updates.")
filters_app = typer.Typer(no_args_is_help=True, help="Understand filters.")
config_app = typer.Typer(no_args_is_help=True, help="Check and publish configuration files.")
app.add_typer(publisher_app, name="publisher")
app.add_typer(config_app, name="config")
app.add_typer(filters_app, name="filters")

_LOG_HELP: Final = "The log: rocksdb:///path/of/the/database, mysql://user@host:3306 or mariadb://user@host:3306."
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs (docs/cli.md).")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file.", show_default=False)]
PublisherAt = Annotated[
    str, typer.Option("--publisher", "-p", metavar="HOST:PORT", help="Ask this publisher's admin service directly.")
]
CoordinatorAt = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="ZK:PORT/ROOT|FILE.toml",
        help="Find the publishers there.",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--value-format",
        metavar="[TABLE=]FORMAT",
        help="What values hold: json, msgpack, protobuf:FILE:MESSAGE; repeatable.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Holds a server's password; else the [client] section of ~/.my.cnf does, else you are asked.",
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", envvar="WORMHOLE_TLS_CERT", help="Certificate to dial with (PEM).")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", envvar="WORMHOLE_TLS_KEY", help="Its private key (PEM).")]
TlsCa = Annotated[Path | None, typer.Option("--tls-ca", envvar="WORMHOLE_TLS_CA", help="The authority to trust (PEM).")]
TlsName = Annotated[str, typer.Option("--tls-name", help="Name expected in the publisher's certificate.")]


class LogLevel(StrEnum):
    """How much a daemon says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from wormhole.compiled import compiled_modules, hot_modules

    compiled = compiled_modules()
    interpreted = [name for name in hot_modules() if name not in compiled]
    print(f"wormholectl {__version__} (Python {platform.python_version()})")
    print(f"compiled modules: {', '.join(compiled) or 'none'}")
    if interpreted:
        print(f"interpreted hot modules: {', '.join(interpreted)}")
    raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show version and compiled modules."),
    ] = False,
) -> None:
    """What stands before the command."""


_TAIL_EXAMPLES: Final = """Examples:

  wormholectl tail rocksdb:///var/lib/app/store

  wormholectl tail rocksdb:///var/lib/app/store --from earliest --no-follow --json | jq .key

  wormholectl tail rocksdb:///var/lib/app/store --filter 'op == "delete" and key startswith "user:"'

  wormholectl tail mysql://wormhole@db1:3306 --password-file db1.password --table 'shop.*'

  wormholectl tail 'mariadb://wormhole@db1:3306/?tls=verify&ca=/etc/ssl/db-ca.pem' --from 0-1-1742
"""


@app.command(epilog=_TAIL_EXAMPLES)
def tail(
    url: Annotated[str, typer.Argument(metavar="URL", help=_LOG_HELP, show_default=False)],
    as_json: AsJson = False,
    where: Annotated[
        str | None, typer.Option("--filter", "-f", metavar="EXPR", help="Show only these (docs/filters.md).")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="PATTERN",
            help="Only these tables (shop.users, 'shop.*'; RocksDB: column families); repeatable.",
        ),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|PLACE|seq:N|GTID", help="Where to begin.")
    ] = "latest",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many updates.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end of the log.")] = True,
    formats: Formats = None,
    password_file: PasswordFile = None,
) -> None:
    """Show a database's changes as they are committed. Needs no ZooKeeper and disturbs nobody."""
    from wormhole.cli import render
    from wormhole.cli.explain import formats_of
    from wormhole.cli.output import print_json, print_line
    from wormhole.cli.tail import TailEvents, TailOptions
    from wormhole.cli.tail import tail as run_tail
    from wormhole.errors import DecodeError
    from wormhole.filters import Filter

    left_out: set[str] = set()

    def broken(error: DecodeError) -> None:
        if error.message not in left_out:  # each transaction with such a table has it
            left_out.add(error.message)
            print(f"warning: not shown: {error}", file=sys.stderr, flush=True)

    if as_json:
        events = TailEvents(
            lambda update: print_json(render.update_as_json(update)),
            lambda gap, begin: print_json(render.gap_as_json(gap, begin)),
            broken=broken,
        )
    else:
        events = TailEvents(
            lambda update: print_line(render.update_as_line(update)),
            lambda gap, begin: print_line(render.gap_as_line(gap, begin)),
            lambda marker: print(
                f"tailing {without_password(url)} from {marker}{'; Ctrl-C ends' if follow else ''}",
                file=sys.stderr,
                flush=True,
            ),
            broken,
        )
    options = TailOptions(Filter.parse(where, tables or (), formats_of(formats or ())), start, limit, follow)
    with suppress(KeyboardInterrupt):
        run_tail(url, options, events, password_file)
    if left_out:
        raise typer.Exit(BROKEN)


_DOCTOR_EXAMPLES: Final = """Examples:

  wormholectl doctor rocksdb:///var/lib/app/store

  wormholectl doctor mysql://wormhole@db1:3306 --password-file db1.password

  wormholectl doctor 'mysql://wormhole@localhost/?socket=/run/mysqld/mysqld.sock' --json
"""


@app.command(epilog=_DOCTOR_EXAMPLES)
def doctor(
    url: Annotated[str, typer.Argument(metavar="URL", help=_LOG_HELP, show_default=False)],
    as_json: AsJson = False,
    state_dir: Annotated[Path, typer.Option("--state-dir", help="Where the publisher would keep its state.")] = Path(
        "/var/lib/wormhole"
    ),
    password_file: PasswordFile = None,
) -> None:
    """Say what matters for tailing a database: settings, privileges, tables, files. Exit code 1 when something should be changed."""
    from wormhole.cli.examine import examine

    raise typer.Exit(examine(url, state_dir, as_json, password_file))


def _ask(
    publisher: str,
    coordinator: str,
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    name: str,
    what: str,
    as_json: bool,
) -> None:
    from wormhole.cli import status
    from wormhole.cli.admin_client import Where, ask
    from wormhole.config import TlsFiles

    files = (cert, key, ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --tls-ca belong together", hint="give all three")
    tls = TlsFiles(cert=cert, key=key, ca=ca) if cert and key and ca else None
    listing = {"flows": status.FLOWS, "caravans": status.CARAVANS, "subscribers": status.SUBSCRIBERS}[what]
    raise typer.Exit(status.show(listing, ask(Where(publisher, coordinator, tls, name)), as_json))


@app.command(
    epilog="Examples:\n\n  wormholectl flows -c shop.toml\n\n  wormholectl flows -c zk1:2181/wormhole --json\n\n  wormholectl flows --publisher 127.0.0.1:7401"
)
def flows(
    publisher: PublisherAt = "",
    coordinator: CoordinatorAt = "",
    as_json: AsJson = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_name: TlsName = "",
) -> None:
    """List flows: state, place, datamarker, lag and credit of each."""
    _ask(publisher, coordinator, tls_cert, tls_key, tls_ca, tls_name, "flows", as_json)


@app.command(epilog="Example:\n\n  wormholectl caravans -c shop.toml")
def caravans(
    publisher: PublisherAt = "",
    coordinator: CoordinatorAt = "",
    as_json: AsJson = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_name: TlsName = "",
) -> None:
    """List caravans: where each log reader is, how fast it reads, and which flows travel with it."""
    _ask(publisher, coordinator, tls_cert, tls_key, tls_ca, tls_name, "caravans", as_json)


@app.command(epilog="Example:\n\n  wormholectl subscribers -c shop.toml")
def subscribers(
    publisher: PublisherAt = "",
    coordinator: CoordinatorAt = "",
    as_json: AsJson = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_name: TlsName = "",
) -> None:
    """List subscribers: address, connection and number of flows of each."""
    _ask(publisher, coordinator, tls_cert, tls_key, tls_ca, tls_name, "subscribers", as_json)


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


_EXPLAIN_EXAMPLES: Final = """Examples:

  wormholectl filters explain 'op == "delete" or status == "paid"' --source rocksdb:///var/lib/app/store --value-format json

  wormholectl filters explain -c shop.toml cache
"""


@filters_app.command("explain", epilog=_EXPLAIN_EXAMPLES)
def filters_explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="EXPR|APPLICATION", help="The filter; with -c an application's name.", show_default=False
        ),
    ],
    tables: Annotated[
        list[str] | None, typer.Option("--table", "-t", metavar="PATTERN", help="Only these tables; repeatable.")
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="URL", help="Ask it of this log's last updates: rocksdb:///path, mysql://user@host."
        ),
    ] = "",
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE.toml", help="Take filter, formats and log from here.")
    ] = None,
    log: Annotated[
        str | None, typer.Option("--log", metavar="DATASET/COPY/LOG", help="Which log, where the dataset has several.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, max=1_000_000, help="How many updates.")] = 10_000,
    formats: Formats = None,
    as_json: AsJson = False,
    password_file: PasswordFile = None,
) -> None:
    """Show how a filter was read, and what it does to the last updates of a log."""
    from wormhole.cli import explain

    if config is None:
        chosen = explain.from_options(what, tables or (), source, formats or (), password_file)
    elif tables or source or formats or password_file:
        raise UsageError("with --config the file says what --table, --source, --value-format and --password-file would")
    else:
        chosen = explain.from_config(config, what, log)
    explain.show(chosen, last, as_json)


@config_app.command("check", epilog="Example:\n\n  wormholectl config check shop.toml")
def config_check(file: ConfigFile, as_json: AsJson = False) -> None:
    """Read a configuration file and say everything that is wrong with it. Exit code 2 when something is."""
    from wormhole.cli.operate import check_config, logs_of
    from wormhole.cli.output import print_json
    from wormhole.cli.render import SCHEMA
    from wormhole.errors import ConfigError

    try:
        config = check_config(file)
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"schema": SCHEMA, "ok": False, "problems": error.message.splitlines()})
        raise typer.Exit(WRONG) from None
    logs, applications = logs_of(config), sorted(config.applications)
    if as_json:
        print_json({"schema": SCHEMA, "ok": True, "logs": logs, "applications": applications})
    else:
        print(f"{file}: right. Logs: {', '.join(logs) or 'none'}. Applications: {', '.join(applications) or 'none'}.")


@config_app.command("apply", epilog="Example:\n\n  wormholectl config apply shop.toml")
def config_apply(file: ConfigFile) -> None:
    """Check a configuration file and write its datasets and applications to ZooKeeper. Repeating it is safe."""
    from wormhole.cli.operate import apply_config

    config = apply_config(file)
    print(f"{file}: published {len(config.datasets)} datasets and {len(config.applications)} applications")
