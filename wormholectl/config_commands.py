"""The commands about configuration: files, what is stored, and who changed that."""

from __future__ import annotations

from typing import Annotated

import typer

from wormholectl.guard import WRONG
from wormholectl.options import AsJson, ConfigFile, Yes

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check configuration files, apply them, and see who changed what.")

StoredAt = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="ZK:PORT/ROOT|FILE.toml",
        help="Where the configuration is stored.",
    ),
]
AppliedTo = Annotated[
    str,
    typer.Option(
        "--coordinator",
        "-c",
        envvar="WORMHOLE_COORDINATOR",
        metavar="ZK:PORT/ROOT|FILE.toml",
        help="Where the configuration is stored, if not where FILE says.",
    ),
]
Prune = Annotated[bool, typer.Option("--prune", help="Remove what is stored and FILE lacks; else it stays.")]


@app.command("check", epilog="Example:\n\n  wormholectl config check shop.toml")
def config_check(file: ConfigFile, as_json: AsJson = False) -> None:
    """Read a configuration file and say everything that is wrong with it, and what its certificates are. Exit code 2 when something is wrong."""
    from wormhole.model.errors import ConfigError
    from wormholectl.operate import check_config, logs_of
    from wormholectl.output import print_json, print_text
    from wormholectl.render import SCHEMA
    from wormholectl.tls_files import TlsReport, report_on

    try:
        config = check_config(file)
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"schema": SCHEMA, "ok": False, "problems": error.message.splitlines()})
        raise typer.Exit(WRONG) from None
    logs, applications = logs_of(config), sorted(config.applications)
    tls = report_on(config.tls) or TlsReport()
    if as_json:
        certificates = {"facts": list(tls.facts), "faults": list(tls.faults)}
        print_json(
            {"schema": SCHEMA, "ok": True, "logs": logs, "applications": applications, "certificates": certificates}
        )
    else:
        print_text(
            f"{file}: right. Logs: {', '.join(logs) or 'none'}. Applications: {', '.join(applications) or 'none'}."
        )
        for fact in tls.facts:
            print_text(fact)
        for fault in tls.faults:
            # A file may be checked on another host than its own, where these are not.
            print_text(f"WARNING on this host: {fault}")


@app.command(
    "diff",
    epilog="Examples:\n\n  wormholectl config diff shop.toml\n\n  wormholectl config diff shop.toml -c zk1:2181/wormhole --json",
)
def config_diff(file: ConfigFile, coordinator: AppliedTo = "", prune: Prune = False, as_json: AsJson = False) -> None:
    """Show what applying a file would change of what is stored. Exit code 1 when it would change something."""
    from wormholectl.configuring import Wish, diff

    raise typer.Exit(diff(Wish(file, coordinator, prune=prune, as_json=as_json)))


@app.command(
    "apply",
    epilog="Examples:\n\n  wormholectl config apply shop.toml\n\n  wormholectl config apply shop.toml --yes --prune",
)
def config_apply(
    file: ConfigFile, coordinator: AppliedTo = "", prune: Prune = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Check a file, show what it changes, ask, and store its datasets and applications: all of it or nothing. Repeating it is safe."""
    from wormholectl.configuring import Wish, apply

    apply(Wish(file, coordinator, prune, yes, as_json))


@app.command(
    "show",
    epilog="Examples:\n\n  wormholectl config show -c zk1:2181/wormhole > shop.toml\n\n  wormholectl config show -c shop.toml --json",
)
def config_show(
    coordinator: StoredAt = "",
    as_json: Annotated[bool, typer.Option("--json/--toml", help="JSON for programs (docs/cli.md), or TOML.")] = False,
) -> None:
    """Print the datasets and applications that are stored, as a file that could be applied."""
    from wormholectl.configuring import show

    show(coordinator, as_json)


@app.command(
    "history",
    epilog="Examples:\n\n  wormholectl config history -c shop.toml\n\n  wormholectl config history -c zk1:2181/wormhole -n 5 --json",
)
def config_history(
    coordinator: StoredAt = "",
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="So many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Say who changed what and when: the configuration, flows, hosts. The last 1,000 changes are kept."""
    from wormholectl.configuring import history

    history(coordinator, last, as_json)
