"""The command ``doctor``: its options and its help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormholectl.guard import BROKEN, UNREACHABLE
from wormholectl.options import LOG_HELP, AsJson, PasswordFile, with_where
from wormholectl.show.printer import SCHEMA, counted, print_json, print_line

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app", "examine", "examine_installation"]

app = typer.Typer()

_DOCTOR_EXAMPLES: Final = """Examples:

  wormholectl doctor "$LOG"

  wormholectl doctor "$LOG" --password-file db1.password --json

  wormholectl doctor -c shop.toml
"""


@app.command(epilog=_DOCTOR_EXAMPLES)
@with_where
def doctor(
    where: Where,
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help=f"{LOG_HELP} Without it: the installation.", show_default=False)
    ] = "",
    as_json: AsJson = False,
    password_file: PasswordFile = None,
) -> None:
    """Say what matters for tailing a database: settings, privileges, tables, files. Without a URL look at an
    installation: coordinator, monitors, publishers, flows, versions, clocks, disks. Exit code 1 when something should
    be changed.
    """
    from wormholectl.discovery import STATE_DIR

    if url:
        raise typer.Exit(examine(url, where.folder or STATE_DIR, as_json, password_file))
    raise typer.Exit(examine_installation(where, as_json))


_SIGNS: Final = {"ok": ("ok       ", "green"), "warn": ("note     ", "yellow"), "problem": ("PROBLEM  ", "bold red")}


def examine(url: str, state_dir: Path, as_json: bool, password_file: Path | None = None) -> int:
    """Print the report; the exit code is 1 when a problem was found.

    Raises :class:`~wormhole.model.errors.WormholeError`."""
    from wormhole.config.datastores import installed
    from wormholectl.sources import datastore_at, login_of

    found = datastore_at(url)
    with installed(found):
        report = found.examine(url, state_dir, login_of(url, password_file))
    return _show(report.as_dict(), as_json)


def examine_installation(where: Where, as_json: bool) -> int:
    """Look at everything that ``where`` leads to and print the report; the exit code is 1 when a problem was found,
    3 when it is that nothing answers. Raises :class:`~wormhole.model.errors.UsageError` when nothing says where to
    look."""
    from wormholectl.installation import judge
    from wormholectl.survey import look

    seen = look(where)
    code = _show(judge(seen).as_dict(), as_json)
    return UNREACHABLE if seen.unreachable else code


def _show(report: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json({"schema": SCHEMA, **report})
    else:
        _tell(report)
    return BROKEN if report["severity"] == "problem" else 0


def _tell(report: dict[str, Any]) -> None:
    print_line([(report["url"], "bold")])
    for name, fact in report["facts"].items():
        print_line([(f"  {name}: ", "dim"), (fact, "")])
    for finding in report["findings"]:
        sign, style = _SIGNS[finding["severity"]]
        print_line([(sign, style), (f"{finding['check']}: {finding['what']}", "")])
        if finding["because"]:
            print_line([(f"{'':9}{finding['because']}", "dim")])
        if finding["next_step"]:
            print_line([(f"{'':9}next: {finding['next_step']}", "")])
    found = [finding["severity"] for finding in report["findings"]]
    print_line([(f"{counted(found.count('problem'), 'problem')}, {counted(found.count('warn'), 'note')}", "bold")])
