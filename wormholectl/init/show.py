"""Prints a project that ``init`` wrote: the findings, the written files, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wormhole.config.passwords import without_password
from wormhole.model.errors import WormholeError
from wormhole.model.findings import Finding, Report, Severity
from wormholectl.init.texts import Project
from wormholectl.show.printer import counted, next_step_lines, print_line

__all__ = ["show_project"]

_SHOWN: Final = 6
_INDENT: Final = " " * 10
_KEYLESS: Final = "no table has a primary key: updates then have none, and the example is about one with a key"
_TO_TYPE: Final = "type it, Enter, Ctrl-D"


def show_project(
    project: Project,
    folder: Path,
    written: Sequence[str],
    words: tuple[str, str],
    report: Report,
    problem: WormholeError | None,
    *,
    keyless: bool,
    verified: bool,
) -> None:
    """Print the project. ``words``: the datastore's words for a table and for tables. ``report``: the report on the
    datastore; ``problem``: why the datastore could not be examined, or ``None``. ``keyless``: whether no table has a
    key. ``verified``: whether the rows of the sink's store can be compared.
    """
    url = without_password(project.source)
    if problem is None:
        _show_found(project, words, report, url)
        if keyless:
            print_line([("no key    ", "yellow"), (_KEYLESS, "")])
    else:
        print_line([("not seen  ", "yellow"), (f"{problem.message}; the files are written without it", "")])
        _show_step(problem.hint or "")
    notes = sum(finding.severity is Severity.WARN for finding in report.findings)
    if problem is not None or notes:
        label = f"{_INDENT}then: " if problem is not None else f"{counted(notes, 'note')}    "
        doctor = f"wormholectl doctor {shlex.quote(url)}{project.log_option}{_with_password(project, folder)}"
        print_line([(label, "yellow" if notes else ""), (doctor, "")])
    _show_next(project, folder, written, verified=verified)


def _show_found(project: Project, words: tuple[str, str], report: Report, url: str) -> None:
    count = len(project.tables)
    what = words[0] if count == 1 else words[1]
    of = f" in {project.database}" if project.database else ""
    names = ", ".join(project.tables[:_SHOWN]) + (" ..." if count > _SHOWN else "")
    tables = f"{count} {what}{of}: {names}" if names else f"no {what}{of} that the account may see"
    server = f"{report.facts['server']}; " if "server" in report.facts else ""
    print_line([(url, "bold"), (f": {server}{tables}", "")])
    for finding in report.findings:
        if finding.severity is Severity.PROBLEM:
            _show_problem(finding)


def _show_problem(finding: Finding) -> None:
    print_line([("PROBLEM   ", "bold red"), (f"{finding.check}: {finding.what}", "")])
    _show_step(finding.next_step)


def _show_step(step: str) -> None:
    for line in next_step_lines(step) if step else ():
        print_line([(f"{_INDENT}{line}", "")])


def _show_next(project: Project, folder: Path, written: Sequence[str], *, verified: bool) -> None:
    print_line([("wrote ", ""), (", ".join(str(folder / name) for name in written), "bold")])
    if project.password_file and not (folder / project.password_file).exists():
        path = shlex.quote(str(folder / project.password_file))
        _show_commands(
            "First the account's password, into a file that no other user can read:",
            [(f"(umask 077; cat > {path})", _TO_TYPE)],
        )
    toml = shlex.quote(str(folder / project.toml))
    if project.sink:
        commands = [
            (f"wormholectl sink check -c {toml}", "whether the store can be filled"),
            (f"wormholectl up -f {toml} --detach", "a monitor, the publisher and the sink that it runs"),
            (f"wormholectl sink show -c {toml}", "how far the sink is"),
        ]
        if verified:
            commands.append((f"wormholectl verify {project.application} -c {toml}", "compares all rows"))
        _show_commands("Next:", commands)
        return
    prints = (
        "prints what is there, then what is committed" if project.existing else "prints what is committed from now on"
    )
    _show_commands(
        "Next:",
        [
            (f"pytest {shlex.quote(str(folder / 'test_subscriber.py'))}", "the handler, without any server"),
            (f"wormholectl up -f {toml} --detach", "a monitor, and the publisher that it runs"),
            (f"python {shlex.quote(str(folder / 'subscriber.py'))}", prints),
        ],
    )


def _show_commands(heading: str, lines: Sequence[tuple[str, str]]) -> None:
    for text in ("", heading, ""):
        print_line([(text, "")])
    width = max(len(command) for command, _ in lines)
    for command, what in lines:
        print_line([(f"  {command:<{width}}", "bold"), (f"   # {what}", "dim")])


def _with_password(project: Project, folder: Path) -> str:
    return f" --password-file {shlex.quote(str(folder / project.password_file))}" if project.password_file else ""
