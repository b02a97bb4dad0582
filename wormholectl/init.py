"""The command ``init``: examines a datastore and writes a configuration, a subscriber and its test that fit it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote, urlsplit

import typer

from wormhole.model.errors import ConfigError, UsageError, WormholeError
from wormholectl.options import LOG_HELP, PasswordFile
from wormholectl.show.printer import next_step_lines, print_line

if TYPE_CHECKING:
    from wormhole.model.findings import Report
    from wormhole.ports.datastore import Datastore
    from wormholectl.init_texts import Project

__all__ = ["app"]

_LISTEN: Final = 7400
_PORTS_TO_TRY: Final = 40
_SHOWN: Final = 6
_KEYLESS: Final = "no table has a primary key: updates then have none, and the example is about one with a key"
_TO_TYPE: Final = "type it, Enter, Ctrl-D"

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl init "$LOG"

  wormholectl init "$SERVER/shop" --password-file db1.password

  wormholectl init "$SERVER" --dir pubsub --application search
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
    application: Annotated[str, typer.Option("--application", metavar="NAME", help="The name of yours.")] = "cache",
    password_file: PasswordFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a configuration, a subscriber and its test for a datastore, ready to run. No password is written."""
    from wormhole.config import parse
    from wormhole.config.passwords import without_password
    from wormholectl import init_texts
    from wormholectl.sources import datastore_at, source_kind, split_database

    url, database = split_database(url)
    found = datastore_at(url)
    source, report, problem = _examined(found, url, folder, password_file)
    databases = {table.database for table in report.tables}
    if not database and len(databases) == 1:
        database = databases.pop()
    name = init_texts.name_from(database or _place(source), otherwise=source_kind(url))
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
        listen=f"127.0.0.1:{_free_port()}",
    )
    texts = {
        project.toml: init_texts.configuration(project),
        "subscriber.py": init_texts.subscriber(project),
        "test_subscriber.py": init_texts.handler_test(project),
    }
    try:
        parse(texts[project.toml], project.toml, folder=folder.absolute())
    except ConfigError as error:
        raise UsageError(
            f"this makes no configuration: {error.message}", hint="correct the URL or --application"
        ) from None
    _write(folder, texts, force)
    shown = without_password(source)
    if problem is None:
        _tell_seen(project, found.table_words, report, shown)
        if example is not None and not example.key_columns:
            print_line([("no key    ", "yellow"), (_KEYLESS, "")])
    else:
        message = f"{problem.message}; the files are written without it"
        print_line([("not seen  ", "yellow"), (message, "")])
        if problem.hint:
            for line in next_step_lines(problem.hint):
                print_line([(f"{'':10}{line}", "")])
    notes = sum(finding.severity.value == "warn" for finding in report.findings)
    if problem is not None or notes:
        password = _with_password(project, folder)
        label = f"{'':10}then: " if problem is not None else f"{notes} note{'s' if notes > 1 else ''}    "
        print_line([(label, "yellow" if notes else ""), (f"wormholectl doctor {shlex.quote(shown)}{password}", "")])
    _tell_next(project, folder, list(texts))


def _examined(
    found: "Datastore", url: str, folder: Path, password_file: Path | None
) -> "tuple[str, Report, WormholeError | None]":
    """The URL as a configuration may hold it, what ``doctor`` finds there, and why it does not find anything.

    A fault of the request itself is raised.
    """
    from wormhole.config.datastores import installed
    from wormhole.model.findings import Report
    from wormholectl.sources import login_of

    login = login_of(url, password_file)
    with installed(found):
        source = found.configured_url(url, login)
        try:
            return source, found.examine(url, folder / ".wormhole", login), None
        except WormholeError as error:
            # An account may be refused because its password is not known yet. A path that is not a datastore stays so;
            # one that is missing, or closed to us, may change.
            if isinstance(error, UsageError) and "password_file" in found.refuses:
                raise
            return source, Report(source), error


def _place(source: str) -> str:
    """What a datastore may be called after when no database is: the folder's name, or the host's."""
    parts = urlsplit(source)
    if not parts.netloc:
        return unquote(parts.path).rstrip("/").rpartition("/")[2]
    host = parts.hostname or ""
    return "" if host in ("localhost", "") or host.replace(".", "").isdigit() or ":" in host else host.partition(".")[0]


def _free_port() -> int:
    """The first free port from the usual one on; the usual one when all are taken."""
    import socket  # for `--help` it would take longer than all of this module

    for port in range(_LISTEN, _LISTEN + _PORTS_TO_TRY):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind(("127.0.0.1", port))
            return port
    return _LISTEN


def _password_name(folder: Path, name: str, given: Path | None) -> str:
    """The password file as the configuration in ``folder`` says it."""
    if given is None:
        return f"{name}.password"
    path = Path(os.path.abspath(given))
    home = Path(os.path.abspath(folder))
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def _write(folder: Path, texts: Mapping[str, str], force: bool) -> None:
    """All of them or, where one is there already, none."""
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
                with draft.open("x", encoding="utf-8") as file:  # nothing that somebody put in the way
                    file.write(texts[name])
            for draft, path in drafts.items():
                draft.replace(path)  # a link is replaced, not followed
        finally:
            for draft in drafts:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror or error}", hint="name another folder with --dir"
        ) from None


def _tell_seen(project: "Project", words: tuple[str, str], report: "Report", shown: str) -> None:
    count = len(project.tables)
    what = words[0] if count == 1 else words[1]
    of = f" in {project.database}" if project.database else ""
    names = ", ".join(project.tables[:_SHOWN]) + (" ..." if count > _SHOWN else "")
    tables = f"{count} {what}{of}: {names}" if names else f"no {what}{of} that the account may see"
    server = f"{report.facts['server']}; " if "server" in report.facts else ""
    print_line([(shown, "bold"), (f": {server}{tables}", "")])
    for finding in report.findings:
        if finding.severity.value == "problem":
            print_line([("PROBLEM   ", "bold red"), (f"{finding.check}: {finding.what}", "")])
            for line in next_step_lines(finding.next_step):
                print_line([(f"{'':10}{line}", "")])


def _tell_next(project: "Project", folder: Path, written: Sequence[str]) -> None:
    print_line([("wrote ", ""), (", ".join(str(folder / name) for name in written), "bold")])
    if project.password_file and not (folder / project.password_file).exists():
        path = shlex.quote(str(folder / project.password_file))
        _commands(
            "First the account's password, into a file that nobody else can read:",
            [(f"(umask 077; cat > {path})", _TO_TYPE)],
        )
    toml = shlex.quote(str(folder / project.toml))
    _commands(
        "Next:",
        [
            (f"pytest {shlex.quote(str(folder / 'test_subscriber.py'))}", "the handler, without any server"),
            (f"wormholectl up -f {toml} --detach", "the publisher, looked after"),
            (f"python {shlex.quote(str(folder / 'subscriber.py'))}", "prints what is committed from now on"),
        ],
    )


def _commands(heading: str, lines: Sequence[tuple[str, str]]) -> None:
    for text in ("", heading, ""):
        print_line([(text, "")])
    width = max(len(command) for command, _ in lines)
    for command, what in lines:
        print_line([(f"  {command:<{width}}", "bold"), (f"   # {what}", "dim")])


def _with_password(project: "Project", folder: Path) -> str:
    return f" --password-file {shlex.quote(str(folder / project.password_file))}" if project.password_file else ""
