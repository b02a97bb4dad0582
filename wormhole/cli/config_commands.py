"""The commands about configuration files, their options and their help."""

from __future__ import annotations

import typer

from wormhole.cli.guard import WRONG
from wormhole.cli.options import AsJson, ConfigFile

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Check and publish configuration files.")


@app.command("check", epilog="Example:\n\n  wormholectl config check shop.toml")
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


@app.command("apply", epilog="Example:\n\n  wormholectl config apply shop.toml")
def config_apply(file: ConfigFile) -> None:
    """Check a configuration file and write its datasets and applications to ZooKeeper. Repeating it is safe."""
    from wormhole.cli.operate import apply_config

    config = apply_config(file)
    print(f"{file}: published {len(config.datasets)} datasets and {len(config.applications)} applications")
