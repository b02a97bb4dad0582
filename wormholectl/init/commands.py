"""The command ``init``: examines a datastore and writes a configuration, a subscriber and its test that fit it."""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import unquote, urlsplit
from zlib import crc32

import typer

from wormhole.model.errors import ConfigError, Retryable, UsageError, WormholeError
from wormholectl.exit_codes import BROKEN, UNREACHABLE
from wormholectl.shared.options import LOG_HELP, PasswordFile
from wormholectl.show.printer import next_step_lines, print_text

if TYPE_CHECKING:
    from wormhole.model.findings import Report
    from wormhole.ports.datastore import Datastore, Login, ServerObjects

__all__ = ["app"]

_PORTS: Final = range(20_000, 30_000)
"""The ports at which subscribers listen. They are below the ports that systems assign to outgoing connections."""
_PORTS_TO_TRY: Final = 40

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl init "$LOG"

  wormholectl init "$SERVER/shop" --password-file db1.password

  wormholectl init "$SERVER" --dir pubsub --application search --start existing

  wormholectl init "$LOG" --password-file db1.password --yes

  wormholectl init "$LOG" --to jsonlines:///var/lib/lines

  wormholectl init "$SERVER/shop" --password-file db1.password --to "$STORE" --to-password-file dwh.password
"""


@app.command(epilog=_EXAMPLES)
def init(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help=f"{LOG_HELP} Of a server with databases: SCHEME://user@host:port/database; "
            "without a database the application gets the tables of all.",
            show_default=False,
        ),
    ],
    folder: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to write; created if missing.")] = Path(),
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="Write a sink that fills this store, in place of a subscriber. No password belongs into it.",
            show_default=False,
        ),
    ] = "",
    to_password_file: Annotated[
        Path | None,
        typer.Option(
            "--to-password-file", metavar="FILE", help="The file with the password of that store.", show_default=False
        ),
    ] = None,
    application: Annotated[
        str,
        typer.Option(
            "--application",
            metavar="NAME",
            help="The name of the application, and of the sink. Default: cache, with --to mirror.",
            show_default=False,
        ),
    ] = "",
    log: Annotated[
        str,
        typer.Option(
            "--log",
            metavar="NAME",
            help="The log's name, if not the database's: two publishers of one database need two.",
            show_default=False,
        ),
    ] = "",
    password_file: PasswordFile = None,
    start: Annotated[
        Literal["latest", "existing"] | None,
        typer.Option(
            "--start",
            help="Begin with the next change, or with the rows that the tables hold already. In a terminal the command "
            "asks; a sink begins with the rows.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Make in the datastore what a publisher needs there, without a question."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a configuration, a subscriber and its test for a datastore, ready to run; with --to a configuration that
    needs no program. No password is written.

    Exit code 1 when something has to be done before a publisher can run, 3 when the datastore could not be examined.
    The files are written in both cases.
    """
    from wormhole.config import parse
    from wormhole.config.check import check_sinks
    from wormhole.config.datastores import reads_existing_rows
    from wormholectl.init import texts as init_texts
    from wormholectl.init.show import show_project
    from wormholectl.logs.sources import datastore_at, login_of, source_kind, split_database
    from wormholectl.relay.sizing import free_bytes

    if to_password_file is not None and not to:
        raise UsageError("--to-password-file is for the store of --to", hint="add --to URL, or leave it out")
    application = application or ("mirror" if to else "cache")
    url, database = split_database(url)
    found = datastore_at(url)
    readable = reads_existing_rows(source_kind(url))
    if start == "existing" and not readable:
        raise UsageError(
            f"existing rows of {found.capabilities.title} cannot be read",
            hint="leave out --start: the application then gets every change from now on",
        )
    login = login_of(url, password_file)
    of_url = found.name_in(url)
    log = log or init_texts.name_from(of_url, otherwise=init_texts.USUAL_LOG)
    named = found.url_of_log(url, log)
    source, report, problem = _examined(found, url, named, folder, login)
    databases = {table.database for table in report.tables}
    if not database and len(databases) == 1:
        database = databases.pop()
    name = init_texts.name_from(of_url or database or _place(source), otherwise=source_kind(url))
    tables = [table for table in report.tables if not database or table.database == database]
    example = init_texts.example_of(tables)
    project = init_texts.Project(
        name=name,
        application=application,
        source=source,
        database=database,
        tables=[table.name for table in tables],
        example=example.name if example else "",
        password_file=_password_name(folder, name, password_file) if "password_file" not in found.refuses else "",
        listen=f"127.0.0.1:{_free_port(folder, application)}",
        existing=readable and start != "latest" if to else _wants_existing(readable, start),
        log=log,
        growth=report.growth,
        free=free_bytes(folder),
        sink=to,
        sink_password_file="" if to_password_file is None else _as_named_in(folder, to_password_file),
    )
    texts = {project.toml: init_texts.configuration(project)}
    if not to:
        texts |= {
            "subscriber.py": init_texts.subscriber(project),
            "test_subscriber.py": init_texts.handler_test(project),
        }
    try:
        verified = check_sinks(
            parse(texts[project.toml], project.toml, folder=folder.absolute()), folder / project.toml
        )
    except ConfigError as error:
        raise UsageError(
            f"this makes no configuration: {error.message}",
            hint="correct the URLs, --application or --log; --to-password-file names the file with a store's password",
        ) from None
    objects = None if problem is not None or found.captures else found.server_objects(named, login)
    if objects is not None and not (folder / project.toml).exists():
        _refuse_a_served_log(log, objects)
    _write(folder, texts, force)
    if objects is not None and _made(found, named, login, objects, yes, f"{shlex.quote(source)}{project.log_option}"):
        source, report, problem = _examined(found, url, named, folder, login)
    keyless = example is not None and not example.key_columns
    show_project(
        project, folder, list(texts), found.table_words, report, problem, keyless=keyless, verified=bool(verified)
    )
    if problem is not None:
        raise typer.Exit(UNREACHABLE if isinstance(problem, Retryable) else BROKEN)
    if report.severity.value == "problem":
        raise typer.Exit(BROKEN)


