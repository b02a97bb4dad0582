"""The noun ``objects``: makes and drops the objects that a publisher needs in a datastore, such as slots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wormhole.model.errors import Fatal, UsageError
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import LOG_HELP, LogName, PasswordFile, Where, Yes, with_where
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

_CREATE: Final = """Example:

  wormholectl objects create "$LOG" --password-file admin.password
  wormholectl objects create "$LOG" --password-file admin.password --tables 'public.orders'
"""
_DROP: Final = """Example:

  wormholectl objects drop "$LOG" -c shop.toml --password-file admin.password
"""


@app.command(epilog=_CREATE)
@with_where
def create(
    url: Url,
    where: Where,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            metavar="PATTERN",
            help="Tables to be published, as SCHEMA.TABLE with * and ?; may be repeated. Without it a new publication "
            "gets every table that can be published, and one that is there stays as it is.",
            show_default=False,
        ),
    ] = None,
    log: LogName = "",
    password_file: PasswordFile = None,
    yes: Yes = False,
) -> None:
    """Show the statements that make what is missing, ask, and run them. Exit code 1 when a table of --tables cannot be
    published; the others are.
    """
    known = _found(url, where, log, password_file, tables or ())
    refused = known.objects.left_out if tables else ""
    if known.objects.left_out and (known.objects.missing or not refused):  # before the question; an error repeats it
        print_text(known.objects.left_out)
    if known.objects.missing:
        show_statements(f"To run{known.of_log}:", known.objects.missing)
        _show_others(known.objects)
        confirm("Run them?", yes)
        _run(known, known.objects.missing)
        print_text("made")
    elif not refused:
        print_text(f"nothing is missing{known.of_log}")
    if refused:
        raise Fatal(
            f"not every table that --tables names is published: {refused}",
            hint="`wormholectl doctor URL` shows what each of them needs; correct that, and run this again",
        )


@app.command(epilog=_DROP)
@with_where
def drop(url: Url, where: Where, log: LogName = "", password_file: PasswordFile = None, yes: Yes = False) -> None:
    """Show the statements that drop it all, say what is lost with it, ask, and run them. Refused while a publisher
    uses it.
    """
    known = _found(url, where, log, password_file)
    objects = known.objects
    if not objects.present:
        if objects.others:
            raise UsageError(
                f"nothing is there{known.of_log}; of other logs there is {', '.join(objects.others)}",
                hint="name the log with --log NAME, or its objects in the URL",
            )
        print_text(f"nothing is there{known.of_log}")
        return
    show_statements(f"To run{known.of_log}:", objects.present)
    _show_others(objects)
    if objects.in_use:
        raise UsageError(f"nothing was dropped: {objects.in_use}", hint="stop the publisher of the log first")
    if objects.kept:
        print_text(f"warning: {objects.kept}", error=True)
    if known.applications:
        print_text(f"warning: {where.coordinator} gives this log to {', '.join(known.applications)}", error=True)
    confirm("Run them?", yes)
    _run(known, objects.present)
    print_text("dropped")


def show_statements(heading: str, statements: Sequence[str]) -> None:
    """Print the statements below a heading, in a form that can be pasted."""
    print_text(heading, "", *(f"  {statement}" for statement in statements), "")


def _show_others(objects: "ServerObjects") -> None:
    if objects.others:
        print_text(f"The objects of other logs stay: {', '.join(objects.others)}", "")


class _Found(NamedTuple):
    """The objects of one log. ``url``: the address, with the names of the log's objects."""

    datastore: "Datastore"
    url: str
    login: "Login"
    objects: "ServerObjects"
    log: str
    applications: Sequence[str]

    @property
    def of_log(self) -> str:
        """The words for the log in messages."""
        return f" for the log {self.log}" if self.log else ""


def _found(url: str, where: Where, log: str, password_file: Path | None, tables: Sequence[str] = ()) -> _Found:
    from wormhole.config.datastores import installed
    from wormhole.config.passwords import without_password
    from wormholectl.logs.configured import chosen_log
    from wormholectl.logs.sources import datastore_at, login_of

    found = datastore_at(url)
    if found.captures:
        raise UsageError(
            f"the log of {found.capabilities.title} is made by triggers",
            hint="`wormholectl capture` makes and removes them",
        )
    known = chosen_log(found, url, where, log)
    if not known.name and where.coordinator.endswith((".toml", ".json")):
        raise UsageError(
            f"{where.coordinator} has no log at {without_password(url)}", hint="correct the URL, or name it: --log NAME"
        )
    login = login_of(url, password_file)
    named = known.name or found.name_in(url)
    url = found.url_of_log(url, named, known.source) if named else url
    with installed(found):
        objects = found.server_objects(url, login, tables)
    if objects is None:
        raise UsageError(f"a publisher of {found.capabilities.title} needs nothing there", hint="start the publisher")
    return _Found(found, url, login, objects, named, known.applications)


def _run(known: _Found, statements: Sequence[str]) -> None:
    from wormhole.config.datastores import installed

    with installed(known.datastore):
        known.datastore.run_statements(known.url, known.login, statements)
