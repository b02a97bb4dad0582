"""The command ``models``: writes Python classes for a database's tables, for use in subscribers."""

import os
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.options import LOG_HELP, PasswordFile
from wormholectl.show.printer import print_line, print_text

if TYPE_CHECKING:
    from wormhole.filters import Projection
    from wormhole.model.table_definition import TableDefinition

__all__ = ["app"]

app = typer.Typer()

_SHOWN: Final = 6
_EXAMPLES: Final = """Examples:

  wormholectl models "$SERVER/shop" -o models.py

  wormholectl models "$SERVER/shop" --table users --table 'order*' --style pydantic -o models.py

  wormholectl models cache -c shop.toml -o models.py

  wormholectl models --check models.py
"""


class Style(StrEnum):
    """The kind of the written classes."""

    DATACLASS = "dataclass"
    PYDANTIC = "pydantic"


class _Log(NamedTuple):
    """The log whose tables are described: its URL, the file with the password, the patterns that choose tables (none:
    all), and the columns that the application receives.
    """

    url: str
    password_file: Path | None
    patterns: Sequence[str]
    projection: "Projection | None" = None


@app.command(epilog=_EXAMPLES)
def models(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[URL|APPLICATION]",
            help=f"{LOG_HELP} With -c an application's name: the tables that it receives.",
            show_default=False,
        ),
    ] = "",
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="PATTERN", help="Only these tables (shop.users, 'shop.*'); repeatable."),
    ] = None,
    style: Annotated[Style, typer.Option("--style", help="What the classes are.")] = Style.DATACLASS,
    text_dates: Annotated[
        bool, typer.Option("--text-dates", help="Keep dates as text: for columns that hold zero dates.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here, not to standard output.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Report which tables changed since FILE was made; write nothing."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE.toml", help="Has the application.")
    ] = None,
    log: Annotated[
        str | None, typer.Option("--log", metavar="DATASET/COPY/LOG", help="Which log, where the dataset has several.")
    ] = None,
    password_file: PasswordFile = None,
) -> None:
    """Write a Python module with one class for each table, for `decode` of the SDK (docs/models.md). With --check exit
    code 1 when a table changed.
    """
    if check is not None:
        if tables or output or text_dates:
            raise UsageError("--check writes nothing, and has its tables from FILE", hint="give --check FILE alone")
        _check(check, what, config, log, password_file)
        return
    if not what:
        raise UsageError("which tables?", hint="give a log's URL, or an application's name with -c FILE.toml")
    from pydantic import BaseModel

    from wormhole.config.passwords import without_password
    from wormholectl.models.texts import made_from, module

    if output is not None and output.exists():
        made_from(_read(output), str(output))  # raises for a file that this command did not write, so that it stays
    chosen = _chosen(what, config, log, password_file, tables or ())
    patterns = chosen.patterns
    found = _described(chosen, lambda name: not patterns or any(fnmatchcase(name, one) for one in patterns))
    if not found:
        raise UsageError(
            f"{without_password(chosen.url)} has no table that matches {', '.join(patterns) or 'anything'}",
            hint=_to_find(patterns),
            code="table-unknown",
        )
    options = [word for pattern in tables or () for word in ("--table", pattern)]
    options += ["--style", style.value] * (style is not Style.DATACLASS) + ["--text-dates"] * text_dates
    options += ["-c", str(config)] * (config is not None) + ["--log", log or ""] * (log is not None)
    options += ["-o", str(output)] * (output is not None)
    text = module(
        found,
        command=shlex.join(["wormholectl", "models", _to_type(what), *options]),
        source=_to_type(chosen.url),
        application=what if config is not None else "",
        pydantic=style is Style.PYDANTIC,
        text_dates=text_dates,
        reserved={*dir(BaseModel), *dir(type(BaseModel))} if style is Style.PYDANTIC else (),
    )
    if output is None:
        print_text(*text.splitlines())
        return
    _write(output, text)
    names = ", ".join(table.name for table in found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")
    count = f"{len(found)} table{'s' if len(found) > 1 else ''}"
    print_line([("wrote ", ""), (str(output), "bold"), (f": {count}: {names}", "")])


def _to_find(patterns: Sequence[str]) -> str:
    for pattern in patterns:
        if "." not in pattern:  # no name matches such a pattern: each name begins with its database
            return f"{pattern} has no database: write '*.{pattern}', or DATABASE.{pattern}"
    return "`wormholectl doctor URL` shows what the account may see"


def _chosen(
    what: str, config: Path | None, log: str | None, password_file: Path | None, tables: Sequence[str] = ()
) -> _Log:
    """The log that the arguments choose. ``tables``: the patterns of the options, which have precedence."""
    if config is not None:
        from wormholectl.filters.effect import from_config

        found = from_config(config, what, log)
        return _Log(found.source, password_file or found.password_file, tables or found.tables, found.filter.projection)
    from wormholectl.logs.sources import datastore_at, split_database, tables_within

    if log is not None:
        raise UsageError("--log chooses among the logs of an application", hint="give -c FILE.toml too")
    url, database = split_database(what)
    datastore_at(url)
    return _Log(url, password_file, tables_within(database, tables))


def _to_type(url: str) -> str:
    """The URL without its password, in a form that a command accepts again."""
    from wormhole.config.passwords import without_password

    return without_password(url).replace(":***@", "@")


def _described(chosen: _Log, wanted: Callable[[str], bool]) -> "Sequence[TableDefinition]":
    from wormhole.config.datastores import installed
    from wormholectl.logs.sources import datastore_at, login_of

    datastore = datastore_at(chosen.url)
    with installed(datastore):
        tables = datastore.describe(chosen.url, login_of(chosen.url, chosen.password_file), wanted)
    return tables if chosen.projection is None else [chosen.projection.project_table(table) for table in tables]


def _check(file: Path, what: str, config: Path | None, log: str | None, password_file: Path | None) -> None:
    from wormholectl.models.texts import made_from

    made = made_from(_read(file), str(file))
    if made.application and config is None:
        raise UsageError(
            f"{file} was made for the application {made.application}", hint="give its configuration with -c FILE.toml"
        )
    what = what or (made.source if config is None else made.application)
    if not what:
        raise UsageError(f"{file} was made for no application", hint="leave -c out, or name the application")
    chosen = _chosen(what, config, log, password_file)
    now = {table.name: table.fingerprint for table in _described(chosen, made.tables.__contains__)}
    changed = [name for name, before in made.tables.items() if now.get(name) != before]
    for name in changed:
        print_text(f"{name}: changed" if name in now else f"{name}: not there, or the account may not see it")
    if not changed:
        print_text(f"{file}: no table changed ({len(made.tables)} compared)")
        return
    print_text(f"  next: {made.command}")
    raise typer.Exit(BROKEN)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise UsageError(f"{file} cannot be read: {why}", hint="name a file that `wormholectl models` wrote") from None


def _write(file: Path, text: str) -> None:
    """Write the whole file atomically."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        try:
            with draft.open("x", encoding="utf-8") as new:
                new.write(text)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror or error}",
            hint="name another with -o",
            code="file-unwritable",
        ) from None