def _refuse_a_served_log(log: str, objects: "ServerObjects") -> None:
    """Raise :class:`~wormhole.model.errors.UsageError` if a publisher of another configuration serves a log of the same
    name.
    """
    rename = "--log NAME gives this log another name, and with it what its publisher needs"
    if objects.publisher:
        raise UsageError(
            f"nothing was written: the log {log} of another configuration is served already: {objects.publisher}",
            hint=rename,
        )
    if objects.present and not objects.missing:
        print_text(
            f"What the publisher of the log {log} needs is there already. If it is another configuration's: {rename}.",
            "",
        )


def _wants_existing(readable: bool, start: str | None) -> bool:
    """Whether the application begins with existing rows, as ``start`` requires or as the person at the terminal
    answers.

    ``readable``: whether the datastore's rows can be read.
    """
    if start is not None or not readable or not sys.stdin.isatty():
        return start == "existing"
    print_text("Send the rows that the tables hold already, too? [y/N] ", end="", error=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _made(found: "Datastore", url: str, login: "Login", objects: "ServerObjects", yes: bool, log: str) -> bool:
    """Offer to make what a publisher needs in the datastore. Returns whether it was made. ``log``: the arguments with
    which a command names the log.
    """
    from wormholectl.objects import show_statements

    if objects.left_out:
        print_text(objects.left_out)
    if not objects.missing:
        return False
    show_statements("The publisher needs these in the datastore:", objects.missing)
    if not yes:
        if sys.stdin.isatty():
            print_text("Make them now? [y/N] ", end="", error=True)
            yes = sys.stdin.readline().strip().lower() in {"y", "yes"}
        if not yes:
            print_text(f"Nothing was made. Run the statements, or: wormholectl objects create {log}", "")
            return False
    try:
        found.run_statements(url, login, objects.missing)
    except WormholeError as error:
        print_text(f"not all was made: {error.message}", *next_step_lines(error.hint or "look at the statements"), "")
    else:
        print_text("made", "")
    return True


def _examined(
    found: "Datastore", url: str, named: str, folder: Path, login: "Login"
) -> "tuple[str, Report, WormholeError | None]":
    """The URL in the form for a configuration, the report of ``doctor`` on the log ``named``, and the error if the
    datastore could not be examined.

    Raises an error of the request itself, for example a wrong URL.
    """
    from wormhole.config.datastores import installed
    from wormhole.model.findings import Report

    with installed(found):
        source = found.configured_url(url, login)
        try:
            return source, found.examine(named, folder / ".wormhole", login), None
        except WormholeError as error:
            # These errors may pass: the password of an account is not known yet, or a path is missing or not readable
            # yet. A path that is not a datastore does not become one.
            if isinstance(error, UsageError) and "password_file" in found.refuses:
                raise
            return source, Report(source), error


def _place(source: str) -> str:
    """The name for a datastore without a database: the name of its folder or its host."""
    parts = urlsplit(source)
    if not parts.netloc:
        return unquote(parts.path).rstrip("/").rpartition("/")[2]
    host = parts.hostname or ""
    return "" if host in ("localhost", "") or host.replace(".", "").isdigit() or ":" in host else host.partition(".")[0]


def _free_port(folder: Path, application: str) -> int:
    """A port for the subscriber of ``application`` that is free now. Another folder or application gets another port,
    because the subscriber of the first may not run yet.
    """
    import socket  # imported here, because `--help` would wait for it

    first = crc32(f"{application}\0{folder.absolute()}".encode("utf-8", "surrogateescape"))
    for port in (_PORTS[(first + number) % len(_PORTS)] for number in range(_PORTS_TO_TRY)):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind(("127.0.0.1", port))
            return port
    return _PORTS[first % len(_PORTS)]


def _password_name(folder: Path, name: str, given: Path | None) -> str:
    """The name of the password file in the configuration in ``folder``."""
    return f"{name}.password" if given is None else _as_named_in(folder, given)


def _as_named_in(folder: Path, given: Path) -> str:
    path = Path(os.path.abspath(given))
    home = Path(os.path.abspath(folder))
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def _write(folder: Path, texts: Mapping[str, str], force: bool) -> None:
    """Write all files, or none if one of them exists."""
    present = [name for name in texts if (folder / name).exists()]
    if present and not force:
        raise UsageError(
            f"{', '.join(str(folder / name) for name in present)} {'is' if len(present) == 1 else 'are'} there "
            "already: nothing was written",
            hint="write into another folder with --dir, or over them with --force",
        )
    drafts = {folder / f".{name}.{os.getpid()}": folder / name for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for draft, name in zip(drafts, texts, strict=True):
                with draft.open("x", encoding="utf-8") as file:  # fails if another process made the file
                    file.write(texts[name])
            for draft, path in drafts.items():
                draft.replace(path)  # replaces a symbolic link, and does not follow it
        finally:
            for draft in drafts:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror or error}",
            hint="name another folder with --dir",
            code="file-unwritable",
        ) from None
