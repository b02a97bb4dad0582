"""The noun ``filters``: its command ``explain`` with options and help."""

from pathlib import Path
from typing import Annotated, Final

import typer

from wormhole.model.errors import FilterError, UsageError, WormholeError
from wormholectl.shared.options import AsJson, Formats, PasswordFile
from wormholectl.show.printer import print_json, print_warnings

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Understand filters.")

_EXPLAIN_EXAMPLES: Final = """Examples:

  wormholectl filters explain 'op == "delete" or status == "paid"' --source "$LOG" --value-format json

  wormholectl filters explain -c shop.toml cache
"""


@app.command("explain", epilog=_EXPLAIN_EXAMPLES)
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
        typer.Option("--source", metavar="URL", help="Ask it of the last updates of the log at this URL."),
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
    from wormholectl.filters import effect as filter_effect
    from wormholectl.filters import lacking_columns
    from wormholectl.filters.show import effect_object, show_effect
    from wormholectl.logs.opened import open_log
    from wormholectl.logs.sources import login_of

    if config is None:
        chosen = filter_effect.from_options(what, tables or (), source, formats or (), password_file)
    elif tables or source or formats or password_file:
        raise UsageError(
            "with --config the file decides what --table, --source, --value-format and --password-file would"
        )
    else:
        chosen = filter_effect.from_config(config, what, log)
    found = None
    warnings: list[str] = []
    if chosen.source:
        login = login_of(chosen.source, chosen.password_file)
        try:
            warnings = lacking_columns.of_log(chosen.filter, chosen.source, login)
        except FilterError:
            raise
        except WormholeError:
            pass  # opening the log reports it
        with open_log(chosen.source, login) as opened:
            found = filter_effect.effect(chosen.filter, opened, last)
    if as_json:
        print_json(effect_object(chosen.filter, found, warnings))
    else:
        show_effect(chosen.filter, found)
        print_warnings(warnings)
