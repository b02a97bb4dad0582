"""The noun ``capture``: manages the triggers that record changes in a database whose own log cannot be read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wormhole.model.errors import Fatal, UsageError
from wormholectl.objects import show_statements
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import LOG_HELP, PasswordFile, Yes
from wormholectl.show.printer import print_table, print_text

if TYPE_CHECKING:
    from wormhole.ports.datastore import Datastore, Login, ServerObjects

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Triggers that record changes in a database whose own log cannot be read: shown as statements, made or "
    "removed on yes.",
)

Url = Annotated[str, typer.Argument(metavar="URL", help=LOG_HELP, show_default=False)]

_INSTALL: Final = """Example:

  wormholectl capture install "$LOG" --all
  wormholectl capture install "$LOG" --tables orders,customers
"""


@app.command(epilog=_INSTALL)
def install(
    url: Url,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            metavar="PATTERN,...",
            help="Tables whose changes are recorded, with * and ?; may be repeated. Those of before stay.",
            show_default=False,
        ),
    ] = None,
    all_tables: Annotated[bool, typer.Option("--all", help="Every table that can be captured.")] = False,
    password_file: PasswordFile = None,
    yes: Yes = False,
) -> None:
    """Show the statements that make what is missing, ask, and run them. Exit code 1 when a table of --tables cannot be
    captured; the others are.
    """
    if all_tables == bool(tables):
        raise UsageError("either --tables or --all has to be given", hint="`wormholectl capture show URL` lists tables")
    patterns = ["*"] if all_tables else [name for some in tables or () for name in some.split(",") if name]
    known = _found(url, password_file, patterns)
    objects = known.objects
    if objects.left_out:
        print_text(objects.left_out)
    if objects.missing:
        show_statements("To run:", objects.missing)
        confirm("Run them?", yes)
        known.run(objects.missing)
        print_text("made")
    elif not objects.left_out or all_tables:
        print_text("nothing is missing")
    if objects.left_out and not all_tables:
        raise Fatal(
            f"not every table that --tables names is captured: {objects.left_out}",
            hint="correct the table, and run this again",
            code="table-left-out",
        )


@app.command()
def show(url: Url, password_file: PasswordFile = None) -> None:
    """List the tables, and whether their changes are recorded."""
    known = _found(url, password_file)
    print_table(("TABLE", "STATE"), list(known.objects.tables), empty="no tables")
    if known.objects.kept:
        print_text(known.objects.kept)


@app.command()
def remove(url: Url, password_file: PasswordFile = None, yes: Yes = False) -> None:
    """Show the statements that remove all of it, say what is lost with it, ask, and run them. Refused while it is
    used.
    """
    known = _found(url, password_file)
    objects = known.objects
    if not objects.present:
        print_text("nothing is there")
        return
    show_statements("To run:", objects.present)
    if objects.in_use:
        raise UsageError(f"nothing was removed: {objects.in_use}", hint="stop the publisher of the log first")
    if objects.kept:
        print_text(f"warning: {objects.kept}", error=True)
    confirm("Run them?", yes)
    known.run(objects.present)
    print_text("removed")


class _Found(NamedTuple):
    """A database, and the capture objects in it."""

    datastore: "Datastore"
    url: str
    login: "Login"
    objects: "ServerObjects"

    def run(self, statements: Sequence[str]) -> None:
        """Run statements in the database."""
        from wormhole.config.datastores import installed

        with installed(self.datastore):
            self.datastore.run_statements(self.url, self.login, statements)


def _found(url: str, password_file: Path | None, tables: Sequence[str] = ()) -> _Found:
    from wormhole.config.datastores import installed
    from wormholectl.logs.sources import datastore_at, login_of

    found = datastore_at(url)
    if not found.captures:
        raise UsageError(
            f"nothing is captured in {found.capabilities.title}: its own log is read",
            hint="`wormholectl doctor URL` reports what the log needs",
        )
    login = login_of(url, password_file)
    with installed(found):
        objects = found.server_objects(url, login, tables)
    if objects is None:
        raise UsageError(f"{found.capabilities.title} has no triggers", hint="start the publisher")
    return _Found(found, url, login, objects)
