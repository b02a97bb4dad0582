"""``wormholectl init``: looks at a datastore and writes a configuration, a subscriber and its test that fit it."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from wormhole.config import parse
from wormhole.config.datastores import datastore, installed, schemes
from wormhole.config.passwords import without_password
from wormhole.model.errors import ConfigError, UsageError, WormholeError
from wormhole.model.findings import Finding, Report
from wormhole.ports.datastore import Datastore
from wormholectl import init_texts
from wormholectl.init_texts import Project
from wormholectl.show.printer import print_line
from wormholectl.sources import datastore_at, login_of, source_kind

__all__ = ["initialise"]

_LISTEN: Final = 7400
_PORTS_TO_TRY: Final = 40
_SHOWN: Final = 6
_TO_TYPE: Final = "type it, Enter, Ctrl-D"


@dataclass(slots=True)
class _Seen:
    """What the datastore said. ``problem``: why it did not; ``source``: its URL as a configuration may hold it."""

    source: str
    problem: WormholeError | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    tables: list[tuple[str, str]] = field(default_factory=list)


def initialise(url: str, folder: Path, application: str, password_file: Path | None, force: bool) -> None:
    """Write the three files into ``folder`` and say what to do next.

    A datastore that does not answer does not prevent it.

    Raises :class:`~wormhole.model.errors.UsageError` for a URL or name that cannot be right, for files that are there
    already (unless ``force``), and where nothing can be written; nothing is written then.
    """
    kind = source_kind(url)
    if kind in schemes():
        url, database = datastore(kind).split_database(url)
    else:
        database = ""
    found = datastore_at(url)
    seen = _look(found, url, folder, password_file)
    database = database or _only_database(seen)
    name = init_texts.name_from(database or _place(seen.source), otherwise=kind)
    project = Project(
        name=name,
        application=application,
        source=seen.source,
        database=database,
        tables=[".".join(filter(None, table)) for table in seen.tables if not database or table[0] == database],
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
    _tell(project, found.table_words, folder, seen, list(texts))


# -- looking


def _look(found: Datastore, url: str, folder: Path, password_file: Path | None) -> _Seen:
    """What ``doctor`` sees.

    What is wrong with the request itself is raised; all else is kept as :attr:`_Seen.problem`."""
    login = login_of(url, password_file)
    with installed(found):
        seen = _Seen(found.configured_url(url, login))
        # A refused account may be refused because its password is not known yet. A path that is something else than a
        # datastore stays so; one that is not there, or closed to us, may change.
        refuse = UsageError if "password_file" in found.refuses else ()
        return _examined(seen, lambda: found.examine(url, folder / ".wormhole", login), refuse)


def _examined(seen: _Seen, check: Callable[[], Report], refuse: type[WormholeError] | tuple[()]) -> _Seen:
    try:
        report: Report = check()
    except refuse:
        raise
    except WormholeError as error:
        seen.problem = error
        return seen
    seen.facts, seen.findings, seen.tables = report.facts, report.findings, report.tables
    return seen


def _only_database(seen: _Seen) -> str:
    databases = {database for database, _ in seen.tables}
    return databases.pop() if len(databases) == 1 else ""


def _place(source: str) -> str:
    """What a datastore may be called after when no database is: the folder's name, or the host's."""
    parts = urlsplit(source)
    if not parts.netloc:
        return unquote(parts.path).rstrip("/").rpartition("/")[2]
    host = parts.hostname or ""
    return "" if host in ("localhost", "") or host.replace(".", "").isdigit() or ":" in host else host.partition(".")[0]


def _free_port() -> int:
    """The first port from the usual one on that nobody listens at; the usual one when all are taken."""
    for port in range(_LISTEN, _LISTEN + _PORTS_TO_TRY):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind(("127.0.0.1", port))
            return port
    return _LISTEN


# -- writing


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


# -- telling


def _tell(project: Project, words: tuple[str, str], folder: Path, seen: _Seen, written: list[str]) -> None:
    _tell_seen(project, words, folder, seen)
    print_line([("wrote ", ""), (", ".join(str(folder / name) for name in written), "bold")])
    if project.password_file and not (folder / project.password_file).exists():
        path = shlex.quote(str(folder / project.password_file))
        _heading("First the account's password, into a file that nobody else can read:")
        _commands([(f"(umask 077; cat > {path})", _TO_TYPE)])
    toml = shlex.quote(str(folder / project.toml))
    _heading("Next:")
    _commands(
        [
            (f"pytest {shlex.quote(str(folder / 'test_subscriber.py'))}", "the handler, without any server"),
            (f"wormholectl up -f {toml} --detach", "the publisher, looked after"),
            (f"python {shlex.quote(str(folder / 'subscriber.py'))}", "prints what is committed from now on"),
        ]
    )


def _heading(text: str) -> None:
    for line in ("", text, ""):
        print_line([(line, "")])


def _tell_seen(project: Project, words: tuple[str, str], folder: Path, seen: _Seen) -> None:
    shown = without_password(seen.source)
    if seen.problem is not None:
        print_line(
            [("not seen  ", "yellow"), (f"{seen.problem.message}; the files are written without having looked", "")]
        )
        if seen.problem.hint:
            print_line([(f"{'':10}next: {seen.problem.hint}", "")])
        print_line([(f"{'':10}then: wormholectl doctor {shlex.quote(shown)}{_with_password(project, folder)}", "")])
        return
    print_line([(shown, "bold"), (f": {'; '.join(_what(project, words, seen))}", "")])
    for finding in _of(seen, "problem"):
        print_line([("PROBLEM   ", "bold red"), (f"{finding.check}: {finding.what}", "")])
        print_line([(f"{'':10}next: {finding.next_step}", "")])
    if notes := len(list(_of(seen, "warn"))):
        print_line(
            [
                (f"{notes} note{'s' if notes > 1 else ''}    ", "yellow"),
                (f"wormholectl doctor {shlex.quote(shown)}{_with_password(project, folder)}", ""),
            ]
        )


def _what(project: Project, words: tuple[str, str], seen: _Seen) -> Iterator[str]:
    if "server" in seen.facts:
        yield seen.facts["server"]
    count = len(project.tables)
    what = words[0] if count == 1 else words[1]
    of = f" in {project.database}" if project.database else ""
    names = ", ".join(project.tables[:_SHOWN]) + (" ..." if count > _SHOWN else "")
    yield f"{count} {what}{of}: {names}" if names else f"no {what}{of} that the account may see"


def _of(seen: _Seen, severity: str) -> Iterator[Finding]:
    return (finding for finding in seen.findings if finding.severity.value == severity)


def _with_password(project: Project, folder: Path) -> str:
    return f" --password-file {shlex.quote(str(folder / project.password_file))}" if project.password_file else ""


def _commands(lines: list[tuple[str, str]]) -> None:
    width = max(len(command) for command, _ in lines)
    for command, what in lines:
        print_line([(f"  {command:<{width}}", "bold"), (f"   # {what}", "dim")])
