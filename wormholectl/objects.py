"""The noun ``objects``: what a publisher needs to have been made in a datastore."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.confirm import confirm
from wormholectl.options import LOG_HELP, PasswordFile, Where, Yes, with_where
from wormholectl.show.printer import print_text

if TYPE_CHECKING:
    from wormhole.ports.datastore import Datastore, Login, ServerObjects

__all__ = ["app", "show_statements"]

app = typer.Typer(
    no_args_is_help=True,
    help="What a publisher needs in a datastore, such as replication slots: shown as statements, made or dropped on "
    "yes. Most datastores need nothing.",
)

Url = Annotated[str, typer.Argument(metavar="URL", help=LOG_HELP, show_default=False)]
LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="NAME",
        help="The log's name in the configuration, where the URL and -c FILE.toml do not say it.",
        show_default=False,
    ),
]

_CREATE: Final = """Example:

  wormholectl objects create "$LOG" --password-file admin.password
"""
_DROP: Final = """Example:

  wormholectl objects drop "$LOG" -c shop.toml --password-file admin.password
"""


@app.command(epilog=_CREATE)
@with_where
def create(url: Url, where: Where, log: LogOption = "", password_file: PasswordFile = None, yes: Yes = False) -> None:
    """Show the statements that make what is missing, ask, and run them."""
    found, url, login, objects, _ = _found(url, where, log, password_file)
    if not objects.missing:
        print_text("nothing is missing")
        return
    show_statements("To run:", objects.missing)
    confirm("Run them?", yes)
    _run(found, url, login, objects.missing)
    print_text("made")


@app.command(epilog=_DROP)
@with_where
def drop(url: Url, where: Where, log: LogOption = "", password_file: PasswordFile = None, yes: Yes = False) -> None:
    """Show the statements that drop it all, say what is lost with it, ask, and run them. Refused while a publisher
    uses it.
    """
    found, url, login, objects, applications = _found(url, where, log, password_file)
    if not objects.present:
        print_text("nothing is there")
        return
    show_statements("To run:", objects.present)
    if objects.in_use:
        raise UsageError(f"nothing was dropped: {objects.in_use}", hint="stop the publisher of the log first")
    if objects.kept:
        print_text(f"warning: {objects.kept}", error=True)
    if applications:
        print_text(f"warning: {where.coordinator} gives this log to {', '.join(applications)}", error=True)
    confirm("Run them?", yes)
    _run(found, url, login, objects.present)
    print_text("dropped")


def show_statements(heading: str, statements: Sequence[str]) -> None:
    """Print them below a heading, each to be pasted."""
    print_text(heading, "", *(f"  {statement}" for statement in statements), "")


def _found(
    url: str, where: Where, log: str, password_file: Path | None
) -> "tuple[Datastore, str, Login, ServerObjects, Sequence[str]]":
    from wormhole.config.datastores import installed
    from wormholectl.existing_rows import configured_log
    from wormholectl.sources import datastore_at, login_of

    found = datastore_at(url)
    login = login_of(url, password_file)
    known = configured_log(url, where)
    named = log or known.name or found.name_in(url)
    url = found.url_of_log(url, named, known.source) if named else url
    with installed(found):
        objects = found.server_objects(url, login)
    if objects is None:
        raise UsageError(f"a publisher of {found.capabilities.title} needs nothing there", hint="start the publisher")
    return found, url, login, objects, known.applications


def _run(found: "Datastore", url: str, login: "Login", statements: Sequence[str]) -> None:
    from wormhole.config.datastores import installed

    with installed(found):
        found.run_statements(url, login, statements)
